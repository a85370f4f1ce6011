"""Metrics are true across processes, cover every project, and need a sign-in."""

from __future__ import annotations

import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path

from django.test import SimpleTestCase
from prometheus_client.parser import text_string_to_metric_families

from memories.schemas import MemorySearch
from memories.selectors import search
from memoryhub.core import clock
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.counters import fold_ended
from memoryhub.core.errors import PreconditionFailed
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store
from memoryhub.ops import metrics
from sessions_app.schemas import EventAppend, SessionStart, TurnBegin, TurnEnd
from sessions_app.services import start_session
from sessions_app.services.turns import append_event, begin_turn, end_turn, expire_turns
from tests.api.client import RestTestCase
from tests.mcp.client import Process as McpServer
from tests.support import forget_all_stores
from tests.web.server import Server, poll, serving, temporary_home

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
        found = self.metrics()
        self.assertEqual(value(found, "turns", project="alpha", status="closed"), 1)
        self.assertEqual(value(found, "turns", project="alpha", status="incomplete"), 1)
        self.assertEqual(value(found, "turn_completion_ratio", project="alpha"), 0.5)
        self.assertIsNone(value(found, "turn_completion_ratio", project="beta"))
        for reason in ("closed", "wrong_token", "no_token"):
            self.assertEqual(value(found, "append_rejections_total", project="alpha", reason=reason), 1)
        self.assertEqual(value(found, "turn_events_total", project="alpha"), 1)
        self.assertEqual(value(found, "append_rejection_ratio", project="alpha"), 0.75)

    def test_stores_are_counted_each_for_itself(self) -> None:
        self.write()
        found = self.metrics()
        self.assertEqual([value(found, "events", project=each) for each in ("alpha", "beta")], [1, 0])
        self.assertEqual([value(found, "memories", project=each) for each in ("alpha", "beta")], [1, 0])
        self.assertGreater(value(found, "store_bytes", project="alpha") or 0, 4096)

    def test_a_read_model_that_lacks_events_shows_as_lag(self) -> None:
        self.write("One", "1")
        self.write("Two", "2")
        labels = {"project": "alpha", "projector": "read models"}
        self.assertEqual(value(self.metrics(), "projection_lag_events", **labels), 0)
        with self.store("alpha"):
            rows.execute("DELETE FROM memories_memoryversion")
            rows.execute("INSERT INTO projection_offsets VALUES ('embeddings', 0)")
        self.assertEqual(value(self.metrics(), "projection_lag_events", **labels), 2)
        self.assertEqual(value(self.metrics(), "projection_lag_events", project="alpha", projector="embeddings"), 2)

    def test_how_long_answers_took_is_a_histogram(self) -> None:
        with self.store("alpha"):
            for _ in range(3):
                search(command=MemorySearch(query="anything"))
        found = self.metrics()
        labels = {"project": "alpha", "kind": "search"}
        self.assertEqual(value(found, "retrieval_seconds_count", **labels), 3)
        self.assertEqual(value(found, "retrieval_seconds_bucket", **labels, le="+Inf"), 3)
        self.assertGreater(value(found, "retrieval_seconds_sum", **labels) or 0, 0)

    def test_folding_changes_no_figure(self) -> None:
        with self.store("alpha"):
            search(command=MemorySearch(query="anything"))
        before = value(self.metrics(), "retrieval_seconds_count", project="alpha", kind="search")
        fold_ended()
        self.assertEqual(value(self.metrics(), "retrieval_seconds_count", project="alpha", kind="search"), before)

    def test_a_store_that_cannot_be_read_is_down_and_hides_no_other(self) -> None:
        forget_all_stores()
        path_of(project_store("alpha")).write_bytes(b"not a database!!" * 1000)
        found = self.metrics()
        self.assertEqual([value(found, "store_up", project=each) for each in ("alpha", "beta")], [0, 1])
        self.assertIsNone(value(found, "events", project="alpha"))

    def test_only_who_is_known_is_told(self) -> None:
        self.call("GET", "metrics", token="wrong", expect=401)

    def test_every_metric_is_documented_and_no_other(self) -> None:
        import_module("memoryhub.ops.serving.limits")  # its metrics are declared when it is loaded
        self.write()
        with self.store("alpha"):
            search(command=MemorySearch(query="anything"))
        families = {family.name for family in text_string_to_metric_families(metrics.render().decode())}
        given = {name for name in families if not name.startswith("memory_hub_test_")}
        page = (ROOT / "docs/reference/metrics.md").read_text()
        documented = {name.removesuffix("_total") for name in re.findall(r"^\| `(\w+)`", page, re.MULTILINE)}
        self.assertEqual(documented, given)


class ManyProcessesTests(SimpleTestCase):
    def test_what_an_mcp_server_did_is_told_by_the_web(self) -> None:
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
