"""A person at a real browser, before a real server: Chromium without a window."""

from __future__ import annotations

import os
import shutil
import tempfile
import unittest
from contextlib import ExitStack
from typing import Any, ClassVar

from django.test import SimpleTestCase
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.web.server import Server, serving

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
OPTIONS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1280,900""".split()
SECONDS = 20
NOTES: list[dict[str, Any]] = [
    {"title": "The anchor of the log", "content": "The head of the **log** is anchored outside the store."},
    {"title": "Keep one file a project", "content": "Isolation by files.", "type": "decision", "tags": ["storage"]},
    {"title": "Measure the first search", "content": "Cold, then warm.", "type": "task"},
]


def setUpModule() -> None:
    missing = [name for name, found in (("chromium", BROWSER), ("chromedriver", DRIVER)) if not found]
    if missing and os.environ.get("CI") == "true":
        raise RuntimeError(f"CI needs {' and '.join(missing)} for the tests in a browser")
    if missing:
        raise unittest.SkipTest(f"needs {' and '.join(missing)}")


def start_browser(folder: str) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    for option in [*OPTIONS, f"--user-data-dir={folder}"]:
        options.add_argument(option)
    options.binary_location = str(BROWSER)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(str(DRIVER)))


class BrowserTests(SimpleTestCase):
    browser: ClassVar[webdriver.Chrome]
    server: ClassVar[Server]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        with ExitStack() as stack:
            cls.server = stack.enter_context(serving("--no-worker"))
            folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            cls.browser = start_browser(folder)
            stack.callback(cls.browser.quit)
            cls.browser.get(cls.server.link)
            cls.addClassCleanup(stack.pop_all().close)

    def setUp(self) -> None:
        # Each test has a project of its own, so that none depends on another.
        self.project = self.id().rpartition(".")[2].replace("_", "-")[:60]
        self.rest("POST", "projects", {"project_id": self.project})
        self.ids = [self.rest("POST", f"projects/{self.project}/memories", note)["id"] for note in NOTES]
        self.browser.get_log("browser")
        self.open("")

    def tearDown(self) -> None:
        said = self.browser.get_log("browser")
        self.assertEqual([entry["message"] for entry in said if "/favicon.ico" not in entry["message"]], [])

    def rest(self, method: str, path: str, body: dict[str, Any]) -> Any:
        """What an agent does meanwhile, through the other door."""
        reply = self.server.api(method, path, body)
        self.assertIn(reply.status, (200, 201), reply.body)
        return reply.json()

    def open(self, path: str) -> None:
        self.browser.get(f"{self.server.address}/p/{self.project}/admin/{path}")

    def find(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def see(self, text: str) -> None:
        """Wait until the page shows a text."""

        def shown(browser: webdriver.Chrome) -> bool:
            return text in browser.find_element(By.TAG_NAME, "body").text

        WebDriverWait(self.browser, SECONDS, ignored_exceptions=[Exception]).until(shown, f"never saw {text!r}")

    def click(self, text: str) -> None:
        """Follow the link or press the button with exactly this text."""
        path = f"//main//*[self::a or self::button][normalize-space()='{text}']"
        self.browser.find_element(By.XPATH, path).click()

    def type_into(self, name: str, text: str) -> None:
        field = self.find(f"[name={name}]")
        field.clear()
        field.send_keys(text)

    def press(self, *keys: str) -> None:
        webdriver.ActionChains(self.browser).send_keys(*keys).perform()

    def tab_to(self, text: str, most: int = 40) -> list[str]:
        """Press Tab until what has the focus bears this text; return what was passed."""
        passed: list[str] = []
        while text not in passed:
            self.assertLess(len(passed), most, f"no way to {text!r} by keyboard: {passed}")
            self.press(Keys.TAB)
            focused = self.browser.switch_to.active_element
            said = focused.get_attribute("innerText") or focused.get_attribute("name") or ""
            passed.append(" ".join(said.split()))
        return passed

    def test_the_link_signs_in_once(self) -> None:
        self.browser.get(self.server.address)
        self.see("Projects")
        self.see(self.project)
        self.browser.find_element(By.LINK_TEXT, self.project).click()
        self.see("Latest memories")
        self.assertIn("Keep one file a project", self.find("main").text)

    def test_search_finds_by_other_words_and_opens_the_answer(self) -> None:
        self.type_into("q", "where is the log's head anchored?")
        self.click("Search")
        self.see("for “where is the log's head anchored?”")
        self.assertEqual(self.find("#result_list tbody .title").text, "The anchor of the log")
        self.click("The anchor of the log")
        self.see("Evidence")
        self.assertEqual(self.find("article strong").text, "log")

    def test_an_edit_that_came_too_late_keeps_both_texts(self) -> None:
        self.open(f"memories/memory/{self.ids[1]}/change/")
        self.click("Edit")
        address = f"projects/{self.project}/memories/{self.ids[1]}"
        self.rest("PATCH", address, {"content": "Isolation by files and folders."})
        self.type_into("content", "My own words")
        self.click("Save")
        self.see("Version 2 was saved while you edited version 1")
        self.assertEqual(self.find("[name=content]").get_attribute("value"), "My own words")
        self.assertIn("Isolation by files and folders.", self.find(".present").text)
        self.click("Save as version 3")
        self.see("Saved as version 3.")
        self.assertIn("My own words", self.find("article").text)

    def test_what_was_deleted_is_restored(self) -> None:
        self.open(f"memories/memory/{self.ids[2]}/change/")
        self.click("Delete")
        self.see("it can be restored at any time")
        self.click("Delete")
        self.see("is deleted")
        self.open("memories/memory/")
        self.assertNotIn("Measure the first search", self.find("#result_list").text)
        self.click("Deleted")
        self.see("Measure the first search")
        self.click("Measure the first search")
        self.click("Restore")
        self.see("is restored")

    def test_the_chosen_go_at_once(self) -> None:
        self.open("memories/memory/")
        self.find("#action-toggle").click()
        self.see("3 of 3 selected")
        self.browser.find_element(By.XPATH, "//select[@name='action']/option[.='Delete']").click()
        self.click("Go")
        self.see("3 memories deleted")

    def test_the_chain_is_verified_by_a_button(self) -> None:
        self.open("core/rawevent/")
        self.see("Not checked yet")
        self.click("Verify now")
        self.see("The chain holds: 3 events")

    def test_every_kind_of_page_obeys_the_content_security_policy(self) -> None:
        one = f"memories/memory/{self.ids[0]}/"
        details = [f"{one}{name}/" for name in ("change", "edit", "versions", "history", "delete")]
        lists = ["memories/memory/", "sessions_app/session/", "sessions_app/commit/", "core/rawevent/"]
        for path in ["", *lists, *details, "memories/memory/add/", f"core/rawevent/{self.ids[0]}/change/"]:
            self.open(path)
            self.assertTrue(self.find("h1").is_displayed(), path)
            width = self.browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
            self.assertLessEqual(width, 0, path)

    def test_no_page_is_wider_than_a_narrow_screen(self) -> None:
        narrow = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.clearDeviceMetricsOverride", {})
        one = f"memories/memory/{self.ids[1]}/"
        for path in ["", "memories/memory/", "core/rawevent/", f"{one}change/", f"{one}edit/", f"{one}history/"]:
            self.open(path)
            self.assertEqual(self.browser.execute_script("return innerWidth"), 400)
            width = self.browser.execute_script("return document.documentElement.scrollWidth")
            self.assertLessEqual(width, 400, path)

    def test_the_keyboard_reaches_what_matters(self) -> None:
        self.open(f"memories/memory/{self.ids[1]}/change/")
        passed = self.tab_to("Edit")
        self.assertEqual(passed[0], "Skip to main content")
        self.assertLess(passed.index("Overview"), passed.index("Log"))
        outline = self.browser.switch_to.active_element.value_of_css_property("outline-style")
        self.assertEqual(outline, "solid")
        self.assertEqual(self.tab_to("Delete")[:2], ["Versions", "History"])
        self.press(Keys.ENTER)
        self.see("can be restored at any time")

    def test_the_switcher_opens_and_closes_by_keyboard(self) -> None:
        self.rest("POST", "projects", {"project_id": "another-one"})
        self.open("")
        self.tab_to(f"Project {self.project}")
        self.press(Keys.ENTER)
        self.see("another-one")
        self.press(Keys.ESCAPE)
        self.assertFalse(self.find("details.switcher").get_attribute("open"))
        self.press(Keys.ENTER)
        self.tab_to("another-one")
        self.press(Keys.ENTER)
        self.see("This project is empty")
