from __future__ import annotations

from memories.models import Conflict
from memories.schemas import MemoryTouch, MemoryUpdate
from memories.services import delete_memory, update_memory
from tests.admin.base import AdminTestCase, text_of

BASE = "Retry three times.\n\nWait a second.\n\nThen tell the caller.\n"
EARLIER = BASE.replace("three", "five")
LATER = BASE.replace("a second", "a minute")


class ConflictTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.memory_id = self.write("How we retry", BASE, tags=["retries"])
        self.conflict_id = self.disagree()
        self.one = f"memories/conflict/{self.conflict_id}/"

    def disagree(self) -> int:
        for actor, text in (("claude", EARLIER), ("codex", LATER)):
            with self.store(actor=actor, source="mcp"):
                command = MemoryUpdate(id=self.memory_id, base_version=1, content=text, change_reason=f"by {actor}")
                result = update_memory(command=command)
        assert result.conflict
        return result.conflict

    def conflict(self) -> Conflict:
        with self.store():
            found: Conflict = Conflict.objects.get(id=self.conflict_id)
            return found

    def settle(self, **fields: str) -> str:
        return self.post(f"{self.one}settle/", **fields)

    def test_it_is_announced_wherever_the_memory_is(self) -> None:
        page = self.page(f"memories/memory/{self.memory_id}/change/")
        self.assertIn(f"Resolve conflict #{self.conflict_id}", page)
        self.assertIn(self.address(f"{self.one}change/"), page)
        self.assertIn("Inbox 1 pending", text_of(self.page("memories/tag/")))
        self.assertIn("Inbox 1 pending", text_of(self.page("memories/conflict/")))
        self.assertIn("1 unresolved conflict<", self.page())
        self.assertNotIn("to be settled", self.page(project="beta"))
        self.assertIn("with v2", text_of(self.page(f"memories/memory/{self.memory_id}/versions/")))

    def test_shows_both_with_who_and_why_what_differs_and_what_both_were_made_from(self) -> None:
        page = text_of(self.page(f"{self.one}change/"))
        for text in ("Version 2 (earlier)", "Version 3 (later)", "claude", "codex", "by claude", "by codex"):
            self.assertIn(text, page)
        self.assertIn("Retry [removed: five ] times.", page)
        self.assertIn("Wait a [added: minute ] .", page)
        self.assertIn("Version 1, the base of both versions", page)

    def test_the_merge_begins_with_what_both_changed(self) -> None:
        page = self.page(f"{self.one}change/")
        draft = page.partition('name="content"')[2].partition(">")[2].partition("</textarea>")[0]
        self.assertEqual(draft.strip("\n"), EARLIER.replace("a second", "a minute").strip("\n"))

    def test_the_earlier_is_kept(self) -> None:
        page = text_of(self.settle(resolution="keep_a", reason="measured"))
        for text in ("Resolved. Version 4 is current.", "Resolved: keep the earlier version", "owner", "measured"):
            self.assertIn(text, page)
        self.assertEqual(self.memory(self.memory_id).content, EARLIER)
        self.assertEqual((self.conflict().resolved_by, self.conflict().reason), ("owner", "measured"))

    def test_the_later_is_kept_without_another_version(self) -> None:
        self.assertIn("Resolved. Version 3 is current.", self.settle(resolution="keep_b"))
        self.assertEqual(self.memory(self.memory_id).version, 3)

    def test_they_are_merged(self) -> None:
        page = self.settle(resolution="merge", content="Both\r\nof them", title="How we retry now", split_title="x")
        self.assertIn("Resolved. Version 4 is current.", page)
        memory = self.memory(self.memory_id)
        self.assertEqual((memory.title, memory.content), ("How we retry now", "Both\nof them"))

    def test_both_are_kept_as_two_memories(self) -> None:
        page = self.settle(resolution="both", content="ignored", title="ignored", split_title="How the worker retries")
        split = self.conflict().split_id
        assert split
        self.assertIn(f"The earlier version is now #{split}.", page)
        self.assertEqual(self.memory(split).title, "How the worker retries")
        self.assertEqual((self.memory(split).content, self.memory(self.memory_id).content), (EARLIER, LATER))

    def test_without_a_choice_nothing_is_done_and_nothing_typed_is_lost(self) -> None:
        page = self.settle(reason="because of this")
        self.assertIn("Choose one of the four resolutions.", page)
        self.assertIn('value="because of this"', page)
        self.assertIsNone(self.conflict().resolved_at)

    def test_what_the_rules_refuse_is_said_and_the_merged_text_is_still_there(self) -> None:
        page = self.settle(resolution="merge", content="a long merged text", title="t" * 201)
        self.assertIn("'title' must have at most 200 characters", page)
        self.assertIn("a long merged text", page)
        self.assertRegex(page, r'value="merge" checked')
        self.assertIsNone(self.conflict().resolved_at)

    def test_a_settled_one_is_not_settled_twice(self) -> None:
        self.settle(resolution="keep_b")
        page = self.settle(resolution="keep_a")
        self.assertIn(
            f"The conflict was not resolved. Conflict #{self.conflict_id} was resolved with keep_b by owner.", page
        )
        self.assertEqual(self.memory(self.memory_id).version, 3)
        self.assertNotIn("Resolve conflict", self.page(f"{self.one}change/"))

    def test_while_the_memory_is_deleted_it_is_not_settled(self) -> None:
        with self.store():
            delete_memory(command=MemoryTouch(id=self.memory_id))
        self.assertIn("Restore it to resolve the conflict", self.page(f"{self.one}change/"))
        self.settle(resolution="keep_a")
        self.assertIsNone(self.conflict().resolved_at)

    def test_open_ones_come_first_and_filter_by_state(self) -> None:
        self.settle(resolution="keep_b")
        with self.store():
            stands = self.memory(self.memory_id).version
            for text in ("one", "two"):
                command = MemoryUpdate(id=self.memory_id, base_version=stands, content=text)
                newer = update_memory(command=command).conflict
        self.assertEqual(self.listed("memories/conflict/"), [newer, self.conflict_id])
        self.assertEqual(self.listed("memories/conflict/", state="open"), [newer])
        self.assertEqual(self.listed("memories/conflict/", state="settled"), [self.conflict_id])

    def test_a_list_without_any_says_what_would_be_here(self) -> None:
        self.assertIn("When two clients change the same version", self.page("memories/conflict/", "beta"))

    def test_settling_takes_a_post(self) -> None:
        self.assertRedirects(self.client.get(self.address(f"{self.one}settle/")), self.address(f"{self.one}change/"))
        self.assertIsNone(self.conflict().resolved_at)

    def test_beta_sees_and_settles_nothing_of_alphas(self) -> None:
        self.page(f"{self.one}change/", "beta", status=404)
        self.post(f"{self.one}settle/", "beta", resolution="keep_a")
        self.assertIsNone(self.conflict().resolved_at)
        self.assertNotIn("How we retry", self.page("memories/conflict/", "beta"))

    def test_who_is_not_signed_in_settles_nothing(self) -> None:
        self.client.logout()
        answer = self.client.post(self.address(f"{self.one}settle/"), {"resolution": "keep_a"}, follow=True)
        self.assertNotIn("How we retry", answer.content.decode())
        self.assertIsNone(self.conflict().resolved_at)
