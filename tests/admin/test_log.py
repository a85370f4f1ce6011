from __future__ import annotations

from datetime import UTC, datetime

from memories.schemas import MemoryTouch, MemoryUpdate
from memories.services import delete_memory, update_memory
from memoryhub.core import clock, log
from memoryhub.core.backends.sqlite.anchors import anchor_path
from memoryhub.core.log.anchor import replace_anchor
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store
from memoryhub.models import StoreCheck
from tests.admin.base import AdminTestCase, text_of

LOG = "core/rawevent/"


class ListTests(AdminTestCase):
    def events(self, **query: str) -> list[int]:
        return self.listed(LOG, **query)

    def test_shows_every_event_newest_first(self) -> None:
        memory_id = self.write("A choice", session="s-7")
        with self.store(actor="bob"):
            update_memory(command=MemoryUpdate(id=memory_id, content="other text"))
        self.assertEqual(self.events(), [2, 1])
        page = text_of(self.page(LOG))
        for text in ("memory.revised", "bob", "memory:1", "mcp", "s-7", "2 events"):
            self.assertIn(text, page)

    def test_filters_by_type_source_day_session_and_stream(self) -> None:
        with clock.frozen(datetime(2024, 5, 6, 23, 59, tzinfo=UTC)):
            old = self.write("old", "one", session="s-1")
        with self.store(source="admin"):
            delete_memory(command=MemoryTouch(id=old))
        self.assertEqual(self.events(type="memory.deleted"), [2])
        self.assertEqual(self.events(source="mcp"), [1])
        self.assertEqual(self.events(day="2024-05-06"), [1])
        self.assertEqual(self.events(day="2024-05-07"), [])
        self.assertEqual(self.events(day="no day"), [])
        self.assertEqual(self.events(session="s-1"), [1])
        self.assertEqual(self.events(stream="memory:1"), [2, 1])

    def test_nothing_can_be_added_changed_or_deleted(self) -> None:
        self.write("A choice")
        for path in ("add/", "1/delete/"):
            answer = self.client.post(self.address(LOG + path), {"post": "yes"})
            self.assertEqual(answer.status_code, 403, path)
        self.client.post(self.address(f"{LOG}1/change/"), {"actor": "mallory"})
        self.client.post(self.address(LOG), {"action": "delete_selected", "_selected_action": ["1"], "index": "0"})
        self.assertEqual(self.events(), [1])
        with self.store():
            self.assertTrue(log.verify().ok)

    def test_a_stream_redirects_to_its_row(self) -> None:
        memory_id = self.write("A choice")
        answer = self.client.get(self.address(f"stream/memory:{memory_id}/"))
        self.assertRedirects(answer, self.address(f"memories/memory/{memory_id}/change/"))
        answer = self.client.get(self.address("stream/erasures/"))
        self.assertRedirects(answer, self.address(f"{LOG}?stream=erasures"))


class DetailTests(AdminTestCase):
    def test_shows_payload_digests_and_neighbours(self) -> None:
        self.write("one", "first <text>")
        self.write("two", "second text", session="s-7")
        page = self.page(f"{LOG}1/change/")
        self.assertIn('"content": "first <text>"', page)
        with self.store():
            digests = rows.fetch("SELECT payload_digest, chain_digest, event_id FROM raw_events WHERE position = 1")[0]
        for text in digests:
            self.assertIn(text, page)
        self.assertIn("#2 →", page)
        self.assertNotIn("← #0", page)

    def test_an_erased_event_is_marked(self) -> None:
        self.write("one", "to be forgotten")
        with self.store():
            log.erase_streams(["memory:1"], reason="asked for")
        page = self.page(f"{LOG}1/change/")
        self.assertIn("was deleted permanently", page)
        self.assertNotIn("to be forgotten", page)
        self.assertIn("erased", self.page(f"{LOG}2/change/"))


class ChainTests(AdminTestCase):
    def test_verifying_stores_and_shows_the_result(self) -> None:
        self.write("one")
        self.assertIn("Not verified yet", self.page(LOG))
        page = self.post("log/verify/")
        self.assertIn("The chain holds: 1 event,", page)
        check = StoreCheck.objects.get(store=project_store("alpha").alias)
        self.assertEqual((check.ok, check.events), (True, 1))
        self.write("two", "more")
        self.assertIn("1 event since", self.page(LOG))

    def test_a_changed_event_is_reported(self) -> None:
        self.write("one")
        self.write("two", "more")
        with self.store():
            rows.execute("DROP TRIGGER raw_events_no_change")
            rows.execute("UPDATE raw_events SET actor = 'mallory' WHERE position = 1")
        page = self.post("log/verify/")
        self.assertIn("The chain is broken at #1", page)
        self.assertIn("badge-broken", self.page())

    def test_a_cut_tail_shows_without_a_full_check(self) -> None:
        self.write("one")
        with self.store():
            replace_anchor(project_store("alpha"), 5, "f" * 64)
        self.assertIn("its tail was cut", self.page(LOG))

    def test_an_unreadable_anchor_is_reported(self) -> None:
        self.write("one")
        with self.store():
            anchor_path(project_store("alpha")).write_text("nonsense")
        self.assertIn("anchor cannot be read", self.page(LOG))

    def test_verifying_requires_post(self) -> None:
        self.page("log/verify/", status=405)
        self.assertEqual(StoreCheck.objects.count(), 0)
