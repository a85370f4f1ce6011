"""What MCP in a hub does when much is asked of it, and when it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest import TestCase

import anyio
from django.test import tag

from tests.mcp.client import DEADLINE_SECONDS, MODERN, run_async, wait_until
from tests.mcp.http_server import HttpSession, HubProject, hello, text_of
from tests.mcp.hub_case import HubTestCase, hub_with
from tests.web.server import Server, poll

# Prints on a signal whether the SDK is loaded, and has small limits
PROGRAM = """
import os, signal, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
django.setup()
from memoryhub.cli import main
from memoryhub.mcp import bodies, gate, sessions, threads
bodies.MOST_BYTES = 1_000_000
bodies.MOST_SECONDS = 5
gate.MOST_STREAMS_OF_A_TOKEN = 2
gate.MOST_CALLS_OF_A_TOKEN = 6
gate.PATROL_SECONDS = 0.05
sessions.MOST_SESSIONS_OF_A_PERSON = 8
threads.MAX_QUEUED = 2
signal.signal(signal.SIGUSR1, lambda *_: print("loaded:", "mcp.server.lowlevel" in sys.modules, flush=True))
sys.exit(main(sys.argv))
"""
# Prints each use that keeps an idle hub running
COUNTING_PROGRAM = """
import os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
django.setup()
from memoryhub.cli import main
from memoryhub.mcp import mount
make = mount.McpMount.__init__
mount.McpMount.__init__ = lambda self, streams, _: make(self, streams, lambda: print("used", flush=True))
sys.exit(main(sys.argv))
"""
# Waits for what was begun as long as a slow machine takes
PATIENT_PROGRAM = """
import os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
django.setup()
from memoryhub.cli import main
from memoryhub.ops.serving import web
web._GRACE_SECONDS = 120
sys.exit(main(sys.argv))
"""


@tag("process")
class SharingThreads(HubTestCase):
    def test_slow_reads_of_one_project_do_not_keep_another_from_reading(self) -> None:
        go, trace = self.folder / "go", self.folder / "trace"
        with ThreadPoolExecutor(5) as pool:
            sessions = [HttpSession(self.alpha) for _ in range(5)]
            blocked = [pool.submit(each.say, "test_wait", path=str(trace), until=str(go)) for each in sessions]
            wait_until(lambda: trace.exists() and trace.read_text() == "begun\n" * 2)
            try:
                self.assertEqual(HttpSession(self.beta).say("test_echo", text="at once"), "at once")
                self.assertFalse(any(each.done() for each in blocked))
                self.assertEqual(trace.read_text(), "begun\n" * 2)
            finally:
                go.touch()
            self.assertEqual([each.result() for each in blocked], ["waited"] * 5)

    def test_a_slow_write_to_one_project_delays_its_other_writes_only(self) -> None:
        go, first, second = self.folder / "go", self.folder / "first", self.folder / "second"
        with ThreadPoolExecutor(2) as pool:
            slow, next_one = HttpSession(self.alpha), HttpSession(self.alpha)
            begun = pool.submit(slow.say, "test_slow_write", path=str(first), until=str(go))
            wait_until(lambda: first.exists() and first.read_text() == "begun")
            waiting = pool.submit(next_one.say, "test_slow_write", path=str(second))
            try:
                self.assertIn("created", HttpSession(self.beta).say("memory_write", title="Beta", content="not late"))
                self.assertEqual(HttpSession(self.alpha).say("test_echo", text="read"), "read")
                self.assertFalse(second.exists())
            finally:
                go.touch()
            self.assertEqual((begun.result(), waiting.result()), ("written", "written"))


@tag("process")
class Limits(HubTestCase):
    program = PROGRAM

    def test_the_sdk_is_loaded_by_the_first_admitted_request(self) -> None:
        with hub_with("alpha", program=PROGRAM) as hub:
            self.assertEqual(HubProject(hub).status(), 401)
            self.assertEqual(self.loaded(hub), "loaded: False")
            HttpSession(HubProject(hub))
            self.assertEqual(self.loaded(hub), "loaded: True")

    def loaded(self, hub: Server) -> str:
        before = len(hub.output)
        hub.process.send_signal(signal.SIGUSR1)
        poll(lambda: len(hub.output) > before, what="the answer")
        return hub.output[-1].strip()

    def test_one_token_has_so_many_sessions(self) -> None:
        token = self.token("many")
        sessions = [HttpSession(HubProject(self.hub, "alpha", token)) for _ in range(8)]
        refused = HubProject(self.hub, "alpha", token).send("POST", hello(), Authorization=f"Bearer {token}")
        self.assertEqual(refused.headers["Retry-After"], "1")
        self.assertEqual(self.refused(refused), (429, "you have 8 sessions; end some of them"))
        with sessions[0].send("DELETE") as response:
            self.assertEqual(response.status, 200)
        HttpSession(HubProject(self.hub, "alpha", token))
        HttpSession(HubProject(self.hub, "alpha", self.token("another")))

    def test_one_token_has_so_many_streams_and_a_revoked_one_has_none(self) -> None:
        token = self.token("streams")
        server = HubProject(self.hub, "alpha", token)
        streams = [HttpSession(server).send("GET") for _ in range(2)]
        self.assertEqual([stream.status for stream in streams], [200, 200])
        status, sentence = self.refused(HttpSession(server).send("GET"))
        self.assertEqual((status, sentence), (429, "this token has 2 streams open at once; wait for some to end"))
        self.run_token("revoke", "streams")
        for stream in streams:
            with stream:
                self.assertNotIn(b"data:", stream.read())

    def test_calls_beyond_the_queue_of_a_project_are_answered_with_busy(self) -> None:
        go, trace = self.folder / "go", self.folder / "trace"
        sessions = [HttpSession(self.alpha) for _ in range(5)]
        with ThreadPoolExecutor(5) as pool:
            blocked = [pool.submit(each.say, "test_wait", path=str(trace), until=str(go)) for each in sessions]
            try:
                poll(lambda: any(each.done() for each in blocked), what="an answer")
                (refused,) = [each.result() for each in blocked if each.done()]
                self.assertEqual(
                    refused, "busy: 2 calls of this project are waiting already; repeat the call in a moment"
                )
                self.assertEqual(HttpSession(self.beta).say("test_echo", text="beta"), "beta")
            finally:
                go.touch()
            self.assertEqual(sorted(each.result() for each in blocked)[1:], ["waited"] * 4)

    def test_bodies_have_limits_of_time_and_of_their_sum(self) -> None:
        self.assertEqual(self.send_body(b" ", length=1_000), (408, b"The body took too long\n"))
        status, problem = self.send_body(b" " * 1_500_000, length=1_500_000)
        self.assertEqual((status, json.loads(problem)["code"]), (503, "busy"))
        self.assertEqual(HttpSession(self.alpha).say("test_echo", text="on"), "on")

    def send_body(self, content: bytes, *, length: int) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self.hub.place, timeout=DEADLINE_SECONDS)
        with contextlib.closing(connection):
            connection.putrequest("POST", self.alpha.path)
            for name, value in {**self.alpha.authorization, "Content-Length": str(length)}.items():
                connection.putheader(name, value)
            connection.endheaders()
            with contextlib.suppress(ConnectionError):
                connection.send(content)
            response = connection.getresponse()
            return response.status, response.read()

    def test_one_token_has_so_many_calls_at_once(self) -> None:
        go, trace = self.folder / "go", self.folder / "trace"
        token = self.token("caller")
        alpha, beta = (HubProject(self.hub, project, token) for project in ("alpha", "beta"))
        sessions = [*(HttpSession(alpha) for _ in range(3)), *(HttpSession(beta) for _ in range(3))]
        with ThreadPoolExecutor(6) as pool:
            blocked = [pool.submit(each.say, "test_wait", path=str(trace), until=str(go)) for each in sessions]
            try:
                wait_until(lambda: trace.exists() and trace.read_text() == "begun\n" * 4)
                # The other two calls may arrive later than these four.
                poll(lambda: self.is_full(alpha, token), what="a refusal")
            finally:
                go.touch()
            self.assertEqual([each.result() for each in blocked], ["waited"] * 6)

    def is_full(self, server: HubProject, token: str) -> bool:
        with server.send("POST", hello(), Authorization=f"Bearer {token}") as response:
            return response.status == 429 and b"this token has 6 calls open at once" in response.read()


@tag("process")
class KeepingTheHubRunning(TestCase):
    def test_calls_count_as_use_of_the_hub_and_streams_do_not(self) -> None:
        with hub_with("alpha", program=COUNTING_PROGRAM) as hub:
            session = HttpSession(HubProject(hub))
            with session.send("GET") as stream:
                self.assertEqual(stream.status, 200)
                session.say("test_echo", text="a call")
                session.send("DELETE").close()
            hub.end()
            self.assertEqual(hub.output.count("used\n"), 4)  # two of the handshake, the call, the end of the session


@tag("process")
class EndingTheHub(TestCase):
    def test_a_signal_during_a_write_lets_it_finish_and_answer_and_ends_the_streams(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with (
                self.subTest(signal=number),
                hub_with("alpha", program=PATIENT_PROGRAM) as hub,
                tempfile.TemporaryDirectory() as folder,
                ThreadPoolExecutor(1) as pool,
            ):
                path, go = Path(folder, "trace"), Path(folder, "go")
                alpha = HubProject(hub)
                session, late = HttpSession(alpha), HttpSession(alpha)
                listening = session.send("GET")
                writing = pool.submit(text_of, session.begin("test_slow_write", path=str(path), until=str(go)))
                wait_until(lambda path=path: path.exists() and path.read_text() == "begun")
                hub.process.send_signal(number)
                poll(partial(self.is_stopping, late), what="a refusal")
                go.touch()
                self.assertEqual(writing.result(), "written")
                self.assertEqual(path.read_text(), "done")
                listening.read()
                listening.close()
                self.assertEqual(hub.process.wait(120), 0)
                self.assertNotIn("Traceback", hub.text)

    def test_a_subscriber_of_the_newest_revision_is_sent_the_end_of_its_stream(self) -> None:
        with hub_with("alpha") as hub:
            run_async(self.listen_to_the_end, hub)
            self.assertEqual(hub.process.wait(120), 0)

    async def listen_to_the_end(self, hub: Server) -> None:
        async with HubProject(hub).client(MODERN) as client, client.listen(resources_list_changed=True) as stream:
            hub.process.send_signal(signal.SIGTERM)
            with anyio.fail_after(60):
                self.assertEqual([event async for event in stream], [])  # it would raise if the connection broke

    def is_stopping(self, session: HttpSession) -> bool:
        with session.begin("test_echo", text="late") as response:
            return response.status == 503 and b'"the server is stopping; ' in response.read()

    def test_a_client_that_is_still_sending_does_not_delay_the_end(self) -> None:
        with hub_with("alpha") as hub:
            alpha = HubProject(hub)
            HttpSession(alpha)
            connection = http.client.HTTPConnection(*hub.place)
            with contextlib.closing(connection):
                connection.putrequest("POST", alpha.path)
                for name, value in {**alpha.authorization, "Content-Length": "1000"}.items():
                    connection.putheader(name, value)
                connection.endheaders(b"{")
                self.assertEqual(hub.end(), 0)
                self.assertNotIn("were not answered", hub.text)
