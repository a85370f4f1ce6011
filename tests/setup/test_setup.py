"""Clients are connected by their own files, in which no other byte changes; removing them restores every byte."""

from __future__ import annotations

import io
import json
import os
import plistlib
import re
import shutil
import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from django.core.management import CommandError, call_command
from django.test import SimpleTestCase
from hypothesis import given, settings
from hypothesis import strategies as st

from decisions.prompts import instructions
from memoryhub import __version__
from memoryhub.client.setup import entries, json_text, plan, trial
from memoryhub.client.setup import json_text as toml_text
from memoryhub.client.setup import service as services
from memoryhub.client.setup.agent_files import put_agent
from memoryhub.client.setup.clients import config_file, file_of, user_target
from memoryhub.client.setup.document import BACKUP_SUFFIX, backup_of, read_document
from memoryhub.client.setup.entries import command_words, entry_words
from memoryhub.config.clients import Client, all_clients, find_client, hook_clients
from memoryhub.core.errors import ConflictError
from memoryhub.ops.serving.process import BY_HAND, Running
from tests.home import UNMEASURED, run_home

ROOT = Path(__file__).parents[2]
CLAUDE = '{\n  "numStartups": 41,\n  "mcpServers": {\n    "other": {"command": "x"}\n  },\n  "é": "ü"\n}\n'


def written_clients() -> list[Client]:
    """Return the clients whose file `setup` changes; for the others it shows what to paste."""
    return [client for client in all_clients().values() if not client.user[0].endswith(".yaml")]


