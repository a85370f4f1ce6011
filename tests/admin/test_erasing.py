from __future__ import annotations

import re

from memories.models import Memory
from memories.schemas import MemoryTouch
from memories.services import delete_memory, restore_memory
from memoryhub.core.models import RawEvent
from tests.admin.base import AdminTestCase


class ErasingTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.memory_id = self.write("An address", "Zebrastrasse 12")
        self.one = f"memories/memory/{self.memory_id}/"

    def delete(self) -> None:
        with self.store():
            delete_memory(command=MemoryTouch(id=self.memory_id))

    def token(self) -> str:
        page = self.page(f"{self.one}erase/")
        return str(re.findall(r'name="confirm_token" value="(\w+)"', page)[0])

    def is_there(self) -> bool:
        with self.store():
            return bool(Memory.objects.filter(id=self.memory_id).exists())

    def test_is_offered_only_for_what_is_deleted(self) -> None:
        self.assertNotIn("Delete permanently", self.page(f"{self.one}change/"))
        answer = self.client.get(self.address(f"{self.one}erase/"), follow=True)
        self.assertIn("Delete the memory first", answer.content.decode())
        self.delete()
        self.assertIn("Delete permanently", self.page(f"{self.one}change/"))

    def test_the_page_says_what_goes_and_what_stays_and_changes_nothing(self) -> None:
        self.delete()
        page = self.page(f"{self.one}erase/")
        for text in (
            "Will be deleted",
            "Will be kept",
            "digests",
            "older backups and exports",
            f"Type <code>{self.memory_id}</code> to confirm",
        ):
            self.assertIn(text, page)
        self.assertTrue(self.is_there())

    def test_with_its_number_it_is_gone_and_the_event_says_who_and_why(self) -> None:
        self.delete()
        fields = {"number": f"#{self.memory_id}", "confirm_token": self.token(), "reason": "asked for"}
        self.assertIn(f"Deleted #{self.memory_id} permanently.", self.post(f"{self.one}erase/", **fields))
        self.assertFalse(self.is_there())
        self.page(f"{self.one}change/", status=404)
        with self.store():
            self.assertIsNone(RawEvent.objects.get(position=self.memory_id).payload_json)
            erasure = RawEvent.objects.order_by("-position")[0]
        self.assertEqual((erasure.event_type, erasure.actor), ("payload.erased", "owner"))
        self.assertIn("asked for", erasure.payload_json)

    def test_without_its_number_nothing_goes(self) -> None:
        self.delete()
        for typed in ("", "yes", str(self.memory_id + 1)):
            page = self.post(f"{self.one}erase/", number=typed, confirm_token=self.token())
            self.assertIn(f"Type {self.memory_id}, the number", page)
        self.assertTrue(self.is_there())

    def test_what_changed_since_the_page_was_shown_must_be_confirmed_again(self) -> None:
        self.delete()
        token = self.token()
        with self.store():
            restore_memory(command=MemoryTouch(id=self.memory_id))
        self.delete()
        page = self.post(f"{self.one}erase/", number=str(self.memory_id), confirm_token=token)
        self.assertIn("The memory has changed since you opened this page", page)
        self.assertTrue(self.is_there())

    def test_beta_erases_nothing_of_alphas(self) -> None:
        self.delete()
        fields = {"number": str(self.memory_id), "confirm_token": self.token()}
        self.post(f"{self.one}erase/", "beta", **fields)
        self.assertTrue(self.is_there())
