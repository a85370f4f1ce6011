from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from memories.models import ContextPack
from memories.schemas import MemoryGet
from memories.selectors import get_memories
from memories.uses.drain import count_uses
from memoryhub.core import clock
from sessions_app.events import FileChange
from sessions_app.hook_parser import parse_hook
from sessions_app.models import Commit, Session
from sessions_app.schemas import CommitRecord, SessionEnd
from sessions_app.services import end_session, record_commits
from sessions_app.services.capture import take_event
from tests.admin.base import AdminTestCase, text_of
from tests.admin.working import WorkingTestCase

NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
SHA = "0123456789abcdef0123456789abcdef01234567"


class SessionTests(WorkingTestCase):
    def test_the_list_shows_status_duration_and_events(self) -> None:
        with clock.frozen(NOON):
            ended = self.start("s-1", "Lay the floor")
            self.write("a note", session="s-1")
        with clock.frozen(NOON + timedelta(hours=2, minutes=5)), self.store(session_id="s-1"):
            end_session(command=SessionEnd(session_id="s-1", summary="done"))
        active = self.start("s-2", "Build on it")
        self.assertEqual(self.listed("sessions_app/session/"), [active, ended])
        page = text_of(self.page("sessions_app/session/", status__exact="completed"))
        for text in ("Lay the floor", "s-1", "Completed", "2 h 5 min", "agent", " 3 "):
            self.assertIn(text, page)
        self.assertNotIn("Build on it", page)

    def test_the_detail_shows_the_summary_and_what_happened(self) -> None:
        session_id = self.start("s-1", "Lay the floor")
        memory_id = self.write("a note of that day", session="s-1")
        self.write("a note of another", "other", session="s-2")
        with self.store(session_id="s-1"):
            end_session(command=SessionEnd(session_id="s-1", summary="Done.\nOpen: <nothing>"))
        page = self.page(f"sessions_app/session/{session_id}/change/")
        self.assertIn("Open: <nothing>", page)
        self.assertIn("a note of that day", page)
        self.assertIn(f"stream/memory:{memory_id}/", page)
        self.assertNotIn("a note of another", page)

    def test_the_detail_shows_what_the_agent_was_given(self) -> None:
        self.write("Port of the hub", "The deployment listens on port 8321.")
        answers = [self.hook("SessionStart"), self.hook("UserPromptSubmit", prompt="Which port does the pump have?")]
        self.write("Pump", "The pump has its own port.")
        answers.append(self.hook("UserPromptSubmit", prompt="So which port does the pump have?"))
        self.assertEqual([bool(answer) for answer in answers], [True, False, True])
        with self.store():
            started, given = ContextPack.objects.order_by("id").values_list("id", flat=True)
            page = self.page(f"sessions_app/session/{Session.objects.get(session_id='s-1').id}/change/")
        shown = text_of(page)
        self.assertIn("Given to the agent", shown)
        for text in ("Latest changes", "For a prompt", f"Pack #{started}", f"Pack #{given}", "not used yet", "1 entry"):
            self.assertIn(text, shown)
        self.assertEqual(page.count(f"memories/contextpack/{given}/change/"), 1)
        self.assertIn(f"stream/pack:{given}/", page)

    def test_each_line_that_the_agent_was_given_shows_what_became_of_it(self) -> None:
        notes = [self.write(title, f"{title}, in full") for title in ("The pump", "The valve", "The hose", "The tap")]
        self.hook("SessionStart")
        with self.store():
            session = Session.objects.get(session_id="s-1")
        page = f"sessions_app/session/{session.id}/change/"
        self.assertEqual(self.outcomes(page), dict.fromkeys(notes, "Not used yet"))
        with self.store(actor="agent", source="mcp", session_id="s-1"):
            get_memories(command=MemoryGet(ids=notes[:1]))
            self.assertEqual(self.outcomes(page)[notes[0]], "Used")
            count_uses()
            cites = self.write("The pump leaks", f"See #{notes[1]}.", session="s-1")
            record_commits(
                commits=[CommitRecord(sha=SHA, message=f"Mend it\n\nAs #{notes[2]} says", committed_at=NOON)]
            )
            commit = Commit.objects.get().id
        with self.store(session_id="s-2", source="mcp"):
            get_memories(command=MemoryGet(ids=notes[3:]))
        expected = dict(zip(notes, ("Used", "Cited", "Cited", "Not used yet"), strict=True))
        self.assertEqual(self.outcomes(page), expected)
        with self.store(session_id="s-1"):
            end_session(command=SessionEnd(session_id="s-1", summary="done"))
        self.assertEqual(self.outcomes(page), expected | {notes[3]: "Ignored"})
        shown = text_of(self.page(page))
        self.assertIn(f"#{notes[1]} The valve Cited in memory #{cites} The pump leaks", shown)
        self.assertIn(f"#{notes[2]} The hose Cited in commit #{commit} Mend it", shown)
        self.assertIn("3 used 2 of them cited", shown)

    def outcomes(self, page: str) -> dict[int, str]:
        lines = re.findall(
            r"<code class=\"id\">#(\d+)</code>.*?badge-\w+\">([\w ]+)</span>", self.given_part(page), re.S
        )
        return {int(memory): outcome for memory, outcome in lines}

    def given_part(self, page: str) -> str:
        return self.page(page).partition('id="given"')[2].partition("</section>")[0].partition("given-verbatim")[2]

    def test_the_number_of_queries_does_not_depend_on_the_packs(self) -> None:
        self.write("Port of the hub", "The deployment listens on port 8321.")
        self.hook("SessionStart")
        with self.store():
            page = f"sessions_app/session/{Session.objects.get(session_id='s-1').id}/change/"
        queries = []
        for number in range(4):
            self.write(f"Pump {number}", f"The pump {number} has its own port.")
            self.hook("UserPromptSubmit", prompt=f"Which port does the pump {number} have?")
            queries.append(self.queries_of(page))
        with self.store():
            self.assertGreater(ContextPack.objects.count(), 3)
        self.assertEqual(queries[-1], queries[0])

    def hook(self, name: str, **fields: str) -> str:
        data = {"session_id": "s-1", "cwd": str(self.home), **fields}
        event = parse_hook(client="claude-code", event=name, data=data)
        return take_event(event=event, client="claude-code", project="alpha", idempotency_key=f"{name} {fields}")

    def test_a_session_without_a_purpose_is_titled_with_its_first_prompt(self) -> None:
        session_id = self.start("s-1")
        self.ask("s-1", "Measure it\nwith care")
        self.ask("s-1", "Cut it")
        self.start("s-2")
        page = text_of(self.page("sessions_app/session/"))
        self.assertIn("Measure it s-1", page)
        self.assertIn("No purpose s-2", page)
        self.assertNotIn("Cut it", page)
        self.assertIn("<h1>Measure it</h1>", self.page(f"sessions_app/session/{session_id}/change/"))
        self.assertIn(">Measure it</a>", self.page("sessions_app/turn/"))

    def test_the_list_makes_as_many_queries_for_many_as_for_few(self) -> None:
        self.start("s-1")
        self.ask("s-1", "one")
        few = self.queries_of("sessions_app/session/")
        for number in range(12):
            self.start(f"other-{number}")
            self.ask(f"other-{number}", f"prompt {number}")
        self.assertLessEqual(self.queries_of("sessions_app/session/"), few)

    def test_empty_lists_name_the_next_step(self) -> None:
        for name in ("session", "turn", "iteration"):
            self.assertIn(f"<h2>No {name}s yet</h2>\n    <p>", self.page(f"sessions_app/{name}/", "beta"))
        self.assertIn("memory-hub import git", self.page("sessions_app/commit/", "beta"))

    def test_a_session_name_redirects_to_the_session_or_to_its_events(self) -> None:
        session_id = self.start("s/1")
        answer = self.client.get(self.address("sessions_app/session/named/s/1/"))
        self.assertRedirects(answer, self.address(f"sessions_app/session/{session_id}/change/"))
        self.write("a note", session="loose")
        answer = self.client.get(self.address("sessions_app/session/named/loose/"))
        self.assertRedirects(answer, self.address("core/rawevent/?session=loose"))

    def test_nothing_can_be_changed(self) -> None:
        session_id = self.start("s-1", "Lay the floor")
        self.client.post(self.address(f"sessions_app/session/{session_id}/change/"), {"purpose": "changed"})
        self.assertEqual(self.client.post(self.address("sessions_app/session/add/")).status_code, 403)
        answer = self.client.post(self.address(f"sessions_app/session/{session_id}/delete/"), {"post": "yes"})
        self.assertEqual(answer.status_code, 403)
        with self.store():
            self.assertEqual(Session.objects.get().purpose, "Lay the floor")


