"""The log in the admin: the list, the page of an event, its verification, the replay and the past."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from django.test import tag

from memories.schemas import MemoryTouch
from memories.services import delete_memory
from memoryhub.core import clock, log
from memoryhub.core.backends.sqlite.anchors import anchor_path
from memoryhub.core.log.anchor import replace_anchor
from memoryhub.core.log.chain import check_links
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store
from memoryhub.models import StoreCheck
from tests.admin.base import AdminTestCase, text_of

LOG = "core/rawevent/"


class LogListTests(AdminTestCase):
    def test_every_event_is_listed_newest_first_and_filtered(self) -> None:
        with clock.frozen(datetime(2024, 5, 6, 23, 59, tzinfo=UTC)):
            old = self.write("old", "one", session="s-1")
        with self.store(source="admin", actor="bob"):
            delete_memory(command=MemoryTouch(id=old))
        self.assert_shows(text_of(self.page(LOG)), "memory.deleted", "bob", "memory:1", "mcp", "s-1", "2 events")
        for query, positions in (
            ({}, [2, 1]),
            ({"type": "memory.deleted"}, [2]),
            ({"source": "mcp"}, [1]),
            ({"day": "2024-05-06"}, [1]),
            ({"day": "2024-05-07"}, []),
            ({"day": "no day"}, []),
            ({"session": "s-1"}, [1]),
            ({"stream": "memory:1"}, [2, 1]),
        ):
            with self.subTest(query):
                self.assertEqual(self.listed(LOG, **query), positions)

    def test_nothing_can_be_added_changed_or_deleted(self) -> None:
        self.write("A choice")
        for path in ("add/", "1/delete/"):
            answer = self.client.post(self.address(LOG + path), {"post": "yes"})
            self.assertEqual(answer.status_code, 403, path)
        self.client.post(self.address(f"{LOG}1/change/"), {"actor": "mallory"})
        self.client.post(self.address(LOG), {"action": "delete_selected", "_selected_action": ["1"], "index": "0"})
        self.assertEqual(self.listed(LOG), [1])
        with self.store():
            self.assertTrue(log.verify().ok)

    def test_a_stream_redirects_to_its_row(self) -> None:
        for stream, path in (
            (f"memory:{self.write('A choice')}", "memories/memory/1/change/"),
            ("erasures", f"{LOG}?stream=erasures"),
        ):
            self.assertRedirects(self.client.get(self.address(f"stream/{stream}/")), self.address(path))


class EventPageTests(AdminTestCase):
    def test_shows_payload_digests_neighbours_and_what_was_erased(self) -> None:
        self.write("one", "first <text>")
        self.write("two", "second text", session="s-7")
        with self.store():
            digests = rows.fetch("SELECT payload_digest, chain_digest, event_id FROM raw_events WHERE position = 1")[0]
        page = self.page(f"{LOG}1/change/")
        self.assert_shows(page, '"content": "first <text>"', *digests, "#2 →", lacks=("← #0",))
        with self.store():
            log.erase_streams(["memory:1"], reason="asked for")
        self.assert_shows(self.page(f"{LOG}1/change/"), "was deleted permanently", lacks=("first <text>",))
        self.assert_shows(self.page(f"{LOG}3/change/"), "erased")


class ChainTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write("one")

    def test_verifying_stores_and_shows_the_result(self) -> None:
        self.page("log/verify/", status=405)
        self.assert_shows(self.page(LOG), "Not verified yet")
        self.assert_shows(self.post("log/verify/"), "The chain holds: 1 event,")
        check = StoreCheck.objects.get(store=project_store("alpha").alias)
        self.assertEqual((check.ok, check.events), (True, 1))
        self.write("two", "more")
        self.assert_shows(self.page(LOG), "1 event since")

    def test_a_changed_event_is_reported(self) -> None:
        self.write("two", "more")
        with self.store():
            rows.execute("DROP TRIGGER raw_events_no_change")
            rows.execute("UPDATE raw_events SET actor = 'mallory' WHERE position = 1")
        self.assert_shows(self.post("log/verify/"), "The chain is broken at #1")
        self.assert_shows(self.page(), "badge-broken")

    def test_a_cut_tail_or_an_unreadable_anchor_shows_without_a_full_check(self) -> None:
        with self.store():
            replace_anchor(project_store("alpha"), 5, "f" * 64)
        self.assert_shows(self.page(LOG), "its tail was cut")
        with self.store():
            anchor_path(project_store("alpha")).write_text("nonsense")
        self.assert_shows(self.page(LOG), "anchor cannot be read")


REPLAY = "core/rawevent/replay/"
AS_OF = "core/rawevent/as-of/"


class ReplayTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        for number in range(1, 13):
            self.write(f"note {number}", f"text {number}")

    def test_shows_an_event_with_its_digests_and_neighbours_within_the_log(self) -> None:
        with self.store():
            sql = "SELECT chain_digest FROM raw_events WHERE position IN (5, 6)"
            digests = [str(digest) for (digest,) in rows.fetch(sql)]
        page = self.page(REPLAY, position="6")
        self.assert_shows(page, *digests, "note 6", '"content": "text 6"', "memory.written", "Verified")
        self.assert_shows(text_of(page), "9 links verified.")
        self.assertRegex(page, r'<input type="range"[^>]* min="1" max="12" value="6"')
        neighbour = r'<a href="\?position=(\d+)"><code'
        self.assertEqual(re.findall(neighbour, page), [str(position) for position in range(2, 11)])
        self.assertRegex(page, r'rel="next"[^>]* href="\?position=7"')
        self.assertRegex(page, r'rel="prev"[^>]* href="\?position=5"')
        page = self.page(REPLAY)
        self.assert_shows(page, GENESIS)
        self.assertEqual(re.findall(neighbour, page), ["1", "2", "3", "4", "5"])
        self.assertNotRegex(page, r'rel="prev"[^>]* href=')
        self.assertNotRegex(self.page(REPLAY, position="12"), r'rel="next"[^>]* href=')
        for position, shown in {"99": 12, "0": 1, "-4": 1, "x": 1, "9" * 40: 1}.items():
            self.assert_shows(self.page(REPLAY, position=position), f'data-position="{shown}"', where=position)

    def test_a_fragment_is_the_part_that_differs_and_pages_lead_to_it(self) -> None:
        fragment = self.page(REPLAY, position="6", fragment="1")
        self.assertTrue(fragment.strip().startswith('<div class="columns replayed" data-position="6"'))
        self.assert_lacks(fragment, "<html", 'type="range"')
        self.assert_shows(self.page(REPLAY, position="6"), fragment.strip())
        self.assert_shows(self.page(REPLAY, "beta"), "The log is empty")
        self.assert_lacks(self.page(REPLAY, "beta", fragment="1", position="6"), "note 6")
        self.assert_shows(self.page("core/rawevent/"), f'href="{self.address(REPLAY)}"')
        self.assert_shows(self.page("core/rawevent/6/change/"), f'href="{self.address(REPLAY)}?position=6"')
        self.assertEqual(self.queries_of(f"{REPLAY}?position=1"), self.queries_of(f"{REPLAY}?position=6"))

    def test_a_changed_payload_breaks_its_own_link_alone(self) -> None:
        with self.store():
            rows.execute("DROP TRIGGER raw_events_no_change")
            rows.execute('UPDATE raw_events SET payload_json = \'{"title":"forged"}\' WHERE position = 6')
        page = text_of(self.page(REPLAY, position="6"))
        self.assert_shows(page, "Its payload is not the one that was written.", "1 link of 9 broken.")
        self.assert_shows(self.page(REPLAY, position="7"), "Verified")

    def test_a_changed_digest_breaks_the_link_after_it_too(self) -> None:
        with self.store():
            rows.execute("DROP TRIGGER raw_events_no_change")
            rows.execute(f"UPDATE raw_events SET chain_digest = '{'f' * 64}' WHERE position = 6")
            links = check_links(first=5, last=8)
        self.assertEqual([position for position, flaw in links.items() if flaw], [6, 7])

    def test_a_missing_event_is_told_at_the_next(self) -> None:
        with self.store():
            rows.execute("DROP TRIGGER raw_events_no_delete")
            rows.execute("DELETE FROM raw_events WHERE position = 6")
            found = check_links(first=4, last=9)
        self.assertEqual(sorted(found), [4, 5, 7, 8, 9])
        self.assert_shows(found[7], "missing")
        self.assertEqual([found[position] for position in (4, 5, 8, 9)], [""] * 4)
        self.assert_shows(text_of(self.page(REPLAY, position="6")), "#6 is missing")

    def test_an_erased_event_still_verifies(self) -> None:
        with self.store():
            log.erase_streams(["memory:6"], reason="asked for")
        self.assert_shows(self.page(REPLAY, position="6"), "was deleted permanently", "Verified", lacks=("text 6",))


class AsOfTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.first = self.write("Two metres", "measured by hand")
        self.update(self.first, title="Three metres", content="measured by laser")
        self.second = self.write("A zebrafish", "in a tank")

    def test_shows_what_was_known_then_and_refuses_other_positions(self) -> None:
        then = text_of(self.page(AS_OF, position="1"))
        self.assert_shows(
            then, "Two metres", "measured by hand", "1 memory", "The latest event is #3.", lacks=("Three metres",)
        )
        now = text_of(self.page(AS_OF, position="3"))
        self.assert_shows(now, "Three metres", "A zebrafish", "2 memories", "This is the latest event.")
        self.assert_shows(self.page(AS_OF, position="0"), "No memories yet")
        self.assert_shows(self.page(AS_OF, position="99", status=404), "There is no position 99")
        self.assert_shows(self.page(AS_OF, position="1", cursor="x", status=422), "ursor is not one")
        for given in ("", "x", "-1", "9" * 40):
            self.assertRedirects(self.client.get(self.address(AS_OF), {"position": given}), self.address(REPLAY))
        self.assert_shows(self.page(REPLAY, position="2"), f'href="{self.address(AS_OF)}?position=2"')

    @tag("backend")
    def test_searches_what_was_known_then(self) -> None:
        self.assert_shows(self.page(AS_OF, position="1", q="hand"), "Two metres", "by words")
        self.assert_lacks(self.page(AS_OF, position="2", q="laser"), "Two metres")
        self.assert_shows(self.page(AS_OF, position="2", q="zebrafish"), "No results.")
        self.assert_shows(self.page(AS_OF, position="3", q="zebrafish"), "A zebrafish")

    def test_the_rest_comes_in_pages(self) -> None:
        for number in range(60):
            self.write(f"note {number}", f"text {number}")
        page = self.page(AS_OF, position="63")
        self.assert_lacks(page, "Three metres")
        (cursor,) = re.findall(r"&cursor=([^\"]+)\"", page)
        self.assert_shows(self.page(AS_OF, position="63", cursor=cursor), "Three metres", lacks=("More memories",))