class SetupTestCase(SimpleTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.user = run_home() / f"user-{self.id().rpartition('.')[2][:60]}"
        self.user.mkdir()
        self.addCleanup(shutil.rmtree, self.user)
        unset = dict.fromkeys(("MEMORY_HUB_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"), "")
        self.enterContext(mock.patch.dict(os.environ, HOME=str(self.user), **unset))
        self.config = self.user / ".memory-hub" / "config.toml"

    def run_setup(self, *arguments: str, command: str = "setup") -> str:
        out = io.StringIO()
        call_command(command, *arguments, stdout=out)
        return out.getvalue()

    def set_up(self, client: Client, *options: str) -> str:
        project = ("--project", "alpha") if client.names_no_folder else ()
        return self.run_setup(client.id, "--yes", *options, *project)

    def refused(self, code: int, words: str, *arguments: str, command: str = "setup") -> str:
        out = io.StringIO()
        with self.assertRaisesRegex(CommandError, words) as caught:
            call_command(command, *arguments, stdout=out)
        self.assertEqual(caught.exception.returncode, code)
        return out.getvalue()

    def in_folder(self, folder: Path) -> Any:
        return mock.patch.object(Path, "cwd", return_value=folder)

    def repository(self, name: str = "work") -> Path:
        top = self.user / name
        subprocess.run(["git", "init", "-q", str(top)], check=True)
        return top

    def file(self, name: str, text: str, mode: int = 0o640) -> Path:
        """Write a file in the user's home folder."""
        path = self.user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        path.chmod(mode)
        return path

    def claude(self, text: str = CLAUDE) -> Path:
        return self.file(".claude.json", text)

    def write_entry(self, name: str, command: str, *arguments: str, **fields: Any) -> Path:
        """Write a client's file in which the hub's server is another command."""
        server = {"command": command, "args": [*arguments], **fields}
        return self.file(name, json.dumps({"mcpServers": {"memory-hub": server}}))


class SetupTests(SetupTestCase):
    def test_a_dry_run_shows_the_diff_and_changes_nothing(self):
        path = self.claude()
        for arguments in (("claude-code",), ("claude-code", "--dry-run")):
            output = self.run_setup(*arguments)
            self.assertIn('+    "memory-hub": {"type": "stdio", "command": ', output)
            self.assertIn("nothing was changed; add --yes to make the change", output)
        self.assertEqual((path.read_text(), len(list(self.user.iterdir()))), (CLAUDE, 1))

    def test_every_client_is_set_up_once_and_taken_out_again(self):
        for client in written_clients():
            with self.subTest(client=client.id):
                self.set_up(client)
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

    def test_a_client_is_not_installed_because_another_was_set_up(self):
        self.assertNotIn(" installed ", self.run_setup())
        for client in written_clients():
            self.set_up(client)
            installed = [line.split()[0] for line in self.run_setup().splitlines() if " installed " in line]
            # Roo Code is an extension of VS Code, and its file is there
            self.assertEqual(set(installed) - {"vscode"}, {client.id} - {"vscode"})
            self.run_setup(client.id, "--remove", "--yes")
            for path in sorted(self.user.iterdir()):
                shutil.rmtree(path)

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

    def test_the_hooks_of_every_client_are_written_as_the_documents_show_them(self):
        written = {}
        for name, hooks in hook_clients().items():
            if not hooks.plugin:
                self.run_setup(name, "--yes")
                path = file_of(find_client(name).hooks, None)
                assert path
                text = path.read_text().replace(" ".join(command_words()), "memory-hub")
                written[name] = json.loads(text)["hooks"]
                self.assertEqual(set(written[name]), set(hooks.set_up()))
        guide = (ROOT / "docs/guides/connect-a-client.md").read_text().partition("## Hooks by hand")[2]
        (example,) = re.findall(r"```json\n(.*?)```", guide, re.DOTALL)
        self.assertEqual(written["claude-code"], json.loads(example)["hooks"])

    def test_hooks_are_left_out_or_taken_out_alone_beside_those_of_others(self):
        self.run_setup("claude-code", "--yes", "--no-hooks")
        self.assertFalse((self.user / ".claude/settings.json").exists())
        theirs = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say \'done"}]}]}, "model": "m"}'
        path = self.file(".claude/settings.json", theirs)
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
        hooks = {"enabled": True, "AfterTool": [{"matcher": "mine", "hooks": [hook]}]}
        path = self.file(".gemini/settings.json", json.dumps({"mcpServers": {"memory-hub": moved}, "hooks": hooks}))
        self.assertIn("set up for another installation", self.run_setup())
        self.run_setup("gemini-cli", "--yes")
        config = json.loads(path.read_text())
        command, *words = [*command_words(), "mcp", "--profile", "full"]
        self.assertEqual(config["mcpServers"]["memory-hub"], {**moved, "command": command, "args": words})
        ((fixed,),) = [group["hooks"] for group in config["hooks"]["AfterTool"]]
        self.assertEqual((fixed["timeout"], "/old" in fixed["command"]), (9, False))

    def test_a_repository_has_its_own_file(self):
        top = self.repository()
        (top / "deep").mkdir()
        with self.in_folder(top / "deep"):
            self.assertIn("valid on this machine only", self.run_setup("claude-code", "--repository", "--yes"))
            self.assertEqual({path.name for path in top.iterdir()}, {".git", ".mcp.json", ".claude", "deep"})
            self.refused(2, "has no configuration per repository", "windsurf", "--repository", "--project", "alpha")
        with self.in_folder(self.user):
            self.refused(2, "is not in a git repository", "claude-code", "--repository")

    def test_another_home_is_set_in_the_clients_environment(self):
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME="/else where"):
            self.run_setup("claude-code", "--yes")
        config = json.loads((self.user / ".claude.json").read_text())
        self.assertEqual(config["mcpServers"]["memory-hub"]["env"], {"MEMORY_HUB_HOME": "/else where"})
        self.assertIn("MEMORY_HUB_HOME='/else where' ", (self.user / ".claude/settings.json").read_text())


class LibrarianTests(SetupTestCase):
    def test_it_is_installed_in_the_form_of_each_client_and_removed_with_it(self) -> None:
        for client in written_clients():
            path = file_of(client.agent, None)
            if path is None:
                continue
            with self.subTest(client=client.id):
                self.assertIn(f"{path}: written", self.set_up(client))
                text = path.read_text()
                if path.suffix == ".toml":
                    self.assertEqual(tomllib.loads(text)["developer_instructions"], instructions())
                else:
                    head, body = text.removeprefix("---\n").split("\n---\n")
                    fields = yaml.safe_load(head)
                    self.assertEqual((body.strip(), "description" in fields), (instructions(), True))
                    declared = client.agent.fields if client.agent else ()
                    self.assertEqual(set(fields) - {"mode", "readonly"}, set(declared))
                self.assertIn("nothing to do", self.set_up(client))
                self.run_setup(client.id, "--remove", "--yes")
                self.assertFalse(path.exists())

    def test_one_of_the_users_own_or_one_that_was_changed_stays(self) -> None:
        client = find_client("claude-code")
        path = self.user / ".claude" / "agents" / "librarian.md"
        self.set_up(client)
        changed = path.read_text() + "Answer in French.\n"
        for text in (changed, "---\nname: librarian\n---\nMine.\n"):
            path.write_text(text)
            self.assertIn(f"{path} is your own and stays as it is", self.set_up(client))
            self.run_setup(client.id, "--remove", "--yes")
            self.assertEqual(path.read_text(), text)
            self.assertEqual([found.name for found in path.parent.iterdir()], ["librarian.md"])

    def test_an_older_one_of_the_hub_is_replaced_without_a_backup(self) -> None:
        client = find_client("claude-code")
        assert client.agent
        older = client.agent.model_copy(update={"fields": ("name", "description")})
        path = self.user / ".claude" / "agents" / "librarian.md"
        path.parent.mkdir(parents=True)
        path.write_text(put_agent(older, read_document(path)).text)
        self.assertIn("+tools: ", self.set_up(client))
        self.assertEqual([found.name for found in path.parent.iterdir()], ["librarian.md"])

    def test_a_repository_has_its_own_and_without_hooks_there_is_none(self) -> None:
        top = self.repository()
        with self.in_folder(top):
            self.set_up(find_client("claude-code"), "--repository")
            self.assertTrue((top / ".claude/agents/librarian.md").exists())
            self.set_up(find_client("cursor"), "--repository", "--no-hooks")
        self.assertFalse((top / ".cursor/agents").exists())
        self.assertFalse((self.user / ".claude").exists())


