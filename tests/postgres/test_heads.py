"""How a machine learns that stores have changed, from one or several servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import TestCase, mock

from django.db import OperationalError

from memoryhub import env
from memoryhub.core.stores.store_id import Scope, StoreId
from tests.programs import needs

MAIN, MARS = "postgresql://main/hub", "postgresql://mars/hub"
ALPHA, BETA = StoreId(Scope.PROJECT, "alpha"), StoreId(Scope.PROJECT, "beta")


@needs("postgresql")
class HeadsTests(TestCase):
    def setUp(self) -> None:
        from memoryhub.core.backends.postgresql import machines, servers

        self.machines = machines
        self.anchors: dict[str, Any] = {MAIN: [], MARS: []}
        self.assigned: dict[str, str] = {}
        self.asked: list[str] = []
        for module, name, value in (
            (servers, "all_urls", lambda: [MAIN, MARS]),
            (servers, "assigned", lambda: self.assigned),
            (env, "servers", lambda: {"mars": MARS}),
            (env, "database_url", lambda: MAIN),
            (machines, "Direct", self.direct),
        ):
            self.enterContext(mock.patch.object(module, name, value))
        self.heads = machines._Heads()

    def direct(self, url: str) -> Any:
        def rows(_sql: str) -> Any:
            self.asked.append(url)
            if isinstance(self.anchors[url], Exception):
                raise self.anchors[url]
            return self.anchors[url]

        return mock.Mock(rows=rows)

    def seen(self, *stores: StoreId) -> list[Any]:
        self.heads._look()
        with self.unread():
            return [self.heads.of(store) for store in stores]

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Let no thread be started by asking."""
        with mock.patch.object(threading.Thread, "start"):
            yield

    def test_an_anchor_counts_on_the_server_that_has_the_store(self) -> None:
        self.anchors = {
            MAIN: [("project:alpha", 9, "now"), ("project:beta", 2, "left behind")],
            MARS: [("project:alpha", 5, "left behind"), ("project:beta", 3, "now")],
        }
        self.assigned = {"project:beta": "mars"}
        self.assertEqual(self.seen(ALPHA, BETA), [[9, "now"], [3, "now"]])

    def test_a_further_server_that_is_away_is_left_alone_for_a_while(self) -> None:
        self.anchors = {MAIN: [("project:alpha", 9, "now")], MARS: OperationalError("it can't be reached")}
        with self.assertLogs("memoryhub", "WARNING") as logged:
            for _ in range(2):
                self.assertEqual(self.seen(ALPHA), [[9, "now"]])
        self.assertEqual(len(logged.output), 1)
        self.assertEqual(self.asked, [MAIN, MARS, MAIN])

    def test_reading_goes_on_after_any_error(self) -> None:
        self.anchors[MAIN] = RuntimeError("unforeseen")
        with self.assertLogs("memoryhub", "WARNING"):
            self.assertEqual(self.seen(ALPHA), [None])
        self.anchors[MAIN] = [("project:alpha", 9, "now")]
        self.assertEqual(self.seen(ALPHA), [[9, "now"]])
        with mock.patch.object(self.heads, "_look", side_effect=KeyError), self.assertRaises(KeyError):
            self.heads._reads = True
            self.heads._read()
        self.assertFalse(self.heads._reads)
