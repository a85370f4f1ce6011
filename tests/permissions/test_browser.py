"""The pages People and Tokens in a real browser, by keyboard alone."""

from __future__ import annotations

import shlex

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from memoryhub.config.clients import all_clients
from tests.admin.browser import BrowserTestCase


class AccessPages(BrowserTestCase):
    has_own_server = True

    def open_page(self, name: str) -> None:
        self.browser.get(f"{self.server.address}/{name}")

    def press_on(self, text: str) -> None:
        with self.new_page():
            self.tab_to(text)
            self.press(Keys.ENTER)

    def click_summary(self, name: str) -> None:
        self.browser.find_element(By.XPATH, f"//summary[.='{name}']").click()

    def says_when_it_was_used(self) -> bool:
        self.open_page("tokens")
        return "last used" in self.find("body").text

    def test_a_token_is_made_copied_and_revoked(self) -> None:
        self.open_page("tokens")
        self.find("[name=name]").send_keys("nightly")
        box = self.find(f"[name=projects][value={self.project}]")
        self.script("document.querySelector('[name=reach][value=hub]').checked = true")
        box.send_keys(Keys.SPACE)
        self.assertTrue(self.script("return document.querySelector('[name=reach][value=some]').checked"))
        self.press_on("Create")
        text = self.find("#shown-once").get_attribute("value") or ""
        self.assertRegex(text, r"^mh_[a-z0-9]{8}_[A-Za-z0-9_-]{43}$")
        self.see(f"Read in {self.project}")
        self.tab_to("Copy")
        self.press(Keys.ENTER)
        self.wait(lambda: self.find("[data-copy]").text != "Copy", "what the button says then")
        for client in (client for client in all_clients().values() if client.http):
            if client.id != "claude-code":  # the first is open
                self.click_summary(client.name)
            self.see(f"memory-hub setup {client.id} --url {self.server.address}", within="details[open]")
        self.click_summary("A script, with curl")
        curl = shlex.split(self.find("details[open] pre").text.splitlines()[1])
        path = curl[-1].removeprefix(self.server.address)
        self.assertEqual(curl[:3], ["curl", "-H", "Authorization: Bearer $MEMORY_HUB_TOKEN"])
        self.assertEqual(self.server.request("GET", path, Authorization=f"Bearer {text}").status, 200)
        self.open_page("tokens")
        self.assertNotIn(text, self.browser.page_source)
        self.wait(self.says_when_it_was_used, "when the token was used last: noted after the answer is sent")
        self.press_on("Revoke nightly")
        self.see("rejected from now on")
        self.press_on("Revoke")
        self.see("The token nightly is revoked.")
        self.assertEqual(self.server.request("GET", "/api/v1/projects", Authorization=f"Bearer {text}").status, 401)

    def test_a_person_is_let_in_changed_and_deactivated(self) -> None:
        self.open_page("people")
        self.find("[name=name]").send_keys("dora")
        self.press_on("Create sign-in link")
        self.assertIn("/signin/", self.find("#shown-once").get_attribute("value") or "")
        self.find("[aria-label='Role of dora']").send_keys("reviewer")
        self.press_on("Change role of dora")
        self.see("dora now has the role reviewer.")
        self.press_on("Deactivate dora")
        self.see("dora is deactivated and signed out everywhere.")

    def test_nothing_sticks_out_on_a_narrow_screen(self) -> None:
        self.narrow()
        for name in ("people", "tokens"):
            self.open_page(name)
            self.find("main h1")
            wide = self.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            self.assertLessEqual(wide, 0, name)