class ProfileTests(SetupTestCase):
    def arguments(self, client: Client, *options: str) -> list[str]:
        self.set_up(client, *options)
        entry = json.loads(config_file(client, None).read_text())[client.servers[0]]["memory-hub"]
        words: list[str] = entry_words(entry)
        return words[words.index("mcp") + 1 :]

    def test_it_is_written_into_the_entry_and_stays_until_another_is_chosen(self) -> None:
        client = find_client("claude-code")
        for options, arguments in (
            ((), []),
            (("--profile", "full"), ["--profile", "full"]),
            ((), ["--profile", "full"]),
            (("--project", "alpha"), ["--project", "alpha", "--profile", "full"]),
            (("--profile", "work"), ["--project", "alpha", "--profile", "work"]),
            (("--profile", "core"), ["--project", "alpha"]),
        ):
            with self.subTest(options=options):
                self.assertEqual(self.arguments(client, *options), arguments)
        opencode = find_client("opencode")
        self.assertEqual(self.arguments(opencode, "--profile", "full")[-2:], ["--profile", "full"])

    def test_it_goes_with_a_client_whose_server_is_started(self) -> None:
        for options in (("--profile", "full"), ("claude-code", "--profile", "full", "--remove")):
            self.refused(2, "--profile goes with a client and a server that it starts", *options)


