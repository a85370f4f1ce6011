"""A person at a real browser, before a real server: Chromium without a window."""

from __future__ import annotations

from typing import Any

from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from decisions.tools.core import read_view
from tests.admin.browser import NAVIGATION, BrowserTestCase

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


DECISIONS = "decisions/decision"


SEEN = """
const [inner, outer] = [...arguments].map(each => each.getBoundingClientRect());
return inner.left >= outer.left && inner.right <= outer.right;
"""


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


class DecisionsBrowserTests(BrowserTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.first = self.record("Poll the table")
        self.second = self.record("Push each change", supersedes=[self.first])
        self.third = self.record("Push changes in batches", refines=[self.second])
        self.fourth = self.record("A-rather-long-name-without-any-space-" * 5, depends_on=[self.third])

    def record(self, title: str, **fields: Any) -> int:
        body = {"title": title, "chosen": f"Choose {title}.", **fields}
        recorded: int = self.rest("POST", f"projects/{self.project}/decisions", body)["id"]
        return recorded

    def test_a_decision_is_recorded_with_one_more_alternative_than_there_are_rows(self) -> None:
        self.open(f"{DECISIONS}/add/")
        self.type_into("title", "Stream changes")
        self.type_into("chosen", "Stream them.")
        self.click("Add another")
        rows = self.wait(lambda: self.full(self.find_all("[name=alternatives_option]"), 3), "another row")
        for place, row in enumerate(rows):
            row.send_keys(f"way {place}")
        self.type_into("supersedes", f"#{self.second}")
        self.follow("Record")
        self.see(f"which supersedes #{self.second}")
        self.assertEqual([each.text for each in self.find_all(".alternatives dt")], ["way 0", "way 1", "way 2"])

    def full(self, found: list[Any], count: int) -> list[Any]:
        return found if len(found) == count else []

    def test_the_lineage_is_walked_by_keyboard_and_scrolls_in_its_own_box(self) -> None:
        self.narrow()
        self.open(f"{DECISIONS}/{self.second}/change/")
        box = self.find("[data-lineage]")
        current = self.find(".lineage-node.is-current .diagram-box")
        self.wait(lambda: self.browser.execute_script(SEEN, current, box), "the decision in question")
        self.assertEqual(self.order_of_focus(4), self.in_order())
        self.script(f"document.querySelector('[href*=\"/{self.third}/change/\"]').focus()")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Push changes in batches", within="h1")

    def order_of_focus(self, count: int) -> list[int]:
        """The decisions through which Tab goes, from the box of the lineage on."""
        self.script("document.querySelector('[data-lineage]').focus()")
        passed = []
        for _ in range(count):
            self.press(Keys.TAB)
            address = self.browser.switch_to.active_element.get_dom_attribute("href") or ""
            passed.append(int(address.split("/")[-3]))
        return passed

    def test_a_client_with_mcp_apps_draws_the_answer(self) -> None:
        """The host is this test: it answers the view as the extension says, with what the tool would."""
        path = f"projects/{self.project}/decisions/{self.second}?lineage=true"
        decision = self.server.api("GET", path).json()
        self.browser.get("about:blank")
        self.browser.execute_script(HOST, read_view({}), decision)
        said = self.wait(lambda: self.script("return window.size && window.said"), "the view's size")
        self.assertEqual(
            [each["method"] for each in said], ["ui/initialize", "ui/notifications/initialized", "tools/call"]
        )
        given = {"ids": [self.second], "lineage": True, "format": "json"}
        self.assertEqual(said[-1]["params"], {"name": "decision_get", "arguments": given})
        self.browser.switch_to.frame(0)
        boxes = [each.get_dom_attribute("aria-label") for each in self.find_all("[role=listitem]")]
        self.assertEqual([label.split(" ")[0] for label in boxes], [f"#{each}" for each in self.in_order()])
        self.assertEqual(len(self.find_all("path")), 3)
        current = self.find(".current").get_dom_attribute("aria-label")
        self.assertTrue(str(current).endswith("accepted · Push each change"), current)
        self.browser.switch_to.default_content()

    def in_order(self) -> list[int]:
        return [self.first, self.second, self.third, self.fourth]

    def test_a_number_is_looked_up_and_linked(self) -> None:
        self.open(f"{DECISIONS}/{self.third}/change/")
        self.type_into("to", str(self.first))
        self.see("Superseded: Poll the table", within=".relate")
        self.find("[name=relation]").find_element(By.CSS_SELECTOR, "[value=conflicts_with]").click()
        self.follow("Add link")
        self.see("conflicts with", within="#edges .relations")

    def test_no_page_breaks_the_policy_or_is_wider_than_a_narrow_screen(self) -> None:
        self.narrow()
        pages = [f"{each}/change/" for each in (self.first, self.fourth)]
        for path in ["", "add/", *pages, f"{self.first}/supersede/", f"{self.first}/history/"]:
            self.open(f"{DECISIONS}/{path}")
            self.assertTrue(self.find("h1").is_displayed(), path)
            self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), 400, path)


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


