"""The guides for developers do what they say, in a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from django.test import SimpleTestCase, tag

from tests.programs import BARE_VARIABLE
from tests.web.server import ROOT

COPIED = ("memoryhub", "sessions_app", "memories", "decisions", "governance", "templates", "docs", "tests", "manage.py")
_STEP = re.compile(
    r"^ *(?P<act>Append to|Create|Add to the imports of|After `(?P<line>[^`]+)` in|In) `(?P<path>[\w/]+\.py)`:\n\n"
    r" *```python\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_IMPORTS = "from __future__ import annotations\n"


class Step(NamedTuple):
    act: str
    line: str | None
    path: str
    code: str


def steps_of(guide: str) -> Iterator[Step]:
    text = (ROOT / "docs" / "internals" / guide).read_text("utf-8")
    for match in _STEP.finditer(text):
        yield Step(**match.groupdict())


class MechanismsTests(SimpleTestCase):
    def test_every_module_that_a_guide_names_exists(self) -> None:
        for guide in sorted((ROOT / "docs" / "internals").glob("*.md")):
            created = {step.path for step in steps_of(guide.name) if step.act == "Create"}
            named = set(
                re.findall(
                    r"`((?:memoryhub|sessions_app|memories|decisions|governance|tests)/[\w/]+\.py)`", guide.read_text()
                )
            )
            with self.subTest(guide=guide.name):
                self.assertEqual([], sorted(path for path in named - created if not (ROOT / path).exists()))


@tag("process")
class GuidesTests(SimpleTestCase):
    def setUp(self) -> None:
        self.copy = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, self.copy)

    def follow(self, guide: str) -> None:
        for step in steps_of(guide):
            path = self.copy / step.path
            text = "" if step.act == "Create" else path.read_text("utf-8")
            if step.act == "Add to the imports of":
                text = text.replace(_IMPORTS, f"{_IMPORTS}\n{step.code}", 1)
            elif step.line:
                before, line, after = text.partition(f"    {step.line}")
                self.assertTrue(line, f"{step.path} has no line {step.line!r}")
                end_of_line, newline, rest_of_file = after.partition("\n")
                text = before + line + end_of_line + newline + step.code + rest_of_file
            else:
                text += f"\n\n{step.code}"
            path.write_text(text, "utf-8")

    def manage(self, *words: str) -> None:
        finished = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=self.copy,
            env={**os.environ, BARE_VARIABLE: "1"},  # the copy has none of the optional programs, and needs none
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.assertEqual(finished.returncode, 0, finished.stdout[-2_000:] + finished.stderr[-4_000:])

    def test_a_first_change_is_made_and_its_test_passes(self) -> None:
        self.follow("first-change.md")
        self.manage("makemigrations", "memories", "--verbosity", "0")
        self.manage("test", "tests.memories.test_pins")

    def test_the_event_of_a_client_is_declared_and_appended(self) -> None:
        self.follow("new-event.md")
        self.manage("test", "tests.sessions_app.test_tests_run")
