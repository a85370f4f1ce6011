from __future__ import annotations

from memories.schemas import MemoryUpdate
from memories.services import update_memory
from tests.admin.base import AdminTestCase, text_of


class VersionTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.memory_id = self.write("A choice", "Take the red one.", tags=["x"])
        self.one = f"memories/memory/{self.memory_id}/"
        for text in ("Take the blue one.", "Take the green one."):
            self.revise(content=text)

    def revise(self, **changes: str) -> None:
        with self.store(actor="bob"):
            update_memory(command=MemoryUpdate(id=self.memory_id, **changes))

    def test_an_earlier_version_is_made_the_current_one_again_as_a_new_one(self) -> None:
        page = self.post(f"{self.one}versions/1/again/")
        self.assertIn("Restored version 1, as version 4.", page)
        memory = self.memory(self.memory_id)
        self.assertEqual((memory.version, memory.content), (4, "Take the red one."))

    def test_it_takes_a_post_and_a_version_that_is_there(self) -> None:
        self.page(f"{self.one}versions/1/again/", status=405)
        self.assertIn(f"#{self.memory_id} has no version 9", self.post(f"{self.one}versions/9/again/"))
        self.assertIn("Nothing changed", self.post(f"{self.one}versions/3/again/"))
        self.assertEqual(self.memory(self.memory_id).version, 3)

    def test_the_current_version_offers_no_button(self) -> None:
        page = self.page(f"{self.one}versions/")
        self.assertIn("/versions/2/again/", page)
        self.assertNotIn("/versions/3/again/", page)

    def test_any_two_versions_are_compared(self) -> None:
        page = text_of(self.page(f"{self.one}compare/?from=1&to=3"))
        self.assertIn("Take the [removed: red ] one.", page)
        self.assertIn("Take the [added: green ] one.", page)
        self.assertNotIn("blue", page)

    def test_without_a_choice_the_last_two_are_compared(self) -> None:
        page = text_of(self.page(f"{self.one}compare/"))
        self.assertIn("[removed: blue ]", page)
        self.assertIn("[added: green ]", page)

    def test_a_version_that_is_not_there_is_said(self) -> None:
        page = self.page(f"{self.one}compare/?from=1&to=7", status=404)
        self.assertIn("has no version 7; it has 1 to 3", page)

    def test_a_lone_version_is_compared_with_itself(self) -> None:
        lone = self.write("Alone", "text")
        self.assertIn("Both sides show version 1", self.page(f"memories/memory/{lone}/compare/"))

    def test_beta_has_no_version_of_alphas(self) -> None:
        for path in ("versions/", "compare/"):
            self.assertNotIn("Take the", self.page(f"{self.one}{path}", "beta", status=404))
        self.post(f"{self.one}versions/1/again/", "beta")
        self.assertEqual(self.memory(self.memory_id).version, 3)
