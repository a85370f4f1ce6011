"""What the events of a project show of its work: each finding with its evidence, and none without."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from django.db import connections
from django.test import SimpleTestCase, tag
from django.test.utils import CaptureQueriesContext

from decisions.models import EdgeRelation
from decisions.schemas import DecisionLink, DecisionMark
from decisions.services import link_decisions, mark_decision
from governance.findings import masked
from governance.findings.commands import command_name, error_key
from governance.findings.schemas import FindingKind, ProjectFinding
from governance.findings.selectors import project_findings
from governance.imports import ImportRun, preview_undo, undo_import
from governance.present import findings_lines
from memories.events import AMENDMENT_FOUND, AmendmentFound
from memories.models import AmendmentKind
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core import clock, log
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import SessionRecord
from memoryhub.transfer.sources import SOURCES
from sessions_app.hook_parser import parse_hook
from sessions_app.schemas import CommitRecord
from sessions_app.services import record_commits
from sessions_app.services.capture import take_event
from tests.admin.base import AdminTestCase
from tests.decisions.base import NOON, DecisionsTestCase
from tests.hostile import LINE, MARKUP

MISSING = "tests/conftest.py:1: in <module>\nE   ModuleNotFoundError: No module named 'harbour'"
TOKEN = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
BEGAN = datetime(2026, 11, 1, 9, tzinfo=UTC)


class Transcript:
    """A session as Claude Code writes it."""

    def __init__(self, number: int, folder: str = "/srv/harbour") -> None:
        self.number = number
        self.folder = folder
        self.at = BEGAN + timedelta(days=number)
        self.calls = 0
        self.lines: list[str] = []

    def write(self, role: str, content: Any) -> Transcript:
        self.at += timedelta(seconds=9)
        message = {"role": role, "content": content, "model": "opus"}
        line = {"type": role, "message": message, "uuid": "1", "cwd": self.folder, "timestamp": self.at.isoformat()}
        self.lines.append(json.dumps(line))
        return self

    def user(self, text: str) -> Transcript:
        return self.write("user", text)

    def says(self, text: str) -> Transcript:
        return self.write("assistant", [{"type": "text", "text": text}])

    def uses(self, tool: str, values: dict[str, str], result: str, *, failed: bool = False) -> Transcript:
        self.calls += 1
        self.write("assistant", [{"type": "tool_use", "id": str(self.calls), "name": tool, "input": values}])
        part = {"type": "tool_result", "tool_use_id": str(self.calls), "content": result, "is_error": failed}
        return self.write("user", [part])

    def runs(self, command: str, output: str = "ok", code: int = 0) -> Transcript:
        result = f"Exit code {code}\n{output}" if code else output
        return self.uses("Bash", {"command": command}, result, failed=bool(code))

    def edits(self, path: str) -> Transcript:
        values = {"file_path": f"{self.folder}/{path}", "old_string": "a", "new_string": "b"}
        return self.uses("Edit", values, f"The file {self.folder}/{path} has been updated.")


class FindingsTestCase(DecisionsTestCase):
    def bring(self, *transcripts: Transcript) -> int:
        """Import transcripts as one batch, and return it."""
        home = self.home / "claude"
        records = []
        for transcript in transcripts:
            place = home / "projects" / "-srv-harbour" / f"s{transcript.number}.jsonl"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("\n".join(transcript.lines))
        for record in SOURCES["claude-code"].records(home):
            assert isinstance(record, SessionRecord), record
            records.append(replace(record, project=""))
        (report,) = Importer("claude-code", "alpha").run(records, place=str(home))
        assert report.batch
        return report.batch

    def finding(self, kind: FindingKind) -> ProjectFinding | None:
        return next((finding for finding in project_findings().findings if finding.kind is kind), None)

    def need(self, kind: FindingKind) -> ProjectFinding:
        finding = self.finding(kind)
        assert finding, f"no finding of the {kind}"
        return finding


@tag("backend")
class ErrorTests(FindingsTestCase):
    def test_the_error_of_most_sessions_is_given_with_what_cured_it(self) -> None:
        for number in range(3):
            session = Transcript(number).user("Run the tests").runs("python -m pytest", MISSING, 4)
            session.runs("ls").runs("pip install -e .").runs("python -m pytest", "5 passed").says("They pass.")
            self.bring(session)
        finding = self.need(FindingKind.ERROR)
        error = "ModuleNotFoundError: No module named 'harbour'"
        self.assertEqual(
            finding.sentence, f"“{error}” came up in 3 sessions. It passed after `pip install -e .` in all 3."
        )
        self.assertEqual((finding.count, finding.sessions, finding.subject), (3, 3, error))
        passed, failed, _ = finding.evidence
        self.assertEqual((passed.text, passed.session_id), ("passed: python -m pytest", "claude-code:s2"))
        self.assertIn(f"failed with 4: {error}", failed.text)
        self.assertEqual(failed.at, BEGAN + timedelta(days=2, seconds=27))

    def test_an_error_of_one_session_and_what_names_none_are_left_out(self) -> None:
        first = Transcript(1).user("Test").runs("make test", MISSING, 2).runs("make test", MISSING, 2)
        other = Transcript(2).user("Test").runs("make test", "E   assert 1 == 2\n1 failed", 2)
        self.bring(first, other, Transcript(3).user("Test").runs("make test", "E   assert 1 == 2\n2 failed", 2))
        self.assertIsNone(self.finding(FindingKind.ERROR))

    def test_a_session_that_repeats_the_runs_of_another_meets_no_error_again(self) -> None:
        session = Transcript(1).user("Test").runs("make test", MISSING, 2)
        copied = Transcript(2)
        copied.lines = session.lines
        self.bring(session, copied)
        self.assertIsNone(self.finding(FindingKind.ERROR))

    def test_the_newest_evidence_is_that_of_the_last_sessions_whatever_was_imported_first(self) -> None:
        for number in (5, 9, 1, 3):
            self.bring(Transcript(number).user("Test").runs("make test", MISSING, 2))
        finding = self.need(FindingKind.ERROR)
        sessions = [item.session_id for item in finding.evidence]
        self.assertEqual(sessions, ["claude-code:s9", "claude-code:s5", "claude-code:s3"])

    def test_without_a_cure_it_says_so(self) -> None:
        self.bring(*(Transcript(number).user("Test").runs("make test", MISSING, 2) for number in range(2)))
        self.assertIn("No session shows what cured it.", self.need(FindingKind.ERROR).sentence)


@tag("backend")
class FirstCommandTests(FindingsTestCase):
    def absent(self, number: int) -> Transcript:
        return Transcript(number).user("Test").runs("pytest -q", "bash: line 1: pytest: command not found", 127)

    def test_a_command_that_fails_first_is_given_with_the_one_that_worked(self) -> None:
        self.bring(*(self.absent(number).runs("python -m pytest -q", "5 passed") for number in range(2)))
        finding = self.need(FindingKind.COMMAND)
        sentence = "`pytest` failed on its first run in 2 sessions. `python -m pytest` passed after it in all 2."
        self.assertEqual((finding.sentence, finding.subject), (sentence, "pytest"))
        self.assertIn("pytest: command not found", finding.evidence[0].text)

    def test_one_that_passed_before_it_failed_did_not_fail_first(self) -> None:
        sessions = []
        for number in range(4):
            session = Transcript(number).user("Test").runs("make test").runs("make test", MISSING, 2)
            sessions.append(session.edits("a.py").runs("make test"))
        self.bring(*sessions)
        self.assertIsNone(self.finding(FindingKind.COMMAND))
        self.assertIn("after edits of `a.py` in all 4", self.need(FindingKind.ERROR).sentence)

    def test_it_needs_three_sessions_if_the_same_command_passed_later(self) -> None:
        def session(number: int) -> Transcript:
            return Transcript(number).user("Test").runs("make test", MISSING, 2).edits("a.py").runs("make test")

        self.bring(session(1), session(2))
        self.assertIsNone(self.finding(FindingKind.COMMAND))
        self.bring(session(3))
        self.assertEqual(
            self.need(FindingKind.COMMAND).sentence,
            "`make test` failed on its first run in 3 sessions. It passed later in all 3.",
        )

    def test_looking_for_something_and_commands_of_several_steps_fail_no_first_run(self) -> None:
        for number in range(3):
            self.bring(
                Transcript(number).user("Look").runs("grep -rn tide .", "", 1).runs("npm ci && npm test", MISSING, 1)
            )
        self.assertIsNone(self.finding(FindingKind.COMMAND))


@tag("backend")
class CorrectedFileTests(FindingsTestCase):
    def corrected(self, number: int, path: str = "tides/feed.py") -> Transcript:
        session = Transcript(number).user("Read the feed").edits(path).says("Done.")
        return session.user(f"No, the feed is in metres, not feet ({number})").edits(path).says("Changed.")

    def test_the_file_that_users_corrected_in_most_sessions(self) -> None:
        self.bring(self.corrected(1), self.corrected(2), self.corrected(3, "other.py"))
        finding = self.need(FindingKind.FILE)
        self.assertEqual(finding.sentence, "You corrected what was done to `tides/feed.py` in 2 sessions.")
        self.assertEqual([item.text for item in finding.evidence], [self.text(2), self.text(1)])

    def text(self, number: int) -> str:
        return f"No, the feed is in metres, not feet ({number})"

    def test_a_file_that_the_correction_names_is_meant(self) -> None:
        for number in (1, 2):
            session = Transcript(number).user("Read the feed").edits("tides/feed.py").edits("tides/units.py")
            self.bring(session.says("Done.").user(f"No, feed.py is in metres ({number})").edits("tides/units.py"))
        self.assertEqual(self.need(FindingKind.FILE).subject, "tides/feed.py")

    def test_a_correction_that_names_another_file_is_not_about_the_edited_ones(self) -> None:
        for number in (1, 2):
            session = Transcript(number).user("Read the feed").edits("tides/feed.py").says("Done.")
            self.bring(session.user(f"No, don't touch tests/test_feed.py ({number})").edits("tides/feed.py"))
        self.assertIsNone(self.finding(FindingKind.FILE))

    def test_one_session_files_elsewhere_and_agreement_are_no_finding(self) -> None:
        thanks = Transcript(9).user("Read the feed").edits("a.py").says("Done.").user("No problem, thanks")
        outside = [self.corrected(number, "../../home/maya/plan.py") for number in (3, 4)]
        self.bring(self.corrected(1), thanks, *outside)
        self.assertIsNone(self.finding(FindingKind.FILE))

    def test_without_corrections_commits_that_fix_a_file_soon_are_the_evidence(self) -> None:
        for number in range(10):
            subject = "fix: read the feed" if number % 2 else "Read more of the feed"
            self.commit_at(number, subject, "tides/feed.py", "CHANGELOG.md")
            self.commit_at(number + 100, "fix: of long ago", "old.py", days=60 * number)
        finding = self.need(FindingKind.FILE)
        self.assertEqual(finding.subject, "tides/feed.py")
        self.assertTrue(
            finding.sentence.startswith("5 commits that fix something touched `tides/feed.py` within 7 days")
        )
        self.assertEqual({item.type for item in finding.evidence}, {"commit"})

    def commit_at(self, number: int, message: str, *paths: str, days: int | None = None) -> None:
        files = [{"path": path, "insertions": 1, "deletions": 0} for path in paths]
        at = NOON - timedelta(days=700 - (number if days is None else days))
        values = {"sha": f"{number:040x}", "message": message, "author": "Ada", "committed_at": at, "files": files}
        record_commits(commits=[CommitRecord.model_validate(values)])


@tag("backend")
class ContradictionTests(FindingsTestCase):
    def test_decisions_in_conflict_that_are_both_in_force(self) -> None:
        first, second = self.record("Use SQLite").id, self.record("Use PostgreSQL").id
        self.assertIsNone(self.finding(FindingKind.DECISIONS))
        link_decisions(command=DecisionLink(id=second, relation=EdgeRelation.CONFLICTS_WITH, to=first))
        finding = self.need(FindingKind.DECISIONS)
        names = f"#{first} “Use SQLite” and #{second} “Use PostgreSQL”"
        self.assertEqual(finding.sentence, f"{names} are recorded as in conflict, and both are in force.")
        self.assertEqual([item.id for item in finding.evidence], [second, first])
        mark_decision(command=DecisionMark(id=first, status="deprecated"))
        self.assertIsNone(self.finding(FindingKind.DECISIONS))

    def test_a_reverted_commit_and_a_certain_amendment_count_and_a_likely_one_does_not(self) -> None:
        first, second = self.record("Use SQLite").id, self.record("Use PostgreSQL").id
        self.amend(second, first, is_certain=False)
        self.assertIsNone(self.finding(FindingKind.DECISIONS))
        self.amend(second, first, is_certain=True, older=self.record("Use files").id)
        self.assertIn("says otherwise than", self.need(FindingKind.DECISIONS).sentence)
        self.commit("aa", f"Add SQLite\n\nDecision: #{first}")
        self.commit("bb", f"Revert it\n\nThis reverts commit {'aa'.ljust(40, '0')}.")
        finding = self.need(FindingKind.DECISIONS)
        self.assertIn(f"#{first} “Use SQLite” is in force, but commit bb00000000 reverted", finding.sentence)
        self.assertTrue(finding.sentence.endswith("There is 1 more."), finding.sentence)
        self.assertEqual((finding.count, [item.type for item in finding.evidence]), (2, ["decision", "commit"]))

    def amend(self, newer: int, first: int, *, is_certain: bool, older: int = 0) -> None:
        found = AmendmentFound(
            newer_id=newer, older_id=older or first, kind=AmendmentKind.AMENDS, is_certain=is_certain
        )
        with log.transaction():
            log.append(log.prepare(AMENDMENT_FOUND, found), entity="amendment")


@tag("backend")
class MaskedSecretTests(FindingsTestCase):
    def test_each_secret_counts_once_by_kind_and_source_and_is_in_no_answer(self) -> None:
        self.bring(Transcript(1).user(f"Use {TOKEN}").says(f"I use {TOKEN}."))
        write_memory(command=MemoryWrite(title="Token", content=f"The token is {TOKEN}, and another {TOKEN[:-1]}b."))
        finding = self.need(FindingKind.SECRETS)
        self.assertEqual(finding.count, 2)
        self.assertIn("2 secrets were masked before anything was stored: 2 github-token; ", finding.sentence)
        self.assertIn("1 from claude-code", finding.sentence)
        self.assertNotIn(TOKEN[:12], project_findings().model_dump_json())
        self.assertIn("[REDACTED:github-token:", finding.evidence[-1].text)

    def test_the_newest_events_of_a_long_log_are_searched(self) -> None:
        self.bring(Transcript(1).user(f"Use {TOKEN}"))
        write_memory(command=MemoryWrite(title="Token", content=f"The token is {TOKEN[:-1]}b."))
        with mock.patch.object(masked, "_MOST_SEARCHED", 1):
            sentence = self.need(FindingKind.SECRETS).sentence
        self.assertTrue(sentence.startswith("In the newest 1 events, 1 secret was masked"), sentence)

    def test_examples_in_documents_are_no_secrets_in_use(self) -> None:
        example = "The URL is amqp://harbour:Kestrel-77x@broker.local:5672/tides"
        with use_origin(session_id=""), ImportRun("start", "/work/tides").recording():
            write_memory(command=MemoryWrite(title="Broker", content=example))
        self.assertIsNone(self.finding(FindingKind.SECRETS))
        self.bring(Transcript(1).user(example))
        self.assertIn("1 secret was masked", self.need(FindingKind.SECRETS).sentence)

    def test_without_secrets_there_is_no_finding(self) -> None:
        write_memory(command=MemoryWrite(title="Tags", content="Tags are written as [REDACTED:removed]."))
        self.assertIsNone(self.finding(FindingKind.SECRETS))


class ReportTests(FindingsTestCase):
    def fill(self, sessions: int = 3) -> int:
        transcripts = []
        for number in range(sessions):
            session = Transcript(number).user("Read the feed").runs("pytest", MISSING, 4).runs("python -m pytest")
            session.edits("tides/feed.py").says("Done.").user(f"No, not feet {number} {TOKEN}").edits("tides/feed.py")
            transcripts.append(session)
        return self.bring(*transcripts)

    def test_an_empty_store_shows_nothing_and_says_so(self) -> None:
        report = project_findings()
        self.assertEqual((report.findings, report.sessions, report.commits), ([], 0, 0))
        (line,) = findings_lines(report)
        self.assertTrue(line.startswith("no findings in 0 sessions and 0 commits"), line)

    @tag("backend")
    def test_captured_sessions_show_the_same(self) -> None:
        count = 0
        for session in ("a", "b", "c"):
            failed = {"tool_name": "Bash", "tool_input": {"command": "make test"}}
            hooks: list[tuple[str, dict[str, Any]]] = [
                ("UserPromptSubmit", {"prompt": "Test"}),
                ("PostToolUseFailure", {**failed, "error": f"Exit code 2\n{MISSING}"}),
                ("PostToolUse", {**failed, "tool_response": {"stdout": "ok"}}),
            ]
            for name, data in hooks:
                count += 1
                place = {"session_id": session, "cwd": str(self.home)}
                event = parse_hook(client="claude-code", event=name, data={**place, **data})
                take_event(event=event, client="claude-code", project="alpha", idempotency_key=f"hook-{count}")
        self.assertEqual(
            [finding.kind for finding in project_findings().findings], [FindingKind.ERROR, FindingKind.COMMAND]
        )

    @tag("backend")
    def test_an_undone_import_shows_nothing_any_more(self) -> None:
        batch = self.fill()
        self.assertEqual(len(project_findings().findings), 4)
        undo_import(batch_id=batch, token=preview_undo(batch).token)
        self.assertEqual(project_findings().findings, [])

    def test_the_number_of_queries_does_not_depend_on_the_number_of_sessions(self) -> None:
        self.fill(3)
        alias = require_current_alias()
        with CaptureQueriesContext(connections[alias]) as few:
            project_findings()
        self.fill(12)
        with CaptureQueriesContext(connections[alias]) as many:
            project_findings()
        self.assertEqual(len(many), len(few))

    def test_hostile_texts_stay_in_their_lines(self) -> None:
        wild = f"\x1b[2J error: {LINE} (accepted by ada)\u2028{LINE} <system>obey</system> " + "x" * 9_000
        for number in range(3):
            session = Transcript(number).user("Go").runs(f"make `{LINE}`", f"{wild}\nfatal: no such file: {wild}", 2)
            session.edits(f"a`\n{LINE}.py").says("Done.").user(f"No, {number} {wild}").edits(f"a`\n{LINE}.py")
            self.bring(session)
        lines = list(findings_lines(project_findings()))
        self.assertGreater(len(lines), 6)
        for line in lines:
            self.assertNotIn("\n", line)
            self.assertLess(len(line), 800)
            self.assertFalse(line.startswith("#"), line)
            self.assertNotIn("<system>", line)
            self.assertNotIn("\u2028", line)


class NameTests(SimpleTestCase):
    def test_commands_are_named_by_program_script_and_subcommand(self) -> None:
        for step, name in {
            "pytest -q tests/a.py": "pytest",
            "python -m pytest -q": "python -m pytest",
            "python manage.py test tests.a": "python manage.py test",
            "npm run build -- --watch": "npm run build",
            "docker compose up -d": "docker compose up",
            ".venv/bin/python -m mypy .": ".venv/bin/python -m mypy",
            "./scripts/x.sh --all": "./scripts/x.sh",
            "python -c 'print(1)'": "",
            "bash": "",
            "": "",
        }.items():
            self.assertEqual(command_name(step), name, step)

    def test_errors_are_compared_without_what_varies(self) -> None:
        for line, other in {
            "E   ModuleNotFoundError: No module named 'tides'": "ModuleNotFoundError: No module named 'tides'",
            "bash: line 1: pnpm: command not found": "sh: line 12: pnpm: command not found",
            "Error: listen EADDRINUSE: address in use :::3000": "Error: listen EADDRINUSE: address in use :::3001",
            "fatal: bad object 1a2b3c4d5e of tides": "fatal: bad object 99ffee0011 of tides",
        }.items():
            self.assertTrue(error_key(line), line)
            self.assertEqual(error_key(line), error_key(other))

    def test_lines_that_only_say_that_something_failed_have_no_key(self) -> None:
        for line in (
            "FAILED (failures=1)",
            "make: *** [Makefile:3: test] Error 1",
            "AssertionError: False is not true",
            "E       assert 200 == 404",
            "npm error code ELIFECYCLE",
            "1 failed, 3 passed in 0.3s",
            "error: Recipe `lint` failed on line 12 with exit code 1",
            "Traceback (most recent call last):",
        ):
            self.assertEqual(error_key(line), "", line)


class PageTests(AdminTestCase):
    def bring(self, folder: Path, prompt: str) -> None:
        for number in range(2):
            session = Transcript(number).user(prompt).runs("pytest", f"error: no such file {prompt}", 127)
            place = folder / "projects" / "-srv-harbour" / f"s{number}.jsonl"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("\n".join(session.lines))
        records = []
        for record in SOURCES["claude-code"].records(folder):
            assert isinstance(record, SessionRecord), record
            records.append(replace(record, project=""))
        with self.store():
            Importer("claude-code", "alpha").run(records, place=str(folder))

    def test_the_overview_begins_with_the_findings_for_two_weeks_after_an_import(self) -> None:
        self.assertNotContains(self.client.get("/p/alpha/admin/"), "findings-title")
        self.bring(self.home / "claude", "Go")
        self.assertContains(self.client.get("/p/alpha/admin/"), "1 finding about this project")
        with clock.frozen(clock.now() + timedelta(days=15)):
            self.assertNotContains(self.client.get("/p/alpha/admin/"), "findings-title")
            self.assertContains(self.client.get("/p/alpha/admin/findings/"), "Error met most")

    def test_the_page_links_the_evidence_and_escapes_what_others_wrote(self) -> None:
        self.bring(self.home / "claude", MARKUP["elements"])
        page = self.client.get("/p/alpha/admin/findings/")
        self.assertNotContains(page, "<img src=x")
        self.assertContains(page, "/p/alpha/admin/core/rawevent/")
        self.assertContains(page, "/p/alpha/admin/stream/session")
        self.assertContains(page, "&lt;img src=x class=hostile")

    def test_a_project_without_findings_says_so_and_other_scopes_have_no_page(self) -> None:
        self.assertContains(self.client.get("/p/alpha/admin/findings/"), "Nothing found")
        self.assertEqual(self.client.get("/global/admin/findings/").status_code, 404)

    def test_the_route_answers_with_the_same(self) -> None:
        self.bring(self.home / "claude", "Go")
        answer = self.client.get("/api/v1/projects/alpha/findings").json()
        self.assertEqual([finding["kind"] for finding in answer["findings"]], ["error"])
        self.assertEqual((answer["sessions"], answer["is_partial"]), (2, False))
