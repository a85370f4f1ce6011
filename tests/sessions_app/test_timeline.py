from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connections
from django.test import SimpleTestCase, tag
from django.test.utils import CaptureQueriesContext

from memories.schemas import MemoryTouch, MemoryWrite
from memories.services import delete_memory, write_memory
from memoryhub.core import clock, log
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store
from sessions_app.models import Session
from sessions_app.schemas import EventAppend, SessionStart, TurnBegin
from sessions_app.services import start_session
from sessions_app.services.turns import append_event, begin_turn, close_turn
from sessions_app.timeline import (
    TimelineItem,
    TimelinePage,
    event_title,
    first_prompts,
    session_events,
    split_text,
    timeline_page,
    turn_events,
)
from tests.admin.base import WorkingTestCase

EVENING = datetime(2026, 3, 4, 23, 59, 50, tzinfo=UTC)


class TimelineTests(WorkingTestCase):
    def timeline(self, name: str = "s-1", **cut: Any) -> TimelinePage:
        with self.store():
            return timeline_page(session_events(Session.objects.get(session_id=name)), **cut)

    def test_is_grouped_by_day_and_then_by_turn(self) -> None:
        with clock.frozen(EVENING):
            self.start("s-1", "Lay the floor")
            first = self.ask("s-1", "Measure it", ends=False)
        with clock.frozen(EVENING + timedelta(seconds=20)):
            self.tell(first, "note.added", content="two metres")
            self.write("a note", session="s-1")
        days = self.timeline().days
        self.assertEqual([str(day.date) for day in days], ["2026-03-04", "2026-03-05"])
        shown = [[(part.prompt, [entry.title for entry in part.entries]) for part in day.parts] for day in days]
        evening = [("", ["Lay the floor"]), ("Measure it", ["Measure it"])]
        self.assertEqual(shown, [evening, [("Measure it", ["two metres"]), ("", ["a note"])]])
        self.assertTrue(days[1].parts[0].is_last)
        self.assertFalse(days[0].parts[1].is_last)

    def test_turns_that_run_at_once_are_kept_apart(self) -> None:
        self.start("s-1")
        with self.store():
            begun = {name: begin_turn(command=TurnBegin(session_id="s-1", turn_id=name)) for name in ("a", "b")}
            for name in ("a", "b", "a"):
                note = {"type": "note.added", "payload": {"content": f"of {name}"}}
                append_event(command=EventAppend(ack_token=begun[name].ack_token, **note))
        parts = self.timeline().days[0].parts[1:]
        shown = {part.turn.turn_id: [entry.title for entry in part.entries] for part in parts if part.turn}
        self.assertEqual(shown, {"a": ["of a", "of a"], "b": ["of b"]})

    @tag("backend")
    def test_pages_lead_from_end_to_end_and_back_and_leave_nothing_out(self) -> None:
        self.start("s-1")
        self.turn("s-1", *[("note.added", {"content": f"note {number}"}) for number in range(23)])
        with self.store():
            everything = list(range(1, log.head()[0] + 1))
        back = self.pages_towards("earlier")[::-1]
        forth = self.pages_towards("later", after=0)
        self.assertEqual((back[-1].later, forth[0].earlier), (None, None))
        self.assertEqual((self.timeline(before=1), self.timeline(after=99)), (TimelinePage([]), TimelinePage([])))
        for pages in (back, forth):
            covered = [position for page in pages for position in range(page.first, page.last + 1)]
            self.assertEqual(covered, everything)
            self.assertEqual(sum(page.count for page in pages), len(everything))

    def pages_towards(self, end: str, **cut: Any) -> list[TimelinePage]:
        pages = [self.timeline(size=10, **cut)]
        while edge := getattr(pages[-1], end):
            cut = {"before": edge} if end == "earlier" else {"after": edge}
            pages.append(self.timeline(size=10, **cut))
        return pages

    def test_a_turn_holds_what_happened_in_it_and_not_what_came_later(self) -> None:
        self.start("s-1")
        first = self.ask("s-1", "one", ends=False)
        with self.store(session_id="s-1", turn_id=first.turn_id):
            memory = write_memory(command=MemoryWrite(title="kept in it", content="text")).id
        self.tell(first, "note.added", content="last")
        with self.store():
            first = close_turn(first)
        second = self.ask("s-1", "two")
        with self.store():
            first_events = list(turn_events(first).values_list("position", flat=True))
            self.assertIn(memory, first_events)
            self.assertEqual(turn_events(second).count(), 3)
            self.assertFalse(set(first_events) & set(turn_events(second).values_list("position", flat=True)))
            self.assertEqual(first_prompts([first, second]), {first.id: "one", second.id: "two"})

    def test_a_session_has_its_start_titles_of_memories_and_what_was_erased_without_its_text(self) -> None:
        with self.store(session_id="another"):
            start_session(command=SessionStart(session_id="s-1", purpose="Lay the floor"))
        memory = self.write("Keep one file a project", session="elsewhere")
        with self.store(session_id="s-1"):
            delete_memory(command=MemoryTouch(id=memory))
        erased = self.write("a secret plan", session="s-1")
        with self.store():
            log.erase_streams([f"memory:{erased}"], reason="asked for")
        start, deleted, last = self.entries()
        self.assertEqual(start.title, "Lay the floor")
        described = (deleted.type, deleted.title, deleted.thing)
        self.assertEqual(described, ("memory.deleted", "Keep one file a project", "memory"))
        self.assertEqual((last.is_erased, last.title, last.text, last.fields), (True, "", "", {}))

    def test_a_turn_of_the_same_name_in_another_session_has_its_own_prompt(self) -> None:
        begun = []
        for session in ("s-1", "s-2"):
            self.start(session)
            with self.store(), use_origin(session_id=session):
                turn = begin_turn(command=TurnBegin(turn_id="same"))
                payload = {"content": f"asked in {session}\nand more"}
                append_event(command=EventAppend(ack_token=turn.ack_token, type="message.user", payload=payload))
                begun.append(turn.turn)
        with self.store():
            self.assertEqual(first_prompts(begun), {begun[0].id: "asked in s-1", begun[1].id: "asked in s-2"})
            self.assertEqual(RawEvent.objects.filter(turn_id="same").count(), 4)

    def test_makes_as_many_queries_for_many_events_as_for_few(self) -> None:
        self.start("s-1")
        self.ask("s-1", "one")
        few = self.queries()
        for number in range(12):
            turn = self.ask("s-1", f"prompt {number}")
            with self.store(session_id="s-1", turn_id=turn.turn_id):
                memory = write_memory(command=MemoryWrite(title=f"note {number}", content=f"text {number}")).id
                delete_memory(command=MemoryTouch(id=memory))
        self.assertLessEqual(self.queries(), few + 1)

    def queries(self) -> int:
        with self.store(), CaptureQueriesContext(connections[project_store("alpha").alias]) as queries:
            timeline_page(session_events(Session.objects.get(session_id="s-1")))
        return len(queries)

    def entries(self) -> list[TimelineItem]:
        return [entry for day in self.timeline().days for part in day.parts for entry in part.entries]


