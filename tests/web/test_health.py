"""Is the hub well: what is wrong is named to who is known."""

from __future__ import annotations

import time
from datetime import timedelta
from unittest import mock

from django_q.models import Schedule

from memoryhub.core import clock
from memoryhub.core.backends.sqlite.anchors import anchor_path
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.jobs import find_job
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import MAX_OPEN_STORES, project_store
from memoryhub.ops import health, jobs
from memoryhub.ops.jobs import run_job
from memoryhub.ops.metrics import render
from memoryhub.web.signin import ensure_owner
from tests.api.client import RestTestCase
from tests.support import forget_all_stores


class HealthTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.object(health, "_kept", None))
        Schedule.objects.all().delete()  # no worker runs here, and what it would do falls due as the tests go on

    def finding(self, part: str = "project alpha") -> str:
        return health.check().findings[part]

    def test_anyone_may_ask_and_only_the_known_are_told_the_parts(self) -> None:
        self.write()
        self.assertEqual(self.client.get("/api/v1/health").json(), {"status": "ok"})
        self.assertEqual(self.call("GET", "health", token="wrong").data, {"status": "ok"})
        answer = self.call("GET", "health").data
        wanted = ("hub.db", "settings", "worker", "jobs", "project alpha", "project beta")
        parts = dict.fromkeys(wanted, "ok")
        self.assertEqual((answer["status"], answer["parts"], answer["spooled"]), ("ok", parts, 0))

    def test_callers_who_may_not_see_the_parts_share_one_check(self) -> None:
        self.write()
        with mock.patch.object(health, "_project", wraps=health._project) as checked:
            for token in ("", "wrong", ""):
                self.call("GET", "health", token=token)
            self.assertEqual(checked.call_count, 2)
            self.call("GET", "health")
            self.assertEqual(checked.call_count, 4)

    def test_a_check_is_not_begun_while_another_runs(self) -> None:
        first = health.recent_check()
        with mock.patch.object(health, "_KEPT_SECONDS", 0), health._checking:
            self.assertIs(health.recent_check(), first)
        self.assertIs(health.recent_check(), first)

    def test_settings_that_cannot_be_read_are_named_and_refuse_what_depends_on_them(self) -> None:
        self.write()
        (self.home / "config.toml").write_text('review_policy = "all"\nturn_policy = = 3\n')
        sentence = "config.toml, line 2, column 15: invalid value; fix it there, or remove the file"
        self.assertIn(sentence, self.finding("settings"))
        self.assertEqual(self.client.get("/api/v1/health").status_code, 503)
        for method, path, body in (
            ("GET", "projects/alpha/search?query=x", None),
            ("POST", "projects/alpha/memories", {"title": "a", "content": "b"}),
            ("POST", "hooks/claude-code/UserPromptSubmit?project=alpha", {"session_id": "s", "prompt": "p"}),
        ):
            self.assertIn(sentence, self.call(method, path, body, expect=503).data["detail"])
        self.client.force_login(ensure_owner())
        page = self.client.get("/p/alpha/admin/memories/memory/")
        self.assertContains(page, sentence, status_code=503)

    def test_a_read_model_behind_its_log_is_named(self) -> None:
        self.write()
        with self.store("alpha"):
            rows.execute("DELETE FROM memories_memoryversion")
        parts = self.call("GET", "health", expect=503).data["parts"]
        self.assertEqual(parts["project alpha"], "read models behind the log: memoryversion; run `memory-hub rebuild`")
        self.assertEqual(parts["project beta"], "ok")

    def test_an_index_behind_the_memories_is_named(self) -> None:
        memory_id = self.write()
        with self.store("alpha"):
            rows.execute("DELETE FROM search_fts WHERE rowid = %s", [memory_id])
        self.assertEqual(self.finding(), "the full-text index is behind; run rebuild")
        with self.store("alpha"):
            rows.execute("DELETE FROM memories_searchdocument")
        self.assertEqual(self.finding(), "the search index is behind the memories; run rebuild")

    def test_a_store_that_cannot_be_read_is_named_to_the_known(self) -> None:
        forget_all_stores()
        path_of(project_store("beta")).write_bytes(b"not a database!!" * 1000)
        answer = self.client.get("/api/v1/health")
        self.assertEqual(answer.status_code, 503)
        self.check_shape(answer)
        self.assertNotIn(b"beta", answer.content)
        parts = self.call("GET", "health", expect=503).data["parts"]
        self.assertEqual(parts["project alpha"], "ok")
        self.assertIn("memory database unavailable", parts["project beta"])

    def test_jobs_that_nobody_does_are_named(self) -> None:
        jobs.install_schedules()
        now = clock.now()
        Schedule.objects.filter(name="fold counters").update(next_run=now - timedelta(minutes=5))
        with clock.frozen(now):
            with mock.patch.object(health, "_STARTED", time.monotonic()):
                self.assertEqual(self.finding("worker"), "ok")  # this process has only just started
            with mock.patch.object(health, "_STARTED", time.monotonic() - 600):
                self.assertIn("job 'fold counters' is overdue since", self.finding("worker"))
                Schedule.objects.update(next_run=now - timedelta(minutes=1))
                self.assertEqual(self.finding("worker"), "ok")

    def test_a_daily_job_that_failed_is_named_until_it_ends_well(self) -> None:
        anchor = anchor_path(project_store("beta"))
        anchor.write_bytes(b"99 abc".ljust(127) + b"\n")
        with self.assertLogs("memoryhub.ops.jobs", "WARNING"):
            run_job(job=find_job("verify stores"), asked_by="ada")
        self.assertEqual(self.finding("jobs"), "job 'verify stores' for project beta: failed; see `memory-hub jobs`")
        metrics = self.metrics()
        self.assertIn('memory_hub_job_ok{job="verify stores",store="project:alpha"} 1.0', metrics)
        self.assertIn('memory_hub_job_ok{job="verify stores",store="project:beta"} 0.0', metrics)
        anchor.unlink()
        run_job(job=find_job("verify stores"), asked_by="ada")
        self.assertEqual(self.finding("jobs"), "ok")

    def metrics(self) -> str:
        return render().decode()

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
