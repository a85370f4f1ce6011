from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from django.db import connections
from django.test import tag
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.speed import scoped
from memories.events import RELATION_CREATED, RelationCreated
from memories.models import PROJECT, EndType, Memory, MemoryTag, Relation, RelationType
from memories.query import query, query_line
from memories.schemas.query import MemoryQuery
from memoryhub.core import clock, log
from memoryhub.core.errors import ConflictError, Invalid, NotFound
from memoryhub.core.kinds import KINDS
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, org_store, project_store, use_store
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.databases import on_postgresql
from tests.memories.base import QueryTestCase, pages
from tests.support import HubTestCase

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def relate(source: int, target: int = PROJECT, relation: str = "applies_to") -> None:
    ends = {"source_type": EndType.MEMORY, "source_id": source, "target_id": target}
    target_type = EndType.MEMORY if target else EndType.PROJECT
    payload = RelationCreated(relation=RelationType(relation), target_type=target_type, **ends)
    with log.transaction():
        log.append(log.prepare(RELATION_CREATED, payload), entity="relation")


class FilterTests(QueryTestCase):
    def test_kinds_are_accepted_in_singular_and_plural(self):
        for kind in KINDS:
            self.write(f"A {kind}", kind=kind)
        for kind, declared in KINDS.items():
            for name in (kind, declared.accepted_plural):
                self.assertEqual(self.found(types=[name]), [("project", f"A {kind}")], name)
        self.assertEqual(len(self.found(types=["guidelines", "observations"])), 2)
        self.assertEqual(len(self.found()), len(KINDS))
        with self.assertRaisesRegex(ValidationError, "types"):
            MemoryQuery.model_validate({"types": ["decisions"]})

    @tag("backend")
    def test_tags_are_any_all_and_none(self):
        self.write("One", tags=["python", "web"])
        self.write("Two", tags=["python"])
        self.write("Three", tags=["rust", "deprecated"])
        for tags, titles in (
            ({"include": ["web", "rust"]}, ["One", "Three"]),
            ({"require": ["python", "Web "]}, ["One"]),
            ({"exclude": ["python"]}, ["Three"]),
            ({"include": ["python", "rust"], "exclude": ["deprecated", "web"]}, ["Two"]),
            (["python", "web"], ["One"]),  # a plain list requires all
        ):
            with self.subTest(tags):
                self.assertEqual(sorted(title for _, title in self.found(tags=tags)), titles)

    @tag("backend")
    def test_words_are_searched_in_title_text_tags_and_rationale(self):
        self.write("Authentication")
        self.write("Second", content="How authenticating works.")
        self.write("Third", tags=["authentication"])
        self.write("Fourth", attributes={"rationale": "authentication must hold"})
        self.write("Fifth")
        for mode, answered, count in (("auto", "fts5", 4), ("basic", "basic", 3)):  # LIKE knows no word stems
            with self.subTest(mode=mode):
                listing = self.ask(mode, search="authentication")
                self.assertEqual((listing.meta.total_count, listing.results[0]["title"]), (count, "Authentication"))
                self.assertEqual(listing.meta.mode, answered)
        self.assertEqual(self.found(search="!?"), [])

    def test_deleted_and_past_memories_are_found_on_request(self):
        self.delete(self.write("Old rule"))
        position = log.head()[0]
        self.write("Young rule")
        self.assertEqual(self.found(search="old"), [])
        self.assertEqual(self.found(as_of=position), [])
        for question in ({"as_of": position}, {"search": "old rule"}):
            item = self.ask(include_inactive=True, **question).results[0]
            self.assertTrue(item["deleted_at"])
            self.assertIn("Old rule in project. (deleted)", query_line(item))


