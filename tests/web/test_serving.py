"""The parts of the server in this process: the bridge to WSGI, streams, the strict protocol, and what is logged."""

from __future__ import annotations

import asyncio
import io
import logging
import tempfile
import threading
from pathlib import Path
from typing import Any
from unittest import TestCase, mock
from wsgiref.validate import validator

import h11
from django.test import tag

from memoryhub import logs
from memoryhub.ops.serving import live
from memoryhub.ops.serving.bridge import WsgiBridge
from memoryhub.ops.serving.outbox import Spool
from memoryhub.ops.serving.protocol import HEADER_BYTES, StrictConnection
from tests.home import run_home
from tests.web.public_server import send, team_hub
from tests.web.server import DEADLINE_SECONDS, poll

SCOPE = {
    "type": "http",
    "method": "POST",
    "path": "/p/ü",
    "raw_path": b"/p/%C3%BC",
    "query_string": b"a=1",
    "http_version": "1.1",
    "server": ("127.0.0.1", 8321),
    "client": ("127.0.0.1", 50000),
    "headers": [(b"host", b"localhost"), (b"x-many", b"1"), (b"x-many", b"2")],
}


class BridgeTests(TestCase):
    def _exchange(
        self, application: Any, messages: list[dict[str, Any]], *, max_body: int = 10, **scope: Any
    ) -> list[dict[str, Any]]:
        bridge = WsgiBridge(application, max_body=max_body, threads=2)
        self.addCleanup(bridge.close)
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return messages.pop(0)

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        asyncio.run(bridge({**SCOPE, **scope}, receive, send))
        return sent

    def test_an_application_sees_a_request_as_the_standard_says(self) -> None:
        seen: dict[str, Any] = {}

        @validator
        def application(environ, start_response):
            seen.update(environ, body=environ["wsgi.input"].read(5), thread=threading.current_thread().name)
            start_response(
                "201 Created", [("Content-Type", "text/plain"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
            )
            return [b"one ", b"two"]

        sent = self._exchange(application, [_part(b"he", more=True), _part(b"llo")])
        self.assertEqual(seen["PATH_INFO"].encode("latin-1").decode(), "/p/ü")
        self.assertEqual((seen["QUERY_STRING"], seen["HTTP_X_MANY"], seen["body"]), ("a=1", "1,2", b"hello"))
        self.assertEqual(seen["CONTENT_LENGTH"], "5")
        self.assertTrue(seen["thread"].startswith("web"))
        self.assertEqual(sent[0]["status"], 201)
        self.assertEqual([value for name, value in sent[0]["headers"] if name == b"set-cookie"], [b"a=1", b"b=2"])
        self.assertEqual(b"".join(message.get("body", b"") for message in sent), b"one two")
        self.assertFalse(sent[-1]["more_body"])

    def test_of_a_body_that_is_too_long_no_more_than_one_byte_over_is_kept(self) -> None:
        seen: dict[str, Any] = {}

        def application(environ, start_response):
            seen.update(length=int(environ["CONTENT_LENGTH"]), body=environ["wsgi.input"].read())
            start_response("413 Content Too Large", [])
            return []

        self._exchange(application, [_part(b"x" * 8, more=True)] * 2, max_body=10)
        self.assertEqual((seen["length"], seen["body"]), (11, b"x" * 11))

    def test_a_client_that_goes_away_reaches_no_application(self) -> None:
        sent = self._exchange(self.fail, [_part(b"x", more=True), {"type": "http.disconnect"}])
        self.assertEqual(sent, [])

    def test_a_header_with_an_underscore_cannot_pass_for_one_with_a_hyphen(self) -> None:
        seen: dict[str, Any] = {}

        def application(environ, start_response):
            seen.update(environ)
            start_response("200 OK", [])
            return []

        self._exchange(
            application, [_part(b"")], headers=[(b"x_session_id", b"forged"), (b"cookie", b"a=1"), (b"cookie", b"b=2")]
        )
        self.assertNotIn("HTTP_X_SESSION_ID", seen)
        self.assertEqual(seen["HTTP_COOKIE"], "a=1; b=2")

    def test_an_answer_is_closed_even_when_it_fails(self) -> None:
        class Broken:
            closed = False

            def __iter__(self):
                raise RuntimeError("broken")

            def close(self) -> None:
                Broken.closed = True

        def application(environ, start_response):
            start_response("200 OK", [])
            return Broken()

        with self.assertRaisesRegex(RuntimeError, "broken"):
            self._exchange(application, [_part(b"")])
        self.assertTrue(Broken.closed)


class UnreadTests(TestCase):
    """One thread, and a client that reads nothing until the others have their answers."""

    def exchange_two(self, slow: Any, spool: Spool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        def application(environ, start_response):
            start_response("200 OK", [])
            return slow() if environ["REQUEST_METHOD"] == "GET" else [b"quick"]

        bridge = WsgiBridge(application, max_body=10, threads=1, spool=spool)
        self.addCleanup(bridge.close)
        unread: list[dict[str, Any]] = []
        quick: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return _part(b"")

        async def main() -> None:
            reads = asyncio.Event()

            async def send_slowly(message: dict[str, Any]) -> None:
                await reads.wait()
                unread.append(message)

            async def send(message: dict[str, Any]) -> None:
                quick.append(message)

            waiting = asyncio.ensure_future(bridge({**SCOPE, "method": "GET"}, receive, send_slowly))
            await asyncio.sleep(0)
            async with asyncio.timeout(DEADLINE_SECONDS):
                await bridge(dict(SCOPE), receive, send)
                reads.set()
                await waiting

        asyncio.run(main())
        return unread, quick

    def spool(self, **given: int) -> Spool:
        return Spool(Path(self.enterContext(tempfile.TemporaryDirectory(dir=run_home()))), **given)

    def test_an_answer_that_is_not_read_holds_no_thread(self) -> None:
        chunk = bytes(range(256)) * 256
        answers = {"streamed": lambda: (chunk for _ in range(50)), "whole": lambda: [chunk] * 50}
        for name, slow in answers.items():
            with self.subTest(name):
                spool = self.spool()
                unread, quick = self.exchange_two(slow, spool)
                self.assertEqual([message.get("body") for message in quick], [None, b"quick"])
                self.assertEqual(b"".join(message.get("body", b"") for message in unread), chunk * 50)
                self.assertFalse(unread[-1]["more_body"])
                self.assertEqual((spool.bytes, list(spool.folder.iterdir())), (0, []))

    def test_what_waits_for_all_clients_is_bounded(self) -> None:
        spool = self.spool(most_bytes=1_000_000)
        with self.assertLogs("memoryhub.ops.serving.bridge", "WARNING"):
            unread, quick = self.exchange_two(lambda: [b"x" * 3_000_000], spool)
        self.assertEqual((unread[0]["status"], quick[0]["status"]), (503, 200))
        self.assertEqual(spool.bytes, 0)


def _part(content: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": content, "more_body": more}


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


HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


class StrictConnectionTests(TestCase):
    def event_of(self, *parts: bytes) -> object:
        connection = StrictConnection()
        event: object = h11.NEED_DATA
        for part in parts:
            connection.receive_data(part)
            event = connection.next_event()
        return event

    def assert_refused(self, *parts: bytes) -> None:
        with self.subTest(parts=[part[:80] for part in parts]), self.assertRaises(h11.RemoteProtocolError):
            self.event_of(*parts)

    def test_a_length_is_given_once(self):
        for lengths in (
            b"Content-Length: 4\r\nContent-Length: 4\r\n",
            b"Content-Length: 4\r\ncontent-length: 4\r\n",
            b"Content-Length: 4\nX: y\nContent-Length:4\n",
            b"Content-Length: 4, 4\r\n",
            b"Content-Length: 4,\r\n 4\r\n",
        ):
            self.assert_refused(HEAD + lengths + b"\r\nbody")
        self.assert_refused(HEAD + b"Content-Length: 4\r\n", b"Content-Length: 4\r\n\r\n")
        once = HEAD + b"X-Content-Length: 4\r\nContent-Length: 4\r\n\r\nContent-Length: 4\r\nContent-Length: 4\r\n"
        self.assertIsInstance(self.event_of(once), h11.Request)

    def test_the_next_request_of_a_connection_is_checked_too(self):
        connection = StrictConnection()
        twice = HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx"
        connection.receive_data(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + twice)
        self.assertIsInstance(connection.next_event(), h11.Request)
        self.assertIsInstance(connection.next_event(), h11.EndOfMessage)
        connection.send(h11.Response(status_code=204, headers=[]))
        connection.send(h11.EndOfMessage())
        connection.start_next_cycle()
        with self.assertRaises(h11.RemoteProtocolError):
            connection.next_event()

    def test_headers_have_at_most_16_kib_however_they_arrive(self):
        self.assertEqual(HEADER_BYTES, 16 * 1024)
        room = HEADER_BYTES - len(HEAD + b"X: \r\n\r\n")
        for size, is_allowed in ((room, True), (room + 1, False), (120_000, False)):
            text = HEAD + b"X: " + b"a" * size + b"\r\n\r\n"
            if is_allowed:
                self.assertIsInstance(self.event_of(text), h11.Request)
            else:
                self.assert_refused(text)
                self.assert_refused(text[:1000], text[1000:])
        self.assert_refused(b"GET /" + b"a" * HEADER_BYTES + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertIsInstance(self.event_of(HEAD + b"Content-Length: 100000\r\n\r\n" + b"a" * 100_000), h11.Request)

    def test_versions_other_than_1_0_and_1_1_are_refused(self):
        for version in (b"HTTP/9.9", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.2", b"HTTP/1.10", b"http/1.1", b""):
            self.assert_refused(b"GET / " + version + b"\r\nHost: localhost\r\n\r\n")
        self.assert_refused(b"GET /\r\n\r\n")
        for version in (b"1.0", b"1.1"):
            self.assertIsInstance(self.event_of(b"GET / HTTP/" + version + b"\r\nHost: localhost\r\n\r\n"), h11.Request)

    def test_the_request_line_has_two_single_spaces(self):
        for line in (
            b"GET  / HTTP/1.1",
            b"GET /  HTTP/1.1",
            b" GET / HTTP/1.1",
            b"GET / HTTP/1.1 ",
            b"GET\t/ HTTP/1.1",
        ):
            self.assert_refused(line + b"\r\nHost: localhost\r\n\r\n")

    def test_lines_end_with_crlf_and_are_not_folded(self):
        for text in (
            b"GET / HTTP/1.1\nHost: localhost\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\n",
            b"GET / HTTP/1.1\r\nHost: localhost\n\n",
            b"GET / HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: y\r\n z\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: y\r\n\tz\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX\0: y\r\n\r\n",
        ):
            self.assert_refused(text)

    def test_a_body_has_one_encoding(self):
        for headers in (
            b"Transfer-Encoding: chunked, identity",
            b"Transfer-Encoding: identity",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            b"Content-Length: +5",
            b"Content-Length: -5",
            b"Content-Length: 0x5",
            b"Content-Length: 5, 5",
            b"Content-Length: 999999999999999999999",
        ):
            self.assert_refused(HEAD + headers + b"\r\n\r\n0\r\n\r\n")
        self.assert_refused(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")

    def body_of(self, chunks: bytes) -> bytes:
        connection = StrictConnection()
        connection.receive_data(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        body = bytearray()
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            self.assertIsNot(event, h11.NEED_DATA)
            body += event.data if isinstance(event, h11.Data) else b""
        return bytes(body)

    def test_the_sizes_of_chunks_are_short_hexadecimal_numbers(self):
        for chunks in (
            b"4\r\nbody\r\n0\r\n\r\n",
            b"00000004\r\nbody\r\n0\r\n\r\n",
            b"4;name=value\r\nbody\r\n0\r\n\r\n",
            b"4 \r\nbody\r\n0\r\nTrailer: x\r\n\r\n",
        ):
            self.assertEqual(self.body_of(chunks), b"body")
        for size in (
            b"0" * 19 + b"4",
            b"f" * 20,
            b"000000004",
            b"-4",
            b"+4",
            b"0x4",
            b" 4",
            b"4_",
            b"",
            b"4;" + b"a" * 1000,
            b"4;a\rb",
            b"4;a\0b",
        ):
            with self.subTest(size=size[:30]), self.assertRaises(h11.RemoteProtocolError):
                self.body_of(size + b"\r\nbody\r\n0\r\n\r\n")
        for end in (b"4\nbody\r\n0\r\n\r\n", b"4\r\nbody\n0\r\n\r\n", b"4\r\nbody\r\n0\r\nX: y\n\n", b"0\r\n\n"):
            with self.subTest(end=end), self.assertRaises(h11.RemoteProtocolError):
                self.body_of(end)


class RecordTests(TestCase):
    def line_of(self, name: str, message: str, *args: object) -> str:
        stream = io.StringIO()
        handler = logs.line_handler(stream)
        handler.handle(logging.LogRecord(name, logging.WARNING, "", 0, message, args, None))
        return stream.getvalue()

    def test_a_long_path_is_cut(self):
        for name, message, args in (
            ("django.request", "%s: %s", ("Not Found", "/" + "a" * 100_000)),
            ("django.request", "Method Not Allowed (%s): %s", ("PUT", "/" + "a" * 100_000)),
            ("django.security.csrf", "Forbidden (%s): %s", ("CSRF cookie not set.", "/" + "a" * 100_000)),
        ):
            line = self.line_of(name, message, *args)
            self.assertLess(len(line), 400)
            self.assertIn(str(args[0]), line)
            self.assertIn("/aaa", line)
        self.assertIn("b" * 1_000, self.line_of("memoryhub.jobs", "%s", "b" * 1_000))

    def test_a_sign_in_link_is_masked(self):
        for text in ("/signin/kT5-_x", "http://localhost/signin/kT5-_x?a=1", "'/signin/kT5-_x'"):
            line = self.line_of("django.request", "%s: %s", "Gone", text)
            self.assertNotIn("kT5-_x", line)
            self.assertIn("/signin/…", line)


@tag("process")
class LoggedLinkTests(TestCase):
    def test_a_link_is_not_in_the_log_before_it_is_used(self):
        server = team_hub()
        for method in ("POST", "PUT", "OPTIONS", "GET"):
            send(server, method, "/signin/" + "b" * 43)
        poll(lambda: "Gone: /signin/…" in server.text, what="the line of the log")
        self.assertNotIn("b" * 43, server.text)
