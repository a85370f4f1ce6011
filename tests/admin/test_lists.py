"""What all lists share: facets, saved views, downloads; and the list of tags."""

from __future__ import annotations

import csv
import json
import re
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest import mock

from django.db import connections
from django.test import tag
from django.test.utils import CaptureQueriesContext
from django.utils.http import urlencode

from memories.admin import tag as tag_page
from memories.models import Tag
from memories.schemas import MemoryWrite
from memories.services import write_memories
from memoryhub.core import clock
from memoryhub.core.admin import facets
from memoryhub.core.stores.store import project_store
from memoryhub.models import SavedView
from memoryhub.registry.people import PersonAdd, add_person
from tests.admin.base import AdminTestCase, text_of

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
        self.delete(self.gone)

    @tag("backend")
    def test_each_facet_is_counted_under_the_filters_of_the_others(self) -> None:
        facets = self.facets()
        self.assertEqual(facets["kind"], {"Memory": "2", "Guideline": "1"})
        self.assertEqual(facets["tag"], {"api": "2", "db": "2"})
        self.assertEqual(facets["state"], {"Not deleted": "3✓", "Deleted": "1", "All": "4"})
        ages = {"Past day": "2", "Past 7 days": "2", "Past 30 days": "3", "Past year": "3"}
        self.assertEqual(facets["last change"], ages)
        self.assertNotIn("conflicts", facets)
        facets = self.facets(author="ada", since="7")
        self.assertEqual(facets["author"], {"ada": "1✓", "bob": "1"})
        self.assertEqual(facets["last change"]["Past 30 days"], "2")
        self.assertNotIn("tag", facets)
        self.assertEqual(self.facets(state="all")["type"], {"Plain": "2", "Task": "1", "General": "1"})
        self.assertEqual(self.facets(q="note bug")["type"], {"Task": "1", "Plain": "1"})
        kinds = self.facets(q="rule", kind="guideline")["kind"]
        self.assertEqual((kinds["Guideline"], kinds["Memory"]), ("1✓", ""))

    def test_the_counts_are_those_of_the_lists_that_the_links_lead_to(self) -> None:
        answer = self.client.get(self.address(MEMORIES) + "?author=ada&author=bob")
        for view in answer.context["cl"].facets:
            for choice in view.choices:
                if choice.count and not choice.is_chosen:
                    rows = self.client.get(self.address(MEMORIES) + choice.url).context["cl"].result_count
                    added = rows if not view.multiple or view.title == "tag" else int(choice.count)
                    self.assertEqual(int(choice.count), added, choice)

    def test_several_unknown_and_many_values(self) -> None:
        self.assertEqual(self.ids(kind=["guideline", "observation"], o="1"), [self.old, self.bug, self.rule])
        self.assertEqual(self.ids(tag=["api", "db"]), [self.old])  # all of the tags
        self.assertEqual(self.facets(tag=["api"])["tag"], {"api": "2✓", "db": "1"})
        self.assertEqual(self.ids(q="note", kind=["guideline", "observation"]), [self.old])
        for name in ("kind", "tag", "author", "session"):
            unknown: dict[str, Any] = {name: "no-such"}
            self.assertEqual(self.ids(**unknown), [], name)
            self.assert_shows(self.page(MEMORIES, **unknown), f"Remove filter </span>{name}: no-such<")
        self.assertEqual(self.ids(state="no-such"), self.ids())
        self.assertEqual(self.listed("core/rawevent/", day="yesterday"), [])
        with mock.patch.object(facets, "COUNTED_AT_MOST", 3):
            self.assertEqual(self.facets(state="all")["author"], {"bob": "2+", "ada": "1+"})

    def test_rows_are_counted_without_sorting_them(self) -> None:
        with self.store(), CaptureQueriesContext(connections[project_store("alpha").alias]) as queries:
            self.page("memories/observation/")
        counts = [query["sql"] for query in queries if "COUNT(*) FROM (" in query["sql"]]
        self.assertEqual([sql for sql in counts if "ORDER BY" in sql], [])
        self.assertGreater(len(counts), 1)

    def test_chips_remove_one_filter_and_keep_the_others(self) -> None:
        page = self.page(MEMORIES, tag="api", author="ada", o="-1")
        label = '<span class="visually-hidden">Remove filter </span>([^<]*)'
        chips = {text: url for url, text in re.findall(rf'<a href="([^"]*)" class="chip">{label}', page)}
        self.assertEqual(chips, {"author: ada": "?tag=api&o=-1", "tag: api": "?author=ada&o=-1"})
        clear = '<a href="?o=-1" class="clear">Clear all</a>'
        self.assert_shows(page, clear, '<input type="hidden" name="tag" value="api">')

    def test_a_facet_shows_ten_values_and_then_all(self) -> None:
        for number in range(15):
            self.write(f"Note {number}", f"Text {number}.", tags=[f"tag-{number}"])
        self.assert_shows(self.page(MEMORIES), '<a href="?more=tag" class="more">')
        self.assertEqual(len(self.facets()["tag"]), 10)
        self.assertEqual(len(self.facets(more="tag")["tag"]), 17)
        self.assert_lacks(self.page(MEMORIES, more="tag", kind="observation"), "more=tag")

    def test_other_lists_have_facets(self) -> None:
        self.assertEqual(self.facets("core/rawevent/")["type"], {"Memory written": "4", "Memory deleted": "1"})
        self.assertEqual(self.listed("core/rawevent/", group="memories"), [5, 4, 3, 2, 1])
        page = self.page("core/rawevent/", stream=f"memory:{self.bug}")
        self.assert_shows(page, f"Remove filter </span>stream: memory:{self.bug}<")