class ScopeTests(QueryTestCase):
    def test_a_query_covers_visible_scopes_nearest_first_and_those_wider_than_the_named_one(self):
        every_scope = ["session", "project", "org", "global"]
        for scope in every_scope:
            self.write(f"Rule of {scope}", scope)
        cases: list[tuple[str, str, Any, list[str]]] = [
            ("alpha", "s-1", None, every_scope),
            ("alpha", "s-2", None, every_scope[1:]),
            ("beta", "s-1", None, ["org", "global"]),
            ("alpha", "s-1", {"type": "org"}, ["org", "global"]),
            ("alpha", "s-1", "project", every_scope[1:]),
            ("alpha", "s-1", {"type": "project", "id": "alpha", "inherit": False}, ["project"]),
            ("alpha", "s-1", {"type": "session", "inherit": False}, ["session"]),
            ("alpha", "s-1", {"type": "session", "id": "s-2", "inherit": False}, []),
            ("alpha", "s-2", {"type": "session", "id": "s-1", "inherit": False}, ["session"]),
        ]
        for project, session, scope, expected in cases:
            question = {"scope": scope} if scope else {}
            with self.subTest(project=project, session=session, scope=scope), self.store(project, session_id=session):
                self.assertEqual([item for item, _ in self.found(**question)], expected)
        for kind in ("project", "org"):
            with self.subTest(kind), self.assertRaisesRegex(Invalid, f"bound to {kind}"):
                self.ask(scope={"type": kind, "id": "beta"})


class NameTests(QueryTestCase):
    @tag("backend")
    def test_the_nearest_of_a_name_hides_others_of_its_kind(self):
        for scope in ("session", "project", "org", "global"):
            self.write("Naming", scope, content=f"As {scope} says.")
        self.write("Naming", "global", kind="tool", content="Another kind.")
        self.assertEqual(self.found(), [("session", "Naming"), ("global", "Naming")])
        with use_origin(session_id=""):
            self.assertEqual(self.ask().meta.total_count, 2)
            self.assertEqual(self.found(types=["guideline"]), [("project", "Naming")])

    def test_only_a_live_memory_with_a_name_hides_others_even_if_it_does_not_match(self):
        self.write("Naming", "global", tags=["python"])
        near = self.write("Naming", "project", tags=["style"])
        self.assertEqual(self.found(tags=["python"]), [], "the project has said otherwise")
        self.delete(near)
        self.assertEqual(self.found(), [("global", "Naming")])
        for scope in ("project", "org"):
            self.write("Seen", scope, kind="observation")
        self.assertEqual(self.found(types=["observation"]), [("project", "Seen")])
        self.assertEqual(self.found(types=["observation"], scope="org"), [("org", "Seen")])


