"""A person who reviews and corrects memories, at a real browser."""

from __future__ import annotations

from typing import Any

from selenium.webdriver.common.keys import Keys

from tests.admin.browser import BrowserTestCase

TEXT = "Retry three times.\n\nWait a second.\n"
RULE: dict[str, Any] = {
    "title": "Raise one of our own errors",
    "content": "A door maps them once.",
    "kind": "guideline",
    "tags": ["python", "errors"],
    "attributes": {"priority": 90, "examples": {"good": ["raise Invalid(1)"], "bad": ["raise Exception"]}},
}
TOOL: dict[str, Any] = {
    "title": "a-command-with-a-name-that-is-rather-long-and-has-no-space-in-it-at-all-so-that-it-must-be-broken",
    "content": "Replays a day.",
    "kind": "tool",
    "attributes": {"parameters": {"type": "object", "properties": {"day": {"type": "string"}}}},
}


class MemoriesBrowserTests(BrowserTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.rule = self.write(RULE)
        self.tool = self.write(TOOL)

    def write(self, memory: dict[str, Any]) -> int:
        written: int = self.rest("POST", f"projects/{self.project}/memories", memory)["id"]
        return written

    def disagree(self) -> tuple[int, int]:
        memory_id = self.write({"title": "How we retry", "content": TEXT})
        address = f"projects/{self.project}/memories/{memory_id}"
        self.rest("PATCH", address, {"content": TEXT.replace("three", "five"), "base_version": 1})
        answer = self.rest("PATCH", address, {"content": TEXT.replace("second", "minute"), "base_version": 1})
        return memory_id, answer["conflict"]

    def test_a_conflict_is_merged_from_the_banner_on(self) -> None:
        memory_id, conflict_id = self.disagree()
        self.open(f"memories/memory/{memory_id}/change/")
        self.follow(f"Resolve conflict #{conflict_id}")
        self.assertEqual([each.is_displayed() for each in self.find_all("[name=content]")], [False])
        self.find("[name=resolution][value=merge]").click()
        self.wait(lambda: self.find("[name=content]").is_displayed(), "the merged text")
        draft = self.find("[name=content]").get_attribute("value")
        self.assertEqual(draft, "Retry five times.\n\nWait a minute.\n")
        self.follow("Resolve conflict")
        self.see("Resolved. Version 4 is current.")
        self.see("The inbox is empty")
        self.open(f"memories/conflict/{conflict_id}/change/")
        self.see("merge them", within=".settled-banner")

    def test_a_guideline_gets_one_more_example(self) -> None:
        self.open(f"memories/memory/{self.rule}/edit/")
        self.assertEqual(len(self.find_all("[name=examples__good]")), 2)
        self.find(".field-examples__good button").click()
        self.wait(lambda: len(self.find_all("[name=examples__good]")) == 3, "another area")
        for place, text in ((1, "raise Gone(2)"), (2, "raise Locked(3)")):
            self.find_all("[name=examples__good]")[place].send_keys(text)
        self.follow("Save")
        self.see("Saved version 2.")
        good = [each.text for each in self.find_all(".good pre")]
        self.assertEqual(good, ["raise Invalid(1)", "raise Gone(2)", "raise Locked(3)"])

    def test_a_filtered_list_becomes_a_view_also_on_a_narrow_screen(self) -> None:
        self.open("memories/memory/")
        is_shown = "return document.querySelector('.facet').checkVisibility()"
        self.assertTrue(self.script(is_shown))
        self.assertFalse(self.find(".facets > summary").is_displayed())
        self.narrow()
        self.open("memories/memory/")
        self.assertFalse(self.script(is_shown))
        self.find(".facets > summary").click()
        self.follow("Guideline 1")
        self.see("kind: Guideline", within=".chips")
        self.see(RULE["title"])
        self.find(".view-form summary").click()
        self.type_into("name", "Rules")
        self.follow("Save")
        self.see("Rules", within=".views [aria-current]")
        self.follow("Remove filter kind: Guideline×")
        self.see(TOOL["title"])
        self.follow("Rules")
        self.see("kind: Guideline", within=".chips")

    def test_tags_are_suggested_behind_those_that_were_typed(self) -> None:
        self.open("memories/tool/add/")
        self.type_into("tags", "python, ")
        options = "return [...document.querySelectorAll('#known-tags option:enabled')].map(each => each.value)"
        self.wait(lambda: self.script(options) == ["python, errors"], "the other tag")

    def test_the_other_end_of_a_relation_is_picked_by_its_title_with_the_keyboard(self) -> None:
        self.open(f"memories/memory/{self.rule}/change/")
        self.script("document.getElementById('id_relation').focus()")
        self.press(Keys.TAB, "a-command")
        self.see(TOOL["title"], within=".pick-list")
        self.press(Keys.ARROW_DOWN, Keys.ENTER)
        self.assertEqual(self.find("[name=target]").get_attribute("value"), f"#{self.tool}")
        self.see(f"Tool: {TOOL['title']}", within=".relate")
        with self.new_page():
            self.press(Keys.TAB, Keys.ENTER)
        self.see(TOOL["title"], within=".relations")

    def test_a_relation_says_what_its_number_names_before_it_is_added(self) -> None:
        self.open(f"memories/memory/{self.rule}/change/")
        self.type_into("target", str(self.tool))
        self.see(f"Tool: {TOOL['title']}", within=".relate")
        self.type_into("target", "999")
        self.see("there is no", within=".relate")
        self.type_into("target", str(self.tool))
        self.follow("Add relation")
        self.see(TOOL["title"], within=".relations")

    def test_no_page_breaks_the_policy_or_is_wider_than_a_narrow_screen(self) -> None:
        memory_id, conflict_id = self.disagree()
        self.open(f"memories/memory/{self.tool}/delete/")
        self.follow("Delete")
        self.narrow()
        one = f"memories/memory/{memory_id}/"
        lists = [f"memories/{name}/" for name in ("guideline", "knowledge", "conflict", "tag")]
        forms = ["memories/tool/add/", "memories/tag/add/", f"memories/memory/{self.rule}/edit/"]
        pages = [f"memories/conflict/{conflict_id}/change/", f"{one}compare/", f"{one}versions/", f"{one}change/"]
        of_rule_and_tool = [f"memories/memory/{self.rule}/change/", f"memories/memory/{self.tool}/erase/"]
        for path in [*lists, *forms, *pages, *of_rule_and_tool, f"memories/memory/{self.tool}/change/"]:
            self.open(path)
            self.assertTrue(self.find("h1").is_displayed(), path)
            width = self.script("return document.documentElement.scrollWidth")
            self.assertLessEqual(width, 400, path)

    def test_the_four_ways_are_chosen_by_keyboard(self) -> None:
        _, conflict_id = self.disagree()
        self.open(f"memories/conflict/{conflict_id}/change/")
        self.tab_to("resolution")
        self.press(" ")
        chosen = "return document.querySelector('[name=resolution]:checked')?.value"
        self.wait(lambda: self.script(chosen) == "keep_a", "the first way")
        self.press(Keys.ARROW_DOWN)
        self.wait(lambda: self.script(chosen) == "keep_b", "the next way")
        self.tab_to("Resolve conflict")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Resolved. Version 3 is current.")
