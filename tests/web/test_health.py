"""Health and metrics: what is wrong is named to those who are signed in, across processes and projects."""

from __future__ import annotations

import os
import re
import time
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from unittest import mock

from django.test import SimpleTestCase, tag
from django_q.models import Schedule
from prometheus_client.parser import text_string_to_metric_families

from memories.schemas import MemorySearch
from memories.selectors import search
from memoryhub.core import clock
from memoryhub.core.backends.sqlite.anchors import anchor_path
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import PreconditionFailed
from memoryhub.core.jobs import find_job
from memoryhub.core.search import RETRIEVALS
from memoryhub.core.stores import rows, store
from memoryhub.core.stores.store import project_store
from memoryhub.ops import health, jobs, metrics
from memoryhub.ops.jobs import run_job
from memoryhub.web.signin import ensure_owner
from sessions_app.schemas import EventAppend, SessionStart, TurnBegin, TurnEnd
from sessions_app.services import start_session
from sessions_app.services.turns import REJECTIONS, append_event, begin_turn, end_turn, expire_turns
from tests.api.client import RestTestCase
from tests.mcp.client import FIXTURES
from tests.mcp.client import Process as McpServer
from tests.support import forget_all_stores
from tests.web.server import Server, poll, serving, temporary_home


class HealthTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.object(health, "_last_check", None))
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
        with mock.patch.object(health, "_SHARED_SECONDS", 0), health._checking:
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

    def test_a_read_model_behind_its_log_or_an_index_behind_the_memories_is_named(self) -> None:
        memory_id = self.write()
        for statement, finding in (
            (f"DELETE FROM search_fts WHERE rowid = {memory_id}", "the full-text index is behind; run rebuild"),
            ("DELETE FROM memories_searchdocument", "the search index is behind the memories; run rebuild"),
            (
                "DELETE FROM memories_memoryversion",
                "read models behind the log: memoryversion; run `memory-hub rebuild`",
            ),
        ):
            with self.store("alpha"):
                rows.execute(statement)
            parts = self.call("GET", "health", expect=503).data["parts"]
            self.assertEqual((parts["project alpha"], parts["project beta"]), (finding, "ok"))

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
        samples = parsed(metrics.render().decode())
        self.assertEqual([value(samples, "store_up", project=name) for name in ("alpha", "beta")], [1, 0])
        self.assertIsNone(value(samples, "events", project="beta"))

    def test_jobs_that_nobody_does_are_named(self) -> None:
        jobs.install_schedules()
        now = clock.now()
        Schedule.objects.filter(name="clear logins").update(next_run=now - timedelta(minutes=5))
        with clock.frozen(now):
            with mock.patch.object(health, "_STARTED", time.monotonic()):
                self.assertEqual(self.finding("worker"), "ok")  # this process has only just started
            with mock.patch.object(health, "_STARTED", time.monotonic() - 600):
                self.assertIn("job 'clear logins' is overdue since", self.finding("worker"))
                Schedule.objects.update(next_run=now - timedelta(minutes=1))
                self.assertEqual(self.finding("worker"), "ok")

    def test_a_daily_job_that_failed_is_named_until_it_ends_well(self) -> None:
        anchor = anchor_path(project_store("beta"))
        anchor.write_bytes(b"99 abc".ljust(127) + b"\n")
        with self.assertLogs("memoryhub.ops.jobs", "WARNING"):
            run_job(job=find_job("verify stores"), asked_by="ada")
        self.assertEqual(self.finding("jobs"), "job 'verify stores' for project beta: failed; see `memory-hub jobs`")
        samples = parsed(metrics.render().decode())
        for project, is_ok in (("alpha", 1), ("beta", 0)):
            labels = {"job": "verify stores", "store": f"project:{project}"}
            self.assertEqual(value(samples, "job_ok", **labels), is_ok)
        anchor.unlink()
        run_job(job=find_job("verify stores"), asked_by="ada")
        self.assertEqual(self.finding("jobs"), "ok")

    def test_what_waits_in_the_spool_is_counted(self) -> None:
        spool = self.home / "spool"
        spool.mkdir()
        (spool / "1.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
        (spool / "2.jsonl").write_text('{"a": 3}\n')
        self.assertEqual(self.call("GET", "health").data["spooled"], 3)

    def test_more_stores_than_may_be_open_are_all_looked_at(self) -> None:
        self.enterContext(mock.patch.object(store, "MAX_OPEN_STORES", 4))
        for number in range(6):
            with self.store(f"p{number}"):
                pass
        found = health.check()
        self.assertTrue(found.ok, found.findings)
        self.assertEqual(len([part for part in found.findings if part.startswith("project p")]), 6)


ROOT = Path(__file__).parents[2]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((f"memory_hub_{name}", frozenset(labels.items())))


class MetricsTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        for counter in (RETRIEVALS, REJECTIONS):
            counter.clear()

    def metrics(self) -> Samples:
        return parsed(metrics.render().decode())

    def test_turns_and_refusals_have_their_rates(self) -> None:
        with self.store("alpha"):
            start_session(command=SessionStart(session_id="s"))
            closed = begin_turn(command=TurnBegin(session_id="s"))
            append_event(command=EventAppend(ack_token=closed.ack_token, type="message.user", payload={"content": "x"}))
            end_turn(command=TurnEnd(ack_token=closed.ack_token))
            with clock.frozen(clock.now() - timedelta(days=1)):
                begin_turn(command=TurnBegin(session_id="s"))
            expire_turns()
            for token in (closed.ack_token, "wrong", None):
                with self.assertRaises(PreconditionFailed):
                    append_event(command=EventAppend(ack_token=token, type="message.user", payload={"content": "x"}))
        samples = self.metrics()
        for name, labels, expected in (
            ("turns", {"status": "closed"}, 1),
            ("turns", {"status": "incomplete"}, 1),
            ("turn_completion_ratio", {}, 0.5),
            ("append_rejections_total", {"reason": "closed"}, 1),
            ("append_rejections_total", {"reason": "wrong_token"}, 1),
            ("append_rejections_total", {"reason": "no_token"}, 1),
            ("turn_events_total", {}, 1),
        ):
            with self.subTest(name, **labels):
                self.assertEqual(value(samples, name, project="alpha", **labels), expected)
        self.assertIsNone(value(samples, "turn_completion_ratio", project="beta"))

    def test_stores_are_counted_each_for_itself_and_a_read_model_that_lacks_events_shows_as_lag(self) -> None:
        self.write("One", "1")
        self.write("Two", "2")
        samples = self.metrics()
        for name in ("events", "memories"):
            self.assertEqual([value(samples, name, project=project) for project in ("alpha", "beta")], [2, 0])
        self.assertGreater(value(samples, "store_bytes", project="alpha") or 0, 4096)
        self.assertEqual(value(samples, "projection_lag_events", project="alpha", projector="read models"), 0)
        with self.store("alpha"):
            rows.execute("DELETE FROM memories_memoryversion")
            rows.execute("INSERT INTO projection_offsets VALUES ('embeddings', 0)")
        samples = self.metrics()
        for projector in ("read models", "embeddings"):
            self.assertEqual(value(samples, "projection_lag_events", project="alpha", projector=projector), 2)

    def test_how_long_answers_took_is_a_histogram(self) -> None:
        with self.store("alpha"):
            for _ in range(3):
                search(command=MemorySearch(query="anything"))
        found = self.metrics()
        labels = {"project": "alpha", "kind": "search"}
        self.assertEqual(value(found, "retrieval_seconds_count", **labels), 3)
        self.assertEqual(value(found, "retrieval_seconds_bucket", **labels, le="+Inf"), 3)
        self.assertGreater(value(found, "retrieval_seconds_sum", **labels) or 0, 0)

    def test_every_metric_is_documented_and_no_other(self) -> None:
        import_module("memoryhub.ops.serving.edge")  # its metrics are declared when it is loaded
        self.write()
        with self.store("alpha"):
            search(command=MemorySearch(query="anything"))
        families = {family.name for family in text_string_to_metric_families(metrics.render().decode())}
        given = {name for name in families if not name.startswith("memory_hub_test_")}
        page = (ROOT / "docs/reference/metrics.md").read_text()
        documented = {name.removesuffix("_total") for name in re.findall(r"^\| `(\w+)`", page, re.MULTILINE)}
        self.assertEqual(documented, given)


@tag("process")
class ManyProcessesTests(SimpleTestCase):
    def test_what_the_windows_of_agents_did_is_told_by_the_web(self) -> None:
        # The hub relays windows with its own settings only
        self.enterContext(mock.patch.dict(os.environ, MEMORY_HUB_TEST_TOOLS=FIXTURES))
        with temporary_home() as home, serving("--no-worker", home=home) as web:
            mcp = McpServer(home)
            self.addCleanup(mcp.destroy)
            mcp.initialize()
            for _ in range(5):
                mcp.call("memory_search", query="why WAL")
            refused = [mcp.call("event_append", type="message.user", payload={"content": "x"}) for _ in range(2)]
            self.assertTrue(all(answer["isError"] for answer in refused))
            wanted = {"search": 5.0, "refused": 2.0}
            poll(lambda: self.values(web) == wanted, what=f"{wanted} in the metrics")
            mcp.process.kill()
            mcp.wait()
            self.assertEqual(self.values(web), wanted)

    def values(self, web: Server) -> dict[str, float | None]:
        reply = web.api("GET", "metrics")
        self.assertEqual((reply.status, reply.headers["Content-Type"]), (200, metrics.CONTENT_TYPE))
        found = parsed(reply.body.decode())
        return {
            "search": value(found, "retrieval_seconds_count", project="alpha", kind="search"),
            "refused": value(found, "append_rejections_total", project="alpha", reason="no_token"),
        }
