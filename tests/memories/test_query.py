from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from memories import services
from memories.events import RELATION_CREATED, RelationCreated
from memories.models import PROJECT, EndType, RelationType
from memories.query import query_line
from memories.schemas import MemoryDelete, MemoryUpdate
from memories.schemas.query import MemoryQuery
from memoryhub.core import clock, log
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import org_store, use_store
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.memories.scoped import QueryTestCase

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def relate(source: int, target: int = PROJECT, relation: str = "applies_to") -> None:
    ends = {"source_type": EndType.MEMORY, "source_id": source, "target_id": target}
    target_type = EndType.MEMORY if target else EndType.PROJECT
    payload = RelationCreated(relation=RelationType(relation), target_type=target_type, **ends)
    with log.transaction():
        log.append(log.prepare(RELATION_CREATED, payload), entity="relation")


class FilterTests(QueryTestCase):
    def test_kinds_are_accepted_in_singular_and_plural(self):
        for kind in ("guideline", "tool", "knowledge", "observation"):
            self.write(f"A {kind}", kind=kind)
        for name in ("tools", "tool"):
            self.assertEqual(self.found(types=[name]), [("project", "A tool")])
        self.assertEqual(len(self.found(types=["guidelines", "observations"])), 2)
        self.assertEqual(len(self.found()), 4)
        with self.assertRaisesRegex(ValidationError, "types"):
            MemoryQuery.model_validate({"types": ["decisions"]})

    def test_tags_are_any_all_and_none(self):
        self.write("One", tags=["python", "web"])
        self.write("Two", tags=["python"])
        self.write("Three", tags=["rust", "deprecated"])
        titles = lambda **tags: sorted(title for _, title in self.found(tags=tags))  # noqa: E731
        self.assertEqual(titles(include=["web", "rust"]), ["One", "Three"])
        self.assertEqual(titles(require=["python", "Web "]), ["One"])
        self.assertEqual(titles(exclude=["python"]), ["Three"])
        self.assertEqual(titles(include=["python", "rust"], exclude=["deprecated", "web"]), ["Two"])
        self.assertEqual(self.found(tags=["python", "web"]), [("project", "One")], "a plain list requires all")

    def test_words_are_searched_in_title_text_tags_and_rationale(self):
        self.write("Authentication")
        self.write("Second", content="How authenticating works.")
        self.write("Third", tags=["authentication"])
        self.write("Fourth", attributes={"rationale": "authentication must hold"})
        self.write("Fifth")
        for mode, count in (("auto", 4), ("basic", 3)):  # LIKE knows no word stems
            with self.subTest(mode=mode):
                listing = self.ask(mode, search="authentication")
                self.assertEqual((listing.meta.total_count, listing.results[0]["title"]), (count, "Authentication"))
                self.assertEqual(listing.meta.mode, "fts5" if mode == "auto" else "basic")

    def test_a_search_without_words_finds_nothing(self):
        self.write("One")
        self.assertEqual(self.found(search="!?"), [])

    def test_deleted_memories_are_found_on_request(self):
        memory_id = self.write("Old rule")
        services.delete_memory(command=MemoryDelete(id=memory_id))
        self.assertEqual(self.found(search="old"), [])
        for question in ({}, {"search": "old rule"}):
            (item,) = self.ask(include_inactive=True, **question).results
            self.assertTrue(item["deleted_at"])
            self.assertIn("(deleted)", query_line(item))

    def test_as_of_queries_the_past(self):
        self.write("One")
        position = log.head()[0]
        self.write("Two")
        scope = {"type": "project", "id": "alpha"}
        self.assertEqual(self.found(as_of=position, scope=scope), [("project", "One")])


class ScopeTests(QueryTestCase):
    def setUp(self) -> None:
        super().setUp()
        for scope in ("session", "project", "org", "global"):
            self.write(f"Rule of {scope}", scope)

    def scopes(self, **question: Any) -> list[str]:
        return [scope for scope, _ in self.found(**question)]

    def test_all_visible_scopes_are_queried_nearest_first(self):
        self.assertEqual(self.scopes(), ["session", "project", "org", "global"])

    def test_a_scope_is_queried_with_or_without_wider_ones(self):
        self.assertEqual(self.scopes(scope={"type": "org"}), ["org", "global"])
        self.assertEqual(self.scopes(scope="project"), ["project", "org", "global"])
        self.assertEqual(self.scopes(scope={"type": "project", "id": "alpha", "inherit": False}), ["project"])
        self.assertEqual(self.scopes(scope={"type": "session", "inherit": False}), ["session"])

    def test_another_session_is_queried_by_id(self):
        self.assertEqual(self.scopes(scope={"type": "session", "id": "s-2", "inherit": False}), [])
        with use_origin(session_id="s-2"):
            self.assertEqual(self.scopes(), ["project", "org", "global"])
            self.assertEqual(self.scopes(scope={"type": "session", "id": "s-1", "inherit": False}), ["session"])

    def test_another_project_sees_only_shared_memories(self):
        with self.store("beta"):
            self.assertEqual(self.scopes(include_inactive=True), ["org", "global"])

    def test_another_project_or_organisation_is_refused(self):
        for kind in ("project", "org"):
            with self.assertRaisesRegex(Invalid, f"bound to {kind}"):
                self.ask(scope={"type": kind, "id": "beta"})


