"""The hub's own pages in a real browser: axe on every page, tasks by keyboard, live updates, and the page of REST."""

from __future__ import annotations

import json
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from django.test import SimpleTestCase, tag
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.admin.browser import NARROW, SECONDS, BrowserTestCase, this_process_browser
from tests.mcp.client import Process as McpServer
from tests.programs import needs
from tests.web.all_pages import DEMO, Page, Walk, emulate_scheme, sample_hub
from tests.web.server import ROOT, poll

AXE = ROOT / ".node" / "node_modules" / "axe-core" / "axe.min.js"
# All rules of WCAG 2.2 A and AA, axe's best practices, and one that axe has off; in dark, only what colours decide; on
# a telephone, only what depends on what is shown there. From the top: a page that moves to its preview has by chance
# something half below the header, which axe counts as a target that is too small.
_RUN = """
const [mode, done] = arguments;
scrollTo({top: 0, behavior: 'instant'});
const light = {
    runOnly: {type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']},
    rules: {'label-content-name-mismatch': {enabled: true}},
};
const colours = {runOnly: {type: 'rule', values: ['color-contrast', 'link-in-text-block']}};
const what = ({target, html, failureSummary}) => [target.join(' '), html.slice(0, 200), failureSummary];
const shownOrNot = ['link-name', 'button-name', 'label', 'target-size', 'aria-hidden-focus'];
const narrow = {runOnly: {type: 'rule', values: shownOrNot}};
axe.run({...{light, dark: colours, narrow}[mode], resultTypes: ['violations'], preload: false, iframes: false}).then(
    found => done(found.violations.map(({id, nodes}) => ({id, nodes: nodes.map(what)}))),
    error => done(String(error)));
"""
# What a mouse can use and the Tab key passes over; without what assistive technology is not offered either.
_UNREACHED = """
return [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [onclick], [role=button]')]
    .filter(shown => shown.checkVisibility() && shown.tabIndex < 0 && !shown.disabled
        && !shown.closest('[aria-hidden=true]')).map(shown => shown.outerHTML.slice(0, 200));
"""


