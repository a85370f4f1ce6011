"""The packages, read by the programs that they are for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from zipfile import ZipFile

from django.test import tag

from memoryhub import __version__
from tests.packages.test_contents import PackagesTestCase
from tests.programs import NODE_MODULES, needs, path_of

CLAUDE = NODE_MODULES / "@anthropic-ai" / "claude-code" / "cli.js"
GEMINI = NODE_MODULES / "@google" / "gemini-cli" / "bundle" / "gemini.js"
MCPB = NODE_MODULES / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js"


@needs("client programs")
@tag("conformance")
class ProgramTests(PackagesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.user = Path(tempfile.mkdtemp(prefix="user-", dir=self.folder.parent))
        self.addCleanup(shutil.rmtree, self.user, ignore_errors=True)

    def run_node(self, script: Path, *words: str | Path) -> str:
        """Run a client's program as a new user, and return what it prints."""
        unrelated = {name: value for name, value in os.environ.items() if not name.startswith(("CLAUDE", "GEMINI"))}
        environment = {**unrelated, "HOME": str(self.user), "DISABLE_AUTOUPDATER": "1", "CI": "true"}
        command = [path_of("node"), str(script), *map(str, words)]
        pipe = subprocess.PIPE
        done = subprocess.run(
            command, cwd=self.user, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT,
            text=True, timeout=300, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_claude_code_validates_the_marketplace_and_the_plugin(self):
        for folder in ("plugins", "plugins/claude-code"):
            printed = self.run_node(CLAUDE, "plugin", "validate", self.folder / folder)
            self.assertIn("Validation passed", printed)
            self.assertNotIn("warning", printed)

    def test_claude_code_installs_the_plugin_with_all_its_parts(self):
        self.run_node(CLAUDE, "plugin", "marketplace", "add", self.folder / "plugins")
        self.run_node(CLAUDE, "plugin", "install", "memory-hub@memory-hub")
        (listed,) = json.loads(self.run_node(CLAUDE, "plugin", "list", "--json"))
        self.assertEqual((listed["version"], listed["enabled"]), (__version__, True))
        self.assertEqual(
            tree_of(Path(listed["installPath"])) - {".in_use"}, tree_of(self.folder / "plugins" / "claude-code")
        )

    def test_gemini_cli_validates_and_links_the_extension(self):
        extension = self.folder / "gemini-cli"
        self.assertIn("has been successfully validated", self.run_node(GEMINI, "extensions", "validate", extension))
        self.run_node(GEMINI, "extensions", "link", "--consent", extension)
        listed = self.run_node(GEMINI, "extensions", "list")
        self.assertIn(f"memory-hub ({__version__})", listed)
        self.assertIn("MCP servers:\n  memory-hub", listed)
        self.assertIn("Agent skills:\n  memory-hub: Searches", listed)

    def test_mcpb_reads_the_bundle_and_packs_the_same(self):
        (bundle,) = self.folder.glob("*.mcpb")
        self.run_node(MCPB, "unpack", bundle, self.user / "bundle")
        self.assertIn("passes", self.run_node(MCPB, "validate", self.user / "bundle" / "manifest.json"))
        self.run_node(MCPB, "pack", self.user / "bundle", self.user / "packed.mcpb")
        self.assertEqual(entries_of(self.user / "packed.mcpb"), entries_of(bundle))


def tree_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def entries_of(archive: Path) -> dict[str, bytes]:
    with ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist()}