class SavedViewTests(AdminTestCase):
    def save(self, name: str, query: str = "tag=api&kind=observation&p=2", page: str = MEMORIES) -> str:
        return self.post("views/", page=page, query=query, name=name)

    def test_a_view_is_saved_shown_renamed_and_deleted(self) -> None:
        self.write("A note", tags=["api"])
        self.assert_lacks(self.page(MEMORIES), 'class="views"')
        self.assert_shows(self.page(MEMORIES, tag="api"), "Save view")
        link = '<a href="?kind=observation&tag=api"{}>API notes</a>'
        self.assert_shows(self.save("API notes"), "Saved the view.", link.format(' aria-current="page"'), "A note")
        self.assert_shows(self.page(MEMORIES), link.format(""))
        self.assert_lacks(self.page(MEMORIES, project="beta") + self.page("decisions/decision/"), "API notes")
        view = {"page": MEMORIES, "view": str(SavedView.objects.get().pk), "name": "Notes"}
        self.assert_shows(self.post("views/", query="kind=observation&tag=api", **view), ">Notes</a>")
        self.post("views/", delete="1", **view)
        self.assertFalse(SavedView.objects.exists())

    def test_what_cannot_be_saved_gets_one_sentence_and_changes_nothing(self) -> None:
        self.save("Twice")
        length = "A view's name must have 1 to 60 characters."
        cases: tuple[tuple[dict[str, str], str], ...] = (
            ({"name": " "}, length),
            ({"name": "x" * 61}, length),
            ({"name": "None", "query": "p=3"}, "nothing to save: choose a filter, a search or an order first."),
            ({"name": "Twice"}, "You have a view 'Twice' of this list already; choose another name."),
            ({"name": "Long", "query": f"q={'x' * 2_001}"}, "A view's address may have at most 2,000 characters."),
        )
        for fields, sentence in cases:
            self.assertIn(sentence, self.save(**fields).replace("&#x27;", "'"), fields)
        self.assert_shows(self.post("views/", page=MEMORIES, view="99", name="x"), "You have no such view")
        self.assertEqual(SavedView.objects.count(), 1)
        for path in ("no/such/", "", "https://example.org/"):
            answer = self.client.post(self.address("views/"), {"page": path, "query": "q=a", "name": "A"})
            self.assertEqual(answer.status_code, 404)
        self.assertEqual(self.client.get(self.address("views/")).status_code, 405)

    def test_views_belong_to_one_person(self) -> None:
        self.save("Mine")
        number = SavedView.objects.get().pk
        self.client.force_login(add_person(command=PersonAdd(name="reader", role="viewer")))
        self.assert_lacks(self.page(MEMORIES), "Mine")
        self.post("views/", page=MEMORIES, view=str(number), delete="1")
        self.assertEqual(SavedView.objects.get().name, "Mine")
        self.assert_shows(self.save("Mine"), "Saved the view.")

    def test_a_secret_in_a_search_is_not_stored_and_the_palette_leads_to_a_view(self) -> None:
        self.save("Secret", "q=ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
        self.assert_lacks(SavedView.objects.get().query, "ghp_")
        self.save("API notes", "tag=api&o=-1")
        page = self.client.get("/find", {"q": "api notes"}).content.decode()
        self.assert_shows(page, f'href="{self.address(MEMORIES)}?o=-1&amp;tag=api"')


class ExportTests(AdminTestCase):
    def download(self, path: str, **query: str) -> str:
        answer = self.client.get(self.address(path), query)
        self.assertEqual(answer.status_code, 200)
        self.assert_shows(answer["Content-Disposition"], 'attachment; filename="alpha-')
        return b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]

    def test_all_rows_of_the_filtered_list_are_in_each_format(self) -> None:
        for number in range(60):
            self.write(f"Note {number}", f"First line of {number}\nsecond, with “quotes”", tags=["x"])
        self.write("A rule", "Always test.", kind="guideline")
        rows = list(csv.DictReader(StringIO(self.download("memories/memory/export.csv", kind="observation"))))
        self.assertEqual(len(rows), 60)
        self.assertEqual({row["kind"] for row in rows}, {"observation"})
        self.assert_shows(rows[0]["content"], "second, with “quotes”")
        items = json.loads(self.download("memories/memory/export.json"))
        self.assertEqual((len(items), items[0]["title"]), (61, "A rule"))
        text = self.download("memories/memory/export.md", kind="guideline")
        self.assertRegex(text, r"^## #\d+ A rule\n\n- kind: guideline\n")
        self.assertEqual(json.loads(self.download("memories/tool/export.json")), [])

    def test_a_search_is_exported_as_it_is_shown_and_no_cell_is_a_formula(self) -> None:
        self.write("=1+1", "@SUM(A1)")
        self.write("The port is 8321")
        (row,) = csv.DictReader(StringIO(self.download("memories/memory/export.csv", q="SUM")))
        self.assertEqual((row["title"], row["content"]), ("'=1+1", "'@SUM(A1)"))

    def test_each_list_names_its_formats_and_a_project_exports_nothing_of_another(self) -> None:
        self.write("Of beta", project="beta")
        page = self.page(MEMORIES, "beta", kind="observation")
        self.assert_shows(page, "/memories/memory/export.csv?kind=observation")
        for path in (
            MEMORIES,
            "decisions/decision/",
            "sessions_app/session/",
            "sessions_app/commit/",
            "core/rawevent/",
        ):
            self.assertEqual(json.loads(self.download(f"{path}export.json")), [], path)
        self.page(f"{MEMORIES}export.xls", status=404)
        self.client.force_login(add_person(command=PersonAdd(name="reader", role="viewer")))
        self.download(f"{MEMORIES}export.csv")
        self.client.logout()
        self.page(f"{MEMORIES}export.csv", status=302)