class CommitTests(AdminTestCase):
    def record(self) -> None:
        files = [
            FileChange(path="src/<a>.py", insertions=30, deletions=10),
            FileChange(path="src/b.py", insertions=0, deletions=20),
            FileChange(path="logo.png"),
        ]
        commit = CommitRecord(
            sha=SHA,
            message="Keep one file a project\n\nBecause <isolation>.",
            author="Ada <ada@example.org>",
            committed_at=NOON,
            files=files,
        )
        with self.store(actor="owner", source="cli"):
            record_commits(commits=[commit])

    def test_the_list_shows_subject_author_date_and_lines(self) -> None:
        self.record()
        page = text_of(self.page("sessions_app/commit/"))
        for text in ("Keep one file a project", SHA[:10], "Ada", "2026-03-04 12:00", "+30", "−30"):
            self.assertIn(text, page)
        self.assertNotIn("ada@example.org", page)
        self.assertEqual(self.listed("sessions_app/commit/", q="isolation"), [1])
        self.assertEqual(self.listed("sessions_app/commit/", q="nowhere"), [])

    def test_the_detail_shows_files_with_bars(self) -> None:
        self.record()
        page = self.page("sessions_app/commit/1/change/")
        self.assertIn("Because <isolation>.", page)
        self.assertIn("src/<a>.py", page)
        self.assertIn('class="bar-plus" width="60.0"', page)
        self.assertIn('class="bar-minus" x="60.0" width="20.0"', page)
        self.assertIn("binary", page)
        self.assertIn("3 changed", text_of(page))

    def test_a_hash_redirects_to_its_commit(self) -> None:
        self.record()
        answer = self.client.get(self.address(f"stream/commit:{SHA}/"), follow=True)
        self.assertEqual(answer.redirect_chain[-1][0], self.address("sessions_app/commit/1/change/"))

    def test_a_commit_without_message_or_files_has_a_page(self) -> None:
        with self.store():
            record_commits(commits=[CommitRecord(sha=SHA, committed_at=NOON)])
        self.assertIn("No changed files are recorded", self.page("sessions_app/commit/1/change/"))
        self.assertIn("No message", self.page("sessions_app/commit/"))
