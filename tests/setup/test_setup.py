"""Clients are connected by their own files, which keep everything else."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command
from django.test import SimpleTestCase

from memoryhub.client.setup import plan, trial
from memoryhub.client.setup.clients import config_file, hooks_file, user_target
from memoryhub.client.setup.document import BACKUP_SUFFIX
from memoryhub.client.setup.entries import command_words
from memoryhub.config.clients import all_clients, find_client, hook_clients
from memoryhub.core.errors import Conflict
from tests.home import UNMEASURED, run_home

ROOT = Path(__file__).parents[2]
CLAUDE = '{\n  "numStartups": 41,\n  "mcpServers": {\n    "other": {"command": "x"}\n  },\n  "é": "ü"\n}\n'


class SetupTestCase(SimpleTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.user = run_home() / f"user-{self.id().rpartition('.')[2][:60]}"
        self.user.mkdir()
        self.addCleanup(shutil.rmtree, self.user)
        gone = dict.fromkeys(("MEMORY_HUB_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"), "")
        self.enterContext(mock.patch.dict(os.environ, HOME=str(self.user), **gone))

    def run_setup(self, *arguments: str) -> str:
        out = io.StringIO()
        call_command("setup", *arguments, stdout=out)
        return out.getvalue()

    def refused(self, code: int, words: str, *arguments: str) -> str:
        out = io.StringIO()
        with self.assertRaisesRegex(CommandError, words) as caught:
            call_command("setup", *arguments, stdout=out)
        self.assertEqual(caught.exception.returncode, code)
        return out.getvalue()

    def claude(self, text: str = CLAUDE) -> Path:
        path = self.user / ".claude.json"
        path.write_text(text)
        path.chmod(0o640)
        return path


class SetupTests(SetupTestCase):
    def test_a_dry_run_shows_the_diff_and_changes_nothing(self):
        path = self.claude()
        for arguments in (("claude-code",), ("claude-code", "--dry-run")):
            output = self.run_setup(*arguments)
            self.assertIn('+    "memory-hub": {"type": "stdio", "command": ', output)
            self.assertIn("nothing was changed; add --yes to make the change", output)
        self.assertEqual((path.read_text(), len(list(self.user.iterdir()))), (CLAUDE, 1))

    def test_every_client_is_set_up_once_and_taken_out_again(self):
        for client in all_clients().values():
            with self.subTest(client=client.id):
                project = ("--project", "alpha") if client.names_no_folder else ()
                self.run_setup(client.id, "--yes", *project)
                path = config_file(client, None)
                config = (tomllib if path.suffix == ".toml" else json).loads(path.read_text())
                entry = config[client.servers[0]]["memory-hub"]
                command = entry["command"] if client.command_is_list else [entry["command"], *entry["args"]]
                self.assertEqual(command[: len(command_words()) + 1], [*command_words(), "mcp"])
                self.assertEqual(path.stat().st_mode & 0o777, 0o600)
                self.assertIn("nothing to do", self.run_setup(client.id, "--yes"))
                self.assertIn(f"{client.id:<15} installed  set up", self.run_setup())
                self.run_setup(client.id, "--remove", "--yes")
                self.assertFalse(path.exists())
                self.assertIn("nothing to do", self.run_setup(client.id, "--remove", "--yes"))

    def test_the_rest_of_a_file_its_mode_and_its_link_stay(self):
        real = self.claude()
        link = self.user / "linked" / ".claude.json"
        link.parent.mkdir()
        link.symlink_to(real)
        with mock.patch.dict(os.environ, CLAUDE_CONFIG_DIR=str(link.parent)):
            self.run_setup("claude-code", "--yes")
            self.assertTrue(link.is_symlink())
            self.assertEqual(real.stat().st_mode & 0o777, 0o640)
            self.assertEqual(real.with_name(real.name + BACKUP_SUFFIX).read_text(), CLAUDE)
            self.run_setup("claude-code", "--remove", "--yes")
        self.assertEqual(real.read_text(), CLAUDE)
        self.assertFalse((link.parent / "settings.json").exists())

    def written_hooks(self, name: str) -> Any:
        self.run_setup(name, "--yes")
        path = hooks_file(find_client(name), None)
        text = path.read_text() if path else ""
        return json.loads(text.replace(" ".join(command_words()), "memory-hub"))["hooks"]

    def test_the_hooks_of_every_client_are_written(self):
        for name, hooks in hook_clients().items():
            if hooks.plugin:
                continue
            self.assertEqual(set(self.written_hooks(name)), set(hooks.set_up()))

    def test_the_documents_show_the_hooks_that_are_written(self):
        guide = (ROOT / "docs/guides/connect-a-client.md").read_text().partition("## Hooks by hand")[2]
        (example,) = re.findall(r"```json\n(.*?)```", guide, re.DOTALL)
        self.assertEqual(self.written_hooks("claude-code"), json.loads(example)["hooks"])

    def test_hooks_are_left_out_or_taken_out_alone_beside_those_of_others(self):
        self.run_setup("claude-code", "--yes", "--no-hooks")
        path = self.user / ".claude/settings.json"
        self.assertFalse(path.exists())
        theirs = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say \'done"}]}]}, "model": "m"}'
        path.parent.mkdir()
        path.write_text(theirs)
        self.run_setup("claude-code", "--yes")
        self.assertEqual(len(json.loads(path.read_text())["hooks"]["Stop"]), 2)
        self.run_setup("claude-code", "--yes", "--remove")
        self.assertEqual(path.read_text(), theirs)

    def test_a_hook_that_the_user_extended_by_another_command_is_not_changed(self):
        self.run_setup("claude-code", "--yes")
        path = self.user / ".claude/settings.json"
        extended = path.read_text().replace("claude-code Stop", "claude-code Stop && say 'done; bye'")
        path.write_text(extended)
        self.assertIn("nothing to do", self.run_setup("claude-code", "--yes"))
        self.refused(2, "the hook of Stop also runs other commands", "claude-code", "--yes", "--remove")
        self.assertEqual(path.read_text(), extended)
        path.write_text(extended.replace(" && say 'done; bye'", ""))
        self.run_setup("claude-code", "--yes", "--remove")
        self.assertFalse(path.exists())

    def test_a_moved_path_is_updated_and_the_users_additions_stay(self):
        moved = {"command": "/old/memory-hub", "args": ["mcp", "--profile", "full"], "env": {"A": "1"}, "trust": True}
        hook = {"type": "command", "command": "'/old hub/memory-hub' hook gemini-cli AfterTool", "timeout": 9}
        path = self.user / ".gemini/settings.json"
        path.parent.mkdir()
        hooks = {"enabled": True, "AfterTool": [{"matcher": "mine", "hooks": [hook]}]}
        path.write_text(json.dumps({"mcpServers": {"memory-hub": moved}, "hooks": hooks}))
        self.assertIn("set up for another installation", self.run_setup())
        self.run_setup("gemini-cli", "--yes")
        config = json.loads(path.read_text())
        command, *words = [*command_words(), "mcp", "--profile", "full"]
        self.assertEqual(config["mcpServers"]["memory-hub"], {**moved, "command": command, "args": words})
        self.assertEqual(len(config["hooks"]["AfterTool"]), 1)
        (fixed,) = config["hooks"]["AfterTool"][0]["hooks"]
        self.assertEqual((fixed["timeout"], "/old" in fixed["command"]), (9, False))

    def test_a_repository_has_its_own_file(self):
        top = self.user / "work"
        (top / "deep").mkdir(parents=True)
        subprocess.run(["git", "init", "-q", str(top)], check=True)
        with mock.patch.object(Path, "cwd", return_value=top / "deep"):
            self.assertIn("valid on this machine only", self.run_setup("claude-code", "--repository", "--yes"))
            self.assertEqual({path.name for path in top.iterdir()}, {".git", ".mcp.json", ".claude", "deep"})
            self.refused(2, "has no configuration per repository", "windsurf", "--repository", "--project", "alpha")
        with mock.patch.object(Path, "cwd", return_value=self.user):
            self.refused(2, "is not in a git repository", "claude-code", "--repository")

    def test_another_home_is_set_in_the_clients_environment(self):
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME="/else where"):
            self.run_setup("claude-code", "--yes")
        config = json.loads((self.user / ".claude.json").read_text())
        self.assertEqual(config["mcpServers"]["memory-hub"]["env"], {"MEMORY_HUB_HOME": "/else where"})
        self.assertIn("MEMORY_HUB_HOME='/else where' ", (self.user / ".claude/settings.json").read_text())


class DatabaseTests(SetupTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.url = "postgresql://hub:se%40cret@db.example.org/hub"
        self.config = self.user / ".memory-hub" / "config.toml"
        self.enterContext(mock.patch.dict(os.environ, MEMORY_HUB_DATABASE_URL=self.url, PYTHONPATH=str(ROOT)))

    def test_an_address_that_only_the_shell_has_is_written_with_consent(self):
        self.claude()
        line = f'{self.config}: database_url = "postgresql://hub:PASSWORD@db.example.org/hub"'
        shown = self.run_setup("claude-code")
        self.assertIn(line, shown)
        self.assertNotIn("se%40cret", shown)
        self.assertFalse(self.config.exists())
        self.run_setup("claude-code", "--yes", "--no-autostart")
        self.assertEqual(tomllib.loads(self.config.read_text()), {"database_url": self.url, "autostart": False})
        self.assertEqual(self.config.stat().st_mode & 0o777, 0o600)
        self.assertIn("nothing to do", self.run_setup("claude-code", "--yes"))
        self.config.unlink()
        self.assertIn(line, self.run_setup("claude-code", "--yes"))
        self.assertEqual(tomllib.loads(self.config.read_text()), {"database_url": self.url})

    def test_a_home_whose_database_clients_would_not_find_is_named(self):
        self.claude()
        self.config.parent.mkdir()
        (self.config.parent / "database").write_text("postgresql://db.example.org/hub\n")
        with mock.patch.dict(os.environ, MEMORY_HUB_DATABASE_URL=""):
            errors = io.StringIO()
            call_command("setup", "claude-code", "--yes", stdout=io.StringIO(), stderr=errors)
            self.assertIn("was given no database", errors.getvalue())
        # The client has not this shell's variable
        self.refused(8, "was given no database", "claude-code", "--check")

    def test_a_service_does_not_start_without_the_database(self):
        with self.assertRaisesRegex(CommandError, "starts without MEMORY_HUB_DATABASE_URL.*database_url"):
            call_command("service", "install")


class RefusalTests(SetupTestCase):
    def test_a_file_that_is_not_json_is_not_changed_and_the_entry_is_printed(self):
        path = self.user / ".cursor/mcp.json"
        path.parent.mkdir()
        path.write_text('// mine\n{"mcpServers": }\n')
        printed = self.refused(2, r"is not valid JSON \(line 2: .*\) and was not changed", "cursor", "--yes")
        self.assertIn("memory-hub", json.loads(printed)["mcpServers"])
        self.assertEqual(path.read_text(), '// mine\n{"mcpServers": }\n')

    def test_a_plugin_of_others_is_not_touched(self):
        path = self.user / ".config/opencode/plugins/memory-hub.js"
        path.parent.mkdir(parents=True)
        path.write_text("export const Mine = 1\n")
        self.refused(5, "is not from `memory-hub setup`; rename or remove it first", "opencode", "--yes")
        self.assertIn("nothing to do", self.run_setup("opencode", "--remove", "--yes"))
        self.assertEqual(path.read_text(), "export const Mine = 1\n")

    def test_a_file_that_is_nested_too_deeply_is_not_changed(self):
        path = self.user / ".cursor/mcp.json"
        path.parent.mkdir()
        path.write_text("[" * 20_000)
        self.refused(2, "is nested too deeply and was not changed", "cursor", "--yes")
        self.assertEqual(path.read_text(), "[" * 20_000)

    def test_a_file_that_cannot_be_changed_in_place_is_refused(self):
        path = self.user / ".codex/config.toml"
        path.parent.mkdir()
        for text, words in (
            ("a = \n", "is not valid TOML"),
            ("mcp_servers = { a = { command = 'b' } }\n", "valid TOML"),
            ("mcp_servers = 3\n", "mcp_servers has the wrong type"),
        ):
            path.write_text(text)
            self.refused(2, words, "codex", "--yes")
            self.assertEqual(path.read_text(), text)

    def test_values_of_the_wrong_type_are_refused(self):
        for text, words in (
            ("[]", "must contain a JSON object"),
            ('{"mcpServers": null}', "mcpServers has the wrong type; fix it first"),
            ('{"mcpServers": {"memory-hub": []}}', "mcpServers.memory-hub must be an object; fix it first"),
        ):
            path = self.claude(text)
            self.refused(2, words, "claude-code", "--yes")
            self.assertEqual(path.read_text(), text)

    def test_another_server_of_the_name_is_not_touched(self):
        text = '{"mcpServers": {"memory-hub": {"command": "npx", "args": ["their-memory"]}}}'
        path = self.claude(text)
        for act in ((), ("--remove",)):
            self.refused(5, "has another server named 'memory-hub'", "claude-code", "--yes", *act)
        self.assertEqual(path.read_text(), text)

    def test_a_file_that_changed_since_the_preview_is_not_written(self):
        path = self.claude()
        changes = plan.plan_setup(user_target(find_client("claude-code")), project=None, hooks=False)
        path.write_text('{"newer": 1}')
        with self.assertRaisesRegex(Conflict, "has changed in the meantime"):
            plan.apply(changes)
        self.assertEqual(path.read_text(), '{"newer": 1}')

    def test_invalid_arguments_end_with_a_message_and_an_exit_code(self):
        self.refused(3, "'nobody' is not a known client .*claude-code, codex", "nobody")
        self.refused(2, "give a client", "--yes")
        self.refused(2, "a project's folder; name the project with --project ID", "claude-desktop", "--yes")
        self.refused(2, "--project: 'A b' is not a project id", "codex", "--project", "A b")
        self.refused(3, "Codex is not set up in .*run: memory-hub setup codex", "codex", "--check")

    def test_a_link_out_of_a_repository_is_not_followed(self):
        top, mine = self.user / "work", self.user / "mine.json"
        subprocess.run(["git", "init", "-q", str(top)], check=True)
        mine.write_text("{}")
        (top / ".cursor").mkdir()
        for name, client in ((".mcp.json", "claude-code"), (".cursor/mcp.json", "cursor")):
            (top / name).symlink_to(mine)
            with mock.patch.object(Path, "cwd", return_value=top):
                self.refused(2, "leads out of the repository", client, "--repository", "--yes")
        (top / ".mcp.json").unlink()
        (top / ".claude").symlink_to(self.user)
        with mock.patch.object(Path, "cwd", return_value=top):
            self.refused(2, "leads out of the repository", "claude-code", "--repository", "--yes")
        self.assertEqual(mine.read_text(), "{}")


class TrialTests(SetupTestCase):
    def test_a_missing_folder_ends_the_server_with_an_error(self):
        command = [*command_words(), "mcp", "--directory", "${workspaceFolder}"]
        ended = subprocess.run(command, check=False, cwd=self.user, capture_output=True, text=True, timeout=120)
        self.assertEqual((ended.returncode, ended.stdout), (2, ""))
        self.assertIn("--directory '${workspaceFolder}' can't be entered: No such file", ended.stderr)

    def test_the_written_command_starts_a_server(self):
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.user / "hub"), **UNMEASURED):
            self.run_setup("cursor", "--yes")
            self.assertRegex(self.run_setup("cursor", "--check"), r"ok: memory-hub \S+ answers with 8 tools \(MCP 2025")
        path = self.user / ".cursor/mcp.json"
        for command, words in (
            ("/gone/memory-hub", "cannot be started"),
            (sys.executable, "valid answer|ended before"),
        ):
            path.write_text(
                json.dumps({"mcpServers": {"memory-hub": {"command": command, "args": ["manage.py", "mcp"]}}})
            )
            with mock.patch.object(Path, "cwd", return_value=self.user):
                self.refused(8, words, "cursor", "--check")

    def test_a_server_that_reads_nothing_is_named(self):
        path, marker, server = self.user / ".cursor/mcp.json", self.user / "closed", self.user / "memory-hub"
        server.write_text(f"#!/bin/sh\nexec 0<&-\ntouch {marker}\nexec sleep 60\n")
        server.chmod(0o700)
        entry = {"command": str(server), "args": ["mcp"]}
        path.parent.mkdir()
        path.write_text(json.dumps({"mcpServers": {"memory-hub": entry}}))
        handshake = trial.handshake()

        def once_closed():
            while not marker.exists():
                time.sleep(0.001)
            return handshake

        with mock.patch.object(trial, "handshake", once_closed):
            self.refused(8, "ended before it answered", "cursor", "--check")

    def test_an_entry_of_a_repository_starts_no_other_program(self):
        top, started = self.user / "work", self.user / "started"
        subprocess.run(["git", "init", "-q", str(top)], check=True)
        program = top / "memory-hub"
        program.write_text(f"#!/bin/sh\ntouch {started}\n")
        program.chmod(0o700)
        (top / "sitecustomize.py").write_text(f"open({str(started)!r}, 'w')\n")
        command, *arguments = [*command_words(), "mcp"]
        entries = (
            {"command": str(program), "args": ["mcp"]},
            {"command": "sh", "args": ["-c", f"touch {started}", "memory-hub", "mcp"]},
            {"command": command, "args": arguments, "env": {"PYTHONPATH": str(top)}},
        )
        for name, client, *option in (
            (".cursor/mcp.json", "cursor"),
            (".cursor/mcp.json", "cursor", "--repository"),
            (".mcp.json", "claude-code", "--repository"),
        ):
            path = top / name
            path.parent.mkdir(exist_ok=True)
            for entry in entries:
                path.write_text(json.dumps({"mcpServers": {"memory-hub": entry}}))
                with self.subTest(client=client, entry=entry), mock.patch.object(Path, "cwd", return_value=top):
                    self.refused(5, "another program than this installation", client, *option, "--check")
                self.assertFalse(started.exists())
