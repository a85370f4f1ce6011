"""Sessions, turns, iterations and commits in the admin, and the rail of what happened."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from memories.models import ContextPack
from memories.schemas import MemoryGet
from memories.selectors import get_memories
from memories.uses.drain import count_uses
from memoryhub.core import clock, log
from memoryhub.core.models import RawEvent
from sessions_app.events import FileChange
from sessions_app.hook_parser import parse_hook
from sessions_app.models import Commit, Session
from sessions_app.schemas import (
    CommitRecord,
    IterationAdvance,
    IterationComplete,
    IterationStart,
    SessionEnd,
    TurnBegin,
)
from sessions_app.services import end_session, record_commits
from sessions_app.services.capture import take_event
from sessions_app.services.turns import begin_turn, expire_turns
from sessions_app.services.work import advance_iteration, complete_iteration, start_iteration
from sessions_app.templatetags.rail import MAX_SHOWN
from tests.admin.base import AdminTestCase, WorkingTestCase, text_of

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
SHA = "0123456789abcdef0123456789abcdef01234567"


class SessionTests(WorkingTestCase):
    def test_list_and_detail_show_status_duration_summary_and_what_happened(self) -> None:
        with clock.frozen(NOON):
            ended = self.start("s-1", "Lay the floor")
            memory_id = self.write("a note of that day", session="s-1")
        with clock.frozen(NOON + timedelta(hours=2, minutes=5)), self.store(session_id="s-1"):
            end_session(command=SessionEnd(session_id="s-1", summary="Done.\nOpen: <nothing>"))
        active = self.start("s-2", "Build on it")
        self.write("a note of another", "other", session="s-2")
        self.assertEqual(self.listed("sessions_app/session/"), [active, ended])
        page = text_of(self.page("sessions_app/session/", status__exact="completed"))
        self.assert_shows(
            page, "Lay the floor", "s-1", "Completed", "2 h 5 min", "agent", " 3 ", lacks=("Build on it",)
        )
        texts = ("Open: <nothing>", "a note of that day", f"stream/memory:{memory_id}/")
        self.assert_shows(self.page(f"sessions_app/session/{ended}/change/"), *texts, lacks=("a note of another",))

    def test_the_detail_shows_what_the_agent_was_given(self) -> None:
        self.write("Port of the hub", "The deployment listens on port 8321.")
        answers = [self.hook("SessionStart"), self.hook("UserPromptSubmit", prompt="Which port does the pump have?")]
        self.write("Pump", "The pump has its own port.")
        answers.append(self.hook("UserPromptSubmit", prompt="So which port does the pump have?"))
        self.assertEqual([bool(answer) for answer in answers], [True, False, True])
        with self.store():
            started, for_prompt = ContextPack.objects.order_by("id").values_list("id", flat=True)
        page = self.page(self.session_page())
        titles = ("Given to the agent", "Latest changes", "For a prompt", "not used yet", "1 entry")
        self.assert_shows(text_of(page), *titles, f"Pack #{started}", f"Pack #{for_prompt}")
        self.assertEqual(page.count(f"memories/contextpack/{for_prompt}/change/"), 1)
        self.assert_shows(page, f"stream/pack:{for_prompt}/")

    def session_page(self) -> str:
        with self.store():
            return f"sessions_app/session/{self.session_of('s-1')}/change/"

    def test_each_line_that_the_agent_was_given_shows_what_became_of_it(self) -> None:
        notes = [self.write(title, f"{title}, in full") for title in ("The pump", "The valve", "The hose", "The tap")]
        self.hook("SessionStart")
        page = self.session_page()
        self.assertEqual(self.outcomes(page), dict.fromkeys(notes, "Not used yet"))
        with self.store(actor="agent", source="mcp", session_id="s-1"):
            get_memories(command=MemoryGet(ids=notes[:1]))
            self.assertEqual(self.outcomes(page)[notes[0]], "Used")
            count_uses()
            cites = self.write("The pump leaks", f"See #{notes[1]}.", session="s-1")
            message = f"Mend it\n\nAs #{notes[2]} says"
            record_commits(commits=[CommitRecord(sha=SHA, message=message, committed_at=NOON)])
            commit = Commit.objects.get().id
        with self.store(session_id="s-2", source="mcp"):
            get_memories(command=MemoryGet(ids=notes[3:]))
        expected = dict(zip(notes, ("Used", "Cited", "Cited", "Not used yet"), strict=True))
        self.assertEqual(self.outcomes(page), expected)
        with self.store(session_id="s-1"):
            end_session(command=SessionEnd(session_id="s-1", summary="done"))
        self.assertEqual(self.outcomes(page), expected | {notes[3]: "Ignored"})
        self.assert_shows(
            text_of(self.page(page)),
            f"#{notes[1]} The valve Cited in memory #{cites} The pump leaks",
            f"#{notes[2]} The hose Cited in commit #{commit} Mend it",
            "3 used 2 of them cited",
        )

    def outcomes(self, page: str) -> dict[int, str]:
        packs = self.page(page).partition('id="given"')[2].partition("</section>")[0].partition("given-verbatim")[2]
        lines = re.findall(r"<code class=\"id\">#(\d+)</code>.*?badge-\w+\">([\w ]+)</span>", packs, re.S)
        return {int(memory): outcome for memory, outcome in lines}

    def test_the_number_of_queries_does_not_depend_on_the_packs(self) -> None:
        self.write("Port of the hub", "The deployment listens on port 8321.")
        self.hook("SessionStart")
        queries = []
        for number in range(4):
            self.write(f"Pump {number}", f"The pump {number} has its own port.")
            self.hook("UserPromptSubmit", prompt=f"Which port does the pump {number} have?")
            queries.append(self.queries_of(self.session_page()))
        with self.store():
            self.assertGreater(ContextPack.objects.count(), 3)
        self.assertEqual(queries[-1], queries[0])

    def hook(self, name: str, **fields: str) -> str:
        data = {"session_id": "s-1", "cwd": str(self.home), **fields}
        event = parse_hook(client="claude-code", event=name, data=data)
        return take_event(event=event, client="claude-code", project="alpha", idempotency_key=f"{name} {fields}")

    def test_a_session_without_a_purpose_is_titled_with_its_first_prompt(self) -> None:
        session_id = self.start("s-1")
        for prompt in ("Measure it\nwith care", "Cut it"):
            self.ask("s-1", prompt)
        self.start("s-2")
        page = text_of(self.page("sessions_app/session/"))
        self.assert_shows(page, "Measure it s-1", "No purpose s-2", lacks=("Cut it",))
        self.assert_shows(self.page(f"sessions_app/session/{session_id}/change/"), "<h1>Measure it</h1>")
        self.assert_shows(self.page("sessions_app/turn/"), ">Measure it</a>")

    def test_empty_lists_name_the_next_step(self) -> None:
        for name in ("session", "turn", "iteration"):
            self.assert_shows(self.page(f"sessions_app/{name}/", "beta"), f"<h2>No {name}s yet</h2>\n    <p>")
        self.assert_shows(self.page("sessions_app/commit/", "beta"), "memory-hub import git")

    def test_a_session_name_redirects_to_the_session_or_to_its_events(self) -> None:
        session_id = self.start("s/1")
        self.write("a note", session="loose")
        for name, path in (
            ("s/1", f"sessions_app/session/{session_id}/change/"),
            ("loose", "core/rawevent/?session=loose"),
        ):
            answer = self.client.get(self.address(f"sessions_app/session/named/{name}/"))
            self.assertRedirects(answer, self.address(path))

    def test_nothing_can_be_changed(self) -> None:
        session_id = self.start("s-1", "Lay the floor")
        self.client.post(self.address(f"sessions_app/session/{session_id}/change/"), {"purpose": "changed"})
        self.assertEqual(self.client.post(self.address("sessions_app/session/add/")).status_code, 403)
        answer = self.client.post(self.address(f"sessions_app/session/{session_id}/delete/"), {"post": "yes"})
        self.assertEqual(answer.status_code, 403)
        with self.store():
            self.assertEqual(Session.objects.get().purpose, "Lay the floor")


class CommitTests(AdminTestCase):
    def record(self, sha: str, **fields: Any) -> None:
        with self.store(actor="owner", source="cli"):
            record_commits(commits=[CommitRecord(sha=sha, committed_at=NOON, **fields)])

    def test_list_and_detail_show_subject_author_date_and_files_with_bars(self) -> None:
        files = [
            FileChange(path="src/<a>.py", insertions=30, deletions=10),
            FileChange(path="src/b.py", insertions=0, deletions=20),
            FileChange(path="logo.png"),
        ]
        message = "Keep one file a project\n\nBecause <isolation>."
        self.record(SHA, message=message, author="Ada <ada@example.org>", files=files)
        page = text_of(self.page("sessions_app/commit/"))
        texts = ("Keep one file a project", SHA[:10], "Ada", "2026-03-04 12:00", "+30", "−30")
        self.assert_shows(page, *texts, lacks=("ada@example.org",))
        self.assertEqual(self.listed("sessions_app/commit/", q="isolation"), [1])
        self.assertEqual(self.listed("sessions_app/commit/", q="nowhere"), [])
        page = self.page("sessions_app/commit/1/change/")
        bars = ('class="bar-plus" width="60.0"', 'class="bar-minus" x="60.0" width="20.0"')
        self.assert_shows(page, "Because <isolation>.", "src/<a>.py", "binary", *bars)
        self.assert_shows(text_of(page), "3 changed")
        self.record("f" * 40)
        answer = self.client.get(self.address(f"stream/commit:{'f' * 40}/"), follow=True)
        self.assertEqual(answer.redirect_chain[-1][0], self.address("sessions_app/commit/2/change/"))
        self.assert_shows(answer.content.decode(), "No changed files are recorded")
        self.assert_shows(self.page("sessions_app/commit/"), "No message")


TURNS = "sessions_app/turn/"


class TurnTests(WorkingTestCase):
    def strict(self, session: str, name: str) -> int:
        with self.store(actor="strict-agent", source="mcp"):
            return begin_turn(command=TurnBegin(session_id=session, turn_id=name)).turn.id

    def test_the_list_shows_prompt_status_session_and_events(self) -> None:
        self.start("s-1", "Lay the floor")
        turn = self.ask("s-1", "Measure it\nwith care", "and again")
        page = self.page(TURNS)
        self.assert_shows(text_of(page), "Measure it", turn.turn_id, "Closed", "Automatic", "Lay the floor", "1 turn")
        self.assert_shows(page, f'href="{self.address("sessions_app/session/named/s-1/")}"', lacks=("with care",))
        self.assertRegex(page, r'class="field-events">2<')

    def test_filters_by_status_recorder_and_session(self) -> None:
        self.start("s-1")
        self.start("s-2")
        closed = self.ask("s-1", "one").id
        opened = self.ask("s-2", "two", ends=False).id
        strict = self.strict("s-2", "by-token")
        for query, ids in (
            ({}, [strict, opened, closed]),
            ({"status__exact": "closed"}, [closed]),
            ({"keeper": "client"}, [strict]),
            ({"keeper": "hub"}, [opened, closed]),
            ({"session": "s-2"}, [strict, opened]),
            ({"q": "by-token"}, [strict]),
        ):
            self.assertEqual(self.listed(TURNS, **query), ids, query)
        with clock.frozen(clock.now() + timedelta(days=1)), self.store():
            expire_turns()
        self.assertIn(strict, self.listed(TURNS, status__exact="incomplete"))
        page = text_of(self.page(f"{TURNS}{strict}/change/"))
        self.assert_shows(page, "Incomplete", "Timed out", "the client", "Timed out without an event")

    def test_the_page_shows_only_its_own_events_under_its_prompt_or_its_name(self) -> None:
        self.start("s-1", "Lay the floor")
        self.ask("s-1", "Measure it")
        turn = self.turn("s-1", ("message.user", {"content": "Cut it"}), summary="It is cut.")
        others = ("Measure it", "rail-turn", turn.ack_token_hash or "no hash")
        self.assert_shows(self.page(f"{TURNS}{turn.id}/change/"), "<h1>Cut it</h1>", "It is cut.", lacks=others)
        turn = self.turn("s-1", ("note.added", {"content": "no prompt here"}))
        self.assert_shows(self.page(f"{TURNS}{turn.id}/change/"), f"<h1>Turn {turn.turn_id}</h1>")
        self.assert_shows(self.page(TURNS), "No prompt recorded")

    def test_its_stream_leads_to_the_turn_and_to_its_events_once_it_is_erased(self) -> None:
        session = self.start("s/1")
        turn = self.ask("s/1", "Measure it")
        with self.store():
            stream = RawEvent.objects.get(position=turn.id).stream_id
        self.assertEqual(self.end_of(stream), self.address(f"{TURNS}{turn.id}/change/"))
        self.assert_shows(self.page(f"{TURNS}{turn.id}/history/"), "turn.ended")
        self.assert_shows(self.end_of("turn:nowhere/nothing"), "core/rawevent/?stream=turn")
        with self.store():
            log.erase_streams([stream], reason="asked for")
        self.page(f"{TURNS}{turn.id}/change/", status=404)
        self.assert_shows(self.end_of(stream), "core/rawevent/?stream=turn")
        self.assert_lacks(self.page(f"sessions_app/session/{session}/change/"), "Measure it")

    def end_of(self, stream: str) -> str:
        """Return the address to which the page of a stream redirects."""
        return str(self.client.get(self.address(f"stream/{stream}/"), follow=True).redirect_chain[-1][0])


ITERATIONS = "sessions_app/iteration/"


class IterationTests(WorkingTestCase):
    def begin(self, description: str = "Keep the log short", *phases: str) -> int:
        with self.store(actor="agent", source="mcp"):
            iteration = start_iteration(command=IterationStart(command="fix", description=description))
            for phase in phases:
                advance_iteration(command=IterationAdvance(phase=phase, artifacts=[f"docs/{phase}.md"]))
            return iteration.id

    def end(self, outcome: str = "", *, abandon: bool = False) -> None:
        with self.store():
            complete_iteration(command=IterationComplete(outcome=outcome, abandon=abandon))

    def commit(self, sha: str, message: str) -> None:
        record = CommitRecord(sha=sha * 40, message=message, committed_at=datetime(2026, 3, 4, tzinfo=UTC))
        with self.store():
            record_commits(commits=[record])

    def test_the_list_shows_status_phases_and_commits(self) -> None:
        first = self.begin("Keep the log short\nfor ever", "plan", "build")
        self.commit("a", "Keep it short")
        self.commit("b", "Measure it")
        page = self.page(ITERATIONS)
        self.assert_shows(text_of(page), "Keep the log short", "fix", "Active", "1 phase done", "now: build")
        self.assertRegex(page, r'class="field-commits">2<')
        self.assert_lacks(page, "for ever")
        self.end()
        second = self.begin("Another")
        self.assertEqual(self.listed(ITERATIONS), [second, first])
        self.assertEqual(self.listed(ITERATIONS, status__exact="completed"), [first])
        self.assertEqual(self.listed(ITERATIONS, q="another"), [second])

    def test_the_page_shows_steps_artifacts_commits_and_timeline(self) -> None:
        page = f"{ITERATIONS}{self.begin('Keep the log short', 'plan', 'build')}/change/"
        self.start("s-1", "Lay the floor")
        self.ask("s-1", "Measure it")
        self.commit("a", "Keep it short")
        self.assert_shows(self.page(page), 'class="is-current" aria-current="step"')
        steps = ("plan done", "build current", "docs/plan.md", "Measure it", "Keep it short")
        self.assert_shows(text_of(self.page(page)), *steps)
        self.end("Shorter.")
        self.assert_shows(text_of(self.page(page)), "plan done", "build done")

    def test_an_abandoned_iteration_shows_its_last_phase_and_no_later_events(self) -> None:
        iteration = self.begin("Keep the log short", "plan", "build")
        self.end("It was <not> worth it.", abandon=True)
        self.write("written afterwards")
        texts = ("Abandoned", 'class="is-stopped"', "It was <not> worth it.")
        self.assert_shows(self.page(f"{ITERATIONS}{iteration}/change/"), *texts, lacks=("written afterwards",))

    def test_an_empty_iteration_has_a_page_to_which_its_stream_leads(self) -> None:
        page = f"{ITERATIONS}{self.begin('')}/change/"
        self.assert_shows(text_of(self.page(page)), "No phases yet", "No artifacts yet", "A commit is attached")
        self.assert_shows(self.page(ITERATIONS), "No description")
        self.assertRedirects(self.client.get(self.address("stream/iteration:1/")), self.address(page))


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
            self.assert_shows(entry, line, f"Event #{position}")
            self.assertEqual("is-bad" in entry, kind in ("command.run", "gate.failed"), kind)
        self.assert_shows(self.entry(turn.id + 1), "and then cut")
        self.assert_shows(self.entry(turn.id + 3), '"path": "a.py"')

    def test_memories_and_commits_link_to_their_pages(self) -> None:
        memory = self.write("Keep one file a project", session="s-1")
        with self.store(session_id="s-1"):
            record_commits(commits=[CommitRecord(sha=SHA, message="Keep it short\n\nWhy.", committed_at=NOON)])
        self.assert_shows(
            self.rail(),
            f'href="{self.address(f"stream/memory:{memory}/")}">memory #{memory}</a>',
            f'href="{self.address(f"stream/commit:{SHA}/")}">{SHA[:8]}</a>',
            "Keep it short",
        )

    def test_only_the_last_turn_is_open_and_all_show_their_status(self) -> None:
        first = self.ask("s-1", "Measure it")
        self.ask("s-1", "Cut it", ends=False)
        rail = self.rail()
        turns = re.findall(r'<li class="rail-turn is-(\w+)" id="t\d+-\d+">\s*<details( open)?>', rail)
        self.assertEqual(turns, [("closed", ""), ("open", " open")])
        self.assert_shows(text_of(rail), "Measure it", "Closed", "Automatic", "1 event ", f"Turn #{first.id}")

    def test_a_truncated_and_an_erased_text_are_marked(self) -> None:
        turn = self.turn("s-1", ("command.run", {"command": "make", "output": "x" * (MAX_SHOWN + 500)}))
        self.assert_shows(self.entry(turn.id + 1), "Truncated", lacks=("x" * (MAX_SHOWN + 1),))
        memory = self.write("a secret plan", session="s-1")
        with self.store():
            log.erase_streams([f"memory:{memory}"], reason="asked for")
        self.assert_shows(self.entry(memory), "was erased")
        self.assert_lacks(self.rail(), "a secret plan")

    def test_a_long_session_has_pages_that_link_to_each_other(self) -> None:
        self.turn("s-1", *[("note.added", {"content": f"note {number}"}) for number in range(210)])
        last = self.rail()
        (before,) = re.findall(r'href="\?before=(\d+)#rail" rel="prev"', last)
        first = self.rail(before=before)
        self.assertNotIn('rel="prev"', first)
        pages = [re.findall(r'id="e(\d+)"', page) for page in (first, last)]
        self.assertLessEqual(max(map(len, pages)), 200)
        self.assertEqual(pages[0] + pages[1], [str(position) for position in range(1, 213) if position != 2])
        self.assert_shows(self.rail(after="0"), "note 0")
        self.assert_shows(self.rail(after="9999"), "No events here")

    def test_it_counts_what_happened_and_an_invalid_cursor_shows_the_last_page(self) -> None:
        self.turn("s-1", ("message.user", {"content": "go"}), ("command.run", {"command": "make"}))
        self.write("a note", session="s-1")
        for cursor in ("-1", "x", "1" * 40, "²", ""):
            self.assert_shows(text_of(self.rail(before=cursor)), "1 turn 1 prompt 1 command 1 memory", where=cursor)


EVENING = datetime(2026, 3, 4, 22, 30, tzinfo=UTC)
# What a browser may be made to send in place of a zone.
NO_ZONES = ("", "Nowhere/Land", "../../etc/passwd", "/etc/passwd", "Europe", "\x00", "UTC;x", "é" * 300)


class TimeZoneTests(WorkingTestCase):
    def setUp(self) -> None:
        super().setUp()
        with clock.frozen(EVENING):
            self.session = self.start("s-1", "Lay the floor")
            self.turn("s-1", ("note.added", {"content": "mind the gap"}))

    def test_times_are_in_the_viewers_zone_with_utc_in_the_tooltip(self) -> None:
        pages = {
            "sessions_app/session/": "2026-03-05 07:30",
            f"sessions_app/session/{self.session}/change/": "07:30:00",
        }
        for path, shown in pages.items():
            self.client.cookies.pop("hub_time_zone", None)
            self.assert_lacks(self.page(path), f">{shown}<")
            self.client.cookies["hub_time_zone"] = "Asia/Tokyo"
            self.assert_shows(self.page(path), f">{shown}<", 'title="2026-03-04 22:30:00 UTC"')

    def test_times_name_their_zone_if_it_is_not_the_viewers(self) -> None:
        self.write("A note")
        moment = r'<span class="date">[\d-]+ [\d:]+( UTC)?</span>'
        for zone, suffix in (("", " UTC"), ("Asia/Tokyo", "")):
            self.client.cookies["hub_time_zone"] = zone
            self.assertEqual(set(re.findall(moment, self.page("memories/memory/"))), {suffix})

    def test_what_is_no_zone_is_utc(self) -> None:
        for name in NO_ZONES:
            self.client.cookies["hub_time_zone"] = name
            self.assert_shows(self.page("sessions_app/session/"), "2026-03-04 22:30", where=name)