class RelationTests(QueryTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.rule = self.write("Rule", tags=["python", "web"])
        self.near = self.write("Near tool", kind="tool", tags=["python"])
        self.far = self.write("Far tool", kind="tool")

    def test_relations_and_tags_shared_with_the_related_entry_score(self):
        relate(self.far)
        listing = self.ask(types=["tools"], related_to={"type": "project", "id": "alpha"})
        self.assertEqual([item["id"] for item in listing.results], [self.far])
        self.assertEqual(listing.results[0]["parts"]["relation"], {"value": 1.0, "points": 5.0})
        relate(self.near, self.rule)
        (item,) = self.ask(related_to={"type": "guideline", "id": "Rule"}).results
        self.assertEqual(item["parts"]["tags"]["value"], 0.5)

    def test_either_direction_counts_and_the_relation_may_be_named(self):
        relate(self.near, self.rule, "depends_on")
        relate(self.rule, self.far, "related_to")
        by_id = {"type": "guideline", "id": self.rule}
        self.assertEqual(self.found(related_to=by_id), [("project", "Near tool"), ("project", "Far tool")])
        self.assertEqual(self.found(related_to={**by_id, "relation": "related_to"}), [("project", "Far tool")])
        self.assertEqual(self.found(related_to={"type": "tool", "id": "Far tool"}), [("project", "Rule")])
        self.assertEqual(self.found(related_to={"type": "memory", "id": f"#{self.far}"}), [("project", "Rule")])

    @tag("backend")
    def test_relations_of_a_wider_scope_are_found_there(self):
        first, second = self.write("Org rule", "org"), self.write("Org tool", "org", kind="tool")
        with use_store(org_store("acme")):
            relate(first, second)
        for reference in (f"org#{first}", "Org rule"):
            self.assertEqual(self.found(related_to={"type": "guideline", "id": reference}), [("org", "Org tool")])

    def test_an_unknown_reference_is_reported(self):
        for kind, reference, error, sentence in (
            ("tool", self.rule, NotFound, "there is no tool"),
            ("tool", "Nothing", NotFound, "there is no tool"),
            ("commit", 9, NotFound, "there is no commit"),
            ("project", "beta", Invalid, "bound to project 'alpha'"),
        ):
            with self.subTest(reference), self.assertRaisesRegex(error, sentence):
                self.ask(related_to={"type": kind, "id": reference})


class RankingTests(QueryTestCase):
    @tag("backend")
    def test_each_part_of_the_score_is_as_documented(self):
        with clock.frozen(NOON - timedelta(days=30)):
            self.write("Commit often", tags=["git", "style"], attributes={"priority": 80}, content="In small steps.")
        with clock.frozen(NOON):
            (item,) = self.ask(search="commit steps now", tags={"include": ["git", "ci"]}).results
        expected = {"relation": 0, "tags": 0.5, "scope": 0.6667, "priority": 0.8, "text": 0.75, "recency": 0.5}
        parts = {name: part["value"] for name, part in item["parts"].items()}
        self.assertEqual(parts, expected, "of two words left one is in the title, one in the text")

    def test_the_score_is_the_weighted_sum_and_the_weights_are_settings(self):
        with clock.frozen(NOON):
            rule = self.write("Rule", tags=["python"], attributes={"priority": 100}, content="Type all.")
            (item,) = self.ask(tags=["python"]).results
        entry = f"#{rule} guideline 2026-11-20 Rule [python] session=s-1"
        score = "score 6.3 (tags 3.0, scope 1.3, priority 1.5, recency .5)"
        self.assertEqual(query_line(item), f"{entry} {score}: Type all.")
        repeated = query_line({**item, "content": "Rule: type all."})
        self.assertEqual(repeated, f"{entry.replace('Rule', 'Rule: type all.')} {score}")
        change_settings(command=SettingsChange(settings={"ranking": {"priority": 10, "scope": 0}}))
        self.write("Fact", kind="knowledge", attributes={"valid_until": "2020-01-01"})
        rule_item, fact_item = self.ask().results
        self.assertEqual(rule_item["parts"]["priority"]["points"], 10)
        for item, share, expired in ((rule_item, 1, False), (fact_item, 0.5, True)):
            points = sum(part["points"] for part in item["parts"].values())
            self.assertAlmostEqual(item["score"], share * points, places=3)
            self.assertEqual(bool(item.get("expired")), expired)

    @tag("backend")
    def test_orders_are_by_priority_name_and_change(self):
        with clock.frozen(NOON):
            first = self.write("banana", attributes={"priority": 10})
        with clock.frozen(NOON + timedelta(hours=1)):
            self.write("Apple", attributes={"priority": 90})
            self.write("cherry", "global", attributes={"priority": 50})
        with clock.frozen(NOON + timedelta(hours=2)):
            self.update(first, content="changed")
        for order, titles in (
            ("priority", ["Apple", "cherry", "banana"]),
            ("name", ["Apple", "banana", "cherry"]),
            ("recent", ["banana", "Apple", "cherry"]),
        ):
            with self.subTest(order):
                self.assertEqual([title for _, title in self.found(order=order)], titles)


class AnswerTests(QueryTestCase):
    def test_every_result_carries_its_evidence_unless_it_is_compact(self):
        memory_id = self.write("Rule", tags=["python"], source="a book")
        for text in ("Said better.", "Said at once."):
            self.update(memory_id, base_version=1, content=text, change_reason="clearer")
        event = log.head()[0]
        (item,) = self.ask(include_versions=True).results
        evidence = {name: item[name] for name in ("id", "scope", "version", "event", "author", "session_id", "source")}
        expected = {"id": memory_id, "scope": "project", "version": 3, "event": event}
        self.assertEqual(evidence, {**expected, "author": "ada", "session_id": "s-1", "source": "a book"})
        self.assertEqual([version["reason"] for version in item["versions"]], ["clearer", "clearer", ""])
        line = query_line(item)
        self.assertIn(f"v3 {item['updated_at'][:16]} by ada event #{event} beside v2: clearer", line)
        (conflict,) = item["conflicts"]
        self.assertIn(f"conflict #{conflict} open", line)
        (compact,) = self.ask(compact=True).results
        self.assertEqual(compact, {"id": memory_id, "kind": "guideline", "title": "Rule", "scope": "project"})

    @tag("backend")
    def test_a_budget_cuts_the_page_and_the_cursor_continues_after_it(self):
        for number in range(10):
            self.write(f"Rule {number}", content=f"{number} " + "word " * 100)
        first = self.ask(max_tokens=150)
        self.assertTrue(first.meta.truncated and 0 < first.meta.returned_count < 10)
        rest = self.ask(cursor=first.meta.next_cursor)
        titles = [item["title"] for item in first.results + rest.results]
        self.assertEqual(len(set(titles)), 10)

    def test_a_cursor_of_another_question_is_refused(self):
        for number in range(3):
            self.write(f"Rule {number}")
        cursor = self.ask(limit=1).meta.next_cursor
        with self.assertRaisesRegex(Invalid, "another question"):
            self.ask(limit=1, search="rule", cursor=cursor)
        with self.store("beta"), self.assertRaisesRegex(Invalid, "another question"):
            self.ask(limit=1, cursor=cursor)
        for broken in ("W10", "eyJhIjoxfQ", "!"):
            with self.subTest(broken), self.assertRaisesRegex(Invalid, "not one that this list gave"):
                self.ask(cursor=broken)


SIZE = int(os.environ.get("MEMORY_HUB_TEST_ENTRIES", "1200"))
PROJECT_STORE, ORG_STORE = project_store("alpha"), org_store("acme")
STORES = {"session": PROJECT_STORE, "project": PROJECT_STORE, "org": ORG_STORE, "global": GLOBAL_STORE}
SCOPES = tuple(STORES)
PROXIMITY = {"session": 1.0, "project": 2 / 3, "org": 1 / 3, "global": 0.0}
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
        memory = entry["memory"]
        if "types" in question and f"{memory.kind}s" not in question["types"] and memory.kind not in question["types"]:
            return False
        if "related_to" in question and (STORES[entry["scope"]] != PROJECT_STORE or memory.id not in self.related):
            return False
        if "search" in question and not self._text(entry, question["search"]):
            return False
        required = set(question.get("tags", {}).get("require", []))
        return required.issubset(entry["tags"])

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


@tag("backend")
class ExamplesTests(HubTestCase):
    def test_queries_answer_as_plain_python_does_and_use_indexes(self):
        with clock.frozen(datetime(2026, 11, 1, tzinfo=UTC)):
            scoped.fill(PROJECT_STORE, ORG_STORE, SIZE, lambda _: None)
        reference = Reference()
        self.assertEqual(len(reference.entries), SIZE)
        self.assertEqual({entry["scope"] for entry in reference.entries}, set(SCOPES))
        now = datetime(2026, 11, 20, tzinfo=UTC)
        self.enterContext(self.store(session_id=scoped.SESSION))
        self.enterContext(clock.frozen(now))
        for name, question in scoped.examples("alpha").items():
            with self.subTest(name):
                expected = reference.answer(question, now)
                self.assertGreater(len(expected), SIZE // 500)
                with recorded() as plans:
                    self.assertEqual(self._all(question), expected)
                self.assertEqual(scans(plans), [])
        with recorded() as plans:
            query(command=MemoryQuery(search="authentication", include_inactive=True))
        self.assertEqual(scans(plans), [], "deleted ones have an index of their own")
        with recorded() as plans:
            query(command=MemoryQuery())
        self.assertEqual(bool(scans(plans)), not on_postgresql(), "without a filter everything is read")

    def _all(self, question: dict[str, Any]) -> list[tuple[str, int]]:
        answers = pages(lambda **page: query(command=MemoryQuery.model_validate({**question, **page})), limit=100)
        seen = [(item["scope"], item["id"]) for answer in answers for item in answer.results]
        self.assertEqual({answer.meta.total_count for answer in answers}, {len(seen)})
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


KINDS_ON_PAGES = ("guideline", "observation", "knowledge")
TITLES = tuple(f"Rule {number}" for number in range(12))

QUESTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"types": ["guidelines", "knowledge"]},
    {"search": "python rule", "include_inactive": True},
    {"tags": {"include": ["python", "web"]}},
    {"order": "name"},
    {"order": "priority"},
    {"order": "recent"},
)

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("write", "revise", "rename", "retag", "delete", "restore")),
        st.integers(min_value=0, max_value=1_000),
        st.sampled_from(TITLES),
        st.sampled_from(SCOPES),
    ),
    max_size=4,
)
# Scope and id
Entry = tuple[str, int]