class ActionTests(AdminTestCase):
    def test_lists_show_the_beginning_of_each_text_and_redaction_begins_with_the_item(self) -> None:
        memory = self.write("A note", "It begins here. " * 40)
        self.assert_shows(self.page("memories/memory/"), "It begins here.", lacks=("It begins here. " * 20,))
        for path in ("memories/memory", "core/rawevent"):
            page = self.page(f"{path}/{memory}/change/")
            self.assert_shows(page, f"/governance/redaction/?ids={memory}", where=path)
        self.assertRegex(self.page("governance/redaction/", ids=str(memory)), rf'name="ids" value="{memory}"')


class TagTests(AdminTestCase):
    def test_tags_in_use_come_first_with_kinds_and_last_use(self) -> None:
        self.write("one", "1", tags=["python", "payments"])
        self.write("two", "2", tags=["payments"], kind="guideline")
        self.delete(self.write("gone", "3", tags=["payments", "old"]))
        self.write("of a session", "4", tags=["scratch"], scope="session", session="s1")
        page = self.page("memories/tag/")
        for row in (
            r"In use 3 tags .* payments 2 just now .* Guideline 1 Memory 1 describe : payments",
            r"python 1 just now .* Memory 1 predefined: language",
            r"Not in use \d+ tags \w+ \d+ ",
        ):
            self.assertRegex(text_of(page), row)
        self.assert_lacks(page, ">old<")
        for name, kind in (("payments", "guideline"), ("scratch", "observation")):
            self.assert_shows(page, f"?tag={name}&kind={kind}")
            self.assertEqual(len(self.memories(tag=name, kind=kind)), 1)

    @tag("backend")
    def test_a_thousand_tags_are_shown_in_pages_and_ordered(self) -> None:
        commands = [
            MemoryWrite(title=f"Note {number}", content=f"Text {number}", tags=[f"tag-{number}", f"tag-{number + 20}"])
            for number in range(20)
        ]
        with self.store(), mock.patch.object(tag_page, "_PAGE", 30):
            write_memories(commands=commands)
            first, last = self.page("memories/tag/"), self.page("memories/tag/", p="2", o="name")
            queries = self.queries_of("memories/tag/")
        self.assertEqual((first.count("of-tag"), last.count("of-tag")), (30, 10))
        self.assert_shows(first, "?p=2&o=memories")
        self.assertRegex(last, r'aria-sort="ascending"><a href="\?o=name"')
        self.assert_shows(last, ">tag-9</a>")
        self.assertLessEqual(queries, 7)

    def test_a_tag_is_described_and_what_the_rules_refuse_is_said_beside_its_field(self) -> None:
        self.write("one", "1", tags=["payments"])
        page = self.post("memories/tag/add/", name="", category="", description="worth keeping")
        self.assert_shows(page, 'id="id_name_error"', "worth keeping")
        self.assert_shows(self.post("memories/tag/add/", name="python"), "is predefined in category language")
        self.assert_shows(self.page("memories/tag/add/", name="payments"), 'value="payments"')
        page = self.post("memories/tag/add/", name="Payments", category="domain", description="Money that moves")
        self.assert_shows(page, "Described the tag “payments” in the category domain.", "Money that moves")
        with self.store():
            self.assertEqual(Tag.objects.get().name, "payments")

    def test_a_search_and_the_forms_suggest_the_tags_and_categories_in_use(self) -> None:
        self.write("one", "1", kind="guideline", type="naming", tags=["payments"])
        self.assert_shows(self.page("memories/tag/", q="PAY"), "?tag=payments", lacks=("?tag=python",))
        self.assert_lacks(self.page("memories/tag/"), "?tag=python")
        self.assert_shows(self.page("memories/tag/", q="nowhere"), "No matching tags")
        self.assert_shows(self.page("memories/guideline/add/"), '<option value="payments">', '<option value="naming">')
        self.assert_lacks(self.page("memories/guideline/add/", "beta"), "payments")
