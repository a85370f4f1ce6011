"""What doctor finds in stores and in the home, and its comparison of read models with the log."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command
from django.test import tag

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories import services
from memories.embeddings.engine import use_engine
from memories.embeddings.local import LocalEngine
from memories.schemas import MemoryWrite
from memoryhub.core import clock, log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.jobs import find_job
from memoryhub.core.log import rebuilding
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store
from memoryhub.demo.project import make_demo
from memoryhub.ops.backups.service import back_up_store
from memoryhub.ops.doctor.service import examine_hub
from memoryhub.ops.doctor.store import examine_store
from memoryhub.ops.jobs import install_schedules, run_job
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from tests.pages import damage_page
from tests.support import HubTestCase, forget_all_stores
from tests.web.server import ROOT

ALPHA = project_store("alpha")
FTS = "search_fts (rowid, title, body, near, date)"


def run_job_of_alpha(job: str) -> None:
    call_command("jobs", job, "--project", "alpha", stdout=StringIO(), stderr=StringIO())


def doctor(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and the findings of the command."""
    output, code = StringIO(), 0
    forget_all_stores()
    try:
        call_command("doctor", "--json", *arguments, stdout=output)
    except SystemExit as ended:
        code = int(str(ended.code))
    return code, json.loads(output.getvalue())


class DoctorTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            for number in range(60):
                services.write_memory(command=MemoryWrite(title=f"m{number}", content=f"text {number} " * 40))
            self.backup = back_up_store().path
        forget_all_stores()

    def found(self) -> dict[str, str]:
        forget_all_stores()
        return {finding.what: finding.repair for finding in examine_store(ALPHA)[0]}


