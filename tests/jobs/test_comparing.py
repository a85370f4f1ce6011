from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from unittest import mock

from django.core.management import call_command

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories import services
from memories.embeddings.choice import use_engine
from memories.embeddings.local import LocalEngine
from memories.schemas import MemoryWrite
from memoryhub.core import clock, log
from memoryhub.core.jobs import find_job
from memoryhub.core.log import comparing
from memoryhub.core.stores import rows
from memoryhub.ops.jobs import run_job
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from tests.jobs.test_doctor import DoctorTestCase
from tests.support import forget_all_stores


class ComparedTests(DoctorTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            made = DecisionRecord(title="Use WAL", chosen="WAL mode", rationale="readers never wait")
            self.decision = record_decision(command=made).id
            self.session = start_session(command=SessionStart(session_id="s1", purpose="to look around")).id

    def forge(self, *statements: str) -> None:
        with self.store("alpha", create=False):
            for statement in statements:
                rows.execute(statement)

    def texts(self) -> list[str]:
        found = self.found()
        for what, repair in found.items():
            job = "reindex" if what.startswith(("the search index", "the full-text")) else "rebuild"
            self.assertEqual(repair, f"`memory-hub jobs {job} --project alpha`")
        return list(found)

    def assert_found(self, statement: str, said: str) -> None:
        whole = self.dump()
        self.forge(statement)
        forged = self.dump()
        with self.subTest(statement=statement):
            found = self.texts()
            self.assertTrue(any(re.search(said, what) for what in found), found)
            self.assertEqual(self.dump(), forged)
            for job in {
                "reindex" if what.startswith(("the search index", "the full-text")) else "rebuild" for what in found
            }:
                call_command("jobs", job, "--project", "alpha", stdout=StringIO(), stderr=StringIO())
            self.assertEqual(self.found(), {})
            self.assertEqual(self.dump(), whole)

    def dump(self) -> object:
        with self.store("alpha", create=False):
            words = rows.fetch("SELECT id, sz FROM search_fts_docsize ORDER BY id")
            return log.table_digests(), words, log.head()

    def forgeries(self) -> list[tuple[str, str]]:
        models, search = "read models differ from the log: .*", "the search index differs from the log: the full-text"
        fts = "search_fts (rowid, title, body, near, date)"
        return [
            ("UPDATE memories_memory SET content = 'forged'", models + r"memories_memory \(60 rows: #1, #2, #3, …\)"),
            ("DELETE FROM memories_memory WHERE id = 60", models + r"memories_memory \(1 row: #60\)"),
            ("DELETE FROM memories_memoryversion WHERE id = 59", models + r"memories_memoryversion \(1 row: #59\)"),
            (
                f"UPDATE decisions_decision SET chosen = 'forged' WHERE id = {self.decision}",
                models + "decisions_decision",
            ),
            (
                f"UPDATE sessions_app_session SET purpose = 'x' WHERE id = {self.session}",
                models + "sessions_app_session",
            ),
            ("UPDATE memories_searchdocument SET title = 'x' WHERE id = 58", models + "memories_searchdocument"),
            ("DELETE FROM memories_searchdocument WHERE id = 57", models + "memories_searchdocument"),
            ("DELETE FROM search_fts WHERE rowid = 56", search),
            (f"INSERT OR REPLACE INTO {fts} VALUES (55, 'm54', 'other words', '', '')", search),
        ]

    def test_forged_and_deleted_rows_and_search_documents_are_found_without_being_replaced(self) -> None:
        for statement, said in self.forgeries():
            self.assert_found(statement, said)
        one_word = f"VALUES (54, 'm53', '{'text 53 ' * 39} text 54', '', '')"
        self.assert_found(
            f"INSERT OR REPLACE INTO search_fts (rowid, title, body, near, date) {one_word}", "the full-text index"
        )
        added = "INSERT INTO memories_memorytag VALUES ('forged', 1)"
        self.assert_found(added, r"memories_memorytag \(1 row: #forged/1\)")
        self.assert_found("UPDATE search_fts_docsize SET sz = x'0101' WHERE id = 12", "full-text|file is damaged")

    def test_a_sample_of_a_long_log_finds_what_follows_from_the_streams_in_it(self) -> None:
        self.enterContext(mock.patch.object(comparing, "SMALL_LOG", 5))
        self.assertEqual(self.texts(), [])
        for statement, said in self.forgeries():
            self.assert_found(statement, said)

    def test_what_follows_from_several_streams_is_no_finding_of_a_sample(self) -> None:
        with self.store("alpha", create=False):
            start_session(command=SessionStart(session_id="scratch", purpose="to try", mode="scratch"))
        with self.store("alpha", create=False, session_id="scratch"):
            tried = services.write_memory(command=MemoryWrite(title="tried", content="in a scratch session")).id
        with (
            self.store("alpha", create=False),
            mock.patch.object(comparing, "_positions", return_value=[self.decision, tried]),
        ):
            self.assertEqual(log.compare_sample().differences, ())

    def test_what_a_sample_holds_wrong_and_is_right_is_settled_by_the_whole_log(self) -> None:
        self.enterContext(mock.patch.object(comparing, "SMALL_LOG", 5))
        wrong = comparing.Comparison(
            62, 5, (comparing.Difference("memories_memory", 1, ("7",), is_table=True),), sampled=True
        )
        with mock.patch.object(comparing, "compare_sample", return_value=wrong):
            self.assertEqual(self.found(), {})
            self.assertIn("compared with the whole log", self.printed())

    def test_it_says_what_was_compared(self) -> None:
        self.assertIn("compared with the whole log (62 events)", self.printed())
        with mock.patch.object(comparing, "SMALL_LOG", 5), mock.patch.object(comparing, "SAMPLED_EVENTS", 60):
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
        self.enterContext(mock.patch.object(comparing, "SMALL_LOG", 5))
        said = []
        for day in range(7):
            later = clock.now() + timedelta(days=day)
            with mock.patch("memoryhub.core.clock.now", return_value=later):
                said.append(self.verified())
        self.assertEqual(sum("compared with the whole log" in item for item in said), 1, said)
        self.assertEqual(sum("compared with a sample" in item for item in said), 6, said)
        self.forge("UPDATE memories_memory SET content = 'forged'")
        self.assertIn(
            "read models differ from the log: memories_memory (60 rows: #1, #2, #3, …); run `memory-hub doctor`",
            self.verified(),
        )

    def verified(self) -> str:
        with self.assertNoLogs("django", "ERROR"):
            (outcome,) = run_job(job=find_job("verify stores"), asked_by="ada")
        return outcome.message

    def test_vectors_that_are_missing_or_are_none_are_found_and_made_again(self) -> None:
        engine = LocalEngine()
        with use_engine(engine):
            call_command("jobs", "embed-texts", "--project", "alpha", stdout=StringIO(), stderr=StringIO())
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
                    found = self.found()
                    self.assertRegex(
                        " ".join(found), r"the search index differs from the log: the vectors \(1 row: #\d+\)"
                    )
                    call_command("jobs", "reindex", "--project", "alpha", stdout=StringIO(), stderr=StringIO())
                    self.assertEqual(self.found(), {})
