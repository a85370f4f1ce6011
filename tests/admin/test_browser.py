"""A person at a real browser, before a real server: Chromium without a window."""

from __future__ import annotations

from typing import Any

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.admin.browser import BrowserTestCase

NOTES: list[dict[str, Any]] = [
    {"title": "The anchor of the log", "content": "The head of the **log** is anchored outside the store."},
    {"title": "Keep one file a project", "content": "Isolation by files.", "type": "decision", "tags": ["storage"]},
    {"title": "Measure the first search", "content": "Cold, then warm.", "type": "task"},
]


class BrowserTests(BrowserTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.ids = [self.rest("POST", f"projects/{self.project}/memories", note)["id"] for note in NOTES]
        self.open("")

    def test_the_link_signs_in_once(self) -> None:
        self.browser.get(self.server.address)
        self.see("Projects")
        self.see(self.project)
        self.follow(self.project)
        self.see("Latest memories")
        self.see("Keep one file a project", within="main")

    def test_search_finds_by_other_words_and_opens_the_answer(self) -> None:
        self.press("/")
        with self.new_page():
            self.press("where is the log's head anchored?", Keys.ENTER)
        self.assertEqual(self.find(".hits .row-title").text, "The anchor of the log")
        self.follow("The anchor of the log")
        self.see("Provenance")
        self.assertEqual(self.find("article strong").text, "log")

    def test_an_edit_that_came_too_late_keeps_both_texts(self) -> None:
        self.open(f"memories/memory/{self.ids[1]}/change/")
        self.follow("Edit")
        address = f"projects/{self.project}/memories/{self.ids[1]}"
        self.rest("PATCH", address, {"content": "Isolation by files and folders."})
        self.type_into("content", "My own words")
        self.follow("Save")
        self.see("Version 2 was saved while you edited version 1")
        self.assertEqual(self.find("[name=content]").get_attribute("value"), "My own words")
        self.see("Isolation by files and folders.", within=".current-text")
        self.follow("Save as version 3")
        self.see("Saved version 3.")
        self.see("My own words", within="article")

    def test_what_was_deleted_is_restored(self) -> None:
        self.open(f"memories/memory/{self.ids[2]}/change/")
        self.follow("Delete")
        self.see("you can restore it at any time")
        self.follow("Delete")
        self.see("Deleted #")
        self.open("memories/memory/")
        self.assertNotIn("Measure the first search", self.find("#result_list").text)
        with self.new_page():
            self.find(".facets a[href*='state=deleted']").send_keys(Keys.ENTER)
        self.see("Measure the first search")
        self.follow("Measure the first search")
        self.follow("Restore")
        self.see("Restored #")

    def test_the_chosen_go_at_once(self) -> None:
        self.open("memories/memory/")
        self.find("#action-toggle").click()
        self.see("3 of 3 selected")
        self.browser.find_element(By.XPATH, "//select[@name='action']/option[.='Delete']").click()
        self.follow("Go")
        self.see("3 memories deleted")

    def test_the_chain_is_verified_by_a_button(self) -> None:
        self.open("core/rawevent/")
        self.see("Not verified yet")
        self.follow("Verify now")
        self.see("The chain holds: 3 events")

    def test_every_kind_of_page_obeys_the_content_security_policy(self) -> None:
        one = f"memories/memory/{self.ids[0]}/"
        details = [f"{one}{name}/" for name in ("change", "edit", "versions", "history", "delete")]
        lists = ["memories/memory/", "sessions_app/session/", "sessions_app/commit/", "core/rawevent/"]
        for path in ["", *lists, *details, "memories/memory/add/", f"core/rawevent/{self.ids[0]}/change/"]:
            self.open(path)
            self.assertTrue(self.find("h1").is_displayed(), path)
            width = self.script("return document.documentElement.scrollWidth - innerWidth")
            self.assertLessEqual(width, 0, path)

    def test_no_page_is_wider_than_a_narrow_screen(self) -> None:
        self.narrow()
        one = f"memories/memory/{self.ids[1]}/"
        for path in ["", "memories/memory/", "core/rawevent/", f"{one}change/", f"{one}edit/", f"{one}history/"]:
            self.open(path)
            self.assertEqual(self.script("return innerWidth"), 400)
            width = self.script("return document.documentElement.scrollWidth")
            self.assertLessEqual(width, 400, path)

    def test_the_keyboard_reaches_what_matters(self) -> None:
        self.open(f"memories/memory/{self.ids[1]}/change/")
        passed = self.tab_to("Edit")
        self.assertEqual(passed[0], "Skip to main content")
        self.assertLess(passed.index("Overview"), passed.index("Log"))
        outline = self.browser.switch_to.active_element.value_of_css_property("outline-style")
        self.assertEqual(outline, "solid")
        self.assertEqual(self.tab_to("Delete")[:2], ["Versions", "History"])
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("you can restore it at any time")

    def test_the_palette_leads_anywhere_by_keyboard(self) -> None:
        self.find("body").send_keys(Keys.CONTROL, "k")
        self.see("Tags", "dialog.palette")
        self.press("one file")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Provenance")
        self.press("?")
        self.see("Show the keys", "dialog.keys-dialog")
        self.press(Keys.ESCAPE)
        self.press("/")
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "find")

    def test_the_navigation_opens_over_a_narrow_page(self) -> None:
        self.narrow()
        self.open("")
        self.assertFalse(self.find("#nav").is_displayed())
        edges = "return [...document.querySelectorAll('#header :is(summary, button, .find, .brand)')].map("
        self.assertLessEqual(max(self.script(f"{edges}control => control.getBoundingClientRect().right)")), 400)
        self.find(".nav-open").click()
        self.wait(lambda: self.find("#nav").is_displayed(), "the navigation")
        self.press(Keys.ESCAPE)
        self.wait(lambda: not self.find("#nav").is_displayed(), "no navigation")

    def test_the_switcher_opens_and_closes_by_keyboard(self) -> None:
        self.rest("POST", "projects", {"project_id": "another-one"})
        self.open("")
        self.tab_to(f"Project {self.project}")
        self.press(Keys.ENTER)
        self.see("another-one")
        self.press(Keys.ESCAPE)
        self.wait(lambda: not self.find_all("details.switcher[open]"), "the switcher, closed again")
        self.press(Keys.ENTER)
        self.see("another-one")
        self.tab_to("another-one")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("First steps")
