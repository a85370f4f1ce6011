"""The commands that the README, the quick start and the guides show."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import TestCase, mock

from tests.home import run_home
from tests.web.server import Shell, serving

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?```(?:console|sh)\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"^\$ (.*(?:\n +.*)*)", re.MULTILINE)  # indented lines continue a command, others are output
NEEDS_SHELL = re.compile(r"[$|<>]")
ADDRESS = "http://127.0.0.1:8321"


def pages() -> list[Path]:
    """Return the pages in the order of the table of contents."""
    guides = re.findall(r"\((guides/[\w-]+\.md)\)", (ROOT / "docs/index.md").read_text())
    return [ROOT / "README.md", ROOT / "docs/quick-start.md", *(ROOT / "docs" / name for name in guides)]


def commands(page: Path) -> Iterator[str]:
    for not_run, text in BLOCK.findall(page.read_text()):
        if not not_run:
            yield from COMMAND.findall(text)


class DocumentedCommandsTests(TestCase):
    user: Path

    def setUp(self) -> None:
        self.user = Path(self.enterContext(tempfile.TemporaryDirectory(dir=run_home())))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        home = {"HOME": str(self.user), "MEMORY_HUB_HOME": str(self.user / ".memory-hub"), "CLAUDE_CONFIG_DIR": ""}
        self.enterContext(mock.patch.dict(os.environ, PATH=path, PYTHONPATH=str(ROOT), PYTHONDEVMODE="", **home))
        self.repository = self.user / "my-project"
        (self.repository / "docs/decisions").mkdir(parents=True)
        (self.repository / "docs/decisions/0001-log.md").write_text("# Log\n\n## Decision\n\nOne log.\n")
        self.execute(
            "git init --quiet && git add . && git -c user.name=A -c user.email=a@b.c commit -qm 'First commit'"
        )

    def test_every_guide_is_in_the_table_of_contents(self):
        self.assertEqual({*(ROOT / "docs/guides").glob("*.md")}, {*pages()[2:]})

    def test_the_commands_of_the_pages_run_in_order(self):
        with serving(home=self.user / ".memory-hub") as server:
            shell = Shell(server.home, folder=self.repository)
            self.addCleanup(shell.close)
            for page in pages():
                for command in commands(page):
                    code, output = self.run_documented(shell, command.replace(ADDRESS, server.address))
                    self.assertEqual(code, 0, f"{page.name}: {command}\n{output}")
                if page.name == "README.md":
                    shell.run("demo", "--remove")  # the quick start creates it again

    def run_documented(self, shell: Shell, command: str) -> tuple[int, str]:
        if command.startswith("memory-hub ") and not NEEDS_SHELL.search(command):
            return shell.run(*map(os.path.expanduser, shlex.split(command)[1:]))
        return self.execute(command)

    def execute(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.repository, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout + done.stderr
