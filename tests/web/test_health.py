"""Is the hub well: what is wrong is named to who is known."""

from __future__ import annotations

from datetime import timedelta
from unittest import mock

from django_q.models import Schedule

from memoryhub import health, jobs
from memoryhub.core import clock, rows
from memoryhub.core.stores import MAX_OPEN_STORES, project_store
from tests.api.client import RestTestCase
from tests.support import forget_all_stores


class HealthTests(RestTestCase):
    def finding(self, part: str = "project alpha") -> str:
        return health.check().findings[part]

    def test_all_is_well(self) -> None:
        self.write()
        answer = self.call("GET", "health").data
        parts = {"hub.db": "ok", "worker": "ok", "project alpha": "ok", "project beta": "ok"}
        self.assertEqual((answer["status"], answer["parts"], answer["spooled"]), ("ok", parts, 0))

    def test_a_read_model_behind_its_log_is_named(self) -> None:
        self.write()
        with self.store("alpha"):
            rows.execute("DELETE FROM memories_memoryversion")
        self.assertEqual(self.finding(), "read models behind the log: memoryversion; run rebuild")
        self.assertEqual(self.finding("project beta"), "ok")
        problem = self.call("GET", "health", expect=503).data
        self.assertEqual(problem["parts"]["project beta"], "ok")

    def test_an_index_behind_the_memories_is_named(self) -> None:
        memory_id = self.write()
        with self.store("alpha"):
            rows.execute("DELETE FROM search_fts WHERE rowid = %s", [memory_id])
        self.assertEqual(self.finding(), "the full-text index is behind; run rebuild")
        with self.store("alpha"):
            rows.execute("DELETE FROM memories_searchdocument")
        self.assertEqual(self.finding(), "the search index is behind the memories; run rebuild")

    def test_a_store_that_cannot_be_read_is_named(self) -> None:
        forget_all_stores()
        project_store("alpha").path.write_bytes(b"not a database!!" * 1000)
        self.assertIn("memory database unavailable", self.finding())
        self.assertEqual(self.finding("project beta"), "ok")

    def test_jobs_that_nobody_does_are_named(self) -> None:
        jobs.install_schedules()
        Schedule.objects.filter(name="fold counters").update(next_run=clock.now() - timedelta(minutes=5))
        with mock.patch.object(health, "_STARTED", clock.now()):
            self.assertEqual(self.finding("worker"), "ok")  # this process has only just started
        with mock.patch.object(health, "_STARTED", clock.now() - timedelta(minutes=10)):
            self.assertIn("job 'fold counters' is due since", self.finding("worker"))
            Schedule.objects.update(next_run=clock.now() - timedelta(minutes=1))
            self.assertEqual(self.finding("worker"), "ok")

    def test_what_waits_in_the_spool_is_counted(self) -> None:
        spool = self.home / "spool"
        spool.mkdir()
        (spool / "1.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
        (spool / "2.jsonl").write_text('{"a": 3}\n')
        self.assertEqual(self.call("GET", "health").data["spooled"], 3)

    def test_more_stores_than_may_be_open_are_all_looked_at(self) -> None:
        for number in range(MAX_OPEN_STORES + 2):
            with self.store(f"p{number}"):
                pass
        found = health.check()
        self.assertTrue(found.ok, found.findings)
        self.assertEqual(len([part for part in found.findings if part.startswith("project p")]), MAX_OPEN_STORES + 2)