class NameTests(QueryTestCase):
    def test_the_nearest_of_a_name_hides_others_of_its_kind(self):
        for scope in ("session", "project", "org", "global"):
            self.write("Naming", scope, content=f"As {scope} says.")
        self.write("Naming", "global", kind="tool", content="Another kind.")
        self.assertEqual(self.found(), [("session", "Naming"), ("global", "Naming")])
        with use_origin(session_id=""):
            self.assertEqual(self.ask().meta.total_count, 2)
            self.assertEqual(self.found(types=["guideline"]), [("project", "Naming")])

    def test_a_nearer_memory_hides_others_even_if_it_does_not_match(self):
        self.write("Naming", "global", tags=["python"])
        self.write("Naming", "project", tags=["style"])
        self.assertEqual(self.found(tags=["python"]), [], "the project has said otherwise")

    def test_a_deleted_memory_hides_nothing(self):
        self.write("Naming", "global")
        near = self.write("Naming", "project")
        services.delete_memory(command=MemoryDelete(id=near))
        self.assertEqual(self.found(), [("global", "Naming")])

    def test_observations_of_the_same_title_do_not_hide_each_other(self):
        for scope in ("project", "org"):
            self.write("Seen", scope, kind="observation")
        self.assertEqual(len(self.found()), 2)