class DatabaseTests(SetupTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.url = "postgresql://hub:se%40cret@db.example.org/hub"
        self.enterContext(mock.patch.dict(os.environ, MEMORY_HUB_DATABASE_URL=self.url, PYTHONPATH=str(ROOT)))
        self.claude()

    def test_an_address_that_only_the_shell_has_is_written_with_consent(self):
        line = f'{self.config}: database_url = "postgresql://hub:PASSWORD@db.example.org/hub"'
        output = self.run_setup("claude-code")
        self.assertIn(line, output)
        self.assertNotIn("se%40cret", output)
        self.assertFalse(self.config.exists())
        self.run_setup("claude-code", "--yes", "--no-autostart")
        self.assertEqual(tomllib.loads(self.config.read_text()), {"database_url": self.url, "autostart": False})
        self.assertEqual(self.config.stat().st_mode & 0o777, 0o600)
        self.assertIn("nothing to do", self.run_setup("claude-code", "--yes"))
        self.config.unlink()
        self.assertIn(line, self.run_setup("claude-code", "--yes"))
        self.assertEqual(tomllib.loads(self.config.read_text()), {"database_url": self.url})

    def test_a_home_whose_database_clients_would_not_find_is_named(self):
        self.file(".memory-hub/database", "postgresql://db.example.org/hub\n")
        with mock.patch.dict(os.environ, MEMORY_HUB_DATABASE_URL=""):
            errors = io.StringIO()
            call_command("setup", "claude-code", "--yes", stdout=io.StringIO(), stderr=errors)
            self.assertIn("was given no database", errors.getvalue())
        # The client has not this shell's variable
        self.refused(8, "was given no database", "claude-code", "--check")

    def test_a_service_does_not_start_without_the_database(self):
        with mock.patch("shutil.which", return_value="/usr/bin/systemctl"):
            words = "starts without MEMORY_HUB_DATABASE_URL.*database_url"
            self.assertRaisesRegex(CommandError, words, call_command, "service", "install")


class AutostartTests(SetupTestCase):
    def test_it_switches_the_start_on_demand_and_keeps_the_rest_of_the_settings(self) -> None:
        self.run_setup("claude-code", "--yes", "--no-autostart")
        self.assertEqual(self.config.read_text(), "autostart = false\n")
        self.assertEqual(self.config.stat().st_mode & 0o777, 0o600)
        self.run_setup("--autostart")
        self.assertEqual(self.config.read_text(), "autostart = true\n")
        self.config.write_text("# mine\nautostart = false # why\n[ranking]\ntext = 2\n")
        self.run_setup("claude-code", "--yes", "--autostart")
        self.assertEqual(self.config.read_text(), "# mine\nautostart = true # why\n[ranking]\ntext = 2\n")

    def test_a_linked_file_is_replaced_as_a_whole(self) -> None:
        text = '# mine\r\nsearch_mode = "fts5"\r\n'
        target = self.file("elsewhere/config.toml", text)
        self.config.parent.mkdir(mode=0o700)
        self.config.symlink_to(target)
        with target.open("rb") as before:
            self.run_setup("--no-autostart")
            self.assertEqual(before.read(), text.encode())
        self.assertTrue(self.config.is_symlink())
        self.assertEqual(target.read_bytes(), f"autostart = false\r\n{text}".encode())
        self.assertEqual(target.stat().st_mode & 0o777, 0o640)
        self.assertEqual([file.name for file in target.parent.iterdir()], ["config.toml"])


THEIRS = '{"mcpServers": {"memory-hub": {"command": "npx", "args": ["their-memory"]}}}'


class RefusalTests(SetupTestCase):
    def test_a_file_that_cannot_be_changed_is_refused_and_stays(self):
        claude, codex, cursor = ".claude.json", ".codex/config.toml", ".cursor/mcp.json"
        wrong_entry = '{"mcpServers": {"memory-hub": []}}'
        for file, text, code, words, client, *options in (
            (cursor, '// mine\n{"mcpServers": }\n', 2, r"not valid JSON \(line 2: .*\) and was not changed", "cursor"),
            (cursor, "[" * 20_000, 2, "is nested too deeply and was not changed", "cursor"),
            (codex, "a = \n", 2, "is not valid TOML", "codex"),
            (codex, "mcp_servers = { a = { command = 'b' } }\n", 2, "valid TOML", "codex"),
            (codex, "mcp_servers = 3\n", 2, "mcp_servers has the wrong type", "codex"),
            (claude, "[]", 2, "must contain a JSON object", "claude-code"),
            (claude, '{"mcpServers": null}', 2, "mcpServers has the wrong type; fix it first", "claude-code"),
            (claude, wrong_entry, 2, "mcpServers.memory-hub must be an object; fix it first", "claude-code"),
            (claude, THEIRS, 5, "has another server named 'memory-hub'", "claude-code"),
            (claude, THEIRS, 5, "has another server named 'memory-hub'", "claude-code", "--remove"),
        ):
            with self.subTest(client, text=text[:60]):
                path = self.file(file, text)
                output = self.refused(code, words, client, "--yes", *options)
                self.assertEqual(path.read_text(), text)
                if text.startswith("// mine"):  # the entry is printed
                    self.assertIn("memory-hub", json.loads(output)["mcpServers"])

    def test_a_plugin_of_others_is_not_touched(self):
        path = self.file(".config/opencode/plugins/memory-hub.js", "export const Mine = 1\n")
        self.refused(5, "is not from `memory-hub setup`; rename or remove it first", "opencode", "--yes")
        self.assertIn("nothing to do", self.run_setup("opencode", "--remove", "--yes"))
        self.assertEqual(path.read_text(), "export const Mine = 1\n")

    def test_a_file_that_changed_since_the_preview_is_not_written(self):
        path = self.claude()
        changes = plan.plan_setup(user_target(find_client("claude-code")), plan.SetupChoices(hooks=False))
        path.write_text('{"newer": 1}')
        with self.assertRaisesRegex(ConflictError, "has changed in the meantime"):
            plan.apply(changes)
        self.assertEqual(path.read_text(), '{"newer": 1}')

    def test_invalid_arguments_end_with_a_message_and_an_exit_code(self):
        self.refused(2, "give a client", "--yes")
        self.refused(2, "a project's folder; name the project with --project ID", "claude-desktop", "--yes")
        self.refused(2, "--project: 'A b' is not a project id", "codex", "--project", "A b")
        self.refused(3, "Codex is not set up in .*run: memory-hub setup codex", "codex", "--check")

    def test_a_link_out_of_a_repository_is_not_followed(self):
        top, mine = self.repository(), self.file("mine.json", "{}")
        (top / ".cursor").mkdir()
        for name, target, client in (
            (".mcp.json", mine, "claude-code"),
            (".cursor/mcp.json", mine, "cursor"),
            (".claude", self.user, "claude-code"),
        ):
            (top / name).symlink_to(target)
            with self.in_folder(top):
                self.refused(2, "leads out of the repository", client, "--repository", "--yes")
            (top / name).unlink()
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
        refusals = {"/gone/memory-hub": "cannot be started", sys.executable: "valid answer|ended before"}
        for command, words in refusals.items():
            self.write_entry(".cursor/mcp.json", command, "manage.py", "mcp")
            with self.in_folder(self.user):
                self.refused(8, words, "cursor", "--check")

    def test_a_server_that_reads_nothing_is_named(self):
        marker = self.user / "closed"
        server = self.file("memory-hub", f"#!/bin/sh\nexec 0<&-\ntouch {marker}\nexec sleep 60\n", 0o700)
        self.write_entry(".cursor/mcp.json", str(server), "mcp")
        handshake = trial.handshake()

        def once_closed():
            while not marker.exists():
                time.sleep(0.001)
            return handshake

        with mock.patch.object(trial, "handshake", once_closed):
            self.refused(8, "ended before it answered", "cursor", "--check")

    def test_an_entry_of_a_repository_starts_no_other_program(self):
        top, started = self.repository(), self.user / "started"
        program = self.file("work/memory-hub", f"#!/bin/sh\ntouch {started}\n", 0o700)
        self.file("work/sitecustomize.py", f"open({str(started)!r}, 'w')\n")
        servers: tuple[tuple[list[str], dict[str, Any]], ...] = (
            ([str(program), "mcp"], {}),
            (["sh", "-c", f"touch {started}", "memory-hub", "mcp"], {}),
            ([*command_words(), "mcp"], {"env": {"PYTHONPATH": str(top)}}),
        )
        for name, client, *option in (
            (".cursor/mcp.json", "cursor"),
            (".cursor/mcp.json", "cursor", "--repository"),
            (".mcp.json", "claude-code", "--repository"),
        ):
            for words, fields in servers:
                self.write_entry(f"work/{name}", *words, **fields)
                with self.subTest(client=client, words=words), self.in_folder(top):
                    self.refused(5, "another program than this installation", client, *option, "--check")
                self.assertFalse(started.exists())


TOML = 'model = "x" # why\n\n[mcp_servers.other]\ncommand = "x"\n\n# about tools\n[tools]\nweb = [\n  1,\n]\n'
COMMENTS = """// mine
{
  /* the look */
  "theme": "dark", // why
  "KEY": {
    // first
    "other": {"command": "x//y,]"}, // last
    // end
  },
}
"""


def json_texts(key: str, other: Any) -> dict[str, str]:
    data = {"theme": "dark", key: other, "é": "ü"}
    indented = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    comments = COMMENTS.replace("KEY", key)
    return {
        "an empty file": "",
        "blanks": " \n\n",
        "an empty object": "{}",
        "an empty object on two lines": "{\n}\n",
        "empty servers": f'{{\n  "{key}": {{}}\n}}\n',
        "empty servers on two lines": f'{{"{key}": {{\n}}}}',
        "others": indented,
        "others without a final line break": indented.rstrip(),
        "one line": json.dumps(data),
        "compact": json.dumps(data, separators=(",", ":")),
        "tabs": json.dumps(data, indent="\t"),
        "CRLF": indented.replace("\n", "\r\n"),
        "a byte order mark": f"\ufeff{indented}",
        "comments and trailing commas": comments,
        "comments with tabs, CRLF and a byte order mark": "\ufeff" + comments.replace("  ", "\t").replace("\n", "\r\n"),
        "only a comment": "// later\n",
    }


def toml_texts() -> dict[str, str]:
    return {
        "others": TOML,
        "empty servers": "[mcp_servers]\n",
        "others without a final line break": TOML.rstrip(),
        "CRLF": TOML.replace("\n", "\r\n"),
        "a byte order mark": f"\ufeff{TOML}",
        "only a comment": "# later\n",
    }


def hooks_of_others(client: Client) -> dict[str, Any]:
    assert client.hooks
    hook = {"type": "command", "command": "say done"}
    return {next(iter(client.hooks.set_up())): [hook if client.hooks.flat else {"hooks": [hook]}]}


class ExactTests(SetupTestCase):
    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.user.rglob("*") if path.is_file() and ".git" not in path.parts}

    def check(self, client: Client, *options: str) -> None:
        """Set up, set up again, and remove."""
        before = self.files()
        self.set_up(client, *options)
        after = self.files()
        self.assertNotEqual(before, after)
        self.assertIn("nothing to do", self.run_setup(client.id, "--yes", *options))
        self.assertEqual(self.files(), after)
        for path, content in before.items():
            if after[path] == content:
                continue
            remaining = iter(after[path])
            self.assertTrue(all(byte in remaining for byte in content), "bytes were removed")
            self.assertEqual(backup_of(path).read_bytes(), content)
        self.run_setup(client.id, "--yes", "--remove", *options)
        self.assertEqual(self.files(), before)
        self.assertIn("nothing to do", self.run_setup(client.id, "--yes", "--remove", *options))

    def cases(self, client: Client) -> dict[str, dict[Path, str]]:
        """Return the files of each case: that of the servers and that of the hooks are in the same state."""
        config, hooks = config_file(client, None), file_of(client.hooks, None)
        servers = {"other": {"command": "x", "args": ["1", "2"]}}
        texts = toml_texts() if config.suffix == ".toml" else json_texts(client.servers[0], servers)
        cases = {name: {config: text} for name, text in texts.items()}
        if hooks and hooks != config and hooks.suffix == ".json":
            for name, text in json_texts("hooks", hooks_of_others(client)).items():
                cases.setdefault(name, {})[hooks] = text
        return {"absent files": {}, **cases}

    def test_every_byte_is_restored(self) -> None:
        for client in written_clients():
            for name, files in self.cases(client).items():
                with self.subTest(client=client.id, file=name):
                    for path, text in files.items():
                        self.file(str(path), text)
                    self.check(client)
                for path in self.files():
                    path.unlink()

    def test_a_repositorys_files_are_restored(self) -> None:
        top = self.repository()
        for client in written_clients():
            if client.repository:
                path = config_file(client, top)
                text = TOML if path.suffix == ".toml" else COMMENTS.replace("KEY", client.servers[0])
                self.file(str(path), text)
                with self.subTest(client=client.id), self.in_folder(top):
                    self.check(client, "--repository")
                path.unlink()

    def test_the_second_format_of_opencode_is_followed(self) -> None:
        comments = '{\n  "mcp": {\n    "servers": {\n      // mine\n      "a": {"type": "local"},\n    },\n  },\n}'
        texts = {"opencode.json": '{\n  "mcp": {\n    "servers": {}\n  }\n}\n', "opencode.jsonc": comments}
        for name, text in texts.items():
            path = self.file(f".config/opencode/{name}", text)
            self.run_setup("opencode", "--yes")
            self.assertEqual(set(read_document(path).data["mcp"]["servers"]["memory-hub"]), {"type", "command"})
            self.run_setup("opencode", "--yes", "--remove")
            self.check(all_clients()["opencode"])
            path.unlink()

    def test_what_others_change_afterwards_stays(self) -> None:
        path = self.claude('{\n  "mcpServers": {},\n  "starts": 1\n}\n')
        self.run_setup("claude-code", "--yes")
        path.write_text(path.read_text().replace('"starts": 1', '"starts": 2'))
        self.run_setup("claude-code", "--yes", "--remove")
        self.assertEqual(path.read_text(), '{\n  "mcpServers": {},\n  "starts": 2\n}\n')
        self.assertIn('"starts": 1', backup_of(path).read_text())

    def test_comments_in_a_file_that_setup_created_stay(self) -> None:
        for client, file, comment in (
            ("codex", ".codex/config.toml", "# mine\n"),
            ("cursor", ".cursor/mcp.json", "// mine\n"),
        ):
            path = self.user / file
            self.run_setup(client, "--yes", "--no-hooks")
            path.write_text(comment + path.read_text())
            self.run_setup(client, "--yes", "--remove")
            self.assertIn(comment, path.read_text())

    def test_every_byte_is_restored_after_the_installation_moved(self) -> None:
        path = self.claude()
        for place in ("/old/memory-hub", "/a longer/path/memory-hub"):
            with mock.patch.object(entries, "command_words", return_value=[place]):
                self.run_setup("claude-code", "--yes")
            self.assertIn(place, path.read_text())
        self.run_setup("claude-code", "--yes", "--remove")
        self.assertEqual(list(self.files()), [path])
        self.assertIn('"numStartups": 41', path.read_text())

    def test_a_backup_that_cannot_be_read_is_left_alone(self) -> None:
        path = self.claude()
        self.run_setup("claude-code", "--yes")
        for content in (b"\xff", b"{", b'{"mcpServers": 3}'):
            backup_of(path).write_bytes(content)
            self.run_setup("claude-code", "--yes", "--remove")
            self.assertEqual((path.read_text(), backup_of(path).read_bytes()), (CLAUDE, content))
            self.run_setup("claude-code", "--yes", "--no-hooks")

    def test_without_the_backup_the_entries_are_taken_out(self) -> None:
        hooks = '"stop": [\n      {"command": "say done"} // mine\n    ]'
        text = f'{{\n  "version": 1,\n  "hooks": {{\n    {hooks}\n  }}\n}}\n'
        path = self.file(".cursor/hooks.json", text)
        self.run_setup("cursor", "--yes")
        backup_of(path).unlink()
        self.run_setup("cursor", "--yes", "--remove")
        self.assertEqual(path.read_text(), text)