@tag("backend")
class PagesTests(QueryTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.numbers = iter(range(100_000))
        self.live: list[Entry] = []
        self.deleted: list[Entry] = []
        self.touched: set[Entry] = set()
        for number in range(24):
            kind = KINDS_ON_PAGES[number % len(KINDS_ON_PAGES)]
            self._add(TITLES[number % len(TITLES)], SCOPES[number % len(SCOPES)], kind)
        for _ in range(3):
            self._apply("delete", 5, "", "")

    def test_an_unchanged_entry_is_on_exactly_one_page(self):
        @settings(max_examples=40)
        @given(st.sampled_from(QUESTIONS), st.integers(1, 7), st.lists(CHANGES, min_size=1, max_size=8))
        def pages_hold(question: dict[str, Any], limit: int, rounds: list[Any]) -> None:
            entries = self._all(question)
            self.touched = set()
            listing = self.ask(limit=limit, **question)
            seen = self._answered(listing)
            changes = iter(rounds)
            while listing.meta.next_cursor:
                self.assertEqual(listing.meta.returned_count, limit)
                for change in next(changes, []):
                    self._apply(*change)
                listing = self.ask(limit=limit, cursor=listing.meta.next_cursor, **question)
                seen += self._answered(listing)
            unchanged = [entry for entry in seen if entry not in self.touched]
            self.assertEqual(unchanged, [entry for entry in entries if entry not in self.touched])

        pages_hold()

    def _all(self, question: dict[str, Any]) -> list[Entry]:
        return [entry for answer in pages(partial(self.ask, **question), limit=100) for entry in self._answered(answer)]

    def _answered(self, listing: Any) -> list[Entry]:
        return [(item["scope"], item["id"]) for item in listing.results]

    def _add(self, title: str, scope: str, kind: str) -> None:
        number = next(self.numbers)
        fields = {"attributes": {"priority": number % 101}} if kind == "guideline" else {}
        tags = ["python"] if number % 2 else ["web", "old"]
        content = f"python {number}"
        entry = (scope, self.write(title, scope, kind, content=content, if_exists="update", tags=tags, **fields))
        self.touched.add(entry)
        if entry not in self.live:
            self.live.append(entry)

    def _apply(self, what: str, choice: int, title: str, scope: str) -> None:
        if what == "write":
            self._add(title, scope, KINDS_ON_PAGES[choice % len(KINDS_ON_PAGES)])
            return
        entries = self.deleted if what == "restore" else self.live
        if not entries:
            return
        scope, memory_id = entry = entries[choice % len(entries)]
        if what == "delete":
            self.delete(memory_id, scope=scope)
            self.live.remove(entry)
            self.deleted.append(entry)
            self.touched.add(entry)
            return
        changes: dict[str, dict[str, Any]] = {
            "rename": {"title": title},
            "retag": {"tags": ["python", "web", "new"]},
            "revise": {"content": f"python rule {next(self.numbers)}"},
        }
        with suppress(ConflictError):  # another one has the name
            if what == "restore":
                self.restore(memory_id, scope=scope)
                self.deleted.remove(entry)
                self.live.append(entry)
            else:
                self.update(memory_id, scope=scope, **changes[what])
            self.touched.add(entry)


@tag("backend")
class HidingTests(QueryTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.near = [self.write(f"Near {number}") for number in range(3)]
        for number in range(3):
            self.write(f"Far {number}", "global")

    def far_titles_after(self, change: Callable[[], object], limit: int = 3) -> list[str]:
        listing = self.ask(limit=limit)
        self.assertEqual({item["scope"] for item in listing.results}, {"project"})
        change()
        later = self.ask(limit=10, cursor=listing.meta.next_cursor)
        return sorted(item["title"] for item in later.results if item["scope"] == "global")

    def test_a_later_nearer_memory_hides_nothing_on_the_next_pages(self):
        deleted = self.write("Far 0", content="deleted and restored")
        self.delete(deleted)
        for change, titles, now_hidden in (
            (partial(self.update, self.near[0], title="Far 2"), ["Far 0", "Far 1", "Far 2"], "Far 2"),
            (partial(self.write, "Far 1"), ["Far 0", "Far 1"], "Far 1"),
            (partial(self.restore, deleted), ["Far 0"], "Far 0"),
        ):
            with self.subTest(now_hidden=now_hidden):
                self.assertEqual(self.far_titles_after(change), titles)
                self.assertNotIn(("global", now_hidden), self.found(), "a new first page knows it")

    def test_a_hidden_memory_stays_hidden_when_the_nearer_one_is_renamed_or_deleted(self):
        for change in (partial(self.update, title="Near again"), self.delete):
            with self.subTest(change=change):
                nearer = self.write("Far 2", content=str(change), attributes={"priority": 0})
                self.assertEqual(self.far_titles_after(partial(change, nearer), limit=4), ["Far 0", "Far 1"])


WRITER = """
import django, itertools
django.setup()
from memories import services
from memories.schemas import MemoryUpdate, MemoryWrite
from memoryhub.core.stores.store import project_store, use_store
for number in itertools.count():
    scope = ("project", "global")[number % 2]
    with use_store(project_store("alpha")):
        written = services.write_memory(command=MemoryWrite(
            title=f"Rule 7{number}", kind="guideline", scope=scope, content=f"python {number}", tags=["python"]))
        services.update_memory(command=MemoryUpdate(id=written.id, scope=scope, title=f"Rule {number % 100}x"))
    print(number, flush=True)
"""


class SecondProcessTests(QueryTestCase):
    def test_pages_show_the_state_of_the_first_page_while_another_process_writes(self):
        for number in range(60):
            self.write(f"Rule {number}", ("project", "global")[number % 2], tags=["python"])
        expected = [item["id"] for item in self.ask(limit=100, tags=["python"]).results]
        listing = self.ask(limit=5, tags=["python"])
        seen = list(listing.results)
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        command, root = [sys.executable, "-c", WRITER], Path(__file__).parents[2]
        with subprocess.Popen(command, env=environment, cwd=root, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            while listing.meta.next_cursor:
                writer.stdout.readline()
                listing = self.ask(limit=5, tags=["python"], cursor=listing.meta.next_cursor)
                seen += listing.results
            self.assertIsNone(writer.poll(), "the other process has ended")
            writer.kill()
        self.assertEqual([item["id"] for item in seen], expected)
        self.assertGreater(self.ask(tags=["python"]).meta.total_count, 60, "the other process did write")