REPLAY = "core/rawevent/replay/"


STEP_MILLISECONDS = 900  # between two events that are played


POSITIONS = """
return [document.querySelector('#replayed > *').dataset.position,
        ...['slider', 'number'].map(name => document.getElementById(`replay-${name}`).value)]"""


# What was shown, one position after the other, and a press on Pause as soon as the second is there: by the page itself,
# lest a slow machine comes too late for it.
PAUSE_AT_THE_SECOND = """
window.seen = [];
new MutationObserver(() => {
    window.seen.push(Number(document.querySelector('#replayed > *').dataset.position));
    if (window.seen.length === 2) document.querySelector('[data-play]').click();
}).observe(document.getElementById('replayed'), {childList: true});"""


class WorkBrowserTestCase(BrowserTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.session = self.post("sessions", {"session_id": "s-1", "purpose": "Lay the floor"})["id"]
        self.iteration = self.post("iterations", {"command": "fix", "description": "Keep it short"})["id"]
        self.post(f"iterations/{self.iteration}/advance", {"phase": "build", "artifacts": ["docs/" + "a" * 90]})
        self.turns = [self.turn("Measure it", "make " + "x" * 300), self.turn("Cut it", "make cut")]

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return self.rest("POST", f"projects/{self.project}/{path}", body)

    def turn(self, prompt: str, command: str) -> int:
        begun = self.post("turns/begin", {"session_id": "s-1"})
        for kind, payload in {"message.user": {"content": prompt}, "command.run": {"command": command}}.items():
            self.post("turns/append", {"ack_token": begun["ack_token"], "type": kind, "payload": payload})
        self.post("turns/end", {"ack_token": begun["ack_token"]})
        return int(begun["turn"]["id"] if "turn" in begun else begun["id"])

    @property
    def pages(self) -> list[str]:
        lists = [f"sessions_app/{name}/" for name in ("session", "turn", "iteration")]
        one = [f"sessions_app/turn/{self.turns[0]}/change/", f"sessions_app/session/{self.session}/change/"]
        return [*lists, *one, f"sessions_app/iteration/{self.iteration}/change/", REPLAY]


class RailTests(WorkBrowserTestCase):
    def test_a_turn_and_an_entry_fold_by_keyboard(self) -> None:
        self.open(f"sessions_app/session/{self.session}/change/")
        first, last = self.find_all(".rail-turn > details")
        self.assertIsNone(first.get_attribute("open"))
        self.assertEqual(last.get_attribute("open"), "true")
        self.assertFalse(self.find(f"#e{self.turns[0] + 1}").is_displayed())
        summary = first.find_element(By.TAG_NAME, "summary")
        self.browser.execute_script("arguments[0].focus()", summary)
        self.press(Keys.ENTER)
        entry = self.find(f"#e{self.turns[0] + 1}")
        self.wait(entry.is_displayed, "the first turn's prompt")
        payload = entry.find_element(By.TAG_NAME, "pre")
        self.assertFalse(payload.is_displayed())
        self.press(Keys.TAB, Keys.TAB, Keys.ENTER)
        self.wait(payload.is_displayed, "the payload of the prompt")
        self.assertIn('"content": "Measure it"', payload.text)
        self.press(Keys.ENTER)
        self.wait(lambda: not payload.is_displayed(), "the payload, folded again")

    def test_every_page_obeys_the_policy_and_fits_a_narrow_screen(self) -> None:
        self.narrow()
        for path in self.pages:
            self.open(path)
            self.assertTrue(self.find("h1").is_displayed(), path)
            for fold in self.find_all("main details:not([open])"):
                self.browser.execute_script("arguments[0].open = true", fold)
            self.assertEqual(self.browser.execute_script("return innerWidth"), 400)
            self.assertLessEqual(self.browser.execute_script("return document.documentElement.scrollWidth"), 400, path)

    def test_turns_and_iterations_are_in_the_navigation(self) -> None:
        self.open("")
        self.follow("Activity", within=NAVIGATION)
        self.follow("Turns", within=NAVIGATION)
        self.see("Cut it")
        self.follow("Iterations", within=NAVIGATION)
        self.see("now: build")
        with self.new_page():
            self.find("#result_list .title").click()
        self.see("Timeline")


class ReplayTests(WorkBrowserTestCase):
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

    @property
    def last(self) -> int:
        return int(self.find("[data-replay]").get_attribute("data-last") or 0)

    def test_the_slider_moves_by_keyboard_without_a_new_page(self) -> None:
        self.open(f"{REPLAY}?position=3")
        self.browser.execute_script("window.isSamePage = true; document.querySelector('#replay-slider').focus()")
        self.press(Keys.ARROW_RIGHT)
        self.shows(4)
        self.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
        self.shows(2)
        self.press(Keys.END)
        last = self.last
        self.shows(last)
        self.assertEqual(self.script("return location.search"), f"?position={last}")
        said = self.find("#replay-slider").get_attribute("aria-valuetext")
        self.assertEqual(said, f"#{last} turn.ended")
        self.assertTrue(self.script("return window.isSamePage"))

    def test_the_arrows_step_from_anywhere_on_the_page_and_stop_at_the_ends(self) -> None:
        self.open(f"{REPLAY}?position=1")
        self.press(Keys.ARROW_LEFT)
        self.press(Keys.ARROW_RIGHT)
        self.shows(2)
        self.find("[data-step='1']").click()
        self.shows(3)
        self.find("[data-step='-1']").click()
        self.shows(2)
        self.find(".chain-links a[href='?position=5']").click()
        self.shows(5)

    def test_a_number_leads_there(self) -> None:
        self.open(REPLAY)
        field = self.find("#replay-number")
        field.clear()
        field.send_keys("4", Keys.ENTER)
        self.shows(4)
        self.assertIn("Verified", self.find("#replayed").text)

    def test_playing_goes_on_to_the_end_and_stops_there(self) -> None:
        self.open(REPLAY)
        last = self.last
        field = self.find("#replay-number")
        field.clear()
        field.send_keys(str(last - 1), Keys.ENTER)
        self.shows(last - 1)
        self.click("Play")
        self.stays_at(last)

    def test_playing_from_the_end_starts_over_and_a_pause_holds_it(self) -> None:
        self.open(REPLAY)
        self.open(f"{REPLAY}?position={self.last}")
        self.shows(self.last)
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
        slider = self.find("#replay-slider")
        slider.send_keys(Keys.ARROW_RIGHT)
        self.click("Show")
        self.shows(4)
        self.find("[data-step='1']").click()
        self.shows(5)


INBOX = "inbox/"


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
        self.open(INBOX)
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
        self.open(INBOX)
        for keys in ("j", "J", "J"):
            with self.new_page():
                self.press(keys)
        self.see("Proposal 3", "article")
        self.press("x")
        chosen = [box.get_attribute("aria-label") for box in self.find_all("[name=entry]:checked")]
        self.assertEqual(chosen, [f"Select “Proposal {number}”" for number in (1, 2, 3)])

    def test_on_a_narrow_screen_the_list_leads_to_the_item_and_back(self) -> None:
        self.narrow()
        self.open(INBOX)
        with self.new_page():
            self.find(".inbox-list li a").click()
        self.see("Proposal 1", "article")
        self.assertFalse(self.find(".inbox-list").is_displayed())
        self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), 400)
        self.follow("Back to the list")
        self.see("Proposal 6", ".inbox-list")


