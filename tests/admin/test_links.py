from __future__ import annotations

from unittest import mock

from memories.admin import tag
from memories.models import Relation, Tag
from memories.schemas import MemoryTouch, MemoryWrite
from memories.services import delete_memory, write_memories
from tests.admin.base import AdminTestCase, text_of


class TagTests(AdminTestCase):
    def test_tags_in_use_come_first_with_kinds_and_last_use(self) -> None:
        self.write("one", "1", tags=["python", "payments"])
        self.write("two", "2", tags=["payments"], kind="guideline")
        with self.store():
            delete_memory(command=MemoryTouch(id=self.write("gone", "3", tags=["payments", "old"])))
        self.write("of a session", "4", tags=["scratch"], scope="session", session="s1")
        page = self.page("memories/tag/")
        shown = text_of(page)
        self.assertRegex(
            shown, r"In use 3 tags .* payments 2 just now .* Guideline 1 Observation 1 describe : payments"
        )
        self.assertRegex(shown, r"python 1 just now .* Observation 1 predefined: language")
        self.assertRegex(shown, r"Not in use \d+ tags \w+ \d+ ")
        self.assertNotIn(">old<", page)
        for name, kind in (("payments", "guideline"), ("scratch", "observation")):
            self.assertIn(f"?tag={name}&kind={kind}", page)
            self.assertEqual(len(self.memories(tag=name, kind=kind)), 1)

    def test_a_thousand_tags_are_shown_in_pages_and_ordered(self) -> None:
        commands = [
            MemoryWrite(title=f"Note {number}", content=f"Text {number}", tags=[f"tag-{number}", f"tag-{number + 20}"])
            for number in range(20)
        ]
        with self.store(), mock.patch.object(tag, "_PAGE", 30):
            write_memories(commands=commands)
            first, last = self.page("memories/tag/"), self.page("memories/tag/", p="2", o="name")
            queries = self.queries_of("memories/tag/")
        self.assertEqual((first.count("of-tag"), last.count("of-tag")), (30, 10))
        self.assertIn("?p=2&o=memories", first)
        self.assertRegex(last, r'aria-sort="ascending"><a href="\?o=name"')
        self.assertIn(">tag-9</a>", last)
        self.assertLessEqual(queries, 6)

    def test_a_tag_is_described(self) -> None:
        self.write("one", "1", tags=["payments"])
        self.assertIn('value="payments"', self.page("memories/tag/add/", name="payments"))
        page = self.post("memories/tag/add/", name="Payments", category="domain", description="Money that moves")
        self.assertIn("Described the tag “payments” in the category domain.", page)
        self.assertIn("Money that moves", page)
        with self.store():
            self.assertEqual(Tag.objects.get().name, "payments")

    def test_what_the_rules_refuse_is_said_beside_its_field(self) -> None:
        page = self.post("memories/tag/add/", name="", category="", description="worth keeping")
        self.assertIn('id="id_name_error"', page)
        self.assertIn("worth keeping", page)
        self.assertIn("is predefined in category language", self.post("memories/tag/add/", name="python"))
        with self.store():
            self.assertEqual(Tag.objects.count(), 0)

    def test_a_search_finds_by_a_part_of_the_name(self) -> None:
        self.write("one", "1", tags=["payments"])
        page = self.page("memories/tag/", q="PAY")
        self.assertIn("?tag=payments", page)
        self.assertNotIn("?tag=python", page)
        self.assertNotIn("?tag=python", self.page("memories/tag/"))
        self.assertIn("No matching tags", self.page("memories/tag/", q="nowhere"))

    def test_the_forms_suggest_the_tags_and_categories_in_use(self) -> None:
        self.write("one", "1", kind="guideline", type="naming", tags=["payments"])
        page = self.page("memories/guideline/add/")
        self.assertIn('<option value="payments">', page)
        self.assertIn('<option value="naming">', page)
        self.assertNotIn("payments", self.page("memories/guideline/add/", "beta"))


class RelationTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.rule = self.write("No SQL in doors", "1", kind="guideline")
        self.tool = self.write("ledger_balance", "2", kind="tool")

    def relate(self, relation: str, target: str, source: int | None = None) -> str:
        return self.post(f"memories/memory/{source or self.rule}/relate/", relation=relation, target=target)

    def relations(self) -> list[Relation]:
        with self.store():
            return list(Relation.objects.order_by("id"))

    def shown(self, memory_id: int) -> str:
        page = text_of(self.page(f"memories/memory/{memory_id}/change/"))
        return page.partition("Relations ")[2].partition(" This memory ")[0]

    def test_a_relation_is_added_and_shown_both_ways(self) -> None:
        self.assertIn(f"Added: applies to #{self.tool} ledger_balance.", self.relate("applies_to", f"#{self.tool}"))
        self.assertRegex(self.shown(self.rule), r"^applies to ledger_balance Tool")
        self.assertRegex(self.shown(self.tool), r"^subject of No SQL in doors Guideline")
        self.assertIn("This relation already exists", self.relate("applies_to", str(self.tool)))
        self.assertEqual(len(self.relations()), 1)

    def test_the_project_is_an_end_too(self) -> None:
        self.assertIn("Added: applies to alpha.", self.relate("applies_to", "project"))
        self.assertRegex(self.shown(self.rule), r"^applies to alpha Project")

    def test_a_relation_is_taken_away(self) -> None:
        self.relate("depends_on", str(self.tool))
        address = f"memories/memory/{self.rule}/relations/{self.relations()[0].id}/remove/"
        self.page(address, status=405)
        self.assertIn(f"Removed: #{self.rule} depends on #{self.tool}.", self.post(address))
        self.assertEqual(self.relations(), [])
        self.assertIn("there is no relation", self.post(address).lower())

    def test_what_the_rules_refuse_is_said_and_nothing_is_written(self) -> None:
        self.relate("depends_on", str(self.tool))
        gone = self.write("gone", "3")
        with self.store():
            delete_memory(command=MemoryTouch(id=gone))
        cases = (
            ("depends_on", "999", "there is no"),
            ("depends_on", "", "'target' must not be empty"),
            ("depends_on", str(self.rule), "are the same"),
            ("related_to", str(gone), "is deleted"),
            ("loves", str(self.tool), "'relation' must be one of"),
        )
        for relation, target, message in cases:
            self.assertIn(message, self.relate(relation, target), (relation, target))
        self.assertIn("would create a cycle", self.relate("depends_on", str(self.rule), self.tool))
        self.assertEqual(len(self.relations()), 1)

    def test_the_title_of_a_number_is_looked_up(self) -> None:
        address = self.address(f"memories/memory/{self.rule}/lookup/")
        found = self.client.get(address, {"target": f"#{self.tool}"})
        self.assertEqual((found["X-Found"], found.content.decode()), ("yes", "Tool: ledger_balance"))
        missing = self.client.get(address, {"target": "999"})
        self.assertEqual(missing["X-Found"], "no")
        self.assertIn("#999", missing.content.decode())

    def test_beta_relates_and_looks_up_nothing_of_alphas(self) -> None:
        self.relate("applies_to", str(self.tool))
        self.post(f"memories/memory/{self.rule}/relations/{self.relations()[0].id}/remove/", "beta")
        self.assertEqual(len(self.relations()), 1)
        own = self.write("of beta", project="beta")
        answer = self.client.get(self.address(f"memories/memory/{own}/lookup/", "beta"), {"target": str(self.tool)})
        self.assertNotIn("ledger_balance", answer.content.decode())
