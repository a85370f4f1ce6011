"""The client may use the hub's read-only tools without asking only if the user has said so, and no other tool."""

from __future__ import annotations

import io
import json
import sys
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

from memoryhub.client.setup.clients import user_target
from memoryhub.client.setup.document import backup_of
from memoryhub.config.clients import Client, find_client
from memoryhub.core.tools import find_tool
from tests.setup.test_setup import SetupTestCase, written_clients

CLAUDE_RULE = "mcp__memory-hub__memory_search"
OPENCODE = ".config/opencode/opencode.json"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def permitted_clients() -> list[Client]:
    return [client for client in written_clients() if client.permissions]


class PermissionsTestCase(SetupTestCase):
    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.user.rglob("*") if path.is_file()}

    def rules(self, client: Client) -> list[str]:
        """Return the tools that the client's file allows, as the client writes them."""
        permissions, path = client.permissions, user_target(client).permissions
        assert permissions
        assert path
        if not path.exists():
            return []
        data: Any = (tomllib if path.suffix == ".toml" else json).loads(path.read_text())
        keys = permissions.keys
        if permissions.is_in_entry:
            keys = (*client.servers, "memory-hub", *keys)
        for key in keys:
            data = data.get(key, {})
        if permissions.name:
            return [item[permissions.name] for item in data]
        return list(data)

    def answer(self, text: str, *arguments: str) -> str:
        with mock.patch.object(sys, "stdin", Terminal(text)):
            return self.run_setup(*arguments)


