"""A person at a real browser, before a real server: what keys, focus, scripts and narrow screens do.

What a form does, and what a page shows, is tested in process beside this module. That no page breaks the policy or is
too wide is tested for all pages in ``tests.web.test_browser`` and ``tests.web.test_hostile_texts``.
"""

from __future__ import annotations

from typing import Any

from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from decisions.tools import read_view
from tests.admin.browser import NAVIGATION, BrowserTestCase

DECISIONS = "decisions/decision"
INBOX = "inbox/"
QUEUE = "memories/memory/review/"
REPLAY = "core/rawevent/replay/"
WIDTH = "return document.documentElement.scrollWidth"


class WritingTestCase(BrowserTestCase):
    def write(self, title: str, content: str = "some text", **fields: Any) -> int:
        body = {"title": title, "content": content, **fields}
        written: int = self.rest("POST", f"projects/{self.project}/memories", body)["id"]
        return written

    def change(self, memory_id: int, **fields: Any) -> Any:
        return self.rest("PATCH", f"projects/{self.project}/memories/{memory_id}", fields)

    def go(self, *keys: str) -> None:
        with self.new_page():
            self.press(*keys)


class ShellTests(WritingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write("The anchor of the log", "The head of the **log** is anchored outside the store.")
        self.decided = self.write("Keep one file a project", "Isolation by files.", type="decision", tags=["storage"])
        self.open("")

    def test_keys_lead_anywhere(self) -> None:
        self.press("/")
        self.go("where is the log's head anchored?", Keys.ENTER)
        self.assertEqual(self.find(".hits .row-title").text, "The anchor of the log")
        self.find("body").send_keys(Keys.CONTROL, "k")
        self.see("Tags", "dialog.palette")
        self.go("one file", Keys.ENTER)
        self.see("Provenance")
        self.press("?")
        self.see("Show the keys", "dialog.keys-dialog")
        self.press(Keys.ESCAPE)
        self.press("/")
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "find")

    def test_the_keyboard_reaches_what_matters(self) -> None:
        self.open(f"memories/memory/{self.decided}/change/")
        passed = self.tab_to("Edit")
        self.assertEqual(passed[0], "Skip to main content")
        self.assertLess(passed.index("Overview"), passed.index("More"))
        outline = self.browser.switch_to.active_element.value_of_css_property("outline-style")
        self.assertEqual(outline, "solid")
        self.assertEqual(self.tab_to("Delete")[:2], ["Versions", "History"])
        self.go(Keys.ENTER)
        self.see("you can restore it at any time")

    def test_the_switcher_opens_and_closes_by_keyboard(self) -> None:
        self.rest("POST", "projects", {"project_id": "another-one"})
        self.open("")
        self.tab_to(f"Project {self.project}")
        self.press(Keys.ENTER)
        self.see("another-one")
        self.press(Keys.ESCAPE)
        self.wait(lambda: not self.find_all("details.switcher[open]"), "the switcher, closed again")
        self.press(Keys.ENTER)
        self.tab_to("another-one")
        self.go(Keys.ENTER)
        self.see("First steps")

    def test_one_box_selects_all_rows_and_the_navigation_and_facets_open_on_a_narrow_screen(self) -> None:
        self.open("memories/memory/")
        self.assertFalse(self.find(".facets > summary").is_displayed())
        self.find("#action-toggle").click()
        self.see("2 of 2 selected")
        self.narrow()
        self.open("memories/memory/")
        self.assertFalse(self.find("#nav").is_displayed())
        edges = "return [...document.querySelectorAll('#header :is(summary, button, .find, .brand)')].map("
        self.assertLessEqual(max(self.script(f"{edges}control => control.getBoundingClientRect().right)")), 400)
        self.find(".nav-open").click()
        self.wait(lambda: self.find("#nav").is_displayed(), "the navigation")
        self.press(Keys.ESCAPE)
        self.wait(lambda: not self.find("#nav").is_displayed(), "no navigation")
        is_shown = "return document.querySelector('.facet').checkVisibility()"
        self.assertFalse(self.script(is_shown))
        self.find(".facets > summary").click()
        self.wait(lambda: self.script(is_shown), "the facets")
        self.find(".nav-open").click()
        self.follow("Context packs", within=NAVIGATION)
        self.see("Keep one file a project", within=".pack-text")
        self.assertLessEqual(self.script(WIDTH), 400)
        self.assertGreater(self.script("return document.querySelectorAll('.pack-bar > svg .part').length"), 1)

    def test_a_setting_is_changed_and_reset_by_keyboard_alone(self) -> None:
        self.open("settings/")
        for passing, keys, message, value in (
            ("session_idle_hours-value", ("7", Keys.ENTER), "Changed: Session timeout.", "7"),
            ("Reset Session timeout to the default", (Keys.ENTER,), "Reset: Session timeout is 12 hours.", "12"),
        ):
            self.tab_to(passing)
            self.go(*keys)
            self.see(message)
            self.assertEqual(self.find("[name=session_idle_hours-value]").get_attribute("value"), value)


