"""The plan of what can be imported for a repository, its import as one batch, its undo, and the offers of it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import chdir
from io import StringIO
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit
from urllib.request import HTTPCookieProcessor, build_opener

from django.core.management import CommandError, call_command
from django.test import tag

from decisions.models import Decision
from governance.imports import find_batch, hold_imports, list_batches, preview_undo, undo_import
from memories.models import Memory
from memoryhub.config.identity import bind_project
from memoryhub.core import log
from memoryhub.core.errors import ConflictError, Invalid, Unavailable
from memoryhub.core.log import table_digests
from memoryhub.core.stores.store import list_projects
from memoryhub.ops.serving.process import find_running
from memoryhub.transfer import start
from memoryhub.transfer.start import StartResult, run_start
from memoryhub.transfer.start_plan import StartPlan, offer_start, plan_of_project, plan_start
from sessions_app.hook_parser import parse_hook
from sessions_app.models import Commit, Session
from sessions_app.schemas import SettingsChange
from sessions_app.services.capture import take_event
from sessions_app.services.profile import change_settings
from tests.admin.base import AdminTestCase
from tests.databases import at_home
from tests.sessions_app.test_git import Repository
from tests.support import HubTestCase
from tests.test_import_command import MANAGE

RECORD = b"# 1. Use WAL\n\nStatus: accepted\n\n## Context\n\nReaders wait.\n\n## Decision\n\nUse WAL.\n"
TOKEN = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
# Names of sessions, as Claude Code makes them
FIRST, SECOND, ELSEWHERE = (f"0a1b2c3d-0000-4000-8000-00000000000{digit}" for digit in "123")


class StartTestCase(HubTestCase):
    """A repository ``alpha`` with two commits, and a person whose client has two sessions there and one elsewhere."""

    def setUp(self) -> None:
        super().setUp()
        self.user = self.home / "user"
        self.enterContext(mock.patch.dict(os.environ, HOME=str(self.user)))
        self.repository = Repository(self.home / "work" / "alpha")
        self.folder = self.repository.folder
        self.repository.write("AGENTS.md", b"# Rules\n\nUse tabs in Makefiles.\n")
        self.repository.write("docs/adr/0001-use-wal.md", RECORD)
        self.repository.commit("Begin", **{"README.md": b"# Alpha\n\nThe port is 8080.\n"})
        self.repository.commit("Go on", a=b"2\n")
        self.transcribe(FIRST, "Why is the build red?", at=1_700_000_000)
        self.transcribe(SECOND, f"Deploy with {TOKEN}", at=1_700_100_000)
        self.transcribe(ELSEWHERE, "Another project", at=1_700_200_000, folder=self.home / "work" / "beta")

    def transcribe(self, name: str, *prompts: str, at: int, folder: Path | None = None) -> None:
        directory = folder or self.folder
        path = self.user / ".claude" / "projects" / str(directory).replace("/", "-") / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = []
        for prompt in prompts:
            fields = {"cwd": str(directory), "sessionId": name, "timestamp": "2024-03-01T08:30:00Z"}
            lines.append({**fields, "type": "user", "message": {"role": "user", "content": prompt}})
            lines.append({**fields, "type": "assistant", "message": {"role": "assistant", "content": "Done."}})
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        os.utime(path, (at, at))

    def plan(self) -> StartPlan:
        return plan_start(self.folder)

    def run_start(self) -> StartResult:
        with self.store():
            return run_start(self.plan())

    def undo(self, batch: int | None) -> None:
        assert batch
        with self.store():
            undo_import(batch_id=batch, token=preview_undo(batch).token)

    def counts(self) -> tuple[int, ...]:
        with self.store():
            return tuple(model.objects.count() for model in (Session, Commit, Decision, Memory))


class PlanTests(StartTestCase):
    def test_a_plan_counts_what_is_new_and_changes_nothing(self) -> None:
        plan = self.plan()
        self.assertEqual(
            [(part.text, part.title) for part in plan.parts],
            [
                ("2 sessions", "Claude Code"),
                ("1 rule", "rules"),
                ("1 decision record", "docs/adr"),
                ("1 document", ""),
                ("2 commits", "git"),
            ],
        )
        self.assertEqual(plan.remarks, ["1 session of other folders: run `memory-hub start` in their repositories"])
        self.assertEqual(list_projects(), [])

    def test_sessions_of_a_folder_of_the_repository_that_is_gone_are_its_own(self) -> None:
        name = ELSEWHERE.replace("3", "4")
        self.transcribe(name, "Try it", at=1_700_000_000, folder=self.folder / ".claude" / "worktrees" / "try")
        self.assertEqual(self.plan().parts[0].text, "3 sessions")

    def test_a_folder_of_no_repository_is_refused_with_one_sentence(self) -> None:
        with self.assertRaisesMessage(Invalid, "is in no git repository; change to the folder of a project"):
            plan_start(self.home / "work")
        self.assertEqual(list_projects(), [])

    def test_tests_and_packages_of_the_repository_are_no_documents_of_it(self) -> None:
        for name in ("tests/data/AGENTS.md", "vendor/x/README.md", "tests/adr/0001-no.md"):
            self.repository.write(name, RECORD)
        self.assertEqual([part.count for part in self.plan().parts], [2, 1, 1, 1, 2])

    def test_memories_of_other_tools_that_name_no_project_are_left_and_named(self) -> None:
        graph = self.user / "memory.jsonl"
        entity = {"type": "entity", "name": "Harbour", "entityType": "place", "observations": ["It is deep."]}
        graph.write_text(json.dumps(entity))
        with mock.patch.dict(os.environ, MEMORY_FILE_PATH=str(graph)):
            plan = self.plan()
        self.assertIn("1 memory of server-memory", plan.remarks[1])
        self.assertIn("`memory-hub import server-memory`", plan.remarks[1])
        self.assertNotIn("server-memory", [part.title for part in plan.parts])


class RunTests(StartTestCase):
    @tag("backend")
    def test_everything_is_imported_as_one_batch_once(self) -> None:
        result = self.run_start()
        self.assertEqual(self.counts(), (2, 2, 1, 2))
        self.assertEqual((result.is_complete, dict(result.secrets)), (True, {"github-token": 1}))
        with self.store():
            (batch,) = list_batches()
            self.assertEqual((batch.id, batch.tool, batch.place), (result.batch, "start", str(self.folder)))
            self.assertEqual(batch.counts, {"created": 5, "sessions": 2})
            head = log.head()
            self.assert_sound()
        self.assertEqual(self.plan().parts, [])
        self.assertIsNone(self.run_start().batch)
        with self.store():
            self.assertEqual(log.head(), head)

    @tag("backend")
    def test_its_undo_leaves_every_table_as_before(self) -> None:
        with self.store():
            call_command("import", "git", str(self.folder), "--limit", "1", "--project", "alpha", stdout=StringIO())
            before = table_digests()
        batch = self.run_start().batch
        self.undo(batch)
        with self.store():
            self.assertEqual(table_digests(), before)
        self.assertEqual(len(self.plan().parts), 5)

    def test_what_the_person_corrected_is_proposed_and_undone_with_the_sessions(self) -> None:
        self.transcribe(SECOND, "Run the tests", "No, always run the tests with make check", at=1_700_100_000)
        result = self.run_start()
        self.assertEqual(result.lessons, 1)
        with self.store():
            (lesson,) = Memory.objects.filter(review="proposed")
            self.assertIn("always run the tests with make check", lesson.content)
        self.assertEqual(self.run_start().lessons, 0)
        self.undo(result.batch)
        self.assertEqual(self.counts(), (0, 0, 0, 0))
        self.assertEqual(self.run_start().lessons, 1)

    def test_a_project_without_lessons_gets_none_from_old_sessions(self) -> None:
        with self.store():
            change_settings(command=SettingsChange(settings={"lessons": "off"}))
        self.transcribe(SECOND, "Run the tests", "No, always run the tests with make check", at=1_700_100_000)
        self.assertEqual(self.run_start().lessons, 0)

    def test_the_newest_sessions_come_first(self) -> None:
        with mock.patch.object(start, "_SESSIONS_AT_ONCE", 1):
            self.run_start()
        with self.store():
            names = list(Session.objects.order_by("id").values_list("session_id", flat=True))
        self.assertEqual(names, [SECOND, FIRST])

    def test_a_session_that_went_on_is_extended_and_others_are_not_read_again(self) -> None:
        self.run_start()
        (self.user / ".claude/projects" / str(self.folder).replace("/", "-") / f"{SECOND}.jsonl").write_text("{")
        self.transcribe(FIRST, "Why is the build red?", "And now?", at=2_000_000_000)
        os.utime(self.user / ".claude/projects" / str(self.folder).replace("/", "-") / f"{SECOND}.jsonl", (1, 1))
        self.assertEqual([part.text for part in self.plan().parts], ["1 session"])
        self.run_start()
        with self.store():
            self.assertEqual(log.events().of_session(FIRST).filter(event_type="message.user").count(), 2)

    def test_a_file_of_the_same_text_is_looked_at_once_more_and_not_again(self) -> None:
        self.run_start()
        os.utime(self.folder / "docs/adr/0001-use-wal.md")
        self.assertEqual([part.text for part in self.plan().parts], ["1 decision record"])
        self.assertIsNone(self.run_start().batch)
        self.assertEqual(self.plan().parts, [])

    def test_an_import_that_ends_early_is_continued_in_its_batch(self) -> None:
        with self.store():
            first = run_start(self.plan(), seconds=0)
            self.assertEqual((first.is_complete, find_batch(first.batch or 0).counts), (False, None))
            last = run_start(self.plan(), batch=first.batch)
            self.assertEqual((last.batch, last.is_complete, len(list_batches())), (first.batch, True, 1))
            self.assertEqual(find_batch(first.batch or 0).counts, {"created": 5, "sessions": 2})
        self.assertEqual(self.counts(), (2, 2, 1, 2))

    def test_an_import_whose_batch_was_undone_meanwhile_writes_nothing_more(self) -> None:
        with self.store():
            batch = run_start(self.plan(), seconds=0).batch
        self.undo(batch)
        with self.store():
            head = log.head()
            with self.assertRaisesMessage(ConflictError, f"import #{batch} was undone meanwhile"):
                run_start(self.plan(), batch=batch)
            self.assertEqual(log.head(), head)

    def test_what_is_left_out_is_named_and_stops_nothing(self) -> None:
        self.repository.write("docs/huge.md", b"# Huge\n\n" + b"word " * 500_000)
        with mock.patch("memoryhub.transfer.start.read_commits", side_effect=Unavailable("unable to read tree 12ab")):
            result = self.run_start()
        self.assertIn("unable to read tree 12ab", result.warnings)
        self.assertIn("skipped docs/huge.md: ", "".join(result.warnings))
        self.assertEqual(self.counts(), (2, 0, 1, 2))
        with self.store():
            self.assertEqual((find_batch(result.batch or 0).counts or {})["left_out_count"], 2)

    def test_a_project_whose_folder_was_renamed_is_named(self) -> None:
        self.run_start()
        renamed = self.folder.rename(self.home / "work" / "harbour")
        self.assertIn("the folder of the project alpha", plan_start(renamed).hint)

    def test_a_second_import_is_refused_while_one_runs(self) -> None:
        plan = self.plan()
        with self.store(), hold_imports():
            with mock.patch("governance.imports._LOCK_SECONDS", 0), self.assertRaises(ConflictError) as refused:
                run_start(plan)
            self.assertIn("another import into alpha is running", refused.exception.message)
            self.assertEqual(log.head()[0], 0)

    def test_a_session_that_hooks_have_captured_is_not_new(self) -> None:
        data = {"session_id": FIRST, "cwd": str(self.folder)}
        for number, name in enumerate(("SessionStart", "UserPromptSubmit")):
            event = parse_hook(client="claude-code", event=name, data={**data, "prompt": "Why is the build red?"})
            take_event(event=event, client="claude-code", project="alpha", idempotency_key=str(number))
        self.assertEqual(self.plan().parts[0].text, "1 session")


class CommandTests(StartTestCase):
    def call(self, *arguments: str) -> str:
        output = StringIO()
        with chdir(self.folder):
            call_command(*arguments, stdout=output, stderr=output)
        return output.getvalue()

    def test_without_a_word_of_the_person_nothing_is_changed(self) -> None:
        for arguments in (("start",), ("start", "--preview"), ("import",), ("import", "--preview")):
            with self.subTest(arguments):
                self.assertIn("2 sessions  Claude Code, 0.1 MB, newest 2023-11-16\n", self.call(*arguments))
                self.assertEqual(list_projects(), [])

    def test_import_brings_all_and_one_command_undoes_it(self) -> None:
        output = self.call("import", "--yes")
        self.assertRegex(
            output, r"Imported 5 new, 2 sessions in \d+ s\. To undo it: memory-hub import undo 1 --project alpha"
        )
        self.assertIn("Masked on the way in: 1 github-token\n", output)
        self.assertIn("nothing new to import", self.call("import", "--yes"))
        self.assertIn("undone: ", self.call("import", "undo", "1", "--yes", "--project", "alpha"))
        self.assertEqual(self.counts(), (0, 0, 0, 0))

    def test_what_could_not_be_read_is_named_where_nothing_was_new(self) -> None:
        self.call("import", "--yes")
        self.repository.write("docs/huge.md", b"# Huge\n\n" + b"word " * 500_000)
        output = self.call("import", "--yes")
        self.assertIn("Nothing was new.\n", output)
        self.assertIn("skipped docs/huge.md: ", output)

    def test_a_repository_whose_name_is_taken_has_the_project_that_was_named_for_it(self) -> None:
        self.call("import", "--yes")
        twin = Repository(self.home / "fork" / "alpha").folder
        (twin / "README.md").write_text("# Alpha\n\nThe port of the fork is 9090.\n")
        with chdir(twin):
            with self.assertRaisesMessage(CommandError, "pass --project ID"):
                call_command("import", "--yes")
            call_command("import", "--yes", "--project", "fork", stdout=StringIO())
            self.assertEqual(plan_start(twin).project, "fork")
        self.assertEqual(self.plan().project, "alpha")

    def test_show_tells_an_import_that_runs_from_one_that_was_interrupted(self) -> None:
        stopped = mock.patch("memoryhub.transfer.start.read_commits", side_effect=KeyboardInterrupt)
        with stopped, self.assertRaises(CommandError):
            self.call("import", "--yes")
        self.assertIn("import from start, interrupted", self.call("show", "1", "--project", "alpha"))
        with self.store(), hold_imports():
            self.assertIn("import from start, running", self.call("show", "1", "--project", "alpha"))

    def test_the_project_can_stand_before_and_after_the_source(self) -> None:
        self.call("import", "--project", "beta", "git")
        self.call("import", "git", "--project", "gamma")
        self.assertEqual(list_projects(), ["beta", "gamma"])

    def test_a_folder_of_no_repository_is_refused_at_each_door(self) -> None:
        for name in ("start", "import"):
            with (
                self.subTest(name),
                chdir(self.home),
                self.assertRaisesMessage(CommandError, "is in no git repository"),
            ):
                call_command(name, "--yes", stdout=StringIO())
        self.assertEqual(list_projects(), [])


class OfferTests(StartTestCase):
    def opening(self, name: str) -> str:
        data = {"session_id": name, "cwd": str(self.folder), "source": "startup"}
        event = parse_hook(client="claude-code", event="SessionStart", data=data)
        return take_event(event=event, client="claude-code", project="alpha", idempotency_key=name)

    def test_the_first_session_of_a_project_is_told_once_what_is_missing(self) -> None:
        opening = self.opening("one")
        self.assertIn("2 sessions, 1 rule, 1 decision record, 1 document here are not in memory", opening)
        self.assertIn("`memory-hub start`", opening)
        self.assertNotIn("`memory-hub start`", self.opening("two"))

    def test_a_project_of_which_the_machine_knows_nothing_is_told_nothing(self) -> None:
        self.assertEqual(offer_start(Repository(self.home / "work" / "empty").folder, "empty"), "")
        self.assertEqual(offer_start(self.home, "none"), "")


class PageTests(StartTestCase, AdminTestCase):
    def test_the_page_shows_the_plan_and_imports_it(self) -> None:
        with self.store():
            bind_project("alpha", self.folder)
        page = self.page("imports/start/")
        self.assert_shows(page, "2 sessions", "Claude Code", "1 decision record", "Import all of it")
        with mock.patch("memoryhub.web.governance_pages.start_task", _run_now):
            self.client.post(self.address("imports/start/"))
        self.assertEqual(self.counts(), (2, 2, 1, 2))
        self.assert_shows(self.page("imports/start/"), "Nothing is missing")

    def test_a_project_without_a_known_folder_says_where_to_import(self) -> None:
        with self.store(), self.assertRaisesMessage(Invalid, "run `memory-hub start` in its folder"):
            plan_of_project("alpha")
        self.assertEqual(self.client.get(self.address("imports/start/")).status_code, 302)


@tag("process")
class FreshHomeTests(StartTestCase):
    def test_one_command_leads_a_new_user_to_a_page_of_their_project(self) -> None:
        fresh = self.home / "fresh"
        environment = {**os.environ, "MEMORY_HUB_HOME": str(fresh), "MEMORY_HUB_AUTOSTART": "on"}
        environment.pop("DJANGO_SETTINGS_MODULE", None)
        command = [sys.executable, str(MANAGE), "start", "--yes", "--no-clients", "--no-open"]
        self.addCleanup(self._stop_hub, fresh)
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("unavailable", done.stderr)
        opener = build_opener(HTTPCookieProcessor())
        with opener.open(done.stdout.splitlines()[-1], timeout=60) as page:
            self.assertEqual(urlsplit(page.url).path, "/p/alpha/admin/")

    def _stop_hub(self, home: Path) -> None:
        with at_home(home):
            running = find_running()
            if running:
                os.kill(running.pid, signal.SIGTERM)
            with (home / "serve.lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # until it has ended


def _run_now(title: str, *, page: str, work, describe):
    describe(work(lambda *_: None))
    return mock.Mock(id="done")
