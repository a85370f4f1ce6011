"""Pages that follow changes: a real hub, a real browser, and an MCP client that writes."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
from pathlib import Path
from typing import Any
from unittest import TestCase, mock

from django.contrib import messages

from memoryhub.core import background, log
from memoryhub.core.errors import Conflict, Invalid
from memoryhub.ops.serving import live
from memoryhub.ops.serving.bridge import WsgiBridge
from tests.admin.base import AdminTestCase, text_of
from tests.admin.browser import BrowserTestCase
from tests.mcp.client import Process as McpServer
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

        self.remember("The pump stops")
        self.see("The pump stops", "#rail")
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
        self.type_into("wanted", "swordfish")
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


class RightsTests(AdminTestCase):
    def test_a_stream_needs_the_rights_of_its_page(self) -> None:
        memory = self.write("The pump hums")
        stream = self.client.get(self.address("live/"))
        self.assertEqual((stream.status_code, stream["Content-Type"]), (200, "text/event-stream; charset=utf-8"))
        self.assertFalse(stream.has_header("Content-Length"))
        self.assertEqual(stream.source.version(), f"{memory}-0")  # type: ignore[attr-defined]
        self.assertEqual(self.client.get(self.address("live/", "gone")).status_code, 404)
        self.assertEqual(self.client.get(self.address("tasks/none/live/")).status_code, 204)
        self.assertRedirects(
            self.client.get(self.address("tasks/none/")), self.address(""), fetch_redirect_response=False
        )
        self.client.logout()
        for path in (self.address("live/"), "/live/jobs", self.address("tasks/none/live/")):
            self.assertEqual(self.client.get(path).status_code, 302, path)

    def test_a_page_that_is_fetched_again_leaves_messages_for_the_next_page(self) -> None:
        self.client.get(self.address("tasks/none/"))
        fetched = self.client.get(self.address(""), headers={"Hub-Live": "1"})
        self.assertNotContains(fetched, "The hub was started again since")
        self.assertIn("The hub was started again since", self.page())

    def test_a_page_that_is_fetched_again_may_lead_elsewhere_with_a_message(self) -> None:
        gone = self.address("memories/memory/review/99/")
        fetched = self.client.get(gone, headers={"Hub-Live": "1"})
        self.assertRedirects(fetched, self.address("memories/memory/review/"))
        self.assertNotIn("#99 is not in review", self.page())


class TaskTests(AdminTestCase):
    def start(self, work: Any, actor: str = "owner") -> background.Task:
        with self.store(actor=actor, source="admin"):
            done = lambda result: [(messages.SUCCESS, f"Done: {result}.")]  # noqa: E731
            return background.start_task(
                "Sweep", page=self.address("governance/hold/"), work=work, describe=done, failed=messages.ERROR
            )

    def result_of(self, task: background.Task) -> str:
        poll(lambda: task.ended, what="the end of the task")
        return text_of(self.client.get(self.address(f"tasks/{task.id}/"), follow=True).content.decode())

    def test_the_result_or_the_error_is_shown_once_to_the_person_who_started_it(self) -> None:
        def refuse(_: Any) -> None:
            raise Invalid("the broom is missing")

        with mock.patch.object(background.logger, "exception") as logged:
            broken = self.result_of(self.start(lambda _: 1 // 0))
        self.assertIn("Sweep failed. The hub’s own log has the error.", broken)
        logged.assert_called_once()
        self.assertIn("The broom is missing.", self.result_of(self.start(refuse)))
        self.assertNotIn("Done: ", self.result_of(self.start(lambda _: log.head()[0], actor="someone")))
        self.assertIn("Done: 0.", self.result_of(self.start(lambda _: log.head()[0])))
        self.assertNotIn("Done: 0.", self.page("governance/hold/"))

    def test_a_store_has_one_task_at_a_time(self) -> None:
        ends = threading.Event()
        self.addCleanup(ends.set)
        task = self.start(lambda progress: (progress(1, 4), ends.wait(60)))
        with self.assertRaisesRegex(Conflict, "sweep of alpha is still running; wait until it has ended"):
            self.start(lambda _: None)
        poll(lambda: task.done, what="its progress")
        page = self.page(f"tasks/{task.id}/")
        self.assertIn("1 of 4", page)
        self.assertNotIn("data-live-end", page)
        self.assertIn("Sweep of alpha", text_of(self.client.get("/jobs").content.decode()))
        self.page(f"tasks/{task.id}/", "beta", status=302)
        ends.set()
        poll(lambda: task.ended, what="the end of the task")
        fetched = self.client.get(self.address(f"tasks/{task.id}/"), headers={"Hub-Live": "1"})
        self.assertContains(fetched, "data-live-end")  # the browser loads the page again, which redirects


class StreamTests(TestCase):
    """The streams of a bridge, without a browser."""

    def setUp(self) -> None:
        self.version = "1"
        source = live.Source("pump", lambda: self.version, lambda: self.version)
        self.response = response = mock.MagicMock(source=source, person="ann", may_follow=lambda: True)

        def application(_: Any, start: Any) -> Any:
            start("200 OK", [("Content-Type", "text/event-stream")])
            return response

        self.used = mock.Mock()
        self.bridge = WsgiBridge(application, max_body=10, threads=2, on_request=self.used)
        self.addCleanup(self.bridge.close)

    async def open(self, sent: list[Any], closed: asyncio.Event) -> None:
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "http_version": "1.1"}
        messages = [{"type": "http.request", "body": b""}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await closed.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message.get("body", message.get("status")))

        await self.bridge({**scope, "headers": [(b"accept", b"text/event-stream")]}, receive, send)

    def test_many_streams_have_one_watcher_which_ends_with_the_last(self) -> None:
        async def follow() -> None:
            closed = asyncio.Event()
            sent: list[list[Any]] = [[] for _ in range(20)]
            pages = [asyncio.ensure_future(self.open(messages, closed)) for messages in sent]
            await self.until(lambda: all(b"data: 1\n\n" in messages for messages in sent))
            self.assertEqual(self.bridge.streams.counts, (20, 1))
            self.version = "2"
            await self.until(lambda: all(b"data: 2\n\n" in messages for messages in sent))
            with mock.patch.object(live, "MOST_STREAMS", 20):
                refused: list[Any] = []
                await self.open(refused, closed)
                self.assertEqual(refused, [503, b""])
            with mock.patch.object(live, "MOST_STREAMS_OF_A_PERSON", 20):
                await self.open(refused, closed)
                self.assertEqual(refused, [503, b""] * 2)
                self.response.person = "ben"
                pages.append(asyncio.ensure_future(self.open([], closed)))
                await self.until(lambda: self.bridge.streams.counts == (21, 1))
            closed.set()
            await asyncio.gather(*pages)
            self.assertEqual(self.bridge.streams.counts, (0, 0))
            self.assertEqual(sent[0], [200, b"data: 1\n\n", b"data: 2\n\n", b""])
            await self.until(lambda: len(asyncio.all_tasks()) == 1)
            self.used.assert_not_called()  # an idle hub ends, whoever left a page open

        asyncio.run(follow())

    def test_a_stream_beats_and_ends_with_its_time_or_the_server(self) -> None:
        async def follow() -> None:
            sent: list[Any] = []
            with mock.patch.multiple(live, HEARTBEAT_SECONDS=0.01, LIFE_SECONDS=0.3):
                await self.open(sent, asyncio.Event())
            self.assertIn(b":\n\n", sent)
            self.assertEqual(sent[-1], b"")
            page = asyncio.ensure_future(self.open(sent, asyncio.Event()))
            await self.until(lambda: self.bridge.streams.counts == (1, 1))
            self.bridge.streams.close()
            await page
            self.assertEqual(self.bridge.streams.counts, (0, 0))

        asyncio.run(follow())

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)

    def test_a_change_within_the_clocks_tick_is_seen(self) -> None:
        self.assertEqual(live.stamp_of_files([Path(__file__), Path("missing")]), live.stamp_of_files([Path(__file__)]))
        with mock.patch("time.time_ns", return_value=Path(__file__).stat().st_mtime_ns + 1):
            self.assertNotEqual(live.stamp_of_files([Path(__file__)]), live.stamp_of_files([Path(__file__)]))
