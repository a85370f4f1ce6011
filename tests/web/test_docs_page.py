"""The page that describes REST, in a real browser under the real content security policy."""

from __future__ import annotations

import json

from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.admin.browser import BrowserTestCase

STATUS = ".live-responses-table tbody .response-col_status"


class DocsPageTests(BrowserTestCase):
    """The page redraws itself at every step; so each waits for what it needs, and tries again if it was replaced."""

    def test_who_is_signed_in_can_try_a_write(self) -> None:
        self.browser.get(f"{self.server.address}/api/v1/docs")
        self.assertEqual(self.make_project("by-session"), "201")

    def test_who_is_signed_out_can_enter_the_token(self) -> None:
        self.sign_out_for_this_test()
        self.browser.get(f"{self.server.address}/api/v1/docs")
        self.push(".btn.authorize")
        self.enter(".modal-ux input", self.server.token)
        self.push(".modal-ux .btn.authorize")
        self.push(".modal-ux .btn-done")
        self.assertEqual(self.make_project("by-token"), "201")

    def sign_out_for_this_test(self) -> None:
        for cookie in self.browser.get_cookies():
            self.addCleanup(self.browser.add_cookie, cookie)
        self.browser.delete_all_cookies()

    def make_project(self, project: str) -> str:
        """Fill in the form of POST projects, send it, and return the status that the page shows."""
        self.push("[id$='create_project'] .opblock-summary-control")
        self.push(".try-out__btn")
        self.enter("textarea.body-param__text", json.dumps({"project_id": project}))
        self.push(".execute")
        text: str = self.wait(lambda: self.shown(STATUS).text, "the status of the answer")
        return text.split(maxsplit=1)[0]

    def shown(self, selector: str) -> WebElement:
        """Return the first element that is to be seen; StopIteration where there is none yet."""
        return next(each for each in self.find_all(selector) if each.is_displayed())

    def push(self, selector: str) -> None:
        def pushed() -> bool:
            self.shown(selector).click()
            return True

        self.wait(pushed, f"{selector}, to be pressed")

    def enter(self, selector: str, text: str) -> None:
        def entered() -> bool:
            field = self.shown(selector)
            field.send_keys(Keys.CONTROL, "a")
            field.send_keys(text)
            return field.get_attribute("value") == text

        self.wait(entered, f"{text!r} in {selector}")