class FormTests(WritingTestCase):
    def test_a_conflict_is_merged_by_keyboard(self) -> None:
        text = "Retry three times.\n\nWait a second.\n"
        memory_id = self.write("How we retry", text)
        self.change(memory_id, content=text.replace("three", "five"), base_version=1)
        conflict_id = self.change(memory_id, content=text.replace("second", "minute"), base_version=1)["conflict"]
        self.open(f"memories/conflict/{conflict_id}/change/")
        self.assertFalse(self.find("[name=content]").is_displayed())
        self.tab_to("resolution")
        self.press(" ")
        chosen = "return document.querySelector('[name=resolution]:checked')?.value"
        for way in ("keep_a", "keep_b", "merge"):
            self.wait(lambda way=way: self.script(chosen) == way, way)  # type: ignore[misc]
            if way != "merge":
                self.press(Keys.ARROW_DOWN)
        self.wait(lambda: self.find("[name=content]").is_displayed(), "the merged text")
        draft = self.find("[name=content]").get_attribute("value")
        self.assertEqual(draft, "Retry five times.\n\nWait a minute.\n")
        self.tab_to("Resolve conflict")
        self.go(Keys.ENTER)
        self.see("Resolved. Version 4 is current.")
        self.see("The inbox is empty")

    def test_more_rows_are_added_without_a_new_page(self) -> None:
        examples = {"good": ["raise Invalid(1)"], "bad": ["raise Exception"]}
        rule = self.write("Raise our errors", kind="guideline", attributes={"examples": examples})
        self.open(f"memories/memory/{rule}/edit/")
        self.find(".field-examples__good button").click()
        self.wait(lambda: len(self.find_all("[name=examples__good]")) == 3, "another area")
        for place, text in ((1, "raise Gone(2)"), (2, "raise Locked(3)")):
            self.find_all("[name=examples__good]")[place].send_keys(text)
        self.follow("Save")
        good = [example.text for example in self.find_all(".good pre")]
        self.assertEqual(good, ["raise Invalid(1)", "raise Gone(2)", "raise Locked(3)"])
        self.open(f"{DECISIONS}/add/")
        self.type_into("title", "Stream changes")
        self.type_into("chosen", "Stream them.")
        self.click("Add another")
        self.wait(lambda: len(self.find_all("[name=alternatives_option]")) == 3, "another row")
        for place, row in enumerate(self.find_all("[name=alternatives_option]")):
            row.send_keys(f"way {place}")
        self.follow("Record")
        self.assertEqual([row.text for row in self.find_all(".alternatives dt")], ["way 0", "way 1", "way 2"])

    def test_tags_and_ends_of_relations_are_suggested_while_one_types(self) -> None:
        rule = self.write("Raise our errors", kind="guideline", tags=["python", "errors"])
        tool = self.write("a-command", "Replays a day.", kind="tool")
        self.open("memories/tool/add/")
        self.type_into("tags", "python, ")
        options = "return [...document.querySelectorAll('#known-tags option:enabled')].map(each => each.value)"
        self.wait(lambda: self.script(options) == ["python, errors"], "the other tag")
        self.open(f"memories/memory/{rule}/change/")
        self.type_into("target", "999")
        self.see("there is no", within=".relate")
        self.find("[name=target]").clear()
        self.script("document.getElementById('id_relation').focus()")
        self.press(Keys.TAB, "a-comm")
        self.see("a-command", within=".pick-list")
        self.press(Keys.ARROW_DOWN, Keys.ENTER)
        self.assertEqual(self.find("[name=target]").get_attribute("value"), f"#{tool}")
        self.see("Tool: a-command", within=".relate")
        self.go(Keys.TAB, Keys.ENTER)
        self.see("a-command", within=".relations")


