"""Pages that follow changes: a real hub, a real browser, and an MCP client that writes."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.admin.browser import BrowserTestCase
from tests.mcp.client import Server as McpServer
from tests.web.server import poll

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

    def see_live(self) -> None:
        self.wait(lambda: self.script("return document.querySelector('[data-live]').dataset.state") == "on", "Live")

    def test_a_session_is_followed_and_nothing_is_left_when_its_page_is_closed(self) -> None:
        self.remember("The pump hums")
        threads = len(list(Path(f"/proc/{self.server.process.pid}/task").iterdir()))
        self.open("sessions_app/session/named/work/")
        self.see_live()
        self.see("The pump hums", "#rail")
        first = self.find(".entry.is-memory summary")
        first.click()
        self.script("window.isSamePage = true")

        self.remember("The pump stops")
        self.see("The pump stops", "#rail")
        self.see("1 new row", "[role=status]")
        self.assertTrue(self.script("return window.isSamePage && document.activeElement.closest('details').open"))
        self.assertEqual(self.script("return document.activeElement"), first)
        self.assertEqual(self.counts(), (1, 1))

        page = self.browser.current_window_handle
        self.browser.switch_to.new_window("tab")
        poll(lambda: self.counts() == (0, 0), what="the end of the stream of a hidden page")
        self.remember("The pump is mended")
        self.browser.get(f"{self.server.address}/p/{self.project}/admin/sessions_app/session/named/work/")
        self.see_live()
        self.browser.close()
        self.browser.switch_to.window(page)
        self.see("The pump is mended", "#rail")
        self.see_live()

        self.browser.get("about:blank")
        poll(lambda: self.counts() == (0, 0), what="the end of the stream of a closed page")
        self.assertLessEqual(len(list(Path(f"/proc/{self.server.process.pid}/task").iterdir())), threads + 8)

    def test_long_work_shows_its_progress_and_then_its_result(self) -> None:
        self.remember("The cipher is swordfish")
        self.open("governance/redaction/")
        self.type_into("wanted", "swordfish")
        with self.new_page():
            self.click("Preview")
        self.type_into("typed", "redact")
        with self.new_page():
            self.click("Redact permanently")
        self.see("Redaction in progress", "h1")
        self.see("2 of 3 events", "#task")
        self.see_live()
        page = self.browser.current_url
        self.browser.get(f"{self.server.address}/jobs")
        self.see(f"Redaction of {self.project}", "#tasks")
        self.see("2 of 3", "#tasks")
        self.see_live()
        self.browser.get(page)
        self.see_live()
        (self.server.home / "go").touch()
        self.see("Redacted 2 matches", ".messagelist")
        self.see("Past redactions")
        self.browser.get(f"{self.server.address}/jobs")
        self.see("Backup", "#jobs")
        self.assertEqual(self.find("#tasks").text, "")

    def test_open_streams_do_not_delay_the_end_of_the_hub(self) -> None:
        self.open("sessions_app/session/named/work/")
        self.see_live()
        self.assertEqual(self.server.end(), 0)
        self.see("Reconnecting", "[data-live]")
        self.browser.get("about:blank")
        self.browser.get_log("browser")
