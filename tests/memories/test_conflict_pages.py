from __future__ import annotations

from typing import Any

from memories import services
from memories.models import Memory
from memories.schemas import ConflictResult
from memories.schemas.query import ConflictGet, ConflictList, ConflictSettle
from memories.selectors.conflicts import SHOWN, conflict_text, get_conflict, list_conflicts
from memories.tools.query import resolved_text
from memoryhub.core.errors import NotFound
from memoryhub.core.origin import use_origin
from memoryhub.core.schemas import Listing
from tests.memories.scoped import QueryTestCase


class ConflictsTestCase(QueryTestCase):
    def dispute(self, title: str = "Rule", scope: str = "project", **texts: str) -> int:
        memory_id = self.write(title, scope)
        for actor, text in (texts or {"bob": "Use tabs here.", "eve": "Use spaces here."}).items():
            with use_origin(actor=actor):
                self.update(memory_id, scope, base_version=1, content=text, change_reason=f"so says {actor}")
        return memory_id

    def listed(self, **question: Any) -> Listing:
        return list_conflicts(command=ConflictList.model_validate(question))

    def settle(self, conflict_id: int, **fields: Any) -> ConflictResult:
        command = ConflictSettle.model_validate({"id": conflict_id, **fields})
        return services.resolve_conflict(command=command)


class ListTests(ConflictsTestCase):
    def test_a_conflict_shows_both_versions_with_who_when_why_and_what_differs(self):
        memory_id = self.dispute()
        (item,) = self.listed().results
        sides = [(item[side]["version"], item[side]["base_version"], item[side]["actor"]) for side in "ab"]
        self.assertEqual(sides, [(2, 1, "bob"), (3, 1, "eve")])
        self.assertEqual((item["a"]["content"], item["b"]["content"]), ("Use tabs here.", "Use spaces here."))
        text = conflict_text(item)
        self.assertIn(f"conflict #{item['id']} (open) of #{memory_id} Rule\n", text)
        self.assertIn("a: v2 from v1 ", text)
        self.assertIn(f"by eve session=s-1 event #{item['id']}: so says eve", text)
        self.assertIn("Use [-tabs-]{+spaces+} here.", text)

    def test_a_long_diff_is_cut_with_a_pointer_to_the_rest(self):
        self.dispute(bob="tabs " * 2_000, eve="spaces " * 2_000)
        text = conflict_text(self.listed().results[0])
        self.assertLess(len(text), SHOWN + 400)
        self.assertIn("versions=true shows the rest)", text)

    def test_resolved_conflicts_are_listed_on_request(self):
        self.dispute()
        (item,) = self.listed().results
        self.settle(item["id"], resolution="keep_a", reason="tabs it is")
        self.assertEqual(self.listed().meta.total_count, 0)
        (settled,) = self.listed(all=True).results
        self.assertIn("(resolved: keep_a by ada)", conflict_text(settled))
        self.assertEqual((settled["reason"], settled["resolved_version"]), ("tabs it is", 4))

    def test_visible_scopes_are_listed_nearest_first_in_pages(self):
        for scope in ("global", "org", "project"):
            self.dispute(f"First of {scope}", scope)
            self.dispute(f"Second of {scope}", scope)
        self.dispute("Of this session", "session")
        wanted = ["Of this session", *(f"{entry} of project" for entry in ("Second", "First"))]
        wanted += [f"{element} of {scope}" for scope in ("org", "global") for element in ("Second", "First")]
        seen, listing = [], self.listed(limit=2)
        while True:
            self.assertEqual(listing.meta.total_count, 7)
            seen += [item["title"] for item in listing.results]
            if listing.meta.next_cursor is None:
                break
            listing = self.listed(limit=2, cursor=listing.meta.next_cursor, compact=True)
        self.assertEqual(seen, wanted)
        self.assertEqual({item["scope"] for item in self.listed(scope="org").results}, {"org"})
        with self.store("beta"):
            self.assertEqual({item["scope"] for item in self.listed().results}, {"org", "global"})

    def test_conflicts_can_be_filtered_by_memory(self):
        self.dispute("One")
        memory_id = self.dispute("Two")
        self.assertEqual([item["title"] for item in self.listed(memory_id=memory_id).results], ["Two"])

    def test_a_conflict_is_read_by_id(self):
        self.dispute("Rule", "org")
        (item,) = self.listed().results
        self.assertEqual(get_conflict(command=ConflictGet(id=item["id"], scope="org")), item)
        with self.assertRaisesRegex(NotFound, "no conflict #99"):
            get_conflict(command=ConflictGet(id=99))


class SettleTests(ConflictsTestCase):
    def test_old_names_of_resolutions_are_accepted(self):
        for given, standing in (("kept_version_a", "Use tabs here."), ("kept_version_b", "Use spaces here.")):
            with self.subTest(given):
                memory_id = self.dispute(f"Rule {given}")
                (item,) = self.listed(memory_id=memory_id).results
                result = self.settle(item["id"], resolution=given)
                self.assertEqual(Memory.objects.get(id=memory_id).content, standing)
                self.assertIn(f"resolved conflict #{item['id']} with keep_{given[-1]}", resolved_text(result))

    def test_keeping_both_names_the_new_memory(self):
        self.dispute()
        result = self.settle(self.listed().results[0]["id"], resolution="both")
        self.assertIn(f"the earlier version is now #{result.split_id}", resolved_text(result))