class PermissionsTests(PermissionsTestCase):
    def test_each_client_gets_the_read_only_tools_and_is_as_before_once_they_are_removed(self) -> None:
        for client in permitted_clients():
            with self.subTest(client=client.id):
                assert client.permissions
                self.set_up(client, "--permissions")
                rules = self.rules(client)
                names = [rule.removeprefix(client.permissions.rule.removesuffix("TOOL")) for rule in rules]
                tools = {name: find_tool(name) for name in names}
                self.assertEqual([name for name, tool in tools.items() if tool is None or tool.writes], [])
                self.assertLessEqual({"memory_search", "memory_get", "memory_timeline", "decision_get"}, set(names))
                self.assertIn("nothing to do", self.set_up(client, "--permissions"))
                self.assertIn("nothing to do", self.set_up(client))
                self.run_setup(client.id, "--remove", "--yes")
                self.assertEqual(self.files(), {})

    def test_without_a_terminal_and_with_yes_none_is_added(self) -> None:
        client = find_client("claude-code")
        for options in (("--yes",), ("--yes", "--no-permissions"), ("--dry-run",), ()):
            self.assertNotIn(f'"{CLAUDE_RULE}"', self.run_setup(client.id, *options))
            self.assertEqual(self.rules(client), [])
        self.assertIn(CLAUDE_RULE, self.run_setup(client.id, "--permissions", "--dry-run"))
        self.assertEqual(self.rules(client), [])

    def test_a_terminal_is_asked_a_question_for_them_alone(self) -> None:
        client = find_client("claude-code")
        question = "May Claude Code use the hub's read-only tools without asking you? [y/N] "
        self.assertIn(question, self.answer("y\nn\n", client.id))
        self.assertEqual(self.files(), {})
        self.assertNotIn(question, self.answer("y\n", client.id, "--no-permissions"))
        self.assertEqual(self.rules(client), [])
        self.assertIn(question, self.answer("\n", client.id))
        self.assertEqual(self.rules(client), [])
        output = self.answer("y\ny\n", client.id)
        self.assertIn(CLAUDE_RULE, output)
        self.assertIn(CLAUDE_RULE, self.rules(client))
        self.assertNotIn(question, self.answer("", client.id))
        self.assertNotIn(question, self.answer("y\n", "vscode"))

    def test_rules_of_the_user_stay_as_they_are(self) -> None:
        for client, path, text in (
            ("claude-code", ".claude/settings.json", {"permissions": {"allow": ["Bash(ls)", CLAUDE_RULE]}}),
            (
                "opencode",
                ".config/opencode/opencode.json",
                {"permission": {"*": "ask", "memory-hub_memory_get": "deny"}},
            ),
            ("amp", ".config/amp/settings.json", {"amp.permissions": [{"tool": "Bash", "action": "ask"}]}),
            ("cursor", ".cursor/permissions.json", {"mcpAllowlist": ["memory-hub:memory_search", "other:*"]}),
            ("zed", ".config/zed/settings.json", {"agent": {"tool_permissions": {"default": "confirm", "tools": {}}}}),
        ):
            for indent in (None, 2):
                with self.subTest(client=client, indent=indent):
                    file = self.file(path, json.dumps(text, indent=indent))
                    before = self.files()
                    self.set_up(find_client(client), "--permissions")
                    if client == "opencode":
                        self.assertIn('"memory-hub_memory_get": "deny"', file.read_text())
                    rules = self.rules(find_client(client))
                    self.assertEqual(len(rules), len(set(rules)))
                    backup_of(file).write_text(
                        backup_of(file).read_text() + "\n"
                    )  # the entries are taken out one by one
                    self.run_setup(client, "--remove", "--yes")
                    backup_of(file).unlink()
                    self.assertEqual(json.loads(file.read_text()), text)
                    self.assertEqual(set(self.files()), set(before))
                    file.unlink()

    def test_one_word_for_all_tools_is_left_alone(self) -> None:
        file = self.file(OPENCODE, '{"permission": "allow"}')
        self.refused(2, "permission must be an object", "opencode", "--yes", "--permissions")
        self.assertIn("Make this change?", self.answer("y\n", "opencode"))
        self.run_setup("opencode", "--remove", "--yes")
        self.assertEqual(file.read_text(), '{"permission": "allow"}')

    def test_the_full_profile_allows_the_names_that_it_lists(self) -> None:
        client = find_client("claude-code")
        self.set_up(client, "--permissions", "--profile", "full")
        self.assertIn("mcp__memory-hub__memory_get_timeline", self.rules(client))
        self.assertNotIn("mcp__memory-hub__memory_delete", self.rules(client))
        self.run_setup(client.id, "--remove", "--yes")
        self.assertEqual(self.files(), {})

    def test_a_repository_has_its_own_list(self) -> None:
        top = self.repository()
        with self.in_folder(top):
            self.run_setup("claude-code", "--repository", "--yes", "--permissions")
            self.assertIn(CLAUDE_RULE, (top / ".claude/settings.json").read_text())
            self.assertIn("has no list of allowed tools", self.run_setup("vscode", "--yes", "--permissions"))


class StatusLineTests(PermissionsTestCase):
    def written_settings(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.user / ".claude/settings.json").read_text())
        return data

    def test_it_runs_the_hook_command_and_goes_with_the_hooks(self) -> None:
        client = find_client("claude-code")
        self.set_up(client)
        line = self.written_settings()["statusLine"]
        self.assertEqual(line["type"], "command")
        self.assertTrue(line["command"].endswith(" hook claude-code StatusLine"))
        self.run_setup(client.id, "--remove", "--yes")
        self.assertEqual(self.files(), {})
        self.set_up(client, "--no-status-line")
        self.assertNotIn("statusLine", self.written_settings())

    def test_one_of_the_user_stays(self) -> None:
        theirs = {"type": "command", "command": "~/.claude/line.sh"}
        file = self.file(".claude/settings.json", json.dumps({"statusLine": theirs}))
        self.set_up(find_client("claude-code"))
        self.assertEqual(self.written_settings()["statusLine"], theirs)
        self.run_setup("claude-code", "--remove", "--yes")
        self.assertEqual(json.loads(file.read_text()), {"statusLine": theirs})

    def test_a_repository_has_none(self) -> None:
        top = self.repository()
        with self.in_folder(top):
            self.run_setup("claude-code", "--repository", "--yes")
        self.assertNotIn("statusLine", (top / ".claude/settings.json").read_text())