QUEUE = "memories/memory/review/"


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


class SearchPageBrowserTests(BrowserTestCase):
    def test_a_person_asks_reads_the_answer_and_the_pack_on_a_telephone(self) -> None:
        for title in ("Port of the hub", "x" * 180):
            self.rest("POST", f"projects/{self.project}/memories", {"title": title, "content": f"{title} 8321"})
        self.narrow()
        self.open("memories/searchdocument/")
        self.find("#id_query").send_keys("8321")
        self.follow("Search", within="main//form")
        self.see("#1 note", within=".verbatim")
        self.see("2 of 2", within=".ranked")
        width = "return document.documentElement.scrollWidth <= window.innerWidth"
        self.assertTrue(self.script(width))
        self.find(".nav-open").click()
        self.follow("Context packs", within=NAVIGATION)
        self.see("Port of the hub", within=".pack-text")
        self.assertTrue(self.script(width))
        self.assertGreater(self.script("return document.querySelectorAll('.pack-bar > svg .part').length"), 1)


SETTINGS = "settings/"


class SettingsBrowserTests(BrowserTestCase):
    def test_a_setting_is_changed_and_reset_by_keyboard_alone(self) -> None:
        self.open(SETTINGS)
        self.tab_to("session_idle_hours-value")
        with self.new_page():
            self.press("7", Keys.ENTER)
        self.see("Changed: Session timeout.")
        self.assertEqual(self.find("[name=session_idle_hours-value]").get_attribute("value"), "7")
        self.tab_to("Reset Session timeout to the default")
        with self.new_page():
            self.press(Keys.ENTER)
        self.see("Reset: Session timeout is 12 hours.")
        self.assertEqual(self.find("[name=session_idle_hours-value]").get_attribute("value"), "12")