MOST_LEFT_AND_RIGHT = """
const [inner, outer] = [...arguments].map(each => each.getBoundingClientRect());
return inner.left >= outer.left && inner.right <= outer.right;
"""
# A client with MCP Apps: it answers the view as the extension says, with what the tool would
HOST = """
const [page, decision] = arguments;
const frame = document.createElement('iframe');
window.said = [];
addEventListener('message', ({data}) => {
    const post = message => frame.contentWindow.postMessage({jsonrpc: '2.0', ...message}, '*');
    if (data.method === 'ui/notifications/size-changed') {
        window.size = data.params;
        return;
    }
    window.said.push(data);
    if (data.method === 'ui/initialize') {
        post({id: data.id, result: {protocolVersion: '2026-01-26', hostContext: {theme: 'dark'}}});
    } else if (data.method === 'ui/notifications/initialized') {
        post({method: 'ui/notifications/tool-input', params: {arguments: {ids: [decision.id]}}});
    } else {
        post({id: data.id, result: {content: [], structuredContent: {results: [decision], left_out: []}}});
    }
});
frame.srcdoc = page;
frame.width = 1250;
document.body.append(frame);
"""


class LineageTests(BrowserTestCase):
    def setUp(self) -> None:
        super().setUp()
        first = self.record("Poll the table")
        second = self.record("Push each change", supersedes=[first])
        third = self.record("Push changes in batches", refines=[second])
        fourth = self.record("A-rather-long-name-without-any-space-" * 5, depends_on=[third])
        self.ids = [first, second, third, fourth]

    def record(self, title: str, **fields: Any) -> int:
        body = {"title": title, "chosen": f"Choose {title}.", **fields}
        recorded: int = self.rest("POST", f"projects/{self.project}/decisions", body)["id"]
        return recorded

    def test_the_lineage_is_walked_by_keyboard_and_scrolls_in_its_own_box(self) -> None:
        self.narrow()
        self.open(f"{DECISIONS}/{self.ids[1]}/change/")
        box = self.find("[data-lineage]")
        current = self.find(".lineage-node.is-current .diagram-box")
        self.wait(lambda: self.browser.execute_script(MOST_LEFT_AND_RIGHT, current, box), "the decision in question")
        self.script("document.querySelector('[data-lineage]').focus()")
        passed = []
        for _ in self.ids:
            self.press(Keys.TAB)
            passed.append(self.browser.switch_to.active_element.get_dom_attribute("href") or "")
        self.assertEqual([int(address.split("/")[-3]) for address in passed], self.ids)
        self.script(f"document.querySelector('[href*=\"/{self.ids[2]}/change/\"]').focus()")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Push changes in batches", within="h1")
        self.assertLessEqual(self.script(WIDTH), 400)

    def test_a_client_with_mcp_apps_draws_the_answer(self) -> None:
        path = f"projects/{self.project}/decisions/{self.ids[1]}?lineage=true"
        decision = self.server.api("GET", path).json()
        self.browser.get("about:blank")
        self.browser.execute_script(HOST, read_view({}), decision)
        calls = self.wait(lambda: self.script("return window.size && window.said"), "the view's size")
        methods = ["ui/initialize", "ui/notifications/initialized", "tools/call"]
        self.assertEqual([call["method"] for call in calls], methods)
        arguments = {"ids": [self.ids[1]], "lineage": True, "format": "json"}
        self.assertEqual(calls[-1]["params"], {"name": "decision_get", "arguments": arguments})
        self.browser.switch_to.frame(0)
        boxes = [str(box.get_dom_attribute("aria-label")) for box in self.find_all("[role=listitem]")]
        self.assertEqual([label.split(" ")[0] for label in boxes], [f"#{number}" for number in self.ids])
        self.assertEqual(len(self.find_all("path")), 3)
        self.assertRegex(str(self.find(".current").get_dom_attribute("aria-label")), "accepted · Push each change$")
        self.browser.switch_to.default_content()


