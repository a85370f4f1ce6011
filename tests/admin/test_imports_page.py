"""The pages of imports: the list, what one has brought, and its undo."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from memories.models import Memory
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import LeftOut, MemoryRecord, Record, SessionRecord, TurnRecord
from tests.admin.base import AdminTestCase, text_of

RECORDS: list[Record] = [
    MemoryRecord("a", "Buoy <b>", "North of the pier.", tags=("sea",), created=datetime(2024, 3, 1, tzinfo=UTC)),
    MemoryRecord("b", "Pier", "Closed in winter.", kind="guideline", tags=("sea",)),
    SessionRecord("s", "Chart", (TurnRecord("Where is the buoy?", "North."),)),
    LeftOut("c", "it is deleted"),
]


class ImportsPageTests(AdminTestCase):
    def bring(self) -> int:
        with self.store("alpha", actor="maya", source="cli"):
            (report,) = Importer("tool", "alpha").run(RECORDS, place="/data/tool.db")
        assert report.batch
        return report.batch

    def test_the_list_has_each_import_with_its_result(self) -> None:
        self.assertIn("Nothing was imported yet", self.page("imports/"))
        batch = self.bring()
        text = text_of(self.page("imports/"))
        self.assertRegex(text, rf"#{batch} tool .* maya 2 new, 1 session, 1 left out /data/tool.db")

    def test_a_page_has_what_was_gained(self) -> None:
        batch = self.bring()
        text = text_of(self.page(f"imports/{batch}/"))
        self.assertIn("2 memories, written 2024-03-01 to", text)
        self.assertIn("1 session with 1 turn", text)
        self.assertIn("Tags: sea 2", text)
        self.assertIn("Beside it: 1 left out.", text)
        self.assertIn(f"memory-hub memtest --write --from-import {batch}", text)
        self.assertNotIn(b"Buoy <b>", self.client.get(self.address(f"imports/{batch}/")).content)
        self.assertIn("Imported from tool: 2 memories, 1 session with 1 turn, back to 2024-03-01", text_of(self.page()))

    def test_an_import_is_undone_as_it_was_previewed(self) -> None:
        batch = self.bring()
        html = self.page(f"imports/{batch}/")
        self.assertIn("1 session, 1 turn, 2 memories", text_of(html))
        (token,) = re.findall(r'name="token" value="(\w+)"', html)
        self.assertIn("changed since the preview", self.post(f"imports/{batch}/", token="0" * 16))
        after = text_of(self.post(f"imports/{batch}/", token=token))
        self.assertIn(f"Import #{batch} is undone", after)
        self.assertIn("This import was undone", after)
        with self.store("alpha"):
            self.assertFalse(Memory.objects.exists())
        self.assertIn("undone already", self.post(f"imports/{batch}/", token=token))
        self.assertNotIn("Imported from tool", self.page())

    def test_only_owners_undo_and_unknown_numbers_are_not_found(self) -> None:
        batch = self.bring()
        self.page("imports/9999/", status=404)
        self.client.force_login(add_person(command=PersonAdd(name="vera", role="viewer")))
        self.assertIn("Only owners can undo imports.", self.page(f"imports/{batch}/"))
        answer = self.client.post(self.address(f"imports/{batch}/"), {"token": "x"})
        self.assertEqual(answer.status_code, 403)
