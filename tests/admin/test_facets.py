"""Facets of lists: values with counts, several filters in the address, and their removal."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from unittest import mock

from django.utils.http import urlencode

from memories.schemas import MemoryTouch
from memories.services import delete_memory
from memoryhub.core import clock
from memoryhub.core.admin import facets
from tests.admin.base import AdminTestCase

MEMORIES = "memories/memory/"


class FacetTests(AdminTestCase):
    def facets(self, path: str = MEMORIES, **query: Any) -> dict[str, dict[str, str]]:
        """Return the counts by value and facet; ✓ follows those of chosen values."""
        answer = self.client.get(self.address(path) + f"?{urlencode(query, doseq=True)}")
        self.assertEqual(answer.status_code, 200)
        return {
            view.title: {choice.label: f"{choice.count}{'✓' * choice.is_chosen}" for choice in view.choices}
            for view in answer.context["cl"].facets
        }

    def ids(self, **query: Any) -> list[int]:
        answer = self.client.get(self.address(MEMORIES) + f"?{urlencode(query, doseq=True)}")
        return [memory.id for memory in answer.context["cl"].result_list]

    def setUp(self) -> None:
        super().setUp()
        with clock.frozen(clock.now() - timedelta(days=20)):
            self.old = self.write("Old note", "One.", tags=["api", "db"], type="note", author="ada")
        self.bug = self.write("A bug", "Two.", tags=["api"], type="task", author="ada")
        self.rule = self.write("A rule", "Always test.", kind="guideline", tags=["db"], author="bob")
        self.gone = self.write("Gone", "Three.", tags=["api"], type="note", author="bob")
        with self.store():
            delete_memory(command=MemoryTouch(id=self.gone))

    def test_each_facet_is_counted_under_the_filters_of_the_others(self) -> None:
        found = self.facets()
        self.assertEqual(found["kind"], {"Observation": "2", "Guideline": "1"})
        self.assertEqual(found["tag"], {"api": "2", "db": "2"})
        self.assertEqual(found["state"], {"Not deleted": "3✓", "Deleted": "1", "All": "4"})
        self.assertEqual(
            found["last change"], {"Past day": "2", "Past 7 days": "2", "Past 30 days": "3", "Past year": "3"}
        )
        self.assertNotIn("conflicts", found)  # only one value
        found = self.facets(author="ada", since="7")
        self.assertEqual(found["author"], {"ada": "1✓", "bob": "1"})
        self.assertEqual(found["last change"]["Past 30 days"], "2")
        self.assertNotIn("tag", found)  # one tag is nothing to choose from
        self.assertEqual(self.facets(state="all")["type"], {"Note": "2", "Task": "1", "General": "1"})

    def test_the_counts_are_those_of_the_lists_that_the_links_lead_to(self) -> None:
        answer = self.client.get(self.address(MEMORIES) + "?author=ada&author=bob")
        for view in answer.context["cl"].facets:
            for choice in view.choices:
                if not choice.is_chosen:
                    rows = self.client.get(self.address(MEMORIES) + choice.url).context["cl"].result_count
                    added = rows if not view.multiple or view.title == "tag" else int(choice.count)
                    self.assertEqual(int(choice.count), added, choice)

    def test_several_values_of_a_facet(self) -> None:
        self.assertEqual(self.ids(kind=["guideline", "observation"], o="1"), [self.old, self.bug, self.rule])
        self.assertEqual(self.ids(tag=["api", "db"]), [self.old])  # all of the tags
        self.assertEqual(self.facets(tag=["api"])["tag"], {"api": "2✓", "db": "1"})
        self.assertEqual(self.ids(q="note", kind=["guideline", "observation"]), [self.old])

    def test_chips_remove_one_filter_and_keep_the_others(self) -> None:
        page = self.page(MEMORIES, tag="api", author="ada", o="-1")
        chips = dict(
            re.findall(
                r'<a href="([^"]*)" class="chip"><span class="visually-hidden">Remove filter </span>([^<]*)', page
            )
        )
        self.assertEqual(sorted(chips.values()), ["author: ada", "tag: api"])
        (without_tag,) = [url for url, label in chips.items() if label == "tag: api"]
        self.assertEqual(without_tag, "?author=ada&o=-1")
        self.assertIn('<a href="?o=-1" class="clear">Clear all</a>', page)
        self.assertIn('<input type="hidden" name="tag" value="api">', page)

    def test_a_facet_shows_ten_values_and_then_all(self) -> None:
        for number in range(15):
            self.write(f"Note {number}", f"Text {number}.", tags=[f"tag-{number}"])
        page = self.page(MEMORIES)
        self.assertIn('<a href="?more=tag" class="more">', page)
        self.assertEqual(len(self.facets()["tag"]), 10)
        self.assertEqual(len(self.facets(more="tag")["tag"]), 17)
        self.assertNotIn("more=tag", self.page(MEMORIES, more="tag", kind="observation"))

    def test_unknown_values_find_nothing_and_can_be_removed(self) -> None:
        for name in ("kind", "tag", "author", "session"):
            unknown: dict[str, Any] = {name: "no-such"}
            self.assertEqual(self.ids(**unknown), [], name)
            self.assertIn(f"Remove filter </span>{name}: no-such<", self.page(MEMORIES, **unknown))
        self.assertEqual(self.ids(state="no-such"), self.ids())
        self.assertEqual(self.listed("core/rawevent/", day="yesterday"), [])

    def test_a_search_shows_what_it_found_by_value(self) -> None:
        self.assertEqual(self.facets(q="note bug")["type"], {"Task": "1", "Note": "1"})
        found = self.facets(q="rule", kind="guideline")["kind"]
        self.assertEqual((found["Guideline"], found["Observation"]), ("1✓", ""))

    def test_counts_are_of_the_newest_rows_of_a_large_store(self) -> None:
        with mock.patch.object(facets, "COUNTED_AT_MOST", 3):
            found = self.facets(state="all")
        self.assertEqual(found["author"], {"bob": "2+", "ada": "1+"})

    def test_the_number_of_queries_does_not_depend_on_the_rows(self) -> None:
        before = self.queries_of(MEMORIES)
        for number in range(20):
            self.write(f"Note {number}", f"Text {number}.", tags=[f"tag-{number}"], author=f"author {number}")
        self.assertEqual(self.queries_of(MEMORIES), before)
        self.assertLessEqual(before, 11)

    def test_other_lists_have_facets(self) -> None:
        self.assertEqual(self.facets("core/rawevent/")["type"], {"Memory written": "4", "Memory deleted": "1"})
        self.assertEqual(self.listed("core/rawevent/", group="memories"), [5, 4, 3, 2, 1])
        page = self.page("core/rawevent/", stream=f"memory:{self.bug}")
        self.assertIn(f"Remove filter </span>stream: memory:{self.bug}<", page)