STEP_MILLISECONDS = 900  # between two events that are played
POSITIONS = """
return [document.querySelector('#replayed > *').dataset.position,
        ...['slider', 'number'].map(name => document.getElementById(`replay-${name}`).value)]"""
# What was shown, one position after the other, and a press on Pause as soon as the second is there: by the page itself,
# so that a slow machine is not too late for it.
PAUSE_AT_THE_SECOND = """
window.seen = [];
new MutationObserver(() => {
    window.seen.push(Number(document.querySelector('#replayed > *').dataset.position));
    if (window.seen.length === 2) document.querySelector('[data-play]').click();
}).observe(document.getElementById('replayed'), {childList: true});"""


class ReplayTests(WritingTestCase):
    last = 7

    def setUp(self) -> None:
        super().setUp()
        for number in range(self.last):
            self.write(f"Note {number}", f"text {number}")

    def shows(self, position: int) -> None:
        """Wait until the event shown, the slider and the number are all at a position."""
        self.wait(lambda: self.script(POSITIONS) == [str(position)] * 3, f"#{position} in all three places")

    def stays_at(self, position: int) -> None:
        """Wait for a position at which nothing plays, and see that it is the same after the player's next step."""
        self.see("Play", "[data-play]")
        self.shows(position)
        self.let_timers_run_out(STEP_MILLISECONDS + 100)
        self.assertEqual(self.script(POSITIONS), [str(position)] * 3)
        self.assertEqual(self.find("[data-play]").text, "Play")

    def test_the_slider_the_arrows_and_the_number_move_without_a_new_page(self) -> None:
        self.open(f"{REPLAY}?position=3")
        self.script("window.isSamePage = true; document.querySelector('#replay-slider').focus()")
        self.press(Keys.ARROW_RIGHT)
        self.shows(4)
        self.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
        self.shows(2)
        self.press(Keys.END)
        self.shows(self.last)
        self.assertEqual(self.script("return location.search"), f"?position={self.last}")
        value = self.find("#replay-slider").get_attribute("aria-valuetext")
        self.assertEqual(value, f"#{self.last} memory.written")
        self.script("document.activeElement.blur()")
        self.press(Keys.ARROW_RIGHT)
        self.press(Keys.ARROW_LEFT)
        self.shows(self.last - 1)  # the arrows stop at the ends
        field = self.find("#replay-number")
        field.clear()
        field.send_keys("2", Keys.ENTER)
        self.shows(2)
        for selector, position in (
            ("[data-step='1']", 3),
            ("[data-step='-1']", 2),
            (".chain-links a[href='?position=5']", 5),
        ):
            self.find(selector).click()
            self.shows(position)
        self.see("Verified", "#replayed")
        self.assertTrue(self.script("return window.isSamePage"))

    def test_playing_ends_with_the_log_starts_over_and_a_pause_holds_it(self) -> None:
        self.open(f"{REPLAY}?position={self.last - 1}")
        self.click("Play")
        self.stays_at(self.last)
        self.script(PAUSE_AT_THE_SECOND)
        self.click("Play")
        self.wait(lambda: self.script("return window.seen.length >= 2"), "two events, played")
        self.stays_at(2)
        self.assertEqual(self.script("return window.seen"), [1, 2])

    def test_without_script_the_slider_is_a_form(self) -> None:
        self.browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.setScriptExecutionDisabled", {"value": False})
        self.open(f"{REPLAY}?position=3")
        self.assertFalse(self.find("[data-play]").is_displayed())
        self.find("#replay-slider").send_keys(Keys.ARROW_RIGHT)
        self.click("Show")
        self.shows(4)
        self.find("[data-step='1']").click()
        self.shows(5)


