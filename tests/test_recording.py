"""The recording in the README comes from a script that runs, and it says what the commands answer."""

from __future__ import annotations

import tempfile
from pathlib import Path
from xml.etree import ElementTree

from django.test import SimpleTestCase

from tests.home import run_home
from tests.recording import PICTURE, SCENES, Take, draw, record

_SPACE = "{http://www.w3.org/2000/svg}"


class RecordingTests(SimpleTestCase):
    def test_the_commands_of_the_recording_run_and_find_what_was_imported(self) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory(dir=run_home())))
        takes = record(folder)
        self.assertEqual([take.command for take in takes], [scene.command for scene in SCENES])
        answers = {take.command: "\n".join(take.lines) for take in takes}
        self.assertIn("Masked on the way in: 1 github-token", answers["memory-hub start --yes"])
        self.assertIn("It passed after `pip install -e .`", answers["memory-hub start --yes"])
        self.assertIn("run `pip install -e .`", answers[SCENES[-2].command])
        self.assertIn("lags by up to 31 minutes", answers[SCENES[-1].command])
        text = "\n".join(answers.values())
        self.assertNotIn(str(folder), text)
        self.assertNotRegex(text, r" in \d+\.\d s")

    def test_a_take_is_drawn_alike_each_time_and_stays_text(self) -> None:
        takes = [Take('memory-hub search "a < b"', ["#2 memory 2026-11-28 A & B: </svg>", "(1 of 1)"])]
        drawn = draw(takes)
        self.assertEqual(drawn, draw(takes))
        self.assertIn("#2 memory 2026-11-28 A & B: </svg>", texts_of(drawn))

    def test_the_picture_shows_the_commands_of_the_script(self) -> None:
        shown = texts_of(PICTURE.read_text())
        for scene in SCENES:
            self.assertIn(f"$ {scene.command}", shown, "run: python -m tests.recording")


def texts_of(drawn: str) -> list[str]:
    return ["".join(text.itertext()) for text in ElementTree.fromstring(drawn).iter(f"{_SPACE}text")]