class AccessibilityTestCase(SimpleTestCase):
    """Each page passes axe in light and dark, fits a wide and a narrow window, and is reached by keyboard."""

    def setUp(self) -> None:
        place = Path(self.enterContext(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        self.server = self.enterContext(sample_hub(place / "home"))
        self.browser = this_process_browser()
        self.browser.get(self.server.link)

    def check(self, *, is_of_sample: bool, least: int) -> None:
        source = AXE.read_text("utf-8")
        script = self.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
        self.addCleanup(self.browser.execute_cdp_cmd, "Page.removeScriptToEvaluateOnNewDocument", script)
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.setEmulatedMedia", {"features": []})
        walk = Walk(self.browser, self.server.address, is_of_sample)
        rules: Counter[str] = Counter()
        pages = chain(walk.pages(), () if is_of_sample else self.answered_forms())
        report = [line for page in pages for line in self.violations(page, rules)]
        self.assertEqual(report, [], f"{dict(rules)}\n" + "\n".join(report))
        self.assertGreater(len(walk.seen), least)

    def answered_forms(self) -> Iterator[Page]:
        """Yield what only a form leads to: a page with errors, and one that shows a token."""
        self.browser.get(f"{self.server.address}{DEMO}settings/")
        self.browser.find_element(By.NAME, "review_sample_percent-value").send_keys("500", Keys.ENTER)
        self.wait_for(".errornote")
        yield Page("settings with an error")
        self.browser.get(f"{self.server.address}/tokens")
        self.browser.find_element(By.CSS_SELECTOR, "[name=projects][value=demo]").send_keys(Keys.SPACE)
        self.browser.find_element(By.NAME, "name").send_keys("ci", Keys.ENTER)
        self.wait_for("#shown-once")
        yield Page("a new token")
        self.browser.get(f"{self.server.address}/tokens/ci/revoke")
        yield Page("the revocation of a token")

    def wait_for(self, selector: str) -> None:
        WebDriverWait(self.browser, SECONDS).until(lambda browser: browser.find_elements(By.CSS_SELECTOR, selector))

    def violations(self, page: Page, rules: Counter[str]) -> list[str]:
        lines = []
        for scheme in ("light", "dark") if page.is_first else ("light",):
            emulate_scheme(self.browser, scheme)
            lines += self.found_by_axe(page, scheme, rules)
        unreached = self.browser.execute_script(_UNREACHED)
        lines += [f"{page.path} is not reached by keyboard: {html}" for html in unreached]
        for size in ({**NARROW, "width": 1280}, NARROW):
            self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            if (width := self.browser.execute_script("return document.documentElement.scrollWidth")) > size["width"]:
                lines.append(f"{page.path} is {width} pixels wide, not {size['width']}")
        if page.is_first:
            lines += self.found_by_axe(page, "narrow", rules)
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        messages = [entry["message"] for entry in self.browser.get_log("browser")]
        lines += [f"{page.path}: {message}" for message in messages if "Failed to load resource" not in message]
        return lines

    def found_by_axe(self, page: Page, mode: str, rules: Counter[str]) -> list[str]:
        violations: Any = self.browser.execute_async_script(_RUN, mode)
        self.assertIsInstance(violations, list, f"{page.path}: {violations}")
        rules.update({violation["id"]: len(violation["nodes"]) for violation in violations})
        nodes = [(violation["id"], node) for violation in violations for node in violation["nodes"]]
        return [f"{page.path} {mode} {rule}: {' | '.join(node)}" for rule, node in nodes]


# Two classes, because parallel processes take whole classes
@needs("chromium", "node tools")
@tag("browser")
class SampleAccessibilityTests(AccessibilityTestCase):
    def test_the_pages_of_the_sample_project(self) -> None:
        self.check(is_of_sample=True, least=50)


@needs("chromium", "node tools")
@tag("browser")
class OtherAccessibilityTests(AccessibilityTestCase):
    def test_the_pages_of_the_hub_of_an_empty_place_and_of_one_with_a_long_name(self) -> None:
        self.check(is_of_sample=False, least=20)


class PersonTests(BrowserTestCase):
    """What each task takes in clicks and keys, from the overview."""

    acts = 0

    def setUp(self) -> None:
        super().setUp()
        if not (self.server.home / "projects" / "demo").exists():
            self.open("")
            self.follow("Load the sample project")
        self.project = "demo"
        self.begin()

    def click(self, text: str, within: str = "main") -> None:
        self.acts += 1
        super().click(text, within)

    def press(self, *keys: str) -> None:
        self.acts += len(keys)  # a text that is typed is one act
        super().press(*keys)

    def done(self, task: str, *, most: int) -> None:
        self.assertLessEqual(self.acts, most, task)

    def go(self, *keys: str) -> None:
        with self.new_page():
            self.press(*keys)

    def palette(self, text: str, wanted: str) -> None:
        """Go to an entry by a part of its title."""
        keys = ActionChains(self.browser).key_down(Keys.CONTROL).send_keys("k").key_up(Keys.CONTROL)
        keys.perform()
        self.acts += 1
        self.press(text)
        self.see(wanted, within="dialog.palette [aria-selected=true]")
        self.go(Keys.ENTER)

    def confirm(self, button: str) -> None:
        """Type the word that the form asks for, and send it."""
        self.type_into("typed", self.find("label[for=id_typed] code").text)
        self.acts += 1
        self.follow(button)

    def begin(self) -> None:
        self.open("")
        self.acts = 0

    def test_each_verdict_of_a_review_is_one_key(self) -> None:
        self.project = "reviewed"
        self.rest("POST", "projects", {"project_id": self.project})
        self.rest("PATCH", f"projects/{self.project}/settings", {"settings": {"review_policy": "all"}})
        for number in range(5):
            body = {"title": f"Proposal {number}", "content": f"What number {number} says of the work at hand."}
            self.rest("POST", f"projects/{self.project}/memories", body)
        self.begin()
        self.follow("5 memories need review")
        for number in range(5):
            self.see(f"Proposal {number}", within="article h2")
            self.go("a")
        self.see("The inbox is empty")
        self.done("review 5 proposals", most=6)

    def test_find_what_is_known_and_why(self) -> None:
        self.press("/", "sms gateway")
        self.go(Keys.ENTER)
        self.follow("The SMS gateway takes 20 seconds")
        self.see("it does not confirm delivery")
        with self.new_page():
            self.acts += 1
            self.find("a[href$='/core/rawevent/162/change/']").click()
        self.see("The SMS gateway takes 20 seconds")
        self.done("find a memory and its evidence", most=5)
        self.begin()
        self.palette("before the water", "Warn before the water is over the quay")
        self.see("Given to the agent", within="#given")
        self.find("#given .given-line a[href*='/stream/memory:']")
        self.done("see what an agent was told", most=3)
        self.begin()
        self.palette("by mail", "Warn by SMS and by mail until spring")
        self.see("A warning twice is a nuisance; none is a flood.")
        self.follow("sms")
        self.see("Wire it up, but warn by mail as well until we trust it.")
        self.done("see why something was decided, with the prompt", most=4)

    def test_redact_a_secret_roll_back_a_session_and_run_retention(self) -> None:
        self.rest("POST", "projects/demo/memories", {"title": "The pump's door", "content": "Its code is 8841-tide."})
        self.palette("pump's door", "The pump's door")
        self.follow("Redact…")
        self.type_into("target", "8841-tide")
        self.acts += 1
        self.follow("Preview")
        self.see("Permanently redact 1 match in 1 event?")
        self.confirm("Redact permanently")
        self.see("Redacted 1 match in 1 event")
        self.see("No copy was found")
        self.done("redact a secret", most=8)
        self.begin()
        self.palette("quick fixes", "A few quick fixes before the weekend")
        self.follow("Roll back…")
        self.follow("Quarantine 10 items")
        self.see("Made roll-back", within=".messagelist")
        self.done("roll back a session", most=5)
        self.rest("PATCH", "projects/demo/settings", {"settings": {"retention_days": 30}})
        self.begin()
        self.browser.find_element(By.CSS_SELECTOR, "#nav summary").click()  # More
        self.follow("Governance", within="nav[@id='nav']")
        self.follow("Retention", within="nav[@id='nav']")
        self.see("Captured events are deleted after 30 days")
        self.confirm("Delete permanently")
        self.see("Deleted 16 items in 16 events")
        self.done("run retention", most=4)


ROUTE = "[id$=create_project]"


class DocsPageTests(BrowserTestCase):
    def test_a_request_is_sent_with_the_session_or_with_a_token(self) -> None:
        self.browser.get(f"{self.server.address}/api/v1/docs")
        self.find(f"{ROUTE} summary").click()
        self.find(f"{ROUTE} .answers-list a[href='#schema-ProjectReport']").click()
        self.see("chain_finding", within="#schema-ProjectReport")
        self.browser.get(f"{self.server.address}/api/v1/docs")
        self.assertEqual(self.make_project("by-session"), "201")
        self.sign_out_for_this_test()
        self.browser.get(f"{self.server.address}/api/v1/docs")
        self.find("#api-token").send_keys(self.server.token)
        self.assertEqual(self.make_project("by-token"), "201")

    def sign_out_for_this_test(self) -> None:
        for cookie in self.browser.get_cookies():
            self.addCleanup(self.browser.add_cookie, cookie)
        self.browser.delete_all_cookies()

    def make_project(self, project: str) -> str:
        """Fill in the form of POST projects, send it, and return the status that the page shows."""
        self.find(f"{ROUTE} summary").click()
        body = self.find(f"{ROUTE} textarea")
        body.clear()
        body.send_keys(json.dumps({"project_id": project}))
        self.find(f"{ROUTE} form button").click()
        status = f"{ROUTE} [role=status]"
        text: str = self.wait(lambda: self.find(status).text.removesuffix("Sending…"), "the status of the answer")
        return text.split(maxsplit=1)[0]


# The server, which waits long for open connections at its end, and prints its streams and watchers on a signal
PROGRAM = """
import os, signal, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
django.setup()
from memoryhub.cli import main
from memoryhub.ops.serving import bridge, web
class Streams(bridge.Streams):
    def __init__(self, threads):
        super().__init__(threads)
        signal.signal(signal.SIGUSR1, lambda *_: print("open:", *self.counts, flush=True))
bridge.Streams = Streams
web._GRACE_SECONDS = 600

# Redaction is long, and waits for a file after its first step
import time
from pathlib import Path
from governance.admin import redaction
from memoryhub.core import background
background.LONG_EVENTS = 0
redact = redaction.redact
def wait(*, command, progress):
    progress(2)
    while not Path(os.environ["MEMORY_HUB_HOME"], "go").exists():
        time.sleep(0.02)
    return redact(command=command, progress=progress)
redaction.redact = wait
sys.exit(main(sys.argv))
"""


def id_of(answer: str) -> int:
    found = re.search(r"#(\d+)", answer)
    assert found, answer
    return int(found[1])


class LivePageTests(BrowserTestCase):
    has_own_server = True
    program = PROGRAM

    def setUp(self) -> None:
        super().setUp()
        options = ("--project", self.project)
        self.agent = McpServer(self.server.home, *options, MEMORY_HUB_AUTOSTART="off", MEMORY_HUB_TEST_TOOLS="")
        self.addCleanup(self.agent.destroy)
        self.agent.initialize()
        self.agent.say("session_start", session_id="work", purpose="measure the pump")

    def counts(self) -> tuple[int, int]:
        """Return the server's open streams and watchers."""
        before = len(self.server.output)
        self.server.process.send_signal(signal.SIGUSR1)
        poll(lambda: len(self.server.output) > before, what="the counts")
        streams, watchers = self.server.output[-1].split()[1:]
        return int(streams), int(watchers)

    def remember(self, title: str) -> None:
        self.agent.say("memory_write", title=title, content=f"{title}, in full")

    def fail_fetches(self, *answers: str) -> None:
        """Let the next requests of the page have these answers."""
        self.script(
            f"const real = fetch, answers = [{', '.join(answers)}];"
            "window.fetch = (...asked) => (answers.shift() ?? real)(...asked);"
        )

    def see_live(self) -> None:
        self.wait(lambda: self.script("return document.querySelector('[data-live]').dataset.state") == "on", "Live")

    def test_pages_are_live_while_someone_looks_and_nothing_is_left(self) -> None:
        self.follow_a_session()
        self.watch_long_work()
        self.end_with_an_open_page()

    def follow_a_session(self) -> None:
        self.remember("The pump hums")
        memory = id_of(self.agent.say("memory_write", title="The valve", content="The valve leaks"))
        self.agent.say("memory_context")
        threads = len(list(Path(f"/proc/{self.server.process.pid}/task").iterdir()))
        self.open("sessions_app/session/named/work/")
        self.see_live()
        self.see("The pump hums", "#rail")
        first = self.find(".entry.is-memory summary")
        first.click()
        self.script("window.isSamePage = true")
        self.see("Not used yet", "#given")
        self.agent.say("memory_get", ids=[memory])
        self.see("Used", f"#given li:has(a[href$='memory:{memory}/'])")
        self.fail_fetches(
            "() => Promise.reject(new TypeError('a lost connection'))", "() => new Response('', {status: 503})"
        )
        self.remember("The pump stops")
        self.see("The pump stops", "#rail")
        self.see_live()
        self.see("1 new row", ".visually-hidden[role=status]")
        self.assertTrue(self.script("return window.isSamePage && document.activeElement.closest('details').open"))
        self.assertEqual(self.script("return document.activeElement"), first)
        self.assertEqual(self.counts(), (1, 1))
        page = self.browser.current_window_handle
        self.browser.switch_to.new_window("tab")
        poll(lambda: self.counts() == (0, 0), what="the end of the stream of a hidden page")
        self.remember("The pump is repaired")
        self.browser.get(f"{self.server.address}/p/{self.project}/admin/sessions_app/session/named/work/")
        self.see_live()
        self.browser.close()
        self.browser.switch_to.window(page)
        self.see("The pump is repaired", "#rail")
        self.see_live()
        self.browser.get("about:blank")
        poll(lambda: self.counts() == (0, 0), what="the end of the stream of a closed page")
        self.assertLessEqual(len(list(Path(f"/proc/{self.server.process.pid}/task").iterdir())), threads + 8)

    def watch_long_work(self) -> None:
        self.remember("The cipher is swordfish")
        self.open("governance/redaction/")
        self.type_into("target", "swordfish")
        with self.new_page():
            self.click("Preview")
        self.type_into("typed", "redact")
        with self.new_page():
            self.click("Redact permanently")
        self.see("Redaction in progress", "h1")
        self.see("2 of ", "#task")
        self.see_live()
        page = self.browser.current_url
        self.browser.get(f"{self.server.address}/jobs")
        self.see(f"Redaction of {self.project}", "#tasks")
        self.see("2 of ", "#tasks")
        self.see_live()
        self.browser.get(page)
        self.see_live()
        (self.server.home / "go").touch()
        self.see("Redacted 2 matches", ".messagelist")
        self.see("Past redactions")
        self.browser.get(f"{self.server.address}/jobs")
        self.see("Backup", "#jobs")
        self.assertEqual(self.find("#tasks").text, "")

    def end_with_an_open_page(self) -> None:
        self.open("sessions_app/session/named/work/")
        self.see_live()
        self.assertEqual(self.server.end(), 0)
        self.see("Reconnecting", "[data-live]")
        self.browser.get("about:blank")
        self.browser.get_log("browser")