ENTRY = {"command": "/a b/memory-hub", "args": ["mcp"]}
KEYS = st.text(max_size=6).filter(lambda key: key != "hub")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=10,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)
INDENTS = st.sampled_from([None, 1, 2, 4, "\t"])


class TextTests(SimpleTestCase):
    TOML = 'model = "x" # why\n\n[mcp_servers.a]\ncommand = "b"\n\n# about tools\n[tools]\nx = [\n  [1],\n]\n'
    TABLE = ("mcp_servers", "memory-hub")

    @settings(max_examples=150, deadline=None)
    @given(DOCUMENTS, st.dictionaries(KEYS, VALUES, min_size=1, max_size=3), INDENTS, st.sampled_from(["\n", "\r\n"]))
    def test_removing_an_added_value_of_json_restores_every_byte(self, document, servers, indent, newline):
        document = {**document, "mcp": servers}
        text = json.dumps(document, indent=indent, ensure_ascii=False).replace("\n", newline)
        changed = json_text.put(text, ("mcp", "hub"), ENTRY)
        self.assertEqual(json.loads(changed), {**document, "mcp": {**servers, "hub": ENTRY}})
        self.assertEqual(json_text.take(changed, ("mcp", "hub")), text)

    def test_values_of_json_are_put_and_taken_in_the_layout_that_is_there(self):
        text = '{\n\t"a": [1,2],\n\t"servers" : {\n\t\t"x": {}\n\t}\n}\n'
        expected = '{\n\t"a": [1,2],\n\t"servers" : {\n\t\t"x": {},\n\t\t"hub": {"b": 1}\n\t}\n}\n'
        self.assertEqual(json_text.put(text, ("servers", "hub"), {"b": 1}), expected)
        text = '{"a": ["x", "y", "z"], "b": 2}'
        self.assertEqual(json_text.put(text, ("a", 1), "new"), '{"a": ["x", "new", "z"], "b": 2}')
        self.assertEqual(json_text.take(text, ("a", 0)), '{"a": ["y", "z"], "b": 2}')
        self.assertEqual(json_text.take(text, ("a",)), '{"b": 2}')
        for text in ("{}", '{"a": 1}', '{\n  "a": 1\n}'):  # without the parents
            changed = json_text.put(text, ("hooks", "Stop", 0), {"hooks": [1]})
            self.assertEqual(json.loads(changed)["hooks"], {"Stop": [{"hooks": [1]}]})
            self.assertEqual(json.loads(json_text.take(changed, ("hooks", "Stop", 0))), json.loads(text))

    def test_a_table_of_toml_in_the_middle_goes_with_its_own_and_leaves_the_next_its_comment(self):
        rest = self.TOML.partition("\n")[2]
        text = '[mcp_servers."memory-hub"]\ncommand = "c"\n[mcp_servers."memory-hub".env]\nA = "1"\n' + rest
        remaining = toml_text.take_table(text, self.TABLE)
        self.assertEqual(tomllib.loads(remaining), tomllib.loads(rest))
        self.assertIn("# about tools\n[tools]", remaining)

    def test_a_table_of_toml_is_added_at_the_end_and_replaced_in_place(self):
        added = toml_text.put_table(self.TOML, self.TABLE, ENTRY)
        self.assertEqual(toml_text.take_table(added, self.TABLE), self.TOML)
        entry = {"command": 'quote " and \\', "env": {"HOME_OF": "ü"}}
        changed = toml_text.put_table(f"{added}\n[last]\n", self.TABLE, entry)
        self.assertEqual(tomllib.loads(changed)["mcp_servers"]["memory-hub"], entry)
        self.assertTrue(changed.startswith(self.TOML) and changed.endswith("\n[last]\n"))


