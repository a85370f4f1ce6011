"""The page that describes REST, in a real browser under the real content security policy."""

from __future__ import annotations

import json
import tempfile
from typing import ClassVar

from django.test import SimpleTestCase
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.admin.browser import SECONDS, require_browser, start_browser
from tests.web.server import Server, serving


class DocsPageTests(SimpleTestCase):
    server: ClassVar[Server]
    browser: webdriver.Chrome

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        require_browser()
        cls.server = cls.enterClassContext(serving("--no-worker"))

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        self.browser = start_browser(folder)
        self.addCleanup(self.browser.quit)

    def test_who_is_signed_in_can_try_a_write(self) -> None:
        self.browser.get(self.server.link)
        self.assertEqual(self._make_project("by-session"), 201)
        self.assertEqual(self._complaints(), [])

    def test_who_is_signed_out_can_enter_the_token(self) -> None:
        self.browser.get(f"{self.server.address}/api/v1/docs")
        self._find(".btn.authorize").click()
        self._find(".modal-ux input[type=text], .modal-ux input[type=password]").send_keys(self.server.token)
        self._find(".modal-ux .btn.authorize").click()
        self._find(".modal-ux .btn-done").click()
        self.assertEqual(self._make_project("by-token"), 201)
        self.assertEqual(self._complaints(), [])

    def _make_project(self, project: str) -> int:
        """Fill in the form of POST projects, send it, and return the status that the page shows."""
        if not self.browser.current_url.endswith("/docs"):
            self.browser.get(f"{self.server.address}/api/v1/docs")
        operation = self._find("[id$='create_project']")
        operation.find_element(By.CSS_SELECTOR, ".opblock-summary-control").click()
        self._find(".try-out__btn").click()
        body = self._find("textarea.body-param__text")
        body.send_keys(Keys.CONTROL, "a")
        body.send_keys(json.dumps({"project_id": project}))
        self._find(".execute").click()
        return int(self._find(".live-responses-table tbody .response-col_status").text.split()[0])

    def _find(self, selector: str) -> WebElement:
        return WebDriverWait(self.browser, SECONDS).until(lambda _: self._shown(selector))[0]

    def _shown(self, selector: str) -> list[WebElement]:
        return [each for each in self.browser.find_elements(By.CSS_SELECTOR, selector) if each.is_displayed()]

    def _complaints(self) -> list[str]:
        """What the browser refused or failed to load."""
        said = self.browser.get_log("browser")
        return [entry["message"] for entry in said]
