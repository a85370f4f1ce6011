"""Clients of a folder are set up for a team's hub; other folders and hubs stay, and no file of theirs has the token."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import call_command
from django.test import tag

from memoryhub.client.setup.clients import config_file
from memoryhub.client.setup.team import parse_address
from memoryhub.config.clients import all_clients, find_client
from memoryhub.core.errors import Invalid
from memoryhub.teams.connections import connection_of
from tests.home import contents
from tests.hook.network import network_to
from tests.mcp.http_server import HttpServer
from tests.setup.test_setup import CLAUDE, SetupTestCase
from tests.web.public_server import make_certificate
from tests.web.server import temporary_home

HUB = "https://hub.example.org"
URL = f"{HUB}/p/alpha/mcp"
TOKEN = "mh_a1b2c3d4_" + "Zz9-" * 10 + "abc"
OTHER_URL = "https://other.example.net/p/beta/mcp"
OTHER_TOKEN = TOKEN.replace("a1b2", "c3d4")
VARIABLE = "MEMORY_HUB_TOKEN"


def bearer(variable: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {variable}"}


# The entry of each client, as its documentation has it.
ENTRIES: dict[str, dict[str, Any]] = {
    "claude-code": {"type": "http", "url": URL, "headers": bearer("${MEMORY_HUB_TOKEN}")},
    "codex": {"url": URL, "bearer_token_env_var": VARIABLE},
    "cursor": {"url": URL, "headers": bearer("${env:MEMORY_HUB_TOKEN}")},
    "gemini-cli": {"httpUrl": URL, "headers": bearer("${MEMORY_HUB_TOKEN}")},
    "vscode": {"type": "http", "url": URL, "headers": bearer("${input:memory-hub-token}")},
    "windsurf": {"serverUrl": URL, "headers": bearer("${env:MEMORY_HUB_TOKEN}")},
    "opencode": {"type": "remote", "oauth": False, "url": URL, "headers": bearer("{env:MEMORY_HUB_TOKEN}")},
    "qwen-code": {"httpUrl": URL, "headers": bearer("${MEMORY_HUB_TOKEN}")},
    "roo-code": {"type": "streamable-http", "url": URL, "headers": bearer("${env:MEMORY_HUB_TOKEN}")},
}
# Where the entry of one folder is: in the person's home for Claude Code and Windsurf, else in the working tree.
FOLDER_FILES = {
    "claude-code": (".claude.json", ("projects", "FOLDER", "mcpServers")),
    "codex": (".codex/config.toml", ("mcp_servers",)),
    "cursor": (".cursor/mcp.json", ("mcpServers",)),
    "gemini-cli": (".gemini/settings.json", ("mcpServers",)),
    "vscode": (".vscode/mcp.json", ("servers",)),
    "windsurf": (".config/devin/mcp_config.json", ("mcpServers",)),
    "opencode": ("opencode.json", ("mcp",)),
    "qwen-code": (".qwen/settings.json", ("mcpServers",)),
    "roo-code": (".roo/mcp.json", ("mcpServers",)),
}
INPUT = {"type": "promptString", "id": "memory-hub-token", "description": "Token for Memory Hub", "password": True}


class TeamSetupTestCase(SetupTestCase):
    """The current folder is a repository of the team; ``self.other`` is another one of the user."""

    def setUp(self) -> None:
        super().setUp()
        self.folder, self.other = self.repository("source"), self.repository("private")
        self.teams = self.user / ".memory-hub" / "teams"
        self.place = self.teams / "hub.example.org" / "alpha"
        self.enterContext(contextlib.chdir(self.folder))
        self.enterContext(mock.patch.dict(os.environ, {VARIABLE: ""}))

    @property
    def connections(self) -> list[dict[str, str]]:
        path = self.user / ".memory-hub" / "teams.toml"
        return tomllib.loads(path.read_text())["connection"] if path.exists() else []

    def join(self, *arguments: str, token: str = TOKEN, url: str = URL) -> str:
        with mock.patch.object(sys, "stdin", io.StringIO(token + "\n")):
            return self.run_setup(*arguments, "--url", url, "--token-file", "-")

    def join_other(self, *arguments: str) -> str:
        """Connect the other folder to a project of another hub."""
        with contextlib.chdir(self.other):
            return self.join(*arguments, url=OTHER_URL, token=OTHER_TOKEN)

    def leave(self, client: str, *options: str) -> str:
        return self.run_setup(client, "--yes", "--remove", "--url", URL, *options)

    def cannot(self, words: str) -> Any:
        return self.assertRaisesRegex(Exception, words)

    def entry(self, client: str) -> dict[str, Any]:
        """The entry of this folder, or of every folder for a client that has no other."""
        path, keys = FOLDER_FILES[client]
        place = self.user if client in ("claude-code", "windsurf") else self.folder
        servers = data = (tomllib if path.endswith(".toml") else json).loads((place / path).read_text())
        for key in keys:
            servers = servers[str(self.folder) if key == "FOLDER" else key]
        self.assertEqual(data.get("inputs", []), [INPUT] if client == "vscode" else [])
        entry: dict[str, Any] = servers["memory-hub"]
        return entry

    def status(self, client: str, folder: Path) -> str:
        with contextlib.chdir(folder):
            lines = self.run_setup().splitlines()
        return next(line for line in lines if line.startswith(f"{client} "))[len("claude-desktop  not found  ") :]

    def assert_not_for_all(self, client: str) -> None:
        target = find_client(client)
        path = config_file(target, None)
        text = path.read_text() if path.exists() else ""
        data = (tomllib if path.suffix == ".toml" else json).loads(text or "{}" * (path.suffix != ".toml"))
        self.assertNotIn("memory-hub", data.get(target.servers[0], {}))


class TeamSetupTests(TeamSetupTestCase):
    def test_every_client_gets_its_own_form_of_the_entry_in_this_folder_only(self):
        self.assertEqual(set(ENTRIES), {client.id for client in all_clients().values() if client.http})
        for client, entry in ENTRIES.items():
            with self.subTest(client=client):
                self.join(client, "--yes")
                self.assertEqual(self.entry(client), entry)
                self.assertIn("nothing to do", self.join(client, "--yes"))
                self.assertIn(f"set up for {URL}", self.status(client, self.folder))
                if client != "windsurf":
                    self.assertEqual(self.status(client, self.other), "not set up")
                    self.assert_not_for_all(client)
                if all_clients()[client].repository:
                    self.join(client, "--yes", "--repository")
        holders = [path for path, content in contents(self.user).items() if TOKEN.encode() in content]
        self.assertEqual(holders, [self.place / "token"])
        for path in (self.place / "token", self.user / ".memory-hub/teams.toml"):
            self.assertEqual(path.stat().st_mode & 0o777, 0o600)

    def test_removing_restores_every_byte(self):
        self.claude()
        for client in ENTRIES:
            with self.subTest(client=client):
                before = contents(self.user)
                self.join(client, "--dry-run")
                self.assertEqual(contents(self.user), before)
                self.join(client, "--yes")
                self.assertNotEqual(contents(self.user), before)
                self.leave(client)
                self.assertEqual(contents(self.user), before)
        self.assertEqual(self.connections, [])

    def test_a_client_moves_between_this_machines_hub_and_the_teams(self):
        self.run_setup("windsurf", "--yes", "--project", "alpha")
        here = self.entry("windsurf")
        self.join("windsurf", "--yes")
        self.assertEqual(self.entry("windsurf"), ENTRIES["windsurf"])
        self.run_setup("windsurf", "--yes", "--project", "alpha")
        self.assertEqual(self.entry("windsurf"), here)

    def test_what_the_user_added_to_the_entry_stays(self):
        entry = {"type": "http", "url": "https://old.example.org/p/x/mcp", "headers": {"X-Team": "a"}, "timeout": 9}
        self.claude(json.dumps({"projects": {str(self.folder): {"mcpServers": {"memory-hub": entry}}}}))
        self.join("claude-code", "--yes")
        headers = {"X-Team": "a", **ENTRIES["claude-code"]["headers"]}
        self.assertEqual(self.entry("claude-code"), {**ENTRIES["claude-code"], "headers": headers, "timeout": 9})

    def test_without_a_client_only_the_folder_is_connected(self):
        self.join("--project", "beta", url=f"{HUB}:8443/memory/")
        connection = {"folder": str(self.folder), "url": f"{HUB}:8443/memory", "project": "beta"}
        self.assertEqual(self.connections, [connection])
        # The token is kept: it need not be given again.
        self.run_setup("--url", f"{HUB}:8443/memory/p/beta/mcp")
        self.assertEqual(self.connections, [connection])
        self.assertIn("no longer connected", self.run_setup("--url", URL, "--remove"))
        self.assertIn("not connected", self.run_setup("--url", URL, "--remove"))

    def test_a_folder_with_any_character_in_its_name_is_connected(self):
        folder = self.repository('so\x7f"ü\\urce')
        with contextlib.chdir(folder):
            self.join()
        self.assertEqual([connection["folder"] for connection in self.connections], [str(folder)])

    def test_leaving_deletes_what_came_from_the_hub_with_the_token(self):
        self.join()
        for name in ("pack.json", "problem.json"):
            (self.place / name).write_text("{}")
        with contextlib.chdir(self.other):
            self.run_setup("--url", URL)
        (self.place / "problem.json").write_text("{}")
        self.run_setup("--url", URL, "--remove")
        self.assertEqual({path.name for path in self.place.iterdir()}, {"token", "pack.json", "problem.json"})
        with contextlib.chdir(self.other):
            self.run_setup("--url", URL, "--remove")
        self.assertEqual(list(self.place.iterdir()), [])

    def test_a_folder_that_changes_its_project_leaves_nothing_of_the_old_one(self):
        self.join()
        (self.place / "pack.json").write_text("{}")
        self.join(url=f"{HUB}/p/beta/mcp")
        self.assertEqual(list(contents(self.teams)), [self.teams / "hub.example.org/beta/token"])

    def test_what_is_wrong_is_one_sentence_and_changes_nothing(self):
        before = contents(self.user)
        cases = {
            ("--url", "http://hub.example.org/p/alpha/mcp"): "would send the token and what you write unencrypted",
            ("--url", "ftp://hub.example.org/p/alpha/mcp"): "write https://HOST/p/PROJECT/mcp",
            ("--url", "https://ann:secret@hub.example.org/p/alpha/mcp"): "write https://HOST/p/PROJECT/mcp",
            ("--url", "https://hub.example.org:x/p/alpha/mcp"): "is no URL",
            ("--url", HUB): "name the project",
            ("--url", f"{HUB}/p/Al%20pha/mcp"): "--url",
            ("--url", URL, "--project", "beta"): "omit one of them",
            ("--url", URL): "give your token of that hub with --token-file",
            ("--url", URL, "--token-file", "/nowhere"): "/nowhere",
            ("--url", URL, "--token-file", "-"): "this is no token",
            ("--url", URL, "--token-file", "-", "--ca-file", "/nowhere"): "no token",
            ("--url", URL, "--token-file", "-", "--no-hooks"): "--no-hooks leaves nothing to set up without a client",
            ("--token-file", "-"): "go with --url",
            ("cursor", "--token-variable", "A"): "go with --url",
            ("claude-desktop", "--url", URL, "--dry-run"): "has no entry for a server over HTTP",
        }
        for arguments, words in cases.items():
            stdin = mock.patch.object(sys, "stdin", io.StringIO("two words"))
            with self.subTest(arguments=arguments), stdin, self.cannot(words) as caught:
                call_command("setup", *arguments, "--yes" if "--dry-run" not in arguments else "--no-hooks")
            self.assertNotIn("\n", str(caught.exception))
        for name in ("A-B", "1A", "A B", "$A", "A" * 101):
            with self.subTest(name=name), self.cannot("--token-variable is"):
                self.join("cursor", "--yes", "--token-variable", name)
        self.assertEqual(contents(self.user), before)
        for host in ("localhost", "127.0.0.1", "[::1]"):
            self.assertEqual(parse_address(f"http://{host}:8321/p/alpha/mcp", None).project, "alpha")
        with self.assertRaises(Invalid):
            parse_address("http://127.0.0.1.example.org/p/alpha/mcp", None)


@tag("process")
class CheckTests(TeamSetupTestCase):
    def check(self, url: str, token: str, *options: str) -> str:
        with mock.patch.dict(os.environ, {VARIABLE: token}):
            return self.run_setup("--url", url, "--project", "alpha", "--check", *options)

    def test_it_does_the_handshake_over_http_with_the_token(self):
        with self.server() as (server, token):
            self.assertRegex(self.check(server.url, token), r"ok: .* answers with \d+ tools")
            for url, wrong, words in (
                (server.url, TOKEN, "the hub refuses the token"),
                (server.url, "", "no token: set MEMORY_HUB_TOKEN"),
                (server.url.replace("/mcp", ""), token, "no valid answer to 'initialize'"),
            ):
                with self.assertRaisesRegex(Exception, words):
                    self.check(url, wrong)
            self.check_certificates((server.host, server.port), token)
        with self.assertRaisesRegex(Exception, "cannot be reached: Connection refused"):
            self.check(server.url, token)

    def check_certificates(self, place: tuple[str, int], token: str) -> None:
        authority = make_authority(self.user)
        with network_to(place, certificate=self.user / "server.pem") as network:
            url = f"{network.url}/mcp"
            with self.assertRaisesRegex(Exception, "is not trusted: .*; name the authority's file with --ca-file"):
                self.check(url, token)
            self.assertIn("ok:", self.check(url, token, "--ca-file", str(authority)))
            with mock.patch.dict(os.environ, SSL_CERT_FILE=str(authority)):
                self.assertIn("ok:", self.check(url, token))

    def test_the_token_of_a_connection_goes_to_its_own_hub_and_project_only(self):
        self.join()
        for url in (f"{HUB}.evil.example/p/alpha/mcp", f"{HUB}:444/p/alpha/mcp", f"{HUB}/p/beta/mcp"):
            with self.subTest(url=url), self.assertRaisesRegex(Exception, "no token: set MEMORY_HUB_TOKEN"):
                self.run_setup("--url", url, "--check")

    def test_the_entry_of_a_client_is_checked_too(self):
        with self.server() as (server, token), mock.patch.object(sys, "stdin", io.StringIO(token)):
            url = ("--url", server.url, "--project", "alpha", "--token-file", "-")
            self.run_setup("claude-code", "--yes", *url)
            self.assertIn("ok:", self.run_setup("claude-code", "--check"))

    @contextlib.contextmanager
    def server(self) -> Iterator[tuple[HttpServer, str]]:
        """Serve a hub, and yield its token too."""
        home = self.enterContext(temporary_home())
        server = HttpServer(home)
        try:
            yield server, (home / "token").read_text().strip()
        finally:
            with server.process as process:
                process.terminate()


def make_authority(folder: Path) -> Path:
    """Make ``server.pem``, a key and a certificate for 127.0.0.1 that is its own authority; return the authority."""
    certificate, key = make_certificate(folder, "127.0.0.1")
    (folder / "server.pem").write_text(key.read_text() + certificate.read_text())
    return certificate


class FolderTests(TeamSetupTestCase):
    def test_the_hub_of_this_machine_stays_that_of_the_other_folders(self):
        for client in ENTRIES.keys() - {"windsurf", "codex"}:
            with self.subTest(client=client):
                status = "set up, with hooks" if find_client(client).hooks else "set up"
                self.run_setup(client, "--yes")
                before = self.files_of_clients()
                self.join(client, "--yes")
                self.assertIn(f"set up for {URL}", self.status(client, self.folder))
                self.assertEqual(self.status(client, self.other), status)
                self.assertIn("stay: other folders need them", self.leave(client))
                self.assertEqual(self.status(client, self.folder), status)
                self.assertEqual(self.files_of_clients(), before)

    def files_of_clients(self) -> dict[Path, bytes]:
        return {path: content for path, content in contents(self.user).items() if ".memory-hub" not in path.parts}

    def test_every_byte_of_claude_codes_file_is_restored(self):
        folder, servers = str(self.folder), {"other": {"command": "x"}}
        projects: list[dict[str, Any]] = [{}, {"mcpServers": {}}, {"mcpServers": servers}]
        for known in ({}, *({folder: project} for project in projects)):
            for indent in (None, 2, "\t"):
                with self.subTest(projects=known, indent=indent):
                    text = json.dumps({"starts": 1, "projects": {"/else": {"a": 1}, **known}, "z": 2}, indent=indent)
                    path = self.claude(text)
                    self.join("claude-code", "--yes")
                    self.assertNotEqual(path.read_text(), text)
                    self.leave("claude-code")
                    self.assertEqual(path.read_text(), text)

    def test_what_claude_code_writes_meanwhile_stays(self):
        path = self.claude(json.dumps({"projects": {str(self.folder): {"mcpServers": {}, "history": []}}}))
        self.join("claude-code", "--yes")
        path.write_text(path.read_text().replace('"history": []', '"history": [1]'))
        self.leave("claude-code")
        projects = {str(self.folder): {"mcpServers": {}, "history": [1]}}
        self.assertEqual(json.loads(path.read_text()), {"projects": projects})

    def test_a_linked_worktree_shares_the_entry_of_its_repository(self):
        git = ["git", "-C", str(self.folder), "-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run([*git, "commit", "-qm", "First", "--allow-empty"], check=True)
        subprocess.run([*git, "worktree", "add", "-q", str(self.user / "linked")], check=True)
        with contextlib.chdir(self.user / "linked"):
            self.join("claude-code", "--yes")
        self.assertEqual(self.entry("claude-code"), ENTRIES["claude-code"])
        self.assertEqual([connection["folder"] for connection in self.connections], [str(self.folder)])

    def test_two_folders_work_with_two_projects_and_leave_one_by_one(self):
        path = self.claude()
        self.join("claude-code", "--yes")
        # In the local scope of Claude Code, which no repository has
        data = json.loads(path.read_text())
        self.assertEqual(data["mcpServers"], json.loads(CLAUDE)["mcpServers"])
        servers = {"mcpServers": {"memory-hub": ENTRIES["claude-code"]}}
        self.assertEqual(data["projects"], {str(self.folder): servers})
        self.assertEqual([entry.name for entry in self.folder.iterdir()], [".git"])
        self.join_other("claude-code", "--yes", "--token-variable", "BETA_TOKEN")
        projects = json.loads(path.read_text())["projects"]
        urls = {folder: project["mcpServers"]["memory-hub"]["url"] for folder, project in projects.items()}
        self.assertEqual(urls, {str(self.folder): URL, str(self.other): OTHER_URL})
        hooks = self.user / ".claude/settings.json"
        self.assertIn("stay", self.leave("claude-code"))
        self.assertIn("memory-hub", hooks.read_text())
        self.assertEqual(list(json.loads(path.read_text())["projects"]), [str(self.other)])
        with contextlib.chdir(self.other):
            self.run_setup("claude-code", "--yes", "--remove", "--url", OTHER_URL)
        self.assertFalse(hooks.exists())
        self.assertEqual((path.read_text(), self.connections), (CLAUDE, []))

    def test_removing_the_hub_of_this_machine_leaves_the_teams_hooks(self):
        self.run_setup("claude-code", "--yes")
        self.join("claude-code", "--yes")
        self.assertIn("stay", self.run_setup("claude-code", "--yes", "--remove"))
        self.assertEqual(self.status("claude-code", self.folder), f"set up for {URL}, with hooks")
        self.assertEqual(self.status("claude-code", self.other), "not set up")

    def test_codex_which_merges_both_files_is_not_given_a_server_that_keeps_it_from_starting(self):
        refusal = "has 'memory-hub' too, and Codex merges the two but can't start one over HTTP with a command"
        self.run_setup("codex", "--yes")
        before = contents(self.user)
        for options in ((), ("--repository",)):
            with self.cannot(rf"/\.codex/config\.toml {refusal}"):
                self.join("codex", "--yes", *options)
        self.assertEqual(contents(self.user), before)
        self.run_setup("codex", "--yes", "--remove")
        self.join("codex", "--yes")
        with self.cannot(rf"/source/\.codex/config\.toml {refusal}"):
            self.run_setup("codex", "--yes")

    def test_a_server_that_counts_in_more_folders_is_said_in_one_sentence(self):
        elsewhere = {"type": "http", "url": f"{HUB}/p/gamma/mcp"}
        self.claude(json.dumps({"mcpServers": {"memory-hub": elsewhere}}))
        self.run_setup("vscode", "--yes")
        for client, sentence in (
            ("windsurf", "Windsurf has no configuration for a folder: it will use this server in every folder."),
            ("claude-code", "`memory-hub setup claude-code --remove` takes it out."),
            ("vscode", "here too; switch that one off in this workspace."),
            ("cursor", ""),
        ):
            with self.subTest(client=client):
                first = self.join(client, "--dry-run").splitlines()[0]
                self.assertTrue(first.endswith(sentence) if sentence else first.startswith("---"), first)
        # A repository's hooks are those of this machine
        self.assertIn("valid on this machine only", self.join("cursor", "--yes", "--repository"))
        self.assertNotIn("valid on this machine only", self.join("gemini-cli", "--yes", "--repository", "--no-hooks"))


class TokenVariableTests(TeamSetupTestCase):
    def test_a_second_hub_gets_a_variable_of_its_own(self):
        self.join("cursor", "--yes")
        with contextlib.chdir(self.other):  # one token of two projects needs one variable
            self.join("cursor", "--yes", url=f"{HUB}/p/beta/mcp")
            self.run_setup("cursor", "--yes", "--remove", "--url", f"{HUB}/p/beta/mcp")
        with self.cannot(r"MEMORY_HUB_TOKEN holds your token of project alpha at .*--token-variable"):
            self.join_other("cursor", "--yes")
        self.assertFalse((self.other / ".cursor/mcp.json").exists())
        output = self.join_other("cursor", "--yes", "--token-variable", "BETA_TOKEN")
        token = self.teams / "other.example.net/beta/token"
        self.assertIn(f'export BETA_TOKEN="$(cat {token})"', output)
        entry = json.loads((self.other / ".cursor/mcp.json").read_text())["mcpServers"]["memory-hub"]
        self.assertEqual(entry["headers"], bearer("${env:BETA_TOKEN}"))
        self.assertEqual(token.read_text().strip(), OTHER_TOKEN)

    def test_the_variable_is_kept_for_the_next_time_and_for_other_clients(self):
        self.join("codex", "--yes", "--token-variable", "ALPHA_TOKEN")
        self.assertIn("nothing to do", self.join("codex", "--yes"))
        self.join("gemini-cli", "--yes")
        self.assertEqual(self.entry("codex")["bearer_token_env_var"], "ALPHA_TOKEN")
        self.assertEqual(self.entry("gemini-cli")["headers"], bearer("${ALPHA_TOKEN}"))
        # A colleague's choice in the repository's file counts too.
        (self.user / ".memory-hub/teams.toml").unlink()
        self.assertIn("nothing to do", self.join("gemini-cli", "--yes"))

    def test_a_new_token_keeps_the_certificate_authority(self):
        authority = self.file("authority.pem", "")
        self.join("codex", "--yes", "--ca-file", str(authority))
        self.join("codex", "--yes", token=OTHER_TOKEN)
        self.assertEqual([connection["ca_file"] for connection in self.connections], [str(authority)])

    def test_a_project_whose_token_no_client_takes_from_a_variable_occupies_none(self):
        self.join()
        self.join("vscode", "--yes")
        for client in ("cursor", "vscode"):
            self.join_other(client, "--yes")
        variables = [connection.get("token_variable") for connection in self.connections]
        self.assertEqual(variables, [None, "MEMORY_HUB_TOKEN"])

    def test_a_check_sends_no_token_to_another_hub_than_its_own(self):
        self.join("cursor", "--yes")
        path = self.folder / ".cursor/mcp.json"
        path.write_text(path.read_text().replace(HUB, "https://evil.example"))
        with mock.patch.dict(os.environ, MEMORY_HUB_TOKEN=TOKEN):
            for arguments in (("cursor",), ("--url", OTHER_URL)):
                with self.cannot(f"MEMORY_HUB_TOKEN holds the token of {HUB}; choose another"):
                    self.run_setup(*arguments, "--check")


class WithoutHooksTests(TeamSetupTestCase):
    def test_the_token_is_kept_and_the_line_printed_for_every_entry(self):
        for client, *options in (
            ("windsurf",),
            ("claude-code", "--no-hooks"),
            ("cursor", "--no-hooks", "--repository"),
        ):
            with self.subTest(client=client):
                output = self.join(client, "--yes", *options)
                self.assertEqual((self.place / "token").read_text().strip(), TOKEN)
                self.assertIn(f'export MEMORY_HUB_TOKEN="$(cat {self.place}/token)"', output)
                self.assertNotIn("hooks work with", output)
                self.assertIn("nothing to do", self.run_setup(client, "--yes", *options, "--url", URL))
                self.leave(client, *set(options) - {"--no-hooks"})
                self.assertFalse((self.place / "token").exists())
                self.assertEqual(self.connections, [])

    def test_the_hooks_of_the_folder_stay_with_their_hub(self):
        self.join("claude-code", "--yes", "--no-hooks")
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.user / ".memory-hub")):
            self.assertIsNone(connection_of(str(self.folder)))
            self.join("claude-code", "--yes")
            self.assertIsNotNone(connection_of(str(self.folder)))
        self.join("windsurf", "--yes")
        self.leave("windsurf")
        self.assertTrue((self.place / "token").exists())
        self.assertEqual([connection["folder"] for connection in self.connections], [str(self.folder)])

    def test_vs_code_asks_for_the_token_itself(self):
        with mock.patch.object(sys, "stdin", io.StringIO("")):
            output = self.run_setup("vscode", "--yes", "--no-hooks", "--url", URL)
        self.assertNotIn("export", output)
        self.assertEqual(self.connections, [])
