"""Hostile texts in every field of every kind of thing, on every page, in a real browser."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from django.test import tag

from tests.admin.browser import NARROW, BrowserTestCase
from tests.hostile import MARKUP
from tests.web.hostile_pages import HUB_PAGES, UNFILLED
from tests.web.server import DEADLINE_SECONDS, ROOT, command

# `make torture` opens the pages with each of the texts, and those of more objects
IS_LONG = os.environ.get("MEMORY_HUB_TORTURE") == "long"
TEXTS = tuple(MARKUP) if IS_LONG else ("elements",)
OBJECTS = 4 if IS_LONG else 1
# Before any script of a page: what must not be called, and what the browser reports
_WATCH = """
window.violations = [];
window.canary = window.alert = window.confirm = window.prompt = () => violations.push('a script ran');
addEventListener('securitypolicyviolation', event => violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""
_LOOK = """
const report = [...window.violations ?? ['no watch']];
const add = (what, elements) => elements.forEach(element => report.push(`${what}: ${element.outerHTML.slice(0, 150)}`));
const all = selector => [...document.querySelectorAll(selector)];
const isForeign = address => address && new URL(address, location.href).origin !== location.origin;
add('an element of the text', all('.hostile, base, plaintext, meta[http-equiv=refresh], iframe:not([src^="/"])'));
add('a handler', all('*').filter(element => element.getAttributeNames().some(name => name.startsWith('on'))));
add('a link', all('a[href], area[href]').filter(
    link => !/^(https?|mailto):$/.test(new URL(link.getAttribute('href'), location.href).protocol)));
add('a foreign source', all('[src], link[href], use[href], image[href]').filter(
    element => isForeign(element.getAttribute('src') ?? element.getAttribute('href'))));
performance.getEntriesByType('resource').filter(({name}) => isForeign(name)).forEach(
    ({name}) => report.push(`a request: ${name}`));
if (location.protocol !== 'chrome-error:' && location.origin !== arguments[0]) report.push(`left for ${location.href}`);
// Without a style sheet it is a part that a script puts into a page
const tooWide = document.styleSheets.length && document.documentElement.scrollWidth - innerWidth;
if (tooWide > 0) report.push(`${tooWide} pixels wider than ${innerWidth}`);
return report;
"""
_FILL = "import django; django.setup(); from tests.web.hostile_pages import print_filled; print_filled({}, *{})"
# A client that shows an MCP App, as the specification has it: a sandboxed frame that asks by messages
_HOST = """<!doctype html><meta charset="utf-8"><title>Host</title>
<iframe sandbox="allow-scripts" style="width: 900px; height: 500px"></iframe>
<script>
window.said = [];
const frame = document.querySelector('iframe'), answer = ANSWER;
const reply = message => frame.contentWindow.postMessage({jsonrpc: '2.0', ...message}, '*');
addEventListener('message', ({data}) => {
    said.push(data);
    if (data.method === 'ui/initialize') reply({id: data.id, result: {hostContext: {theme: 'light'}}});
    if (data.method === 'ui/notifications/initialized')
        reply({method: 'ui/notifications/tool-input', params: {arguments: {ids: [1]}}});
    if (data.method === 'tools/call') reply({id: data.id, result: {structuredContent: {results: [answer]}}});
});
frame.srcdoc = VIEW;
</script>"""


@tag("attack")
class HostileTextTests(BrowserTestCase):
    has_own_server = True
    filled: dict[str, dict[str, Any]]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        watch = cls.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
        cls.addClassCleanup(cls.browser.execute_cdp_cmd, "Page.removeScriptToEvaluateOnNewDocument", watch)
        for name in TEXTS:
            cls.server.api("POST", "projects", {"project_id": f"hostile-{name}"})
        with command(home=cls.server.home, program=_FILL.format(OBJECTS, TEXTS)) as process:
            output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        assert len(lines) == len(TEXTS), output
        cls.filled = dict(zip(TEXTS, map(json.loads, lines), strict=True))

    def test_no_page_runs_or_shows_markup_of_a_text(self) -> None:
        faults, count = [], 0
        for name, filled in self.filled.items():
            self.assertEqual(set(filled["unfilled"]), UNFILLED)
            asked = urlencode({"q": MARKUP[name], "text": MARKUP[name]})
            for page in (*filled["pages"], f"/find?{asked}", *(f"/{page}" for page in HUB_PAGES)):
                faults += [f"{name} {page}: {fault}" for fault in self.faults(page)]
                count += 1
        self.assertEqual(faults, [], "\n".join(faults))
        self.assertGreater(count, 100 * len(TEXTS))

    def test_a_page_that_shows_texts_as_markup_is_noticed(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        for name in ("elements", "documents", "attributes"):
            page = Path(folder, f"{name}.html")
            page.write_text(f"<!doctype html><title>x</title><a href=javascript:canary()>x</a><b {MARKUP[name]}>x</b>")
            self.browser.get(page.as_uri())
            report = " ".join(self.script(f"return (function () {{ {_LOOK} }})('')"))
            with self.subTest(name):
                self.assertIn("an element of the text: ", report)
                self.assertIn("a link: <a href=", report)
                self.assertIn("a handler: " if name == "attributes" else "a script ran", report)
        self.browser.get_log("browser")

    def faults(self, page: str) -> list[str]:
        self.browser.get(self.server.address + page)
        faults = list(self.browser.execute_script(_LOOK, self.server.address))
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", NARROW)
        faults += [fault for fault in self.browser.execute_script(_LOOK, self.server.address) if fault not in faults]
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        if not self.browser.current_url.startswith(self.server.address):
            faults.append(f"left for {self.browser.current_url}")
        said = [entry["message"] for entry in self.browser.get_log("browser")]
        # A page that takes no GET, or shows nothing of such an object, answers with a status that the browser reports
        faults += [line for line in said if "Failed to load resource" not in line and "favicon" not in line]
        return faults

    def is_drawn(self) -> bool:
        return bool(self.script("return said.some(({method}) => method === 'ui/notifications/size-changed')"))

    def test_the_view_of_a_lineage_shows_texts_as_they_are(self) -> None:
        view = (ROOT / "decisions/lineage.html").read_text("utf-8")
        watched = view.replace("<script>", f"<script>{_WATCH}", 1)
        folder = self.enterContext(tempfile.TemporaryDirectory())
        for name, filled in self.filled.items():
            answer, shown = (json.dumps(value).replace("</", "<\\/") for value in (filled["decision"], watched))
            host = Path(folder, f"{name}.html")
            host.write_text(_HOST.replace("VIEW", shown).replace("ANSWER", answer), "utf-8")
            self.browser.get(host.as_uri())
            self.wait(self.is_drawn, "the lineage")
            self.browser.switch_to.frame(0)
            look = "return [window.violations, document.querySelectorAll('.hostile, iframe, img, a').length]"
            with self.subTest(name):
                self.assertEqual(self.script(look), [[], 0])
                titles = "return [...document.querySelectorAll('g > title')].map(title => title.textContent)"
                self.assertIn(filled["decision"]["title"], self.script(titles))
            self.browser.switch_to.default_content()
