"""Saved views: names for the filters, search and order of a list, for one person."""

from __future__ import annotations

from memoryhub.models import SavedView
from memoryhub.registry.people import PersonAdd, add_person
from tests.admin.base import AdminTestCase

MEMORIES = "memories/memory/"


class SavedViewTests(AdminTestCase):
    def save(self, name: str, query: str = "tag=api&kind=observation&p=2", page: str = MEMORIES) -> str:
        return self.post("views/", page=page, query=query, name=name)

    def test_a_view_is_saved_shown_renamed_and_deleted(self) -> None:
        self.write("A note", tags=["api"])
        page = self.page(MEMORIES)
        self.assertNotIn('class="views"', page)
        self.assertIn("Save view", self.page(MEMORIES, tag="api"))
        page = self.save("API notes")
        self.assertIn("Saved the view.", page)
        link = '<a href="?kind=observation&tag=api"{}>API notes</a>'
        self.assertIn(link.format(' aria-current="page"'), page)
        self.assertIn("A note", page)
        self.assertIn(link.format(""), self.page(MEMORIES))
        self.assertNotIn("API notes", self.page(MEMORIES, project="beta"))
        self.assertNotIn("API notes", self.page("decisions/decision/"))
        number = SavedView.objects.get().pk
        page = self.post("views/", page=MEMORIES, query="kind=observation&tag=api", view=str(number), name="Notes")
        self.assertIn(">Notes</a>", page)
        self.post("views/", page=MEMORIES, view=str(number), name="Notes", delete="1")
        self.assertFalse(SavedView.objects.exists())

    def test_what_cannot_be_saved_gets_one_sentence_and_changes_nothing(self) -> None:
        self.save("Twice")
        cases = {
            "A view's name must have 1 to 60 characters.": {"name": " "},
            "A view's name must have 1 to 60 characters. ": {"name": "x" * 61},
            "There is nothing to save: choose a filter, a search or an order first.": {"name": "None", "query": "p=3"},
            "You have a view 'Twice' of this list already; choose another name.": {"name": "Twice"},
            "A view's address may have at most 2,000 characters.": {"name": "Long", "query": f"q={'x' * 2_001}"},
        }
        for sentence, fields in cases.items():
            self.assertIn(sentence.strip(), self.save(**fields).replace("&#x27;", "'"), fields)
        self.assertIn("You have no such view", self.post("views/", page=MEMORIES, view="99", name="x"))
        self.assertEqual(SavedView.objects.count(), 1)
        for path in ("no/such/", "", "https://example.org/"):
            answer = self.client.post(self.address("views/"), {"page": path, "query": "q=a", "name": "A"})
            self.assertEqual(answer.status_code, 404)
        self.assertEqual(self.client.get(self.address("views/")).status_code, 405)

    def test_views_belong_to_one_person(self) -> None:
        self.save("Mine")
        number = SavedView.objects.get().pk
        self.client.force_login(add_person(command=PersonAdd(name="reader", role="viewer")))
        self.assertNotIn("Mine", self.page(MEMORIES))
        self.post("views/", page=MEMORIES, view=str(number), delete="1")
        self.assertEqual(SavedView.objects.get().name, "Mine")
        self.assertIn("Saved the view.", self.save("Mine"))

    def test_a_secret_in_a_search_is_not_stored(self) -> None:
        self.save("Secret", "q=ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8")
        self.assertNotIn("ghp_", SavedView.objects.get().query)

    def test_the_palette_leads_to_a_view(self) -> None:
        self.save("API notes", "tag=api&o=-1")
        page = self.client.get("/find", {"q": "api notes"}).content.decode()
        self.assertIn(f'href="{self.address(MEMORIES)}?o=-1&amp;tag=api"', page)
