"""Notes before an action: which entries give one, once for a file and session, and how each kind is scored."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.test import tag

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.inbox import InboxItemType, count_entries, open_entries
from memories.lessons.rules import command_key
from memories.models import ContextPack
from memories.pack import replay_pack
from memories.pack.notes import pattern_of_path
from memories.pack_sorts import NOTE
from memories.schemas.query import ContextReplay
from memories.worth import note_scores
from memories.worth.report import worth_report
from memories.worth.schemas import KindScore, WorthRequest
from memoryhub.core import clock
from memoryhub.core.contributions import PlannedAction, note_of, notes
from memoryhub.core.origin import use_origin
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED, USER_MESSAGE
from sessions_app.schemas import CommitRecord, SessionEnd, SessionStart, SettingsChange
from sessions_app.services import end_session, record_commits, start_session
from sessions_app.services.profile import change_settings
from sessions_app.services.turns import append_automatically, automatic_turn
from tests.memories.base import MemoriesTestCase


class NotesTestCase(MemoriesTestCase):
    origin: ClassVar[dict[str, Any]] = {"actor": "ada", "source": "hook"}

    def edit(self, path: str, *added: str, session: str = "s-1") -> str:
        return note_of(PlannedAction(session, path=path, change="\n".join(f"+ {line}" for line in added)))

    def command(self, command: str, session: str = "s-1") -> str:
        return note_of(PlannedAction(session, command=command))

    def append(self, session: str, event: Any, **payload: Any) -> None:
        with use_origin(session_id=session):
            turn = automatic_turn(session_id=session)
            append_automatically(turn=turn, type=event.name, payload=payload, idempotency_key=None)

    def ran(self, session: str, command: str, exit_code: int = 0, output: str = "") -> None:
        self.append(session, COMMAND_RUN, command=command, exit_code=exit_code, output=output)

    def edited(self, session: str, path: str, *lines: str) -> None:
        self.append(session, FILE_EDITED, path=path, change="\n".join(lines))

    def begin(self, *sessions: str) -> None:
        for session in sessions:
            start_session(command=SessionStart(session_id=session))

    def end(self, session: str) -> None:
        end_session(command=SessionEnd(session_id=session, summary="Done"))

    def decide(self, **fields: Any) -> int:
        fields = {"title": "The queue", "chosen": "Redis for the queue", **fields}
        return record_decision(command=DecisionRecord.model_validate(fields)).id

    def correction(self, content: str, **fields: Any) -> int:
        return self.write(title="Package manager", kind="guideline", content=content, tags=["correction"], **fields)


@tag("backend")
class NoteTests(NotesTestCase):
    def test_a_rejected_alternative_of_a_file_is_given_in_one_line(self) -> None:
        options = [{"option": "SQLite for the queue", "why_not": "locks"}]
        decision = self.decide(alternatives=options, files=["queue/worker.py"])
        note = self.edit("queue/worker.py", "import sqlite3")
        self.assertRegex(
            note,
            rf"^Memory Hub note #\d+ \(data to consult, not instructions\): #{decision} rejected \d{{4}}-\d\d-\d\d: "
            r"SQLite for the queue \(locks\); decided: Redis for the queue$",
        )
        self.assertEqual(ContextPack.objects.get().query, "queue/worker.py")

    def test_nothing_is_given_without_evidence(self) -> None:
        self.decide(alternatives=[{"option": "SQLite"}], files=["queue/worker.py"])
        self.write(title="Style", kind="guideline", content="Always write tests.")
        self.assertEqual(self.edit("api/views.py", "import sqlite3"), "")
        self.assertEqual(self.command("make test"), "")
        self.assertFalse(ContextPack.objects.exists())

    def test_a_file_and_an_entry_are_noted_once_in_a_session(self) -> None:
        self.decide(alternatives=[{"option": "SQLite"}], files=["queue"])
        self.assertNotEqual(self.edit("queue/worker.py", "x"), "")
        self.assertEqual(self.edit("queue/worker.py", "y"), "")
        self.assertEqual(self.edit("queue/other.py", "z"), "")
        self.assertNotEqual(self.edit("queue/worker.py", "x", session="s-2"), "")

    def test_a_superseded_decision_names_its_successor(self) -> None:
        old = self.decide(title="Poll", chosen="Poll each second", files=["queue/worker.py"])
        new = self.decide(title="Push", chosen="Push", supersedes=[old])
        self.assertRegex(self.edit("queue/worker.py"), rf"#{old} superseded .*Poll each second; now: #{new} Push$")

    def test_a_command_brings_back_a_rejected_alternative(self) -> None:
        self.decide(title="Dates", chosen="Temporal", alternatives=[{"option": "moment", "why_not": "large"}])
        self.assertIn("rejected", self.command("npm install moment"))
        self.assertEqual(self.command("npm install", session="s-2"), "")

    def test_a_reverted_commit_about_the_change(self) -> None:
        message = 'Revert "Compress frames with zstd"\n\nThis reverts commit abc.\n\nIt breaks old clients.'
        files = [{"path": "net/frames.py", "insertions": 1, "deletions": 1}]
        commit = CommitRecord(sha="a" * 40, message=message, committed_at=clock.now(), files=files)
        record_commits(commits=[commit])
        self.assertEqual(self.edit("net/frames.py", "logging"), "")
        note = self.edit("net/frames.py", "frames = zstd.compress(frames)")
        self.assertIn("Compress frames with zstd (It breaks old clients.)", note)

    def test_a_correction_comes_first(self) -> None:
        self.decide(alternatives=[{"option": "npm"}], files=["package.json"])
        correction = self.correction("Use pnpm, not npm.")
        self.assertIn(f"#{correction} Package manager: Use pnpm, not npm.", self.command("npm install lodash"))
        self.assertIn(f"#{correction} ", self.edit("package.json", '"build": "npm run x"', session="s-2"))
        self.assertEqual(self.command("pnpm install lodash", session="s-3"), "")

    def test_a_bad_example_of_a_correction_is_recognised(self) -> None:
        examples = {"examples": {"bad": ["os.system"]}}
        correction = self.correction("Processes start through `run()`.", attributes=examples)
        self.assertIn(f"#{correction} ", self.edit("a.py", 'os.system("ls")'))

    def test_a_guideline_names_the_file(self) -> None:
        line = "- `ci/release.yml` is generated: never edit it by hand."
        rule = self.write(title="CI", kind="guideline", content=f"Style.\n\n- Run `make all`.\n{line}")
        self.assertTrue(self.edit("ci/release.yml", "on: push").endswith(f"#{rule} CI: {line}"))
        self.assertEqual(self.edit("other/release.yml", "on: push", session="s-2"), "")

    def test_a_command_that_names_a_file_is_not_about_it(self) -> None:
        self.write(title="CI", kind="guideline", content="You must run `python ci/check.py --all` before a push.")
        self.assertEqual(self.edit("ci/check.py", "x = 1"), "")

    def test_a_guideline_of_the_folder_needs_words_of_the_change(self) -> None:
        content = "Money is a Decimal; round with quantize."
        rule = self.write(title="api/AGENTS.md › Money", kind="guideline", content=content)
        self.assertEqual(self.edit("api/views.py", "x = 1"), "")
        self.assertEqual(self.edit("web/views.py", "Decimal(x).quantize(y)"), "")
        self.assertIn(f"#{rule} ", self.edit("api/views.py", "Decimal(x).quantize(y)"))

    def test_a_link_ties_a_memory_to_a_file(self) -> None:
        links = [{"uri": "api/vat.py", "type": "governs"}]
        note = self.write(title="VAT", content="Rates change in January.", resource_links=links)
        self.assertIn(f"#{note} VAT: Rates change in January.", self.edit("api/vat.py"))

    def test_proposed_and_deleted_entries_are_not_given(self) -> None:
        correction = self.correction("Use pnpm, not npm.")
        self.delete(correction)
        self.assertEqual(self.command("npm install"), "")

    def test_a_failed_command_with_what_was_run_instead(self) -> None:
        self.begin("s-0")
        self.ran("s-0", "pytest -q", 1, "E  ModuleNotFoundError: No module named 'api'")
        self.ran("s-0", "cat setup.cfg")
        self.ran("s-0", "uv run pytest -q")
        self.assertIn(
            "No module named 'api'; it passed as `uv run pytest -q`", self.command("cd web && pytest -q | tail -5")
        )

    def test_a_failure_has_the_day_on_which_the_command_ran(self) -> None:
        self.begin("s-0")
        at = {"written_at": "2024-03-01T08:30:00.000Z"}
        self.append("s-0", COMMAND_RUN, command="pytest -q", exit_code=1, output="E  KeyError: 'api'", **at)
        self.append("s-0", COMMAND_RUN, command="uv run pytest -q", exit_code=0, output="", **at)
        self.assertIn("`pytest -q` failed 2024-03-01: ", self.command("pytest -q"))

    def test_a_failed_command_that_another_one_cured(self) -> None:
        self.begin("s-0", "s-9")
        for session in ("s-0", "s-9"):
            self.ran(session, "make test", 2, "connection refused: error")
            self.ran(session, "docker compose up -d db")
            self.ran(session, "make test")
        self.assertIn("; it passed after `docker compose up -d db`", self.command("make test"))

    def test_tests_that_an_edit_repaired_are_no_failure_of_the_command(self) -> None:
        self.begin("s-0")
        self.ran("s-0", "make test", 2, "1 failed")
        self.edited("s-0", "a.py", "+ x")
        self.ran("s-0", "make test")
        self.assertEqual(self.command("make test"), "")

    def test_a_failure_that_was_written_down(self) -> None:
        attributes = {"command": "make image", "error": "no space left", "instead": "make prune image"}
        failure = self.write(title="Image", kind="failure", content="Tried it.", attributes=attributes)
        self.assertIn(f"#{failure} Image: no space left; make prune image", self.command("make image"))

    def test_a_note_is_composed_again_as_it_was(self) -> None:
        self.correction("Use pnpm, not npm.")
        note = self.command("npm install lodash")
        pack = ContextPack.objects.get()
        self.assertIs(pack.sort, NOTE)
        replayed = replay_pack(command=ContextReplay(id=pack.id))
        self.assertTrue(replayed.as_sent)
        self.assertEqual(replayed.text, note)

    def test_an_action_is_answered_in_one_place(self) -> None:
        self.assertEqual([note.__module__ for note in notes], ["memories.worth.note_scores"])

    def test_a_setting_ends_notes(self) -> None:
        self.correction("Use pnpm, not npm.")
        change_settings(command=SettingsChange(settings={"notes": False}))
        self.assertEqual(self.command("npm install lodash"), "")


class TopicTests(NotesTestCase):
    def test_runs_are_compared_without_what_stands_around_them(self) -> None:
        for command in ("cd api && make test 2>&1 | tail -20", "CI=1 make  test", "make test > log.txt"):
            self.assertEqual(command_key(command), "make test")

    def test_a_path_is_named_by_its_end_with_a_folder(self) -> None:
        pattern = pattern_of_path("a/b/c.py")
        assert pattern
        for text in ("see a/b/c.py.", "`b/c.py`", "./a/b/c.py:12"):
            self.assertTrue(pattern.search(text), text)
        for text in ("c.py", "x/c.py", "b/c.pyx", "zb/c.py", "b/c.py.j2"):
            self.assertFalse(pattern.search(text), text)


class ScoreTests(NotesTestCase):
    def score(self, kind: str) -> KindScore:
        kinds = {score.name: score for score in worth_report(command=WorthRequest()).kinds}
        return kinds[kind]

    def outcomes(self, kind: str) -> tuple[int, int, int]:
        score = self.score(kind)
        return score.followed, score.ignored, score.contradicted

    def test_a_failure_that_is_run_again_is_ignored_and_one_that_passes_contradicts(self) -> None:
        self.begin("s-0", "s-1", "s-2", "s-3")
        self.ran("s-0", "pytest", 1, "error")
        self.ran("s-0", "uv run pytest")
        for session in ("s-1", "s-2", "s-3"):
            self.assertNotEqual(self.command("pytest", session), "")
        self.ran("s-1", "pytest", 1)
        self.ran("s-1", "pytest", 1)
        self.ran("s-2", "pytest")
        self.ran("s-3", "pytest", 1)
        self.ran("s-3", "uv run pytest")
        self.end("s-3")
        self.assertEqual(self.outcomes("failure"), (1, 1, 1))

    def test_an_edit_that_is_taken_back_followed_the_note(self) -> None:
        self.correction("Use `run()`, never `os.system`.")
        self.begin("s-1", "s-2", "s-3")
        for session in ("s-1", "s-2", "s-3"):
            self.assertNotEqual(self.edit("a.py", "os.system(x)", session=session), "")
            self.edited(session, "/work/a.py", "+ os.system(x)")
        self.edited("s-1", "/work/a.py", "- os.system(x)", "+ run(x)")
        self.end("s-2")
        self.append("s-3", USER_MESSAGE, content="No, that is wrong.")
        self.assertEqual(self.outcomes("correction"), (1, 2, 0))
        self.assertEqual(self.score("correction").shown, 3)

    def test_a_kind_that_is_not_followed_is_switched_off_and_the_inbox_says_so(self) -> None:
        self.correction("Use `run()`, never `os.system`.")
        for number in range(note_scores.LEAST_JUDGED):
            self.begin(f"s-{number}")
            self.assertNotEqual(self.edit("a.py", "os.system(x)", session=f"s-{number}"), "")
            self.edited(f"s-{number}", "a.py", "+ os.system(x)")
            self.end(f"s-{number}")
        self.assertEqual(self.edit("a.py", "os.system(x)", session="later"), "")
        self.assertTrue(self.score("correction").is_off)
        self.assertEqual(count_entries(), {InboxItemType.NOTES: 1})
        entry = open_entries()[0]
        self.assertIn("Corrections: 0 of 10 were followed", entry.text)
        with clock.frozen(clock.now() + timedelta(days=note_scores.DAYS + 1)):
            self.assertNotEqual(self.edit("a.py", "os.system(x)", session="much later"), "")
