"""Clients of a folder are set up for a team's hub; other folders and hubs stay, and no file of theirs has the token."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tomllib
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
VARIABLE = "MEMORY_HUB_TOKEN"
# The entry of each client, as its documentation has it.
ENTRIES: dict[str, dict[str, Any]] = {
    "claude-code": {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${MEMORY_HUB_TOKEN}"}},
    "codex": {"url": URL, "bearer_token_env_var": VARIABLE},
    "cursor": {"url": URL, "headers": {"Authorization": "Bearer ${env:MEMORY_HUB_TOKEN}"}},
    "gemini-cli": {"httpUrl": URL, "headers": {"Authorization": "Bearer ${MEMORY_HUB_TOKEN}"}},
    "vscode": {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${input:memory-hub-token}"}},
    "windsurf": {"serverUrl": URL, "headers": {"Authorization": "Bearer ${env:MEMORY_HUB_TOKEN}"}},
    "opencode": {
        "type": "remote",
        "oauth": False,
        "url": URL,
        "headers": {"Authorization": "Bearer {env:MEMORY_HUB_TOKEN}"},
    },
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
}
INPUT = {"type": "promptString", "id": "memory-hub-token", "description": "Token for Memory Hub", "password": True}


class TeamSetupTestCase(SetupTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = self.user / "source"
        self.folder.mkdir()
        subprocess.run(["git", "init", "--quiet", str(self.folder)], check=True)
        self.enterContext(contextlib.chdir(self.folder))
        self.enterContext(mock.patch.dict(os.environ, {VARIABLE: ""}))

    @property
    def connections(self) -> list[dict[str, str]]:
        path = self.user / ".memory-hub" / "teams.toml"
        return tomllib.loads(path.read_text())["connection"] if path.exists() else []

    def join(self, *arguments: str, token: str = TOKEN, url: str = URL) -> str:
        with mock.patch.object(sys, "stdin", io.StringIO(token + "\n")):
            return self.run_setup(*arguments, "--url", url, "--token-file", "-")

    def entry(self, client: str) -> dict[str, Any]:
        """The entry of this folder, or of every folder for a client that has no other."""
        path, keys = FOLDER_FILES[client]
        place = self.user if client in ("claude-code", "windsurf") else self.folder
        data = (tomllib if path.endswith(".toml") else json).loads((place / path).read_text())
        servers = data
        for key in keys:
            servers = servers[str(self.folder) if key == "FOLDER" else key]
        self.assertEqual(data.get("inputs", []), [INPUT] if client == "vscode" else [])
        entry: dict[str, Any] = servers["memory-hub"]
        return entry


class TeamSetupTests(TeamSetupTestCase):
    def test_every_client_gets_its_own_form_of_the_entry(self):
        self.assertEqual(set(ENTRIES), {client.id for client in all_clients().values() if client.http})
        for client, entry in ENTRIES.items():
            with self.subTest(client=client):
                self.join(client, "--yes")
                self.assertEqual(self.entry(client), entry)
                self.assertIn("nothing to do", self.join(client, "--yes"))
                self.assertIn(f"set up for {URL}", self.run_setup())

    def test_the_token_is_in_one_private_file_only(self):
        for client in ENTRIES:
            self.join(client, "--yes")
            if all_clients()[client].repository:
                self.join(client, "--yes", "--repository")
        holding = [path for path, content in contents(self.user).items() if TOKEN.encode() in content]
        self.assertEqual(holding, [self.user / ".memory-hub/teams/hub.example.org/alpha/token"])
        self.assertEqual(holding[0].stat().st_mode & 0o777, 0o600)
        self.assertEqual((self.user / ".memory-hub/teams.toml").stat().st_mode & 0o777, 0o600)

    def test_removing_restores_every_byte(self):
        path = self.claude()
        for client in ENTRIES:
            with self.subTest(client=client):
                before = contents(self.user)
                self.join(client, "--yes")
                self.assertNotEqual(contents(self.user), before)
                self.run_setup(client, "--yes", "--remove", "--url", URL)
                self.assertEqual(contents(self.user), before)
        self.assertEqual(path.read_text(), CLAUDE)
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

    def test_a_dry_run_changes_nothing(self):
        before = contents(self.user)
        self.assertIn(URL, self.join("claude-code", "--dry-run"))
        self.assertEqual(contents(self.user), before)

    def test_without_a_client_only_the_folder_is_connected(self):
        with mock.patch.object(sys, "stdin", io.StringIO(TOKEN)):
            self.run_setup("--url", f"{HUB}:8443/memory/", "--project", "beta", "--token-file", "-")
        wanted = {"folder": str(self.folder), "url": f"{HUB}:8443/memory", "project": "beta"}
        self.assertEqual(self.connections, [wanted])
        # The token is kept: it need not be given again.
        self.run_setup("--url", f"{HUB}:8443/memory/p/beta/mcp")
        self.assertEqual(self.connections, [wanted])
        self.assertIn("no longer connected", self.run_setup("--url", URL, "--remove"))
        self.assertIn("not connected", self.run_setup("--url", URL, "--remove"))

    def test_leaving_deletes_what_came_from_the_hub_with_the_token(self):
        self.join()
        place = self.user / ".memory-hub/teams/hub.example.org/alpha"
        other = self.user / "other"
        other.mkdir()
        for name in ("pack.json", "problem.json"):
            (place / name).write_text("{}")
        with contextlib.chdir(other):
            self.run_setup("--url", URL)
        (place / "problem.json").write_text("{}")
        self.run_setup("--url", URL, "--remove")
        self.assertEqual({path.name for path in place.iterdir()}, {"token", "pack.json", "problem.json"})
        with contextlib.chdir(other):
            self.run_setup("--url", URL, "--remove")
        self.assertEqual(list(place.iterdir()), [])

    def test_a_folder_that_changes_its_project_leaves_nothing_of_the_old_one(self):
        self.join()
        (self.user / ".memory-hub/teams/hub.example.org/alpha/pack.json").write_text("{}")
        self.join(url=f"{HUB}/p/beta/mcp")
        kept = {path.relative_to(self.user) for path in contents(self.user / ".memory-hub/teams")}
        self.assertEqual(kept, {Path(".memory-hub/teams/hub.example.org/beta/token")})

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
            ("--token-file", "-"): "go with --url",
            ("claude-desktop", "--url", URL, "--dry-run"): "has no entry for a server over HTTP",
        }
        for arguments, words in cases.items():
            with (
                self.subTest(arguments=arguments),
                mock.patch.object(sys, "stdin", io.StringIO("two words")),
                self.assertRaisesRegex(Exception, words) as caught,
            ):
                call_command("setup", *arguments, "--yes" if "--dry-run" not in arguments else "--no-hooks")
            self.assertNotIn("\n", str(caught.exception))
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
        home = self.enterContext(temporary_home())
        with contextlib.closing(_Ending(HttpServer(home))) as ending:
            server = ending.server
            token = (home / "token").read_text().strip()
            self.assertRegex(self.check(server.url, token), r"ok: .* answers with \d+ tools")
            for given, words in ((TOKEN, "the hub refuses the token"), ("", "no token: set MEMORY_HUB_TOKEN")):
                with self.assertRaisesRegex(Exception, words):
                    self.check(server.url, given)
            with self.assertRaisesRegex(Exception, "no valid answer to 'initialize'"):
                self.check(server.url.replace("/mcp", ""), token)
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
        home = self.enterContext(temporary_home())
        with contextlib.closing(_Ending(HttpServer(home))) as ending:
            token = (home / "token").read_text().strip()
            with mock.patch.object(sys, "stdin", io.StringIO(token)):
                url = ("--url", ending.server.url, "--project", "alpha", "--token-file", "-")
                self.run_setup("claude-code", "--yes", *url)
            self.assertIn("ok:", self.run_setup("claude-code", "--check"))


class _Ending:
    def __init__(self, server: HttpServer) -> None:
        self.server = server

    def close(self) -> None:
        with self.server.process as process:
            process.terminate()


def make_authority(folder: Path) -> Path:
    """Make ``server.pem``, a key and a certificate for 127.0.0.1 that is its own authority; return the authority."""
    certificate, key = make_certificate(folder, "127.0.0.1")
    (folder / "server.pem").write_text(key.read_text() + certificate.read_text())
    return certificate


OTHER_HUB = "https://other.example.net"
OTHER_URL = f"{OTHER_HUB}/p/beta/mcp"
OTHER_TOKEN = TOKEN.replace("a1b2", "c3d4")
# With a configuration for each folder, and with hooks.
CLIENTS = [client for client in ENTRIES if client != "windsurf"]


class FolderTestCase(TeamSetupTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.other = self.user / "private"
        self.other.mkdir()
        subprocess.run(["git", "init", "--quiet", str(self.other)], check=True)

    def status(self, client: str, folder: Path) -> str:
        with contextlib.chdir(folder):
            lines = self.run_setup().splitlines()
        return next(line for line in lines if line.startswith(f"{client} "))[len("claude-desktop  not found  ") :]

    def assert_not_for_all(self, client: str) -> None:
        found = find_client(client)
        path = config_file(found, None)
        text = path.read_text() if path.exists() else ""
        data = (tomllib if path.suffix == ".toml" else json).loads(text or "{}" * (path.suffix != ".toml"))
        self.assertNotIn("memory-hub", data.get(found.servers[0], {}))


class FolderTests(FolderTestCase):
    def test_other_folders_do_not_get_the_teams_project(self):
        for client in CLIENTS:
            with self.subTest(client=client):
                self.join(client, "--yes")
                self.assertIn(f"set up for {URL}", self.status(client, self.folder))
                self.assertEqual(self.status(client, self.other), "not set up")
                self.assert_not_for_all(client)

    def test_the_hub_of_this_machine_stays_that_of_the_other_folders(self):
        for client in CLIENTS:
            if client == "codex":
                continue
            with self.subTest(client=client):
                self.run_setup(client, "--yes")
                before = {path: text for path, text in contents(self.user).items() if ".memory-hub" not in path.parts}
                self.join(client, "--yes")
                self.assertIn(f"set up for {URL}", self.status(client, self.folder))
                self.assertEqual(self.status(client, self.other), "set up, with hooks")
                printed = self.run_setup(client, "--yes", "--remove", "--url", URL)
                self.assertIn("stay: other folders need them", printed)
                self.assertEqual(self.status(client, self.folder), "set up, with hooks")
                after = {path: text for path, text in contents(self.user).items() if ".memory-hub" not in path.parts}
                self.assertEqual(after, before)

    def test_claude_code_gets_its_local_scope_which_no_repository_has(self):
        path = self.claude()
        self.join("claude-code", "--yes")
        data = json.loads(path.read_text())
        self.assertEqual(data["mcpServers"], json.loads(CLAUDE)["mcpServers"])
        servers = {"mcpServers": {"memory-hub": ENTRIES["claude-code"]}}
        self.assertEqual(data["projects"], {str(self.folder): servers})
        self.assertEqual([entry.name for entry in self.folder.iterdir()], [".git"])

    def test_every_byte_of_claude_codes_file_is_restored(self):
        folder, other = str(self.folder), {"command": "x"}
        known: list[dict[str, Any]] = [{}, {"mcpServers": {}}, {"mcpServers": {"other": other}}]
        for projects in ({}, *({folder: project} for project in known)):
            for indent in (None, 2, "\t"):
                with self.subTest(projects=projects, indent=indent):
                    text = json.dumps({"starts": 1, "projects": {"/else": {"a": 1}, **projects}, "z": 2}, indent=indent)
                    path = self.claude(text)
                    self.join("claude-code", "--yes")
                    self.assertNotEqual(path.read_text(), text)
                    self.run_setup("claude-code", "--yes", "--remove", "--url", URL)
                    self.assertEqual(path.read_text(), text)

    def test_what_claude_code_writes_meanwhile_stays(self):
        path = self.claude(json.dumps({"projects": {str(self.folder): {"mcpServers": {}, "history": []}}}))
        self.join("claude-code", "--yes")
        path.write_text(path.read_text().replace('"history": []', '"history": [1]'))
        self.run_setup("claude-code", "--yes", "--remove", "--url", URL)
        self.assertEqual(
            json.loads(path.read_text()), {"projects": {str(self.folder): {"mcpServers": {}, "history": [1]}}}
        )

    def test_a_linked_worktree_shares_the_entry_of_its_repository(self):
        git = ["git", "-C", str(self.folder), "-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run([*git, "commit", "-qm", "First", "--allow-empty"], check=True)
        subprocess.run([*git, "worktree", "add", "-q", str(self.user / "linked")], check=True)
        with contextlib.chdir(self.user / "linked"):
            self.join("claude-code", "--yes")
        self.assertEqual(self.entry("claude-code"), ENTRIES["claude-code"])
        self.assertEqual([found["folder"] for found in self.connections], [str(self.folder)])

    def test_two_folders_work_with_two_projects_and_leave_one_by_one(self):
        path = self.claude()
        self.join("claude-code", "--yes")
        with contextlib.chdir(self.other):
            self.join("claude-code", "--yes", "--token-variable", "BETA_TOKEN", url=OTHER_URL, token=OTHER_TOKEN)
        projects = json.loads(path.read_text())["projects"]
        urls = {folder: found["mcpServers"]["memory-hub"]["url"] for folder, found in projects.items()}
        self.assertEqual(urls, {str(self.folder): URL, str(self.other): OTHER_URL})
        hooks = self.user / ".claude/settings.json"
        self.assertIn("stay", self.run_setup("claude-code", "--yes", "--remove", "--url", URL))
        self.assertIn("memory-hub", hooks.read_text())
        self.assertEqual(list(json.loads(path.read_text())["projects"]), [str(self.other)])
        with contextlib.chdir(self.other):
            self.run_setup("claude-code", "--yes", "--remove", "--url", OTHER_URL)
        self.assertFalse(hooks.exists())
        self.assertEqual(path.read_text(), CLAUDE)
        self.assertEqual(self.connections, [])

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
            with self.assertRaisesRegex(Exception, rf"/\.codex/config\.toml {refusal}"):
                self.join("codex", "--yes", *options)
        self.assertEqual(contents(self.user), before)
        self.run_setup("codex", "--yes", "--remove")
        self.join("codex", "--yes")
        with self.assertRaisesRegex(Exception, rf"/source/\.codex/config\.toml {refusal}"):
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
                printed = self.join(client, "--dry-run")
                first = printed.splitlines()[0]
                self.assertTrue(first.endswith(sentence) if sentence else first.startswith("---"), printed)

    def test_a_repositorys_hooks_are_said_to_be_of_this_machine(self):
        self.assertIn("valid on this machine only", self.join("cursor", "--yes", "--repository"))
        self.assertNotIn("valid on this machine only", self.join("gemini-cli", "--yes", "--repository", "--no-hooks"))


class TokenVariableTests(FolderTestCase):
    def test_a_second_hub_gets_a_variable_of_its_own(self):
        self.join("cursor", "--yes")
        with contextlib.chdir(self.other):
            with self.assertRaisesRegex(
                Exception, r"MEMORY_HUB_TOKEN holds your token of project alpha at .*--token-variable"
            ):
                self.join("cursor", "--yes", url=OTHER_URL, token=OTHER_TOKEN)
            self.assertFalse((self.other / ".cursor").exists())
            printed = self.join("cursor", "--yes", "--token-variable", "BETA_TOKEN", url=OTHER_URL, token=OTHER_TOKEN)
            place = self.user / ".memory-hub/teams/other.example.net/beta/token"
            self.assertIn(f'export BETA_TOKEN="$(cat {place})"', printed)
            entry = json.loads((self.other / ".cursor/mcp.json").read_text())["mcpServers"]["memory-hub"]
            self.assertEqual(entry["headers"], {"Authorization": "Bearer ${env:BETA_TOKEN}"})
        self.assertEqual(place.read_text().strip(), OTHER_TOKEN)

    def test_the_variable_is_kept_for_the_next_time_and_for_other_clients(self):
        self.join("codex", "--yes", "--token-variable", "ALPHA_TOKEN")
        self.assertIn("nothing to do", self.join("codex", "--yes"))
        self.join("gemini-cli", "--yes")
        self.assertEqual(self.entry("codex")["bearer_token_env_var"], "ALPHA_TOKEN")
        self.assertEqual(self.entry("gemini-cli")["headers"], {"Authorization": "Bearer ${ALPHA_TOKEN}"})
        # A colleague's choice in the repository's file counts too.
        (self.user / ".memory-hub/teams.toml").unlink()
        self.assertIn("nothing to do", self.join("gemini-cli", "--yes"))

    def test_a_new_token_keeps_the_certificate_authority(self):
        authority = self.user / "authority.pem"
        authority.touch()
        self.join("codex", "--yes", "--ca-file", str(authority))
        self.join("codex", "--yes", token=OTHER_TOKEN)
        self.assertEqual([found["ca_file"] for found in self.connections], [str(authority)])

    def test_a_project_whose_token_no_client_takes_from_a_variable_occupies_none(self):
        self.join()
        self.join("vscode", "--yes")
        with contextlib.chdir(self.other):
            self.join("cursor", "--yes", url=OTHER_URL, token=OTHER_TOKEN)
            self.join("vscode", "--yes", url=OTHER_URL, token=OTHER_TOKEN)
        self.assertEqual([found.get("token_variable") for found in self.connections], [None, "MEMORY_HUB_TOKEN"])

    def test_one_token_of_two_projects_needs_one_variable(self):
        self.join("cursor", "--yes")
        with contextlib.chdir(self.other):
            self.join("cursor", "--yes", url=f"{HUB}/p/beta/mcp")

    def test_what_is_no_variable_is_refused(self):
        for name in ("A-B", "1A", "A B", "$A", "A" * 101):
            with self.subTest(name=name), self.assertRaisesRegex(Exception, "--token-variable is"):
                self.join("cursor", "--yes", "--token-variable", name)
        with self.assertRaisesRegex(Exception, "go with --url"):
            self.run_setup("cursor", "--token-variable", "A")

    def test_a_check_sends_no_token_to_another_hub_than_its_own(self):
        self.join("cursor", "--yes")
        path = self.folder / ".cursor/mcp.json"
        path.write_text(path.read_text().replace(HUB, "https://evil.example"))
        with mock.patch.dict(os.environ, MEMORY_HUB_TOKEN=TOKEN):
            for arguments in (("cursor",), ("--url", OTHER_URL)):
                with self.assertRaisesRegex(Exception, f"MEMORY_HUB_TOKEN holds the token of {HUB}; choose another"):
                    self.run_setup(*arguments, "--check")


class WithoutHooksTests(FolderTestCase):
    @property
    def place(self) -> Path:
        return self.user / ".memory-hub/teams/hub.example.org/alpha"

    def test_the_token_is_kept_and_the_line_printed_for_every_entry(self):
        for client, *options in (
            ("windsurf",),
            ("claude-code", "--no-hooks"),
            ("cursor", "--no-hooks", "--repository"),
        ):
            with self.subTest(client=client):
                printed = self.join(client, "--yes", *options)
                self.assertEqual((self.place / "token").read_text().strip(), TOKEN)
                self.assertIn(f'export MEMORY_HUB_TOKEN="$(cat {self.place}/token)"', printed)
                self.assertNotIn("hooks work with", printed)
                self.assertIn("nothing to do", self.run_setup(client, "--yes", *options, "--url", URL))
                self.run_setup(client, "--yes", "--remove", "--url", URL, *set(options) - {"--no-hooks"})
                self.assertFalse((self.place / "token").exists())
                self.assertEqual(self.connections, [])

    def test_the_hooks_of_the_folder_stay_with_their_hub(self):
        self.join("claude-code", "--yes", "--no-hooks")
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.user / ".memory-hub")):
            self.assertIsNone(connection_of(str(self.folder)))
            self.join("claude-code", "--yes")
            self.assertIsNotNone(connection_of(str(self.folder)))

    def test_a_client_without_hooks_leaves_the_hooks_of_others_connected(self):
        self.join("claude-code", "--yes")
        self.join("windsurf", "--yes")
        self.run_setup("windsurf", "--yes", "--remove", "--url", URL)
        self.assertTrue((self.place / "token").exists())
        self.assertEqual([found["folder"] for found in self.connections], [str(self.folder)])

    def test_vs_code_asks_for_the_token_itself(self):
        with mock.patch.object(sys, "stdin", io.StringIO("")):
            printed = self.run_setup("vscode", "--yes", "--no-hooks", "--url", URL)
        self.assertNotIn("export", printed)
        self.assertEqual(self.connections, [])

    def test_no_hooks_without_a_client_is_refused(self):
        with self.assertRaisesRegex(Exception, "--no-hooks leaves nothing to set up without a client"):
            self.join("--no-hooks")
