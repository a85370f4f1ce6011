"""The inbox: what waits for a person, of all types, and verdicts on several items at once."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from unittest import mock

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from governance.inbox import MOST, Entry, EntryType, count_entries, open_entries, with_texts
from governance.redaction.copies import Look
from memories.events import Verdict
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_memory
from memories.schemas import MemoryUpdate, MemoryWrite
from memories.services import update_memory, write_memory
from sessions_app.schemas import SessionStart, SettingsChange
from sessions_app.services import start_session
from sessions_app.services.profile import change_settings
from tests.admin.base import AdminTestCase, text_of
from tests.admin.browser import BrowserTestCase

PAGE = "inbox/"
LONG_AGO = "2020-01-01T00:00:00Z"


class InboxTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.disputed = self.write("How we retry", "Retry three times.\n\nWait.\n")
        for text in ("Retry five times.\n\nWait.\n", "Retry three times.\n\nWait a minute.\n"):
            with self.store(actor="codex", source="mcp", session_id="fix"):
                result = update_memory(command=MemoryUpdate(id=self.disputed, base_version=1, content=text))
        assert result.conflict
        self.conflict = result.conflict
        self.expired = self.write("Freeze until spring", kind="knowledge", attributes={"valid_until": LONG_AGO})
        with self.store():
            change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        self.first = self.write("Use tabs", "In every file.", session="fix")
        self.second = self.write("Name the tests", "By what they show.", session="later")
        self.third = self.write("Sort the imports", "With the linter.", session="later")

    def values(self, *ids: int) -> list[str]:
        return [f"proposal-{memory_id}-1" for memory_id in ids]

    def give(self, verdict: str, *values: str) -> str:
        page = self.client.post(self.address(f"{PAGE}verdicts/"), {"verdict": verdict, "entry": values}, follow=True)
        return text_of(page.content.decode())

    def review_of(self, *ids: int) -> list[str]:
        return [str(self.memory(memory_id).review) for memory_id in ids]

    def path_of(self, entry: Entry) -> str:
        return {
            EntryType.PROPOSAL: f"memories/memory/review/{entry.id}/",
            EntryType.CONFLICT: f"memories/conflict/{entry.id}/change/",
            EntryType.RECHECK: f"governance/affirmation/{entry.id}/",
        }[entry.type]

    def test_a_row_tells_kind_text_and_reason_below_the_purpose_of_its_session(self) -> None:
        with self.store(actor="agent", source="mcp"):
            start_session(command=SessionStart(session_id="planned", purpose="Settle the style of the code"))
        proposal = self.write("Wrap long lines", "At 120 characters.", kind="guideline", session="planned")
        page = self.page(PAGE)
        row = re.search(rf'<li id="inbox-proposal-{proposal}".*?</li>', page, re.DOTALL)
        assert row
        for part in ("Wrap long lines", "At 120 characters.", "Proposal", "Guideline", "Policy"):
            self.assertIn(part.lower(), text_of(row[0]).lower())
        self.assertIn("Settle the style of the code", page)
        self.assertIn("No session", page)

    def test_an_item_that_is_erased_while_it_is_read_gives_a_message(self) -> None:
        for path in (f"memories/memory/review/{self.first}/", f"memories/conflict/{self.conflict}/change/"):
            with mock.patch(
                "memories.admin.comparing.plain_versions_of", lambda ids: {memory_id: [] for memory_id in ids}
            ):
                answer = self.client.get(self.address(path), follow=True)
            self.assertIn("was changed or erased while it was read", text_of(answer.content.decode()))
            self.assertLess(answer.status_code, 500)
        with self.store():
            self.assertEqual(with_texts([replace(open_entries()[0], about=10**9)]), [])

    def test_all_types_are_in_one_list_with_those_of_a_session_together(self) -> None:
        with self.store():
            entries = open_entries()
            counts = count_entries()
        self.assertEqual(
            [(entry.type, entry.id, entry.session_id) for entry in entries],
            [
                (EntryType.CONFLICT, self.conflict, "fix"),
                (EntryType.PROPOSAL, self.first, "fix"),
                (EntryType.PROPOSAL, self.second, "later"),
                (EntryType.PROPOSAL, self.third, "later"),
                (EntryType.RECHECK, self.expired, ""),
            ],
        )
        self.assertEqual(counts, {EntryType.CONFLICT: 1, EntryType.PROPOSAL: 3, EntryType.RECHECK: 1})

    def test_the_list_stands_beside_each_item_and_marks_it(self) -> None:
        for path in (
            f"memories/memory/review/{self.second}/",
            f"memories/conflict/{self.conflict}/change/",
            f"governance/affirmation/{self.expired}/",
        ):
            page = self.page(path)
            self.assertEqual(len(re.findall(r'<li id="inbox-', page)), 5, path)
            self.assertEqual(len(re.findall(r'<li id="inbox-[^"]*" class="[^"]* here"', page)), 1, path)
        self.assertIn("3 of 5", text_of(self.page(f"memories/memory/review/{self.second}/")))

    def test_secrets_that_newer_rules_find_lead_the_list(self) -> None:
        with mock.patch("governance.inbox.last_look", return_value=Look("digest", 9, 3, 2)):
            page = self.page(PAGE)
        self.assertIn("3 possible secrets in older texts", page)
        self.assertEqual(re.findall(r'<li id="inbox-(\w+)-', page)[0], "secret")
        link = re.search(r'<li id="inbox-secret-0".*?href="([^"]*)"', page, re.DOTALL)
        assert link
        self.assertEqual(self.client.get(link[1]).status_code, 200)

    def test_one_type_can_be_shown(self) -> None:
        page = self.page(PAGE, show="recheck")
        self.assertEqual(re.findall(r'<li id="inbox-(\w+)-', page), ["recheck"])
        self.assertEqual(len(re.findall(r'<li id="inbox-', self.page(PAGE, show="nonsense"))), 5)

    def test_several_proposals_are_judged_and_undone_together(self) -> None:
        shown = self.give("accepted", *self.values(self.first, self.third), f"recheck-{self.expired}-0")
        self.assertIn("2 memories accepted.", shown)
        self.assertIn("Undo 2 verdicts", shown)
        self.assertEqual(self.review_of(self.first, self.second, self.third), ["accepted", "proposed", "accepted"])
        shown = text_of(self.post("memories/memory/review/undo/chosen/", ids=f"{self.first} {self.third}"))
        self.assertIn("2 verdicts undone.", shown)
        self.assertEqual(self.review_of(self.first, self.third), ["proposed", "proposed"])

    def test_the_undo_keeps_what_someone_else_decided_since(self) -> None:
        self.give("accepted", *self.values(self.first, self.third))
        with self.store(actor="rita", source="admin"):
            review_memory(command=ReviewVerdict(id=self.third, verdict=Verdict.REJECTED))
        shown = text_of(
            self.post("memories/memory/review/undo/chosen/", ids=f"{self.first} {self.third} 0 {'9' * 25} x")
        )
        self.assertIn("1 verdict undone.", shown)
        self.assertIn(f"last verdict on #{self.third} is of rita", shown)
        self.assertEqual(self.review_of(self.first, self.third), ["proposed", "rejected"])

    def test_several_items_are_confirmed_together(self) -> None:
        shown = self.give("affirmed", f"recheck-{self.expired}-0", *self.values(self.first))
        self.assertIn("1 item confirmed as still valid. This cannot be undone.", shown)
        self.assertEqual(self.review_of(self.first), ["proposed"])

    def test_what_changed_since_it_was_shown_is_refused_and_named(self) -> None:
        with self.store(actor="agent", source="mcp"):
            update_memory(command=MemoryUpdate(id=self.first, base_version=1, content="In most files."))
        shown = self.give("accepted", *self.values(self.first, self.second))
        self.assertIn("1 memory accepted.", shown)
        self.assertIn(f"#{self.first} is at version 2", shown)
        self.assertEqual(self.review_of(self.first, self.second), ["proposed", "accepted"])

    def test_bad_input_changes_nothing(self) -> None:
        for verdict, value in (
            ("accepted", ""),
            ("accepted", "proposal-x-1"),
            ("accepted", "nothing-1-1"),
            ("accepted", f"proposal-{'9' * 40}-1"),
            ("accepted", f"proposal-{'9' * 25}-1"),
            ("accepted", "proposal-0-1"),
            ("accepted", f"proposal-{self.first}-0"),
            ("accepted", f"recheck-{self.expired}-0"),
            ("affirmed", f"proposal-{self.first}-1"),
            ("withdrawn", f"proposal-{self.first}-1"),
        ):
            self.assertIn("Nothing was changed.", self.give(verdict, value), value)
        self.assertEqual(self.review_of(self.first), ["proposed"])

    def test_a_verdict_leads_to_the_next_item_of_any_type(self) -> None:
        page = self.page(f"memories/memory/review/{self.third}/")
        following = re.search(r'name="next" value="([^"]*)"', page)
        assert following
        self.assertEqual(following[1], self.address(f"governance/affirmation/{self.expired}/"))
        answer = self.client.post(
            self.address(f"memories/memory/review/{self.third}/accept/"), {"next": following[1], "base_version": "1"}
        )
        self.assertRedirects(answer, following[1])

    def test_no_form_leads_out_of_the_hub(self) -> None:
        for page in ("https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"):
            answer = self.client.post(
                self.address(f"memories/memory/review/{self.first}/accept/"), {"next": page, "base_version": "1"}
            )
            self.assertTrue(answer["Location"].startswith("/p/alpha/"), page)
            self.post("memories/memory/review/undo/")

    def test_a_viewer_reads_it_and_selects_nothing(self) -> None:
        viewer = get_user_model().objects.create_user("vera")
        viewer.groups.add(Group.objects.get(name="viewer"))
        self.client.force_login(viewer)
        page = self.page(PAGE)
        self.assertIn("Use tabs", page)
        self.assertNotIn('name="entry"', page)
        answer = self.client.post(self.address(f"{PAGE}verdicts/"), {"verdict": "accepted", "entry": "proposal-1-1"})
        self.assertEqual(answer.status_code, 403)

    def test_many_items_take_no_more_queries_and_a_part_is_listed(self) -> None:
        before = self.queries_of(PAGE)
        with self.store(actor="agent", source="mcp", session_id="bulk"):
            for number in range(MOST):
                write_memory(command=MemoryWrite(title=f"Note {number}", content=f"What note {number} says."))
        self.assertLessEqual(self.queries_of(PAGE), before)
        total = MOST + 5
        self.assertIn(f"1 to {MOST} of {total}", text_of(self.page(PAGE)))
        second = self.page(PAGE, page="2")
        self.assertIn(f"{MOST + 1} to {total} of {total}", text_of(second))
        self.assertEqual(len(re.findall(r'<li id="inbox-', second)), 5)
        self.assertEqual(self.page(PAGE, page="99").count('<li id="inbox-'), 5)
        for strange in ("0", "x", "9" * 30):
            self.assertEqual(self.page(PAGE, page=strange).count('<li id="inbox-'), MOST)
        # The last of a page leads to the first of the next one, which is listed beside it
        with self.store():
            entries = open_entries()
        item = self.page(self.path_of(entries[MOST - 1]))
        self.assertIn(f'href="{self.address(self.path_of(entries[MOST]))}" data-key="j"', item)
        self.assertIn(f"{MOST + 1} to {total} of {total}", text_of(self.page(self.path_of(entries[MOST]))))


class InboxBrowserTests(BrowserTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.rest("PATCH", f"projects/{self.project}/settings", {"settings": {"review_policy": "all"}})
        for number in range(1, 7):
            self.propose(number)

    def propose(self, number: int) -> None:
        body = {"title": f"Proposal {number}", "content": f"What number {number} says."}
        self.rest("POST", f"projects/{self.project}/memories", body)

    def place_of(self, selector: str) -> Any:
        """Return the left and upper edge of an element, and its width."""
        place = f"document.querySelector({selector!r}).getBoundingClientRect()"
        return self.script(f"const {{x, y, width}} = {place}; return [x, y, width]")

    def in_review(self) -> int:
        found: int = self.server.api("GET", f"projects/{self.project}/reviews").json()["meta"]["total_count"]
        return found

    def test_a_range_is_judged_and_undone_and_nothing_moves_after_a_verdict(self) -> None:
        self.open(PAGE)
        boxes = self.find_all("[name=entry]")
        boxes[1].click()
        ActionChains(self.browser).key_down(Keys.SHIFT).click(boxes[3]).key_up(Keys.SHIFT).perform()
        self.assertEqual([box.is_selected() for box in boxes], [False, True, True, True, False, False])
        self.assertFalse(self.find(".for-rechecks").is_displayed())
        self.follow("Accept selected")
        self.see("3 memories accepted.", ".toast")
        self.assertEqual(self.in_review(), 3)
        with self.new_page():
            self.press("u")
        self.see("3 verdicts undone.", ".toast")
        self.assertEqual(self.in_review(), 6)
        with self.new_page():
            self.press("j")
        before = self.place_of("[data-key=a]"), self.place_of(".inbox-list")
        with self.new_page():
            self.press("a")
        self.see("Proposal 2", "article")
        self.assertEqual((self.place_of("[data-key=a]"), self.place_of(".inbox-list")), before)

    def test_items_are_selected_by_keys_from_page_to_page(self) -> None:
        self.open(PAGE)
        for keys in ("j", "J", "J"):
            with self.new_page():
                self.press(keys)
        self.see("Proposal 3", "article")
        self.press("x")
        chosen = [box.get_attribute("aria-label") for box in self.find_all("[name=entry]:checked")]
        self.assertEqual(chosen, [f"Select “Proposal {number}”" for number in (1, 2, 3)])

    def test_on_a_narrow_screen_the_list_leads_to_the_item_and_back(self) -> None:
        self.narrow()
        self.open(PAGE)
        with self.new_page():
            self.find(".inbox-list li a").click()
        self.see("Proposal 1", "article")
        self.assertFalse(self.find(".inbox-list").is_displayed())
        self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), 400)
        self.follow("Back to the list")
        self.see("Proposal 6", ".inbox-list")
