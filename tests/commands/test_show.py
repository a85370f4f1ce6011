"""``memory-hub show``: whatever has an id, laid out for a person."""

from __future__ import annotations

import json
import re

from django.core.management import CommandError, call_command

from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.demo.project import make_demo
from tests.commands.terminals import run_at_terminal
from tests.support import HubTestCase, run_command

DEMO = ("--project", "demo")
# What the sample project has, by its id: the first two lines, and lines further below
SHEETS = {
    2: (r"#2 Find out what .*\nsession first-sketch, completed", r"Turns\n  #3 turn "),
    3: (r"#3 \S+\nturn, closed", r"4 events\n  #3 "),
    4: (r"#4 Have a look at .*\nevent message\.user", r"  session  first-sketch\n"),
    9: (r"#9 The gauge feed lags .*\nmemory v1", r"\n\n  Readings arrive .*\n\nmemory-hub open 9"),
    22: (r"#22 Keep readings .*\niteration, feature, completed", r"Commits\n  #30 "),
    26: (r"#26 Keep readings in a JSON .*\ndecision, superseded\n! now #43", r"Not chosen\n  PostgreSQL \("),
    30: (r"#30 Keep readings .*\ncommit a22268e6dc", r"Files\n  src/tidewatch/store\.py \(\+38 -2\)"),
    43: (r"#43 Keep readings in SQLite\ndecision, accepted", r"Before it\n  #26 superseded .*, supersedes\n"),
    49: (r"#49 #42 .* related_to decision #43 .*\nrelation", r"memory-hub show 42 --project demo\nmemory-hub show 43"),
    78: (r"#78 Pages show local .*\nmemory, guideline/time v1", r"Based on\n  governs src/tidewatch/charts\.py"),
    101: (r"#101 The feed allows .*\nconflict of #92\n! open: ", r"Versions\n  a: v2 .*\n  b: v3 "),
}


class ShowTests(HubTestCase):
    def test_whatever_has_an_id_is_laid_out(self) -> None:
        make_demo()
        for number, (head, below) in SHEETS.items():
            with self.subTest(number):
                done = run_command("show", f"#{number}", *DEMO)
                self.assertEqual((done.code, done.errors), (0, ""))
                self.assertRegex(done.output, rf"\A{head}")
                self.assertRegex(done.output, below)
        done = run_command("show", "26", "9", "--json", *DEMO)
        decision, memory = json.loads(done.output)["results"]
        self.assertEqual((decision["id"], "lineage" in decision, memory["id"]), (26, True, 9))
        self.assertIn("relations", memory)

    def test_an_import_is_shown_with_what_undoes_it(self) -> None:
        notes = self.home / "notes"
        notes.mkdir()
        (notes / "ports.md").write_text("# Ports\n\nIt listens on 8321.\n")
        printed = run_command("import", "markdown", str(notes), "--project", "alpha").output
        (batch,) = re.findall(r"import undo (\d+)", printed)
        shown = run_command("show", batch, "--project", "alpha").output
        self.assertRegex(shown, rf"\A#{batch} {notes}\nimport from markdown\n")
        self.assertRegex(shown, r"Still here\n  \w+: 1\n")
        self.assertIn(f"\nmemory-hub import undo {batch} --project alpha\n", shown)

    def test_a_memory_is_shown_by_its_title(self) -> None:
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="Port", content="It listens on 8321."))
            write_memory(command=MemoryWrite(title="Häfen der Stadt", content="Drei."))
        self.assertRegex(
            run_command("show", "HÄFEN", "der", "stadt", "--project", "alpha").output, r"Häfen der Stadt\n"
        )
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="port", content="The small one."))
        self.assertRegex(run_command("show", "Port", "--project", "alpha").output, r"\A#1 Port\n")
        with self.assertRaisesRegex(CommandError, "there is no #99 here"):
            call_command("show", "99", "--project", "alpha")

    def test_the_state_of_a_review_is_that_of_the_data(self) -> None:
        with self.store("alpha", source="mcp"):
            write_memory(command=MemoryWrite(title="Port", content="It listens on 8321."))
        (data,) = json.loads(run_command("show", "1", "--json", "--project", "alpha").output)["results"]
        self.assertEqual((data["review"], data["acceptance"]), ("accepted", "not reviewed"))
        sheet = run_command("show", "1", "--project", "alpha").output
        self.assertRegex(sheet, r"\n  review +accepted\n  by a person +not reviewed\n")


class ColourTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            write_memory(command=MemoryWrite(title="Port \x1b[31m", content="It listens\x1b[2J on 8321."))

    def test_a_terminal_gets_colour_and_stored_text_none(self) -> None:
        printed = run_at_terminal("show", "1", "--project", "alpha")
        self.assertTrue(printed.startswith("\x1b[2m#1\x1b[0m \x1b[1mPort \\u001b[31m\x1b[0m\n"), repr(printed))
        self.assertIn("  It listens\\u001b[2J on 8321.\n", printed)
        printed = run_at_terminal("search", "port", "--project", "alpha")
        self.assertTrue(printed.startswith("\x1b[2m#1\x1b[0m "), repr(printed))
        self.assertIn("\x1b[1mPort \\u001b[31m\x1b[0m", printed)
        printed = run_at_terminal("show", "99", "--project", "alpha")
        self.assertRegex(printed, r"\A\x1b\[31;1mmemory-hub: there is no #99 here.*\n\x1b\[0m\Z")

    def test_without_colour_a_terminal_gets_what_a_pipe_gets(self) -> None:
        for command in (["show", "1"], ["search", "port"], ["show", "99"], ["context", "port"], ["doctor"]):
            with self.subTest(command):
                done = run_command(*command, "--project", "alpha")
                plain = re.sub(r"pack #\d+", "pack", done.output + done.errors)
                self.assertNotIn("\x1b", plain)
                for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
                    printed = run_at_terminal(*command, "--project", "alpha", variables=variables)
                    self.assertEqual(re.sub(r"pack #\d+", "pack", printed), plain)
