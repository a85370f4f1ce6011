"""What the packages contain: that which the product declares, once."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock
from zipfile import ZipFile

from django.test import SimpleTestCase

from decisions.prompts import instructions
from deploy import build_packages
from deploy.build_packages import Release, build_for_clients, build_formula, read_release
from memoryhub import __version__
from memoryhub.client.setup.agent_files import SKILL_FILE
from memoryhub.client.setup.clients import user_target
from memoryhub.client.setup.entries import command_words
from memoryhub.client.setup.plan import SetupChoices, plan_setup
from memoryhub.config.clients import find_client
from memoryhub.config.enabled import switched_off_in
from memoryhub.mcp.listing import listed_tools, load_tools

COMMAND = f"uvx django-memory-hub@{__version__}"
# By client: the folder of its package, and the file of its server
PACKAGES = {
    "claude-code": ("plugins/claude-code", ".mcp.json"),
    "codex": ("plugins/codex", ".mcp.json"),
    "cursor": ("plugins/cursor", "mcp.json"),
    "gemini-cli": ("gemini-cli", "gemini-extension.json"),
}


class PackagesTestCase(SimpleTestCase):
    folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.folder = Path(tempfile.mkdtemp(prefix="memory-hub-packages-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        build_for_clients(read_release(), cls.folder)

    def read(self, name: str) -> dict[str, Any]:
        data = json.loads((self.folder / name).read_text("utf-8"))
        assert isinstance(data, dict)
        return data


class ContentsTests(PackagesTestCase):
    def set_up(self, client_id: str) -> dict[str, dict[str, Any]]:
        """Return what `memory-hub setup` writes for a new user, by path, with the command of the packages."""
        user = tempfile.mkdtemp(dir=self.folder.parent)
        self.addCleanup(shutil.rmtree, user)
        variables = {"HOME": user, "MEMORY_HUB_HOME": "", "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""}
        with mock.patch.dict(os.environ, variables):
            changes = plan_setup(user_target(find_client(client_id)), SetupChoices())
        written = {}
        for change in changes:
            if "code" not in change.after.data:
                command = json.dumps(shlex.join(command_words()))[1:-1]
                written[change.path.name] = json.loads(json.dumps(change.after.data).replace(command, COMMAND))
        return written

    def test_the_hooks_are_those_that_setup_writes_and_fail_without_blocking(self):
        for client_id, (folder, _) in PACKAGES.items():
            with self.subTest(client=client_id):
                (hooks,) = (data["hooks"] for data in self.set_up(client_id).values() if "hooks" in data)
                written = json.dumps(hooks).replace(COMMAND, COMMAND.replace("uvx", "uvx --offline"))
                written = re.sub(r'("command": "[^"]+)"', r'\1 || true"', written)
                self.assertEqual(self.read(f"{folder}/hooks/hooks.json")["hooks"], json.loads(written))

    def test_the_server_is_that_which_setup_writes(self):
        for client_id, (folder, name) in PACKAGES.items():
            with self.subTest(client=client_id):
                servers = find_client(client_id).servers[0]
                (written,) = (data[servers] for data in self.set_up(client_id).values() if servers in data)
                entry = written["memory-hub"]
                words = shlex.split(COMMAND)
                expected = {
                    **entry,
                    "command": words[0],
                    "args": [*words[1:], *entry["args"][entry["args"].index("mcp") :]],
                }
                self.assertEqual(self.read(f"{folder}/{name}")["mcpServers"], {"memory-hub": expected})

    def test_all_have_the_version_and_no_placeholder_is_left(self):
        versions = set()
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.suffix != ".mcpb":
                text = path.read_text("utf-8")
                self.assertNotRegex(text, "@[A-Z0-9_]+@", path)
                versions |= set(re.findall(r'"version": "([^"]+)"|django-memory-hub@([0-9.]+)', text))
        self.assertEqual({version for pair in versions for version in pair if version}, {__version__})

    def test_every_plugin_has_the_skill(self):
        text = SKILL_FILE.read_text("utf-8")
        copies = [path.read_text("utf-8") for path in sorted(self.folder.rglob("SKILL.md"))]
        self.assertEqual(copies, [text] * (len(PACKAGES) + 1))

    def test_the_librarian_has_the_names_that_tools_of_a_plugin_have(self):
        text = (self.folder / "plugins/claude-code/agents/librarian.md").read_text("utf-8")
        self.assertIn("mcp__plugin_memory-hub_memory-hub__memory_search,", text)
        self.assertNotIn("mcp__memory-hub__", text)
        for path in self.folder.rglob("librarian.md"):
            self.assertTrue(path.read_text("utf-8").endswith(f"\n---\n{instructions()}\n"), path)

    def test_the_server_is_off_in_the_folder_of_the_portable_plugin_only(self):
        for folder in self.folder.glob("*/*"):
            if folder.is_dir():
                reason = switched_off_in(str(folder))
                self.assertEqual(bool(reason), folder.name == "agent-plugins", (folder, reason))

    def test_the_bundle_lists_the_tools_and_depends_on_this_version(self):
        load_tools()
        with ZipFile(self.folder / f"memory-hub-{__version__}.mcpb") as archive:
            manifest = json.loads(archive.read("manifest.json"))
            project = archive.read("pyproject.toml").decode()
            self.assertIn(manifest["server"]["entry_point"], archive.namelist())
        self.assertEqual([tool["name"] for tool in manifest["tools"]], [tool.name for tool in listed_tools("core")])
        self.assertIn(f'dependencies = ["django-memory-hub=={__version__}"]', project)

    def test_the_registry_gets_texts_that_it_takes(self):
        server = self.read("server.json")
        self.assertLessEqual(len(server["description"]), 100)
        self.assertRegex(server["name"], r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$")

    def test_a_second_build_has_the_same_bytes(self):
        second = Path(tempfile.mkdtemp(dir=self.folder.parent))
        self.addCleanup(shutil.rmtree, second)
        build_for_clients(read_release(), second)
        self.assertEqual(bytes_of(second), bytes_of(self.folder))

    def test_the_formula_has_the_digest_of_the_source(self):
        source = Path(tempfile.mkdtemp(dir=self.folder.parent))
        self.addCleanup(shutil.rmtree, source)
        (source / "memory-hub.tar.gz").write_bytes(b"source")
        formula = build_formula(read_release(), source, source / "memory-hub.tar.gz").read_text("utf-8")
        self.assertIn('sha256 "41cf6794ba4200b839c53531555f0f3998df4cbb01a4d5cb0b94e3ca5e23947d"', formula)
        self.assertIn('license all_of: ["MIT", "Apache-2.0"]', formula)

    def test_what_keeps_them_from_being_published_is_named(self):
        release = Release({"OWNER": "example", "REGISTRY_NAME": "io.github.example/memory-hub"})
        with mock.patch.object(build_packages, "ROOT", self.folder):
            (self.folder / "README.md").write_text("Memory Hub\n")
            self.addCleanup((self.folder / "README.md").unlink)
            (sentence,) = build_packages.obstacles(release)
            self.assertIn("<!-- mcp-name: io.github.example/memory-hub -->", sentence)
            (self.folder / "README.md").write_text("<!-- mcp-name: io.github.example/memory-hub -->\n")
            self.assertEqual(build_packages.obstacles(release), [])


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
