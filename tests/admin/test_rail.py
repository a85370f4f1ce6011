from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from memoryhub.core import log
from sessions_app.events import FileChange
from sessions_app.schemas import CommitRecord
from sessions_app.services import record_commits
from sessions_app.templatetags.rail import MAX_SHOWN
from tests.admin.base import text_of
from tests.admin.working import WorkingTestCase

SHA = "0123456789abcdef0123456789abcdef01234567"


class RailTests(WorkingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.session = self.start("s-1", "Lay the floor")

    def rail(self, **query: str) -> str:
        page = self.page(f"sessions_app/session/{self.session}/change/", "alpha", 200, **query)
        return page[page.index('id="rail"') :]

    def entry(self, position: int) -> str:
        return re.search(rf'<li class="entry[^"]*" id="e{position}">.*?</li>', self.rail(), re.DOTALL)[0]  # type: ignore[index]

    def test_every_kind_of_event_has_an_icon_a_line_and_a_payload(self) -> None:
        happenings: list[tuple[str, dict[str, Any], str, str]] = [
            ("message.user", {"content": "Measure <it>\nand then cut"}, "Prompt", "Measure <it>"),
            ("message.assistant", {"content": "It is two metres."}, "Answer", "It is two metres."),
            ("message.tool", {"tool": "Read", "input": {"path": "a.py"}}, "Tool", "Read: a.py"),
            ("command.run", {"command": "make test", "exit_code": 2}, "Command", "exit 2"),
            ("file.edited", {"path": "docs/a.md"}, "Edit", "docs/a.md"),
            ("note.added", {"content": "mind the gap"}, "Note", "mind the gap"),
            ("phase.completed", {"phase": "plan"}, "Phase completed", "plan"),
            ("gate.failed", {"phase": "fix", "detail": "two tests"}, "Gate failed", "fix: two tests"),
            ("user.approved", {"subject": "the plan"}, "Approved", "the plan"),
        ]
        turn = self.turn("s-1", *[(kind, payload) for kind, payload, _, _ in happenings])
        for position, (kind, _, mark, line) in enumerate(happenings, turn.id + 1):
            entry = self.entry(position)
            self.assertIn(mark, text_of(entry))
            self.assertIn(line, entry)
            self.assertIn(f"Event #{position}", entry)
            self.assertEqual("is-bad" in entry, kind in ("command.run", "gate.failed"), kind)
        self.assertIn("and then cut", self.entry(turn.id + 1))
        self.assertIn('"path": "a.py"', self.entry(turn.id + 3))

    def test_memories_and_commits_link_to_their_pages(self) -> None:
        memory = self.write("Keep one file a project", session="s-1")
        commit = CommitRecord(
            sha=SHA,
            message="Keep it short\n\nWhy.",
            committed_at=datetime(2026, 3, 4, 12, tzinfo=UTC),
            files=[FileChange(path="a.py")],
        )
        with self.store(session_id="s-1"):
            record_commits(commits=[commit])
        rail = self.rail()
        self.assertIn(f'href="{self.address(f"stream/memory:{memory}/")}">memory #{memory}</a>', rail)
        self.assertIn(f'href="{self.address(f"stream/commit:{SHA}/")}">{SHA[:8]}</a>', rail)
        self.assertIn("Keep it short", rail)

    def test_only_the_last_turn_is_open_and_all_show_their_status(self) -> None:
        first = self.ask("s-1", "Measure it")
        self.ask("s-1", "Cut it", ends=False)
        rail = self.rail()
        turns = re.findall(r'<li class="rail-turn is-(\w+)" id="t\d+-\d+">\s*<details( open)?>', rail)
        self.assertEqual(turns, [("closed", ""), ("open", " open")])
        for text in ("Measure it", "Closed", "Automatic", "1 event ", f"Turn #{first.id}"):
            self.assertIn(text, text_of(rail))

    def test_a_long_text_is_marked_as_truncated(self) -> None:
        turn = self.turn("s-1", ("command.run", {"command": "make", "output": "x" * (MAX_SHOWN + 500)}))
        entry = self.entry(turn.id + 1)
        self.assertIn("Truncated", entry)
        self.assertNotIn("x" * (MAX_SHOWN + 1), entry)

    def test_an_erased_event_is_marked(self) -> None:
        memory = self.write("a secret plan", session="s-1")
        with self.store():
            log.erase_streams([f"memory:{memory}"], reason="asked for")
        self.assertIn("was erased", self.entry(memory))
        self.assertNotIn("a secret plan", self.rail())

    def test_a_long_session_has_pages_that_link_to_each_other(self) -> None:
        self.turn("s-1", *[("note.added", {"content": f"note {number}"}) for number in range(450)])
        seen: list[str] = []
        query: dict[str, str] = {}
        for _ in range(3):
            rail = self.rail(**query)
            shown = re.findall(r'id="e(\d+)"', rail)
            self.assertLessEqual(len(shown), 200)
            seen = shown + seen
            earlier = re.search(r'href="\?before=(\d+)#rail" rel="prev"', rail)
            query = {"before": earlier[1]} if earlier else {}
        self.assertEqual(seen, [str(position) for position in range(1, 453) if position != 2])
        self.assertFalse(query)
        self.assertIn("note 0", self.rail(after="0"))
        self.assertIn("No events here", self.rail(after="9999"))

    def test_an_invalid_cursor_shows_the_last_page(self) -> None:
        self.ask("s-1", "Measure it")
        for cursor in ("-1", "x", "1" * 40, "²", ""):
            self.assertIn("Measure it", self.rail(before=cursor))

    def test_counts_what_happened(self) -> None:
        self.turn("s-1", ("message.user", {"content": "go"}), ("command.run", {"command": "make"}))
        self.write("a note", session="s-1")
        self.assertIn("1 turn 1 prompt 1 command 1 memory", text_of(self.rail()))

    def test_a_page_makes_as_many_queries_for_many_turns_as_for_few(self) -> None:
        self.ask("s-1", "one")
        self.write("first", session="s-1")
        path = f"sessions_app/session/{self.session}/change/"
        few = self.queries_of(path)
        for number in range(15):
            self.ask("s-1", f"prompt {number}")
            self.write(f"note {number}", f"text {number}", session="s-1")
        self.assertLessEqual(self.queries_of(path), few)

    def test_beta_sees_nothing_of_it(self) -> None:
        self.ask("s-1", "Measure the zebrafish")
        self.page(f"sessions_app/session/{self.session}/change/", "beta", status=404)
        for path in ("sessions_app/session/", "sessions_app/turn/", "sessions_app/iteration/"):
            self.assertNotIn("zebrafish", self.page(path, "beta"))