class AboutTests(SimpleTestCase):
    def test_events_are_described_in_one_line(self) -> None:
        lines: dict[tuple[str, str], dict[str, Any]] = {
            ("message.user", "Measure it"): {"content": "Measure it\n\nTwice."},
            ("message.tool", "Read: core/wal.py"): {"tool": "Read", "input": {"limit": 3, "file_path": "core/wal.py"}},
            ("message.tool", "Ask: what now?"): {"tool": "Ask", "input": "what now?"},
            ("message.tool", "Count"): {"tool": "Count", "input": [1, 2]},
            ("command.run", "make test"): {"command": "make test", "exit_code": 2},
            ("file.edited", "docs/a.md"): {"path": "docs/a.md", "change": "+ a"},
            ("gate.failed", "fix: two tests"): {"phase": "fix", "detail": "two tests"},
            ("user.approved", "the plan"): {"subject": "the plan"},
            ("commit.recorded", "Keep it short"): {"sha": "a" * 40, "message": "Keep it short\n\nWhy."},
            ("iteration.advanced", "plan done, build started"): {"completed": "plan", "phase": "build"},
            ("project.configured", "turn_policy = strict"): {"settings": {"turn_policy": "strict"}},
            ("decision.recorded", "Use WAL"): {"title": "Use WAL", "rationale": "fast"},
        }
        for (kind, line), payload in lines.items():
            self.assertEqual(event_title(kind, payload, ""), line)
        self.assertEqual(event_title("memory.deleted", {"memory_id": 4, "reason": "old"}, "A choice"), "A choice")
        self.assertEqual(event_title("memory.revised", {"title": "New"}, "Old"), "New")
        self.assertEqual(event_title("memory.written", {}, ""), "")

    def test_the_main_text_is_separate_unless_the_line_has_all_of_it(self) -> None:
        command, tool = {"command": "make", "output": "a\nb", "exit_code": 0}, {"tool": "Read", "output": {"lines": 3}}
        for kind, payload, parts in (
            ("command.run", command, ("a\nb", {"command": "make", "exit_code": 0})),
            ("message.user", {"content": "short"}, ("", {"content": "short"})),
            ("message.user", {"content": "one\ntwo"}, ("one\ntwo", {})),
            ("message.tool", tool, ("", tool)),
        ):
            self.assertEqual(split_text(kind, payload), parts)
