from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from django.db import connections

from benchmarks.speed import scoped
from memories.models import PROJECT, Memory, MemoryTag, Relation
from memories.query import query
from memories.schemas.query import MemoryQuery
from memoryhub.core import clock
from memoryhub.core.stores.store import GLOBAL_STORE, org_store, project_store, use_store
from tests.databases import on_postgresql
from tests.support import HubTestCase

SIZE = int(os.environ.get("MEMORY_HUB_TEST_ENTRIES", "3000"))
PROJECT_STORE, ORG_STORE = project_store("alpha"), org_store("acme")
STORES = {"session": PROJECT_STORE, "project": PROJECT_STORE, "org": ORG_STORE, "global": GLOBAL_STORE}
SCOPES = tuple(STORES)
PROXIMITY = {"session": 1.0, "project": 2 / 3, "org": 1 / 3, "global": 0.0}
KINDS = {"guidelines": "guideline", "tools": "tool"}
WORD = re.compile(r"[a-z]+")


class Reference:
    """The same answers computed with loops over everything."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.related: set[int] = set()
        for scope, store in STORES.items():
            with use_store(store):
                tags: dict[int, set[str]] = {}
                for tag, memory_id in MemoryTag.objects.values_list("tag", "memory_id"):
                    tags.setdefault(memory_id, set()).add(tag)
                for memory in Memory.objects.filter(scope=scope):
                    self.entries.append({"memory": memory, "scope": scope, "tags": tags.get(memory.id, set())})
        with use_store(PROJECT_STORE):
            self.related = set(Relation.objects.filter(target_id=PROJECT).values_list("source_id", flat=True))

    def answer(self, question: dict[str, Any], now: datetime) -> list[tuple[str, int]]:
        nearest = SCOPES.index(question.get("scope", {}).get("type", "session"))
        asked = [entry for entry in self.entries if SCOPES.index(entry["scope"]) >= nearest]
        visible = [entry for entry in self._not_hidden(asked) if self._matches(entry, question)]
        scored = [(self._score(entry, question, now), entry) for entry in visible]
        scored.sort(key=lambda scored: (-scored[0], SCOPES.index(scored[1]["scope"]), -scored[1]["memory"].id))
        return [(entry["scope"], entry["memory"].id) for _, entry in scored]

    def _not_hidden(self, entries: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        seen: dict[tuple[str, str], str] = {}
        for entry in entries:  # nearest scope first
            name = (entry["memory"].kind, entry["memory"].title)
            if entry["memory"].kind == "observation" or seen.setdefault(name, entry["scope"]) == entry["scope"]:
                yield entry

    def _matches(self, entry: dict[str, Any], question: dict[str, Any]) -> bool:
        kinds = [KINDS[name] for name in question.get("types", [])]
        related = "related_to" not in question or (
            STORES[entry["scope"]] == PROJECT_STORE and entry["memory"].id in self.related
        )
        return bool(
            (not kinds or entry["memory"].kind in kinds)
            and set(question.get("tags", {}).get("require", [])) <= entry["tags"]
            and related
            and ("search" not in question or self._text(entry, question["search"]))
        )

    def _score(self, entry: dict[str, Any], question: dict[str, Any], now: datetime) -> float:
        memory = entry["memory"]
        wanted = set(question.get("tags", {}).get("require", []))
        age: float = (now - memory.updated_at).total_seconds() / 86_400
        score: float = (
            5.0 * ("related_to" in question)
            + 3.0 * (len(wanted & entry["tags"]) / len(wanted) if wanted else 0)
            + 2.0 * PROXIMITY[entry["scope"]]
            + 1.5 * (memory.priority or 0) / 100
            + (self._text(entry, question["search"]) if "search" in question else 0)
            + 0.5 / (1 + max(0, age) / 30)
        )
        return score

    def _text(self, entry: dict[str, Any], word: str) -> float:
        if word in WORD.findall(entry["memory"].title.lower()):
            return 1.0
        return 0.5 if word in WORD.findall(entry["memory"].content.lower()) else 0.0


class ExamplesTests(HubTestCase):
    def test_queries_answer_as_plain_python_does_and_use_indexes(self):
        with clock.frozen(datetime(2026, 11, 1, tzinfo=UTC)):
            scoped.fill(PROJECT_STORE, ORG_STORE, SIZE, lambda _: None)
        reference = Reference()
        self.assertEqual(len(reference.entries), SIZE)
        self.assertEqual({entry["scope"] for entry in reference.entries}, set(SCOPES))
        now = datetime(2026, 11, 20, tzinfo=UTC)
        for name, question in scoped.examples("alpha").items():
            with self.subTest(name), self.store(session_id=scoped.SESSION), clock.frozen(now):
                wanted = reference.answer(question, now)
                self.assertGreater(len(wanted), SIZE // 500)
                with recorded() as plans:
                    found = self._all(question)
                self.assertEqual(found, wanted)
                self.assertEqual(scans(plans), [])
        with self.store(session_id=scoped.SESSION), recorded() as plans:
            query(command=MemoryQuery(search="authentication", include_inactive=True))
        self.assertEqual(scans(plans), [], "deleted ones have an index of their own")
        with self.store(session_id=scoped.SESSION), recorded() as plans:
            query(command=MemoryQuery())
        self.assertEqual(
            bool(scans(plans)), not on_postgresql(), "a question without any filter has to read everything"
        )

    def _all(self, question: dict[str, Any]) -> list[tuple[str, int]]:
        seen: list[tuple[str, int]] = []
        cursor = None
        while True:
            listing = query(command=MemoryQuery.model_validate({**question, "limit": 100, "cursor": cursor}))
            seen += [(item["scope"], item["id"]) for item in listing.results]
            cursor = listing.meta.next_cursor
            if cursor is None:
                self.assertEqual(listing.meta.total_count, len(seen))
                return seen


def scans(plans: list[str]) -> list[str]:
    return [step for step in plans if re.match(r"SCAN (m|memories_memory)\b", step)]


@contextmanager
def recorded() -> Iterator[list[str]]:
    if on_postgresql():  # its plans depend on its statistics
        yield []
        return
    statements: dict[str, list[str]] = {store.alias: [] for store in STORES.values()}
    for store in set(STORES.values()):
        with use_store(store):
            connections[store.alias].ensure_connection()
            connections[store.alias].connection.set_trace_callback(statements[store.alias].append)
    plans: list[str] = []
    yield plans
    for alias, made in statements.items():
        connection = connections[alias].connection
        connection.set_trace_callback(None)
        for sql in dict.fromkeys(item for item in made if "memories_memory" in item):
            plans += [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
