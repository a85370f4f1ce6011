"""The review queue, by buttons and by keyboard."""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from memories.schemas import MemoryUpdate, MemoryWrite
from memories.services import update_memory, write_memory
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.admin.base import AdminTestCase, text_of
from tests.admin.browser import BrowserTestCase

QUEUE = "memories/memory/review/"


class ReviewPageTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        self.first = self.write("Retry three times", "After a **timeout**.", session="s-1", tags=["net"])
        self.second = self.write("Use tabs", "In every file.", kind="guideline")

    def say(self, memory_id: int, verdict: str, **fields: Any) -> str:
        return self.post(f"{QUEUE}{memory_id}/{verdict}/", **fields)

    def standing(self, memory_id: int) -> tuple[str, str]:
        memory = self.memory(memory_id)
        return memory.review, memory.review_reason

    def test_the_menu_says_how_many_wait_here_and_not_in_another_project(self) -> None:
        self.assertIn("Inbox 2 pending", text_of(self.page()))
        self.assertNotIn("pending", text_of(self.page(project="beta")))
        self.assertIn("No memories to review", self.page(QUEUE, project="beta"))
        self.page(f"{QUEUE}{self.first}/", project="beta", status=302)

    def test_an_item_shows_its_text_and_its_evidence_and_why_it_waits(self) -> None:
        html = self.page(f"{QUEUE}{self.first}/")
        self.assertIn("After a <strong>timeout</strong>.", html)
        shown = text_of(html)
        for text in ("1 of 2", "Reason: policy reviews all writes.", "agent", "mcp", "s-1", f"#{self.first}", "net"):
            self.assertIn(text, shown)

    def test_a_verdict_leads_to_the_next_item_and_is_taken_back(self) -> None:
        shown = text_of(self.say(self.first, "accept", base_version="1"))
        self.assertIn(f"Accepted #{self.first} “Retry three times”.", shown)
        self.assertIn("1 of 1", shown)
        shown = text_of(self.say(self.second, "reject", base_version="1", reason="We use spaces."))
        self.assertIn("No memories to review", shown)
        self.assertEqual(self.standing(self.second), ("rejected", "We use spaces."))
        shown = text_of(self.post(f"{QUEUE}undo/"))
        self.assertIn(f"Undid the verdict on #{self.second} “Use tabs”", shown)
        self.assertIn("Reason: policy reviews all writes.", shown)

    def test_what_has_changed_meanwhile_is_shown_again_instead(self) -> None:
        with self.store("alpha", actor="agent", source="mcp"):
            update_memory(command=MemoryUpdate(id=self.first, content="After a lock."))
        shown = text_of(self.say(self.first, "accept", base_version="1"))
        self.assertIn(f"#{self.first} is at version 2 now, but you reviewed version 1", shown)
        self.assertIn("After a lock.", shown)
        self.assertEqual(self.standing(self.first)[0], "proposed")

    def test_an_edit_that_cannot_be_kept_loses_nothing(self) -> None:
        fields = {"title": "", "content": "After two timeouts.", "type": "note", "base_version": "1"}
        html = self.say(self.first, "edit", **fields)
        self.assertIn("Not saved. Correct the errors below.", html)
        self.assertIn("After two timeouts.", html)
        shown = text_of(self.say(self.first, "edit", **{**fields, "title": "Retry twice"}))
        self.assertIn(f"Accepted #{self.first} “Retry twice”.", shown)
        memory = self.memory(self.first)
        self.assertEqual((memory.review, memory.version, memory.content), ("accepted", 2, "After two timeouts."))

    def test_a_merge_shows_both_texts_and_needs_a_memory_that_is_there(self) -> None:
        with self.store("alpha", actor="ada", source="admin"):
            target = write_memory(command=MemoryWrite(title="How we retry", content="Three times.")).id
        html = self.page(f"{QUEUE}{self.first}/merge/", other=f"#{target}")
        self.assertIn(f"Merge #{self.first} into #{target}", html)
        for typed, refusal in (("999", "There is no memory #999"), ("", "Select the memory"), ("x", "must be an id")):
            answer = self.client.get(self.address(f"{QUEUE}{self.first}/merge/"), {"other": typed}, follow=True)
            self.assertIn(refusal, answer.content.decode(), typed)
        fields = {"into": str(target), "into_version": "1", "base_version": "1", "content": "Three times, then stop."}
        self.assertIn(f"Merged #{self.first} into #{target}.", self.say(self.first, "merge", **fields))
        self.assertEqual(self.memory(target).content, "Three times, then stop.")

    def test_what_may_be_about_the_same_is_beside_it(self) -> None:
        waiting = self.write(
            "Ports of the test server", "The test server listens on port 8321 of the loopback address."
        )
        alike = self.write("Where the server listens", "The server listens on port 8080 of the loopback address.")
        html = self.page(f"{QUEUE}{waiting}/")
        self.assertIn(f"Merge into #{alike}", html)
        self.assertNotIn(f"Merge into #{self.first}", html)
        self.assertIn("8321", "".join(re.findall(r"<ins>.*?</ins>", html)))

    def test_lists_hide_what_was_rejected_and_give_verdicts_on_many(self) -> None:
        action: dict[str, Any] = {"action": "reject_chosen", "_selected_action": [str(self.first), str(self.second)]}
        self.assertIn("2 memories rejected.", self.post("memories/memory/", **action))
        self.assertEqual(self.memories(), [])
        self.assertEqual(set(self.memories(review="rejected")), {self.first, self.second})
        self.assertEqual(self.memories(review="rejected", q="tabs"), [self.second])
        again = {**action, "action": "accept_chosen", "_selected_action": [str(self.first)]}
        self.assertIn("1 memory accepted.", self.post("memories/memory/?review=rejected", **again))
        self.assertIn("Lists, searches and packs don’t show it", self.page(f"memories/memory/{self.second}/change/"))
        self.assertIn("Accepted", self.say(self.second, "accept", base_version="1", back="memory"))
        self.assertEqual(set(self.memories()), {self.first, self.second})

    def test_verdicts_given_together_are_undone_together(self) -> None:
        action: dict[str, Any] = {"action": "reject_chosen", "_selected_action": [str(self.first), str(self.second)]}
        page = self.post("memories/memory/", **action)
        self.assertIn("Verdicts given together: 2.", page)
        ids = re.search(r'name="ids" value="([\d ]+)"', page)
        self.assertNotIn("Verdicts given together", self.page("memories/memory/"))
        self.post(f"{QUEUE}undo/")
        page = self.post(f"{QUEUE}undo/chosen/", ids=ids[1] if ids else "")
        self.assertIn("1 verdict undone.", page)
        self.assertIn("There is no verdict on #", page)
        self.assertEqual([self.standing(each)[0] for each in (self.first, self.second)], ["proposed", "proposed"])

    def test_a_viewer_sees_the_queue_and_gives_no_verdict(self) -> None:
        viewer = get_user_model().objects.create_user("vic")
        viewer.groups.add(Group.objects.get(name="viewer"))
        self.client.force_login(viewer)
        html = self.page(f"{QUEUE}{self.first}/")
        self.assertIn("Reason:", html)
        self.assertNotIn("Accept <kbd>", html)
        answer = self.client.post(self.address(f"{QUEUE}{self.first}/accept/"), {"base_version": "1"})
        self.assertEqual((answer.status_code, self.standing(self.first)[0]), (403, "proposed"))

    def test_a_page_costs_as_many_queries_however_many_wait(self) -> None:
        before = self.queries_of(f"{QUEUE}{self.first}/")
        for number in range(5):
            self.write(f"Title {number}", f"Text number {number} of some.")
        self.assertEqual(self.queries_of(f"{QUEUE}{self.first}/"), before)


