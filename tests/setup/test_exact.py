"""Setting a client up changes nothing but its own entries, and removing it restores every byte."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

from memoryhub.client.setup import entries
from memoryhub.client.setup.clients import config_file, hooks_file
from memoryhub.client.setup.document import backup_of, read_document
from memoryhub.config.clients import Client, all_clients
from tests.setup.test_setup import CLAUDE, SetupTestCase

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
        project = ("--project", "alpha") if client.names_no_folder else ()
        self.run_setup(client.id, "--yes", *options, *project)
        after = self.files()
        self.assertNotEqual(before, after)
        self.assertIn("nothing to do", self.run_setup(client.id, "--yes", *options))
        self.assertEqual(self.files(), after)
        for path, content in before.items():
            if after[path] == content:
                continue
            rest = iter(after[path])
            self.assertTrue(all(byte in rest for byte in content), "bytes were removed")
            self.assertEqual(backup_of(path).read_bytes(), content)
        self.run_setup(client.id, "--yes", "--remove", *options)
        self.assertEqual(self.files(), before)
        self.assertIn("nothing to do", self.run_setup(client.id, "--yes", "--remove", *options))

    def cases(self, client: Client) -> dict[str, dict[Path, str]]:
        """Return the files of each case: that of the servers and that of the hooks are in the same state."""
        config, hooks = config_file(client, None), hooks_file(client, None)
        servers = {"other": {"command": "x", "args": ["1", "2"]}}
        texts = toml_texts() if config.suffix == ".toml" else json_texts(client.servers[0], servers)
        found = {name: {config: text} for name, text in texts.items()}
        if hooks and hooks != config and hooks.suffix == ".json":
            for name, text in json_texts("hooks", hooks_of_others(client)).items():
                found.setdefault(name, {})[hooks] = text
        return {"absent files": {}, **found}

    def test_every_byte_is_restored(self) -> None:
        for client in all_clients().values():
            for name, files in self.cases(client).items():
                with self.subTest(client=client.id, file=name):
                    for path, text in files.items():
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(text.encode())
                    self.check(client)
                for path in self.files():
                    path.unlink()

    def test_a_repositorys_files_are_restored(self) -> None:
        top = self.user / "work"
        subprocess.run(["git", "init", "-q", str(top)], check=True)
        for client in all_clients().values():
            if client.repository:
                path = config_file(client, top)
                path.parent.mkdir(exist_ok=True)
                path.write_text(TOML if path.suffix == ".toml" else COMMENTS.replace("KEY", client.servers[0]))
                with self.subTest(client=client.id), mock.patch.object(Path, "cwd", return_value=top):
                    self.check(client, "--repository")
                path.unlink()

    def test_the_second_format_of_opencode_is_followed(self) -> None:
        client = all_clients()["opencode"]
        for name, text in (
            ("opencode.json", '{\n  "mcp": {\n    "servers": {}\n  }\n}\n'),
            (
                "opencode.jsonc",
                '{\n  "mcp": {\n    "servers": {\n      // mine\n      "a": {"type": "local"},\n    },\n  },\n}',
            ),
        ):
            path = self.user / ".config/opencode" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            self.run_setup("opencode", "--yes")
            servers = read_document(path).data["mcp"]["servers"]
            self.assertEqual(set(servers["memory-hub"]), {"type", "command"})
            self.run_setup("opencode", "--yes", "--remove")
            self.check(client)
            path.unlink()

    def test_what_others_change_afterwards_stays(self) -> None:
        path = self.claude('{\n  "mcpServers": {},\n  "starts": 1\n}\n')
        self.run_setup("claude-code", "--yes")
        path.write_text(path.read_text().replace('"starts": 1', '"starts": 2'))
        self.run_setup("claude-code", "--yes", "--remove")
        self.assertEqual(path.read_text(), '{\n  "mcpServers": {},\n  "starts": 2\n}\n')
        self.assertIn('"starts": 1', backup_of(path).read_text())

    def test_comments_in_a_file_that_setup_created_stay(self) -> None:
        for client, file in (("codex", ".codex/config.toml"), ("cursor", ".cursor/mcp.json")):
            path = self.user / file
            self.run_setup(client, "--yes", "--no-hooks")
            comment, text = "# mine\n" if path.suffix == ".toml" else "// mine\n", path.read_text()
            path.write_text(comment + text)
            self.run_setup(client, "--yes", "--remove")
            self.assertTrue(path.exists(), client)
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
        path = self.user / ".cursor/hooks.json"
        path.parent.mkdir()
        text = '{\n  "version": 1,\n  "hooks": {\n    "stop": [\n      {"command": "say done"} // mine\n    ]\n  }\n}\n'
        path.write_text(text)
        self.run_setup("cursor", "--yes")
        backup_of(path).unlink()
        self.run_setup("cursor", "--yes", "--remove")
        self.assertEqual(path.read_text(), text)
