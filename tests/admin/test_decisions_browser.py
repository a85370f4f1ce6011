"""A person who reads, records and links decisions, at a real browser."""

from __future__ import annotations

from typing import Any

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from decisions.tools.core import read_view
from tests.admin.browser import BrowserTestCase

PAGE = "decisions/decision"
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
        self.open(f"{PAGE}/add/")
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
        self.open(f"{PAGE}/{self.second}/change/")
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
        self.open(f"{PAGE}/{self.third}/change/")
        self.type_into("to", str(self.first))
        self.see("Superseded: Poll the table", within=".relate")
        self.find("[name=relation]").find_element(By.CSS_SELECTOR, "[value=conflicts_with]").click()
        self.follow("Add link")
        self.see("conflicts with", within="#edges .relations")

    def test_no_page_breaks_the_policy_or_is_wider_than_a_narrow_screen(self) -> None:
        self.narrow()
        pages = [f"{each}/change/" for each in (self.first, self.fourth)]
        for path in ["", "add/", *pages, f"{self.first}/supersede/", f"{self.first}/history/"]:
            self.open(f"{PAGE}/{path}")
            self.assertTrue(self.find("h1").is_displayed(), path)
            self.assertLessEqual(self.script("return document.documentElement.scrollWidth"), 400, path)