class ReviewByKeyTests(BrowserTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.known = self.propose("How we retry", "Three times, then we stop and say so.")
        self.rest("PATCH", f"projects/{self.project}/settings", {"settings": {"review_policy": "all"}})
        self.ids = [
            self.propose(f"Proposal {number}", f"What number {number} says of the work at hand.")
            for number in range(1, 5)
        ]

    def propose(self, title: str, content: str) -> int:
        written = self.rest("POST", f"projects/{self.project}/memories", {"title": title, "content": content})
        found: int = written["id"]
        return found

    def get(self, memory_id: int) -> dict[str, Any]:
        found: dict[str, Any] = self.server.api("GET", f"projects/{self.project}/memories/{memory_id}").json()
        return found

    def go(self, *keys: str) -> None:
        with self.new_page():
            self.press(*keys)

    def press_with_control(self, key: str) -> None:
        keys = ActionChains(self.browser)
        keys.key_down(Keys.CONTROL).send_keys(key).key_up(Keys.CONTROL).perform()

    def wait_for_focus(self, name: str) -> None:
        self.wait(lambda: self.script("return document.activeElement.name") == name, f"the focus in {name}")

    def test_everything_is_done_by_keys(self) -> None:
        first, second, third, fourth = self.ids
        self.open(QUEUE)
        self.see("Proposal 1", within="article")
        self.go("j")
        self.see("Proposal 2", within="article")
        self.go("k")
        self.go("a")
        self.see(f"Accepted #{first} “Proposal 1”.", within="[data-announce]")
        self.see("1 of 3")
        self.press("r")
        self.wait_for_focus("reason")
        self.go("just noise", Keys.ENTER)
        self.see("Proposal 3", within="article")
        self.assertEqual((self.get(second)["review"], self.get(second)["review_reason"]), ("rejected", "just noise"))
        self.go("u")
        self.see("Proposal 2", within="article")
        self.go("r", Keys.ENTER)
        self.assertEqual((self.get(second)["review"], self.get(second)["review_reason"]), ("rejected", ""))
        self.go("e")
        self.wait_for_focus("title")
        self.press(Keys.END, ", corrected")
        with self.new_page():
            self.press_with_control(Keys.ENTER)
        self.see(f"Accepted #{third} “Proposal 3, corrected”.", within="[data-announce]")
        self.press("m")
        self.wait_for_focus("into")
        self.press(Keys.TAB)
        self.go(str(self.known), Keys.ENTER)
        self.wait_for_focus("content")
        with self.new_page():
            self.press_with_control(Keys.ENTER)
        self.see(f"Merged #{fourth} into #{self.known}.", within="[data-announce]")
        self.see("The inbox is empty")
        merged = self.get(self.known)["content"]
        self.assertEqual(merged, "Three times, then we stop and say so.\nWhat number 4 says of the work at hand.")

    def test_keys_are_shown_and_close_and_do_nothing_while_one_types(self) -> None:
        self.open(QUEUE)
        self.press("?")
        self.see("Undo your last verdict")
        self.press(Keys.ESCAPE)
        self.wait(lambda: not self.find_all("details[open]"), "the menu closed")
        self.press("r")
        self.wait_for_focus("reason")
        self.press("ajk")
        self.assertEqual(self.find("[name=reason]").get_attribute("value"), "ajk")
        self.press(Keys.ESCAPE)
        self.assertEqual(self.tab_to("Keys ?"), ["Edit e", "Merge… m", "Keys ?"])
        self.press(Keys.ENTER)
        self.see("Undo your last verdict")

    def test_no_page_is_wider_than_a_narrow_screen(self) -> None:
        self.narrow()
        item = f"{QUEUE}{self.ids[0]}/"
        for path in (item, f"{item}edit/", f"{item}merge/?into={self.known}", "memories/memory/?review=proposed"):
            self.open(path)
            self.assertTrue(self.find("h1").is_displayed(), path)
            self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), 400, path)
