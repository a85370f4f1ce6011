"""A real browser before a real server: Chromium without a window, signed in once for all tests of a class."""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

from django.test import SimpleTestCase, tag
from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.programs import needs, path_of
from tests.web.server import Server, serving, until_this_process_ends

OPTIONS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1280,900""".split()
SECONDS = 60  # until what must come is missed; it costs nothing where it comes early
NAVIGATION = "nav[@id='nav']"
NARROW = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}


def start_browser(folder: str) -> webdriver.Chrome:
    """Start a browser that keeps everything in a folder, and that waits as long as the tests do."""
    options = webdriver.ChromeOptions()
    for option in [*OPTIONS, f"--user-data-dir={folder}"]:
        options.add_argument(option)
    options.binary_location = path_of("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    browser.set_script_timeout(SECONDS)
    return browser


def project_of(test: str) -> str:
    """Return the project that a test has for itself; a server may be shared by tests of the same name."""
    method = test.rpartition(".")[2].replace("_", "-")
    return f"{method[:50].rstrip('-')}-{zlib.crc32(test.encode()):08x}"


class SignedIn:
    """A running server, and what the browser has once it has signed in there."""

    def __init__(self, server: Server, browser: webdriver.Chrome) -> None:
        self.server = server
        browser.get(server.link)
        self._cookies = browser.get_cookies()

    def take_over(self, browser: webdriver.Chrome) -> None:
        """Sign the browser in again, which may have been at another server of this machine since."""
        browser.get(self.server.address)
        browser.delete_all_cookies()
        for cookie in self._cookies:
            browser.add_cookie(cookie)


@cache
def this_process_browser() -> webdriver.Chrome:
    folder = until_this_process_ends(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
    browser = start_browser(folder)
    until_this_process_ends(quitting(browser))
    return browser


@cache
def this_process_server() -> SignedIn:
    """Return the one server of all tests of this process that need none of their own."""
    return SignedIn(until_this_process_ends(serving("--no-worker")), this_process_browser())


@contextmanager
def quitting(browser: webdriver.Chrome) -> Iterator[None]:
    yield
    browser.quit()


@needs("chromium")
@tag("browser")
class BrowserTestCase(SimpleTestCase):
    """Each test has a project of its own, and fails where the browser complained of anything."""

    # Whether other tests' projects, people or tokens would be in the way
    has_own_server: ClassVar[bool] = False
    # What its own server runs instead of the usual command
    program: ClassVar[str] = ""
    browser: ClassVar[webdriver.Chrome]
    server: ClassVar[Server]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.browser = this_process_browser()
        if cls.has_own_server:
            signed_in = SignedIn(cls.enterClassContext(serving("--no-worker", program=cls.program)), cls.browser)
        else:
            signed_in = this_process_server()
        signed_in.take_over(cls.browser)
        cls.server = signed_in.server

    def setUp(self) -> None:
        self.project = project_of(self.id())
        self.rest("POST", "projects", {"project_id": self.project, "if_exists": "update"})
        self.browser.get_log("browser")

    def tearDown(self) -> None:
        said = self.browser.get_log("browser")
        self.assertEqual([entry["message"] for entry in said if "/favicon.ico" not in entry["message"]], [])

    def rest(self, method: str, path: str, body: dict[str, Any]) -> Any:
        reply = self.server.api(method, path, body)
        self.assertIn(reply.status, (200, 201), reply.body)
        return reply.json()

    def open(self, path: str) -> None:
        self.browser.get(f"{self.server.address}/p/{self.project}/admin/{path}")

    def script(self, text: str) -> Any:
        return self.browser.execute_script(text)

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Return the condition's first true value; where an element is missing or was replaced, it is not true yet."""
        passing = [WebDriverException, StopIteration]
        wait = WebDriverWait(self.browser, SECONDS, poll_frequency=0.05, ignored_exceptions=passing)
        return wait.until(lambda _: condition(), f"never came: {what}")

    def let_timers_run_out(self, milliseconds: int) -> None:
        """Return after every timer of the page that is this long or shorter: this one was set after them."""
        self.browser.execute_async_script(f"setTimeout(arguments[0], {milliseconds})")

    @contextmanager
    def new_page(self) -> Iterator[None]:
        """Do what leads to another page, and wait until the whole of that page is there."""
        self.script("window.isLeft = true")
        yield
        self.wait(lambda: self.script("return !window.isLeft && document.readyState === 'complete'"), "a new page")

    def find(self, selector: str) -> WebElement:
        found: WebElement = self.wait(lambda: self.browser.find_element(By.CSS_SELECTOR, selector), selector)
        return found

    def find_all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def see(self, text: str, within: str = "body") -> None:
        try:
            self.wait(lambda: text in self.browser.find_element(By.CSS_SELECTOR, within).text, f"{text!r} in {within}")
        except TimeoutException as error:
            raise AssertionError(f"{error.msg}; the page:\n{self.find('body').text}") from error

    def click(self, text: str, within: str = "main") -> None:
        """Press the button or the link with exactly this text, which leads to no other page."""
        path = f"//{within}//*[self::a or self::button][normalize-space()='{text}']"
        self.wait(lambda: self.browser.find_element(By.XPATH, path), text).click()

    def follow(self, text: str, within: str = "main") -> None:
        with self.new_page():
            self.click(text, within)

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

    def narrow(self) -> None:
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", NARROW)
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.clearDeviceMetricsOverride", {})
