"""A team's project is that of one folder: clients use it there and nowhere else, and other hubs stay as they are."""

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

from memoryhub.client.setup.clients import config_file
from memoryhub.config.clients import find_client
from memoryhub.teams.connections import connection_of
from tests.home import contents
from tests.setup.test_setup import CLAUDE
from tests.setup.test_team import ENTRIES, HUB, TOKEN, URL, TeamSetupTestCase

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
