from __future__ import annotations

import re

from memories.schemas import MemoryUpdate
from memories.services import update_memory
from memoryhub.core import log
from memoryhub.core.log.chain import check_links
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.stores import rows
from tests.admin.base import AdminTestCase, text_of

REPLAY = "core/rawevent/replay/"
AS_OF = "core/rawevent/as-of/"


class ReplayTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        for number in range(1, 13):
            self.write(f"note {number}", f"text {number}")

    def digest(self, position: int) -> str:
        with self.store():
            return str(rows.fetch("SELECT chain_digest FROM raw_events WHERE position = %s", [position])[0][0])

    def corrupt(self, sql: str) -> None:
        with self.store():
            rows.execute("DROP TRIGGER raw_events_no_change")
            rows.execute(sql)

    def around(self, page: str) -> list[int]:
        return [int(each) for each in re.findall(r'<a href="\?position=(\d+)"><code', page)]

    def test_shows_an_event_its_digest_the_one_before_and_its_neighbours(self) -> None:
        page = self.page(REPLAY, position="6")
        for text in (self.digest(5), self.digest(6), "note 6", '"content": "text 6"', "memory.written"):
            self.assertIn(text, page)
        self.assertEqual(self.around(page), list(range(2, 11)))
        self.assertIn("Verified", page)
        self.assertIn("9 links verified.", text_of(page))
        self.assertRegex(page, r'<input type="range"[^>]* min="1" max="12" value="6"')

    def test_begins_at_the_first_event_and_keeps_within_the_log(self) -> None:
        page = self.page(REPLAY)
        self.assertIn(GENESIS, page)
        self.assertEqual(self.around(page), [1, 2, 3, 4, 5])
        for wanted, shown in {"99": 12, "0": 1, "-4": 1, "x": 1, "9" * 40: 1}.items():
            self.assertIn(f'data-position="{shown}"', self.page(REPLAY, position=wanted), wanted)

    def test_steps_are_links_and_end_with_the_log(self) -> None:
        self.assertRegex(self.page(REPLAY, position="6"), r'rel="next"[^>]* href="\?position=7"')
        self.assertRegex(self.page(REPLAY, position="6"), r'rel="prev"[^>]* href="\?position=5"')
        self.assertNotRegex(self.page(REPLAY, position="12"), r'rel="next"[^>]* href=')
        self.assertNotRegex(self.page(REPLAY, position="1"), r'rel="prev"[^>]* href=')

    def test_a_fragment_is_the_part_that_differs_by_position_and_no_more(self) -> None:
        fragment = self.page(REPLAY, position="6", fragment="1")
        self.assertTrue(fragment.strip().startswith('<div class="columns replayed" data-position="6"'))
        self.assertNotIn("<html", fragment)
        self.assertNotIn('type="range"', fragment)
        self.assertIn(fragment.strip(), self.page(REPLAY, position="6"))

    def test_a_changed_payload_breaks_its_own_link_alone(self) -> None:
        self.corrupt('UPDATE raw_events SET payload_json = \'{"title":"forged"}\' WHERE position = 6')
        page = self.page(REPLAY, position="6")
        self.assertIn("Its payload is not the one that was written.", text_of(page))
        self.assertIn("1 link of 9 broken.", text_of(page))
        self.assertIn("Verified", self.page(REPLAY, position="7"))

    def test_a_changed_digest_breaks_the_link_after_it_too(self) -> None:
        self.corrupt(f"UPDATE raw_events SET chain_digest = '{'f' * 64}' WHERE position = 6")
        with self.store():
            found = check_links(first=5, last=8)
        self.assertEqual([position for position, flaw in found.items() if flaw], [6, 7])

    def test_a_missing_event_is_told_at_the_next(self) -> None:
        with self.store():
            rows.execute("DROP TRIGGER raw_events_no_delete")
            rows.execute("DELETE FROM raw_events WHERE position = 6")
            found = check_links(first=4, last=9)
        self.assertEqual(sorted(found), [4, 5, 7, 8, 9])
        self.assertIn("missing", found[7])
        self.assertEqual([found[position] for position in (4, 5, 8, 9)], [""] * 4)
        self.assertIn("#6 is missing", text_of(self.page(REPLAY, position="6")))

    def test_an_erased_event_still_verifies(self) -> None:
        with self.store():
            log.erase_streams(["memory:6"], reason="asked for")
        page = self.page(REPLAY, position="6")
        self.assertIn("was deleted permanently", page)
        self.assertIn("Verified", page)
        self.assertNotIn("text 6", page)

    def test_makes_the_same_number_of_queries_everywhere(self) -> None:
        self.assertEqual(self.queries_of(f"{REPLAY}?position=1"), self.queries_of(f"{REPLAY}?position=6"))

    def test_an_empty_log_says_so(self) -> None:
        self.assertIn("The log is empty", self.page(REPLAY, "beta"))
        self.assertNotIn("note 6", self.page(REPLAY, "beta", fragment="1", position="6"))

    def test_the_log_and_its_events_lead_to_it(self) -> None:
        self.assertIn(f'href="{self.address(REPLAY)}"', self.page("core/rawevent/"))
        self.assertIn(f'href="{self.address(REPLAY)}?position=6"', self.page("core/rawevent/6/change/"))

    def test_only_who_is_signed_in_sees_it(self) -> None:
        self.client.logout()
        for query in ({}, {"fragment": "1"}):
            answer = self.client.get(self.address(REPLAY), query)
            self.assertEqual(answer.status_code, 302)
            self.assertIn("login", answer["Location"])


class AsOfTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.first = self.write("Two metres", "measured by hand")
        with self.store():
            update_memory(command=MemoryUpdate(id=self.first, title="Three metres", content="measured by laser"))
        self.second = self.write("A zebrafish", "in a tank")

    def test_shows_what_was_known_then(self) -> None:
        then = text_of(self.page(AS_OF, position="1"))
        for text in ("Two metres", "measured by hand", "1 memory", "The latest event is #3."):
            self.assertIn(text, then)
        self.assertNotIn("Three metres", then)
        now = text_of(self.page(AS_OF, position="3"))
        for text in ("Three metres", "A zebrafish", "2 memories", "This is the latest event."):
            self.assertIn(text, now)
        self.assertIn("No memories yet", self.page(AS_OF, position="0"))

    def test_searches_what_was_known_then(self) -> None:
        self.assertIn("Two metres", self.page(AS_OF, position="1", q="hand"))
        self.assertNotIn("Two metres", self.page(AS_OF, position="2", q="laser"))
        self.assertIn("No results.", self.page(AS_OF, position="2", q="zebrafish"))
        self.assertIn("A zebrafish", self.page(AS_OF, position="3", q="zebrafish"))

    def test_the_rest_comes_in_pages(self) -> None:
        for number in range(60):
            self.write(f"note {number}", f"text {number}")
        page = self.page(AS_OF, position="63")
        cursor = re.search(r"&cursor=([^\"]+)\"", page)[1]  # type: ignore[index]
        rest = self.page(AS_OF, position="63", cursor=cursor)
        self.assertIn("Three metres", rest)
        self.assertNotIn("Three metres", page)
        self.assertNotIn("More memories", rest)

    def test_a_position_that_is_none_is_refused_or_chosen_anew(self) -> None:
        self.assertIn("here is no position 99", self.page(AS_OF, position="99", status=404))
        self.assertIn("ursor is not one", self.page(AS_OF, position="1", cursor="x", status=422))
        for given in ("", "x", "-1", "9" * 40):
            self.assertRedirects(self.client.get(self.address(AS_OF), {"position": given}), self.address(REPLAY))

    def test_beta_sees_nothing_of_it(self) -> None:
        self.write("of beta", "beta", project="beta")
        self.assertNotIn("metres", self.page(AS_OF, "beta", position="1"))
        self.page(AS_OF, "beta", position="2", status=404)

    def test_replay_leads_to_it(self) -> None:
        self.assertIn(f'href="{self.address(AS_OF)}?position=2"', self.page(REPLAY, position="2"))