class StoreTests(DoctorTestCase):
    def test_changed_bytes_are_found_on_whatever_page_and_none_in_a_whole_store(self) -> None:
        self.assertEqual(self.found(), {})
        whole = path_of(ALPHA).read_bytes()
        pages = len(whole) // 4096
        unseen = []
        for page in range(1, pages, max(1, pages // 12)):
            if whole[page * 4096 : (page + 1) * 4096].strip(b"\0"):
                path_of(ALPHA).write_bytes(whole)
                damage_page(path_of(ALPHA), page + 1)
                if not self.found():
                    unseen.append(page)
        self.assertEqual(unseen, [])

    def test_what_a_rebuild_or_reindex_mends_is_said_so(self) -> None:
        with self.store("alpha"):
            rows.execute("DELETE FROM memories_memoryversion")
            rows.execute("DELETE FROM search_fts WHERE rowid = 60")
        findings = self.found()
        behind = "read models are behind the log: memoryversion"
        self.assertEqual(findings[behind], "`memory-hub jobs rebuild --project alpha`")
        self.assertEqual(findings["the full-text index is behind"], "`memory-hub jobs reindex --project alpha`")
        run_job_of_alpha("rebuild")
        self.assertEqual(self.found(), {})

    def test_what_a_restore_kept_long_ago_is_found(self) -> None:
        kept = self.backup.with_name("20260101T083000000Z-before-restore.db")
        self.backup.with_name("20990101T083000000Z-before-restore.db").touch(0o600)
        kept.touch(0o600)
        what = "a copy of the store from before it was restored on 2026-01-01 is still kept"
        self.assertEqual(self.found(), {what: f"remove {kept} when you no longer need it"})


class FirstDayTests(HubTestCase):
    def test_a_new_hub_has_no_finding_and_one_that_never_ran_for_days_has(self) -> None:
        make_demo()
        install_schedules()
        (self.home / "hub.db").touch(0o600)
        self.assertEqual(doctor(), (0, []))
        with clock.frozen(clock.now() + timedelta(days=3, hours=1)):
            code, findings = doctor()
        self.assertEqual(code, 15)
        self.assertEqual({finding["where"] for finding in findings}, {"project demo", "the jobs"})
        whole = " ".join(finding["what"] for finding in findings)
        self.assertRegex(whole, "there is no backup.*no hub has run for 3 days, so these have never run: .*backup")


class HubTests(DoctorTestCase):
    def test_a_hub_or_a_store_that_is_well_has_no_finding_and_one_that_is_not_there_is_an_error(self) -> None:
        self.assertEqual(doctor(), (0, []))
        self.assertEqual(doctor("--project", "alpha"), (0, []))
        with self.assertRaisesRegex(CommandError, "there is no project 'nope'"):
            doctor("--project", "nope")

    def test_files_that_others_may_read_and_a_damaged_hub_db_are_found(self) -> None:
        path_of(ALPHA).chmod(0o644)
        (self.home / "hub.db").write_bytes(b"no database " * 1000)
        (self.home / "hub.db").chmod(0o600)
        code, (private, damaged) = doctor()
        self.assertEqual((code, private["where"], damaged["where"]), (15, "the home folder", "hub.db"))
        self.assertIn("projects/alpha/events.db", private["what"])
        self.assertIn("file is not a database", damaged["what"])

    def test_settings_that_cannot_be_read_or_are_none_are_found(self) -> None:
        config = self.home / "config.toml"
        config.touch(0o600)
        for text, what, repair in (
            ("a = 1\nb = = 2\n", f"{config}, line 2, column 5: invalid value", "fix it there, or remove the file"),
            ("a = " + "[" * 20_000, "config.toml is nested too deeply", "fix it there, or remove the file"),
            ('turn_policy = "lax"\n', "'turn_policy' must be one of 'auto' or 'strict'", "fix it where it is set"),
            ('serch_mode = "auto"\n', "config.toml names 'serch_mode', which is not a setting", "or write search_mode"),
        ):
            config.write_text(text)
            with self.subTest(text=text[:40]):
                self.assert_only_finding("the settings", what, repair)

    def assert_only_finding(self, where: str, what: str, repair: str) -> None:
        code, (finding,) = doctor()
        self.assertEqual((code, finding["where"]), (15, where))
        self.assertIn(what, finding["what"])
        self.assertIn(repair, finding["repair"])

    def test_a_lost_redaction_key_is_found(self) -> None:
        (self.home / "redaction.key").unlink()
        repair = "restore it from your own copy of the home folder"
        self.assert_only_finding("redaction.key", "the file is gone", repair)

    def test_a_job_that_failed_is_found(self) -> None:
        shutil.rmtree(self.home / "backups")
        (self.home / "hub.db").touch(0o600)
        path_of(ALPHA).with_name("head").write_bytes(b"99 abc".ljust(127) + b"\\n")
        with self.assertLogs("memoryhub.ops.jobs", "WARNING"), self.assertRaises(SystemExit) as ended:
            run_job_of_alpha("backup")
        self.assertEqual(ended.exception.code, 14)
        self.assertIn("the last run of backup was failed", " ".join(finding.what for finding in examine_hub()))


_ON_A_SMALL_DISK = """
set -e
mount -t tmpfs -o size=40m tmpfs "$MEMORY_HUB_HOME"
"$0" "$1" import markdown "$2" --project alpha
"$0" "$1" jobs
rm -f "$MEMORY_HUB_HOME/secret_key"
if [ "$3" = full ]; then
    cat /dev/zero > "$MEMORY_HUB_HOME/filling" || true
else
    mount -o remount,ro "$MEMORY_HUB_HOME"
fi
set +e
echo "--- doctor"
"$0" "$1" doctor --json
echo "--- $?"
"""
_UNSHARE = ["unshare", "--mount", "--map-root-user"]


def _can_mount() -> bool:
    command = [*_UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@unittest.skipUnless(_can_mount(), "needs the right to mount a disk in a namespace of its own")
@tag("process")
class DiskTests(unittest.TestCase):
    def doctor_on(self, kind: str) -> tuple[int, list[dict[str, str]]]:
        with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as documents:
            Path(documents, "a.md").write_text("# One\n\ntext\n")
            program = (sys.executable, str(ROOT / "manage.py"))
            command = [*_UNSHARE, "bash", "-c", _ON_A_SMALL_DISK, *program, documents, kind]
            environment = {**os.environ, "MEMORY_HUB_HOME": home}
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)
        self.assertNotIn("Traceback", done.stderr)
        findings, _, code = done.stdout.partition("--- doctor\n")[2].partition("--- ")
        return int(code), json.loads(findings)

    def test_a_full_or_read_only_disk_is_found_and_no_restore_is_advised(self) -> None:
        for kind, disk, unopened, repair in (
            ("full", "the disk has 0 MB free", "the disk is full", "make room on the disk"),
            ("read-only", "it cannot be written", "its folder is read-only", "make the home folder writable"),
        ):
            with self.subTest(kind):
                code, findings = self.doctor_on(kind)
                self.assertEqual(code, 15)
                self.assertTrue([finding for finding in findings if disk in finding["what"]], findings)
                reason = f"it cannot be opened while {unopened}"
                self.assertEqual(
                    [(finding["where"], finding["repair"]) for finding in findings if reason in finding["what"]],
                    [(where, f"{repair}, then run doctor again") for where in ("project alpha", "hub.db", "jobs.db")],
                )
                self.assertNotIn("damage", json.dumps(findings))


class ComparedTests(DoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            record = DecisionRecord(title="Use WAL", chosen="WAL mode", rationale="readers never wait")
            self.decision = record_decision(command=record).id
            self.session = start_session(command=SessionStart(session_id="s1", purpose="to look around")).id

    def forge(self, statement: str) -> None:
        with self.store("alpha", create=False):
            rows.execute(statement)

    def assert_found(self, statement: str, pattern: str) -> None:
        whole = self.dump()
        self.forge(statement)
        forged = self.dump()
        with self.subTest(statement=statement):
            findings = self.found()
            self.assertTrue(any(re.search(pattern, what) for what in findings), findings)
            self.assertEqual(self.dump(), forged)
            repairs = {}
            for what in findings:
                job = "reindex" if what.startswith(("the search index", "the full-text")) else "rebuild"
                repairs[what] = f"`memory-hub jobs {job} --project alpha`"
                run_job_of_alpha(job)
            self.assertEqual(findings, repairs)
            self.assertEqual(self.found(), {})
            self.assertEqual(self.dump(), whole)

    def dump(self) -> object:
        with self.store("alpha", create=False):
            words = rows.fetch("SELECT id, sz FROM search_fts_docsize ORDER BY id")
            return log.table_digests(), words, log.head()

    def forgeries(self) -> list[tuple[str, str]]:
        models, search = "read models differ from the log: .*", "the search index differs from the log: the full-text"
        decision = f"UPDATE decisions_decision SET chosen = 'forged' WHERE id = {self.decision}"
        session = f"UPDATE sessions_app_session SET purpose = 'x' WHERE id = {self.session}"
        words = f"INSERT OR REPLACE INTO {FTS} VALUES (55, 'm54', 'other words', '', '')"
        return [
            ("UPDATE memories_memory SET content = 'forged'", models + r"memories_memory \(60 rows: #1, #2, #3, …\)"),
            ("DELETE FROM memories_memory WHERE id = 60", models + r"memories_memory \(1 row: #60\)"),
            ("DELETE FROM memories_memoryversion WHERE id = 59", models + r"memories_memoryversion \(1 row: #59\)"),
            (decision, models + "decisions_decision"),
            (session, models + "sessions_app_session"),
            ("UPDATE memories_searchdocument SET title = 'x' WHERE id = 58", models + "memories_searchdocument"),
            ("DELETE FROM memories_searchdocument WHERE id = 57", models + "memories_searchdocument"),
            ("DELETE FROM search_fts WHERE rowid = 56", search),
            (words, search),
        ]

    def test_forged_and_deleted_rows_and_search_documents_are_found_without_being_replaced(self) -> None:
        one_word = f"(54, 'm53', '{'text 53 ' * 39} text 54', '', '')"
        for statement, pattern in (
            *self.forgeries(),
            (f"INSERT OR REPLACE INTO {FTS} VALUES {one_word}", "the full-text index"),
            ("INSERT INTO memories_memorytag VALUES ('forged', 1)", r"memories_memorytag \(1 row: #forged/1\)"),
            ("UPDATE search_fts_docsize SET sz = x'0101' WHERE id = 12", "full-text|file is damaged"),
        ):
            self.assert_found(statement, pattern)

    def test_a_sample_of_a_long_log_finds_what_follows_from_the_streams_in_it(self) -> None:
        self.enterContext(mock.patch.object(rebuilding, "SMALL_LOG", 5))
        self.assertEqual(self.found(), {})
        for statement, pattern in self.forgeries():
            self.assert_found(statement, pattern)

    def test_what_follows_from_several_streams_is_no_finding_of_a_sample(self) -> None:
        with self.store("alpha", create=False):
            start_session(command=SessionStart(session_id="scratch", purpose="to try", mode="scratch"))
        with self.store("alpha", create=False, session_id="scratch"):
            tried = services.write_memory(command=MemoryWrite(title="tried", content="in a scratch session")).id
            with mock.patch.object(rebuilding, "_sampled_positions", return_value=[self.decision, tried]):
                self.assertEqual(log.compare_sample().differences, ())

    def test_what_a_sample_holds_wrong_and_is_right_is_settled_by_the_whole_log(self) -> None:
        self.enterContext(mock.patch.object(rebuilding, "SMALL_LOG", 5))
        difference = rebuilding.Difference("memories_memory", 1, ("7",), is_table=True)
        wrong = rebuilding.Comparison(62, 5, (difference,), sampled=True)
        with mock.patch.object(rebuilding, "compare_sample", return_value=wrong):
            self.assertEqual(self.found(), {})
            self.assertIn("compared with the whole log", self.printed())

    def test_it_says_what_was_compared(self) -> None:
        self.assertIn("compared with the whole log (62 events)", self.printed())
        with mock.patch.object(rebuilding, "SMALL_LOG", 5), mock.patch.object(rebuilding, "SAMPLED_EVENTS", 60):
            self.assertRegex(
                self.printed(), r"compared with a sample of the log \(\d+ of 62 events, in randomly chosen"
            )
            self.assertIn("compared with the whole log (62 events)", self.printed("--deep"))

    def printed(self, *options: str) -> str:
        output = StringIO()
        forget_all_stores()
        call_command("doctor", "--project", "alpha", *options, stdout=output)
        return output.getvalue()

    def test_the_daily_job_finds_it_too_by_the_whole_log_on_one_day_a_week(self) -> None:
        self.enterContext(mock.patch.object(rebuilding, "SMALL_LOG", 5))
        messages = []
        for day in range(7):
            later = clock.now() + timedelta(days=day)
            with mock.patch("memoryhub.core.clock.now", return_value=later):
                messages.append(self.verified())
        self.assertEqual(sum("compared with the whole log" in message for message in messages), 1, messages)
        self.assertEqual(sum("compared with a sample" in message for message in messages), 6, messages)
        self.forge("UPDATE memories_memory SET content = 'forged'")
        rows_named = "memories_memory (60 rows: #1, #2, #3, …)"
        self.assertIn(f"read models differ from the log: {rows_named}; run `memory-hub doctor`", self.verified())

    def verified(self) -> str:
        with self.assertNoLogs("django", "ERROR"):
            (outcome,) = run_job(job=find_job("verify stores"), asked_by="ada")
        return outcome.message

    def test_vectors_that_are_missing_or_are_none_are_found_and_made_again(self) -> None:
        self.enterContext(use_engine(LocalEngine()))
        run_job_of_alpha("embed-texts")
        self.assertEqual(self.found(), {})
        for statement in (
            "DELETE FROM memories_vector WHERE document_id = 7",
            "UPDATE memories_vector SET numbers = x'0102' WHERE document_id = 8",
            "UPDATE memories_vector SET scale = 7.5 WHERE document_id = 9",
            "UPDATE memories_vector SET numbers = zeroblob(10) || substr(numbers, 11) WHERE document_id = 10",
            "UPDATE memories_vector SET numbers = zeroblob(length(numbers)) WHERE document_id = 11",
            "UPDATE memories_vector SET content_hash = zeroblob(16) WHERE document_id = 12",
        ):
            with self.subTest(statement=statement):
                self.forge(statement)
                pattern = r"the search index differs from the log: the vectors \(1 row: #\d+\)"
                self.assertRegex(" ".join(self.found()), pattern)
                run_job_of_alpha("reindex")
                self.assertEqual(self.found(), {})
