"""axe on every page, in light and dark."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from django.test import SimpleTestCase, tag
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.admin.browser import NARROW, SECONDS, quitting, start_browser
from tests.programs import needs
from tests.web.all_pages import DEMO, Page, Walk
from tests.web.screenshots import emulate_scheme, sample_hub
from tests.web.server import ROOT

AXE = ROOT / ".node" / "node_modules" / "axe-core" / "axe.min.js"
# All rules of WCAG 2.2 A and AA, axe's best practices, and one that axe has off; in dark, only what colours decide; on
# a telephone, only what depends on what is shown there.
_RUN = """
const [mode, done] = arguments;
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


@needs("chromium", "node tools")
@tag("browser")
class AccessibilityTests(SimpleTestCase):
    def setUp(self) -> None:
        place = Path(self.enterContext(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        self.server = self.enterContext(sample_hub(place / "home"))
        self.browser = start_browser(f"{place}/browser")
        self.enterContext(quitting(self.browser))
        self.browser.get(self.server.link)

    def test_every_page_passes_axe_fits_a_telephone_and_is_reached_by_keyboard(self) -> None:
        source = AXE.read_text("utf-8")
        self.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
        walk = Walk(self.browser, self.server.address)
        rules: Counter[str] = Counter()
        pages = chain(walk.pages(), self.answered_forms())
        report = [line for page in pages for line in self.violations(page, rules)]
        self.assertEqual(report, [], f"{dict(rules)}\n" + "\n".join(report))
        self.assertGreater(len(walk.seen), 60)

    def answered_forms(self) -> Iterator[Page]:
        """Yield what only a form leads to: a page with errors, and one that shows a token."""
        self.browser.get(f"{self.server.address}{DEMO}settings/")
        self.browser.find_element(By.NAME, "review_sample_percent-value").send_keys("500", Keys.ENTER)
        self.wait_for(".errornote")
        yield Page("settings-error", "settings with an error")
        self.browser.get(f"{self.server.address}/tokens")
        self.browser.find_element(By.CSS_SELECTOR, "[name=projects][value=demo]").send_keys(Keys.SPACE)
        self.browser.find_element(By.NAME, "name").send_keys("ci", Keys.ENTER)
        self.wait_for("#shown-once")
        yield Page("token", "a new token")
        self.browser.get(f"{self.server.address}/tokens/ci/revoke")
        yield Page("revoke", "the revocation of a token")

    def wait_for(self, selector: str) -> None:
        WebDriverWait(self.browser, SECONDS).until(lambda browser: browser.find_elements(By.CSS_SELECTOR, selector))

    def violations(self, page: Page, rules: Counter[str]) -> list[str]:
        lines = []
        for scheme in ("light", "dark"):
            emulate_scheme(self.browser, scheme)
            lines += self.found_by_axe(page, scheme, rules)
        unreached = self.browser.execute_script(_UNREACHED)
        lines += [f"{page.path} is not reached by keyboard: {html}" for html in unreached]
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", NARROW)
        if (width := self.browser.execute_script("return document.documentElement.scrollWidth")) > NARROW["width"]:
            lines.append(f"{page.path} is {width} pixels wide")
        lines += self.found_by_axe(page, "narrow", rules)
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        return lines

    def found_by_axe(self, page: Page, mode: str, rules: Counter[str]) -> list[str]:
        found: Any = self.browser.execute_async_script(_RUN, mode)
        self.assertIsInstance(found, list, f"{page.path}: {found}")
        for violation in found:
            rules[violation["id"]] += len(violation["nodes"])
        return [
            f"{page.path} {mode} {violation['id']}: {' | '.join(node)}"
            for violation in found
            for node in violation["nodes"]
        ]