class RelationTests(QueryTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.rule = self.write("Rule", tags=["python", "web"])
        self.near = self.write("Near tool", kind="tool", tags=["python"])
        self.far = self.write("Far tool", kind="tool")

    def test_tools_of_the_project_are_found_by_its_name(self):
        relate(self.far)
        listing = self.ask(types=["tools"], related_to={"type": "project", "id": "alpha"})
        self.assertEqual([item["id"] for item in listing.results], [self.far])
        self.assertEqual(listing.results[0]["parts"]["relation"], {"value": 1.0, "points": 5.0})

    def test_either_direction_counts_and_the_relation_may_be_named(self):
        relate(self.near, self.rule, "depends_on")
        relate(self.rule, self.far, "related_to")
        by_id = {"type": "guideline", "id": self.rule}
        self.assertEqual(self.found(related_to=by_id), [("project", "Near tool"), ("project", "Far tool")])
        self.assertEqual(self.found(related_to={**by_id, "relation": "related_to"}), [("project", "Far tool")])
        self.assertEqual(self.found(related_to={"type": "tool", "id": "Far tool"}), [("project", "Rule")])
        self.assertEqual(self.found(related_to={"type": "memory", "id": f"#{self.far}"}), [("project", "Rule")])

    def test_tags_shared_with_the_related_entry_count(self):
        relate(self.near, self.rule)
        (item,) = self.ask(related_to={"type": "guideline", "id": "Rule"}).results
        self.assertEqual(item["parts"]["tags"]["value"], 0.5)

    def test_relations_of_a_wider_scope_are_found_there(self):
        first, second = self.write("Org rule", "org"), self.write("Org tool", "org", kind="tool")
        with use_store(org_store("acme")):
            relate(first, second)
        for given in (f"org#{first}", "Org rule"):
            self.assertEqual(self.found(related_to={"type": "guideline", "id": given}), [("org", "Org tool")])

    def test_an_unknown_reference_is_reported(self):
        for related_to in (
            {"type": "tool", "id": self.rule},
            {"type": "tool", "id": "Nothing"},
            {"type": "commit", "id": 9},
        ):
            with self.assertRaisesRegex(NotFound, "there is no (tool|commit)"):
                self.ask(related_to=related_to)
        with self.assertRaisesRegex(Invalid, "bound to project 'alpha'"):
            self.ask(related_to={"type": "project", "id": "beta"})


class RankingTests(QueryTestCase):
    def parts(self, title: str, **question: Any) -> dict[str, float]:
        (item,) = [item for item in self.ask(**question).results if item["title"] == title]
        return {name: part["value"] for name, part in item["parts"].items()}

    def test_each_part_of_the_score_is_as_documented(self):
        with clock.frozen(NOON - timedelta(days=30)):
            self.write("Commit often", tags=["git", "style"], attributes={"priority": 80}, content="In small steps.")
        with clock.frozen(NOON):
            found = self.parts("Commit often", search="commit steps now", tags={"include": ["git", "ci"]})
        expected = {"relation": 0, "tags": 0.5, "scope": 0.6667, "priority": 0.8, "text": 0.75, "recency": 0.5}
        self.assertEqual(found, expected, "of two words left one is in the title, one in the text")

    def test_the_score_is_the_weighted_sum_and_the_weights_are_settings(self):
        self.write("Rule", attributes={"priority": 100})
        change_settings(command=SettingsChange(settings={"ranking": {"priority": 10, "scope": 0}}))
        (item,) = self.ask().results
        self.assertEqual(item["parts"]["priority"]["points"], 10)
        points = sum(part["points"] for part in item["parts"].values())
        self.assertAlmostEqual(item["score"], points, places=3)

    def test_expired_knowledge_is_marked_and_counts_half(self):
        self.write("Fact", kind="knowledge", attributes={"valid_until": "2020-01-01"})
        (item,) = self.ask().results
        points = sum(part["points"] for part in item["parts"].values())
        self.assertTrue(item["expired"])
        self.assertAlmostEqual(item["score"], points / 2, places=3)

    def test_orders_are_by_priority_name_and_change(self):
        with clock.frozen(NOON):
            first = self.write("banana", attributes={"priority": 10})
        with clock.frozen(NOON + timedelta(hours=1)):
            self.write("Apple", attributes={"priority": 90})
            self.write("cherry", "global", attributes={"priority": 50})
        with clock.frozen(NOON + timedelta(hours=2)):
            self.update(first, content="changed")
            orders = {
                order: [title for _, title in self.found(order=order)] for order in ("priority", "name", "recent")
            }
        self.assertEqual(orders["priority"], ["Apple", "cherry", "banana"])
        self.assertEqual(orders["name"], ["Apple", "banana", "cherry"])
        self.assertEqual(orders["recent"], ["banana", "Apple", "cherry"])


class AnswerTests(QueryTestCase):
    def test_every_result_carries_its_evidence(self):
        memory_id = self.write("Rule", tags=["python"], source="a book")
        self.update(memory_id, content="Said better.", change_reason="clearer")
        event = log.head()[0]
        (item,) = self.ask(include_versions=True).results
        evidence = {name: item[name] for name in ("id", "scope", "version", "event", "author", "session_id", "source")}
        wanted = {"id": memory_id, "scope": "project", "version": 2, "event": event}
        self.assertEqual(evidence, {**wanted, "author": "ada", "session_id": "s-1", "source": "a book"})
        self.assertEqual([version["reason"] for version in item["versions"]], ["clearer", ""])
        self.assertIn(f"v2 {item['updated_at'][:16]} by ada event #{event}: clearer", query_line(item))

    def test_open_conflicts_show(self):
        memory_id = self.write("Rule")
        for text in ("first", "second"):
            services.update_memory(command=MemoryUpdate(id=memory_id, base_version=1, content=text))
        (item,) = self.ask().results
        self.assertEqual(len(item["conflicts"]), 1)
        self.assertIn(f"conflict #{item['conflicts'][0]} open", query_line(item))

    def test_a_line_explains_the_score(self):
        with clock.frozen(NOON):
            memory_id = self.write("Rule", tags=["python"], attributes={"priority": 100}, content="Type all.")
            (item,) = self.ask(tags=["python"]).results
        line = f"#{memory_id} guideline/general 2026-11-20 Rule [python] session=s-1 "
        self.assertEqual(
            query_line(item), line + "score 6.3 (tags 3.0, scope 1.3, priority 1.5, recency .5): Type all."
        )

    def test_compact_leaves_names_and_ids(self):
        memory_id = self.write("Rule")
        self.assertEqual(
            self.ask(compact=True).results,
            [{"id": memory_id, "kind": "guideline", "title": "Rule", "scope": "project"}],
        )

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
            with self.assertRaisesRegex(Invalid, "not one that this list gave"):
                self.ask(cursor=broken)