class InboxTests(WritingTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.known = self.write("How we retry", "Three times, then we stop and say so.")
        self.rest("PATCH", f"projects/{self.project}/settings", {"settings": {"review_policy": "all"}})
        self.ids = [self.write(f"Proposal {number}", f"What number {number} says.") for number in range(1, 7)]

    def get(self, memory_id: int) -> dict[str, Any]:
        found: dict[str, Any] = self.server.api("GET", f"projects/{self.project}/memories/{memory_id}").json()
        return found

    def assert_in_review(self, count: int) -> None:
        meta = self.server.api("GET", f"projects/{self.project}/reviews").json()["meta"]
        self.assertEqual(meta["total_count"], count)

    def place_of(self, selector: str) -> Any:
        """Return the left and upper edge of an element, and its width."""
        place = f"document.querySelector({selector!r}).getBoundingClientRect()"
        return self.script(f"const {{x, y, width}} = {place}; return [x, y, width]")

    def go_with_control(self, key: str) -> None:
        with self.new_page():
            ActionChains(self.browser).key_down(Keys.CONTROL).send_keys(key).key_up(Keys.CONTROL).perform()

    def wait_for_focus(self, name: str) -> None:
        self.wait(lambda: self.script("return document.activeElement.name") == name, f"the focus in {name}")

    def test_a_range_is_judged_and_undone_and_nothing_moves_after_a_verdict(self) -> None:
        self.open(INBOX)
        boxes = self.find_all("[name=entry]")
        boxes[1].click()
        ActionChains(self.browser).key_down(Keys.SHIFT).click(boxes[3]).key_up(Keys.SHIFT).perform()
        self.assertEqual([box.is_selected() for box in boxes], [False, True, True, True, False, False])
        self.assertFalse(self.find(".for-rechecks").is_displayed())
        self.follow("Accept selected")
        self.see("3 memories accepted.", ".toast")
        self.assert_in_review(3)
        self.go("u")
        self.see("3 verdicts undone.", ".toast")
        self.assert_in_review(6)
        self.go("j")
        before = self.place_of("[data-key=a]"), self.place_of(".inbox-list")
        self.go("a")
        self.see("Proposal 2", "article")
        self.assertEqual((self.place_of("[data-key=a]"), self.place_of(".inbox-list")), before)

    def test_items_are_selected_by_keys_and_a_narrow_screen_has_the_list_or_the_item(self) -> None:
        self.open(INBOX)
        for keys in ("j", "J", "J"):
            self.go(keys)
        self.see("Proposal 3", "article")
        self.press("x")
        chosen = [box.get_attribute("aria-label") for box in self.find_all("[name=entry]:checked")]
        self.assertEqual(chosen, [f"Select “Proposal {number}”" for number in (1, 2, 3)])
        self.narrow()
        self.open(INBOX)
        with self.new_page():
            self.find(".inbox-list li a").click()
        self.see("Proposal 1", "article")
        self.assertFalse(self.find(".inbox-list").is_displayed())
        self.assertLessEqual(self.script(WIDTH), 400)
        self.follow("Back to the list")
        self.see("Proposal 6", ".inbox-list")

    def test_everything_is_done_by_keys(self) -> None:
        first, second, third, fourth, *_ = self.ids
        self.open(QUEUE)
        self.see("Proposal 1", within="article")
        self.go("j")
        self.see("Proposal 2", within="article")
        self.go("k")
        self.go("a")
        self.see(f"Accepted #{first} “Proposal 1”.", within="[data-announce]")
        self.see("1 of 5")
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
        self.go_with_control(Keys.ENTER)
        self.see(f"Accepted #{third} “Proposal 3, corrected”.", within="[data-announce]")
        self.press("m")
        self.wait_for_focus("into")
        self.press(Keys.TAB)
        self.go(str(self.known), Keys.ENTER)
        self.wait_for_focus("content")
        self.go_with_control(Keys.ENTER)
        self.see(f"Merged #{fourth} into #{self.known}.", within="[data-announce]")
        merged = self.get(self.known)["content"]
        self.assertEqual(merged, "Three times, then we stop and say so.\nWhat number 4 says.")

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