# A service manager that notes how it is called; it fails at the word in ``fails``.
SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
case "$*" in *"$(cat "$(dirname "$0")/fails" 2>/dev/null || echo nothing)"*)
  echo "Failed to connect to bus: No such file or directory" >&2; exit 1;;
esac
"""


class ServiceTests(SetupTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.bin, self.home = self.user / "bin", self.user / "hub"
        self.file("bin/systemctl", SYSTEMCTL, 0o700)
        path = f"{self.bin}:{os.environ['PATH']}"
        self.enterContext(mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.home), PATH=path))
        self.unit = self.user / ".config/systemd/user/memory-hub.service"

    def service(self, *words: str) -> str:
        return self.run_setup(*words, command="service")

    def calls(self) -> list[str]:
        return (self.bin / "calls").read_text().splitlines()

    def test_install_status_and_remove(self) -> None:
        self.assertIn("not installed", self.service("status"))
        self.service("install", "--port", "8400")
        self.assertEqual(self.calls()[-2:], ["--user daemon-reload", "--user enable --now memory-hub.service"])
        text = self.unit.read_text()
        self.assertIn(f'Environment="MEMORY_HUB_HOME={self.home}"', text)
        self.assertRegex(text, r'ExecStart="[^"]+" .*"serve" "--service" "--port" "8400"')
        self.assertEqual(stat.S_IMODE(self.unit.stat().st_mode), 0o600)
        status = json.loads(self.service("status", "--json"))
        self.assertEqual((status["manager"], status["installed"], status["running"]), ("systemd", True, True))
        self.assertEqual(self.service("restart"), f"systemd runs the hub of version {__version__}\n")
        calls = ["disable --now memory-hub.service", "daemon-reload", "enable --now memory-hub.service"]
        self.assertEqual(self.calls()[-3:], [f"--user {call}" for call in calls])
        self.service("remove")
        self.assertFalse(self.unit.exists())
        self.assertEqual(self.calls()[-2:], ["--user disable --now memory-hub.service", "--user daemon-reload"])
        self.assertIn("not installed", self.service("remove"))
        self.refused(2, "the hub is not installed as a service", "restart", command="service")

    def test_what_cannot_be_started_leaves_the_service_as_it_was(self) -> None:
        self.assertIn("ExecStart=", self.service("install", "--dry-run"))
        self.assertFalse((self.bin / "calls").exists())
        running = Running(os.getpid(), "http://127.0.0.1:1/", started=BY_HAND)
        with mock.patch.object(services, "find_running", return_value=running):
            self.refused(5, "`memory-hub stop` ends it", "install", command="service")
        (self.bin / "fails").write_text("enable")
        reason = "Failed to connect to bus: No such file or directory"
        sentence = f"^systemd can't start the hub: {reason}; clients still start it on demand$"
        self.refused(8, sentence, "install", command="service")
        self.assertFalse(self.unit.exists())
        (self.bin / "fails").unlink()
        self.service("install", "--port", "8400")
        installed = self.unit.read_text()
        (self.bin / "fails").write_text("--user")
        self.refused(8, "systemd", "install", "--port", "8500", command="service")
        self.assertEqual(self.unit.read_text(), installed)
        self.assertEqual(stat.S_IMODE(self.unit.stat().st_mode), 0o600)


class ServiceTextTests(SimpleTestCase):
    def test_words_and_the_home_are_quoted_for_systemd(self) -> None:
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME='/home/a "b"/100%/$HOME'):
            content = services._systemd(['/home/a "b"\\c/100%/$HOME/memory-hub']).content
        self.assertIn('ExecStart="/home/a \\"b\\"\\\\c/100%%/$$HOME/memory-hub"\n', content)
        self.assertIn('Environment="MEMORY_HUB_HOME=/home/a \\"b\\"/100%%/$HOME"\n', content)

    def test_launchd_gets_a_property_list(self) -> None:
        with mock.patch.object(sys, "platform", "darwin"), mock.patch.dict(os.environ, MEMORY_HUB_HOME="/tmp/a&b"):
            service = services.service(port=8400)
        content = plistlib.loads(service.content.encode())
        self.assertEqual(content["ProgramArguments"][-4:], ["serve", "--service", "--port", "8400"])
        self.assertEqual(content["EnvironmentVariables"], {"MEMORY_HUB_HOME": "/tmp/a&b"})
        self.assertEqual(service.path.parent, Path.home() / "Library" / "LaunchAgents")
