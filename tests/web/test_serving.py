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
from memoryhub.core.errors import Unavailable
from memoryhub.ops.serving import live
from memoryhub.ops.serving.bridge import Spool, WsgiBridge
from memoryhub.ops.serving.web import HEADER_BYTES, StrictConnection
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


def _part(content: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": content, "more_body": more}


class BridgeTests(TestCase):
    def exchange(self, application: Any, *messages: dict[str, Any], **scope: Any) -> list[dict[str, Any]]:
        bridge = WsgiBridge(application, max_body=10, threads=2)
        self.addCleanup(bridge.close)
        receive, send = mock.AsyncMock(side_effect=messages), mock.AsyncMock()
        asyncio.run(bridge({**SCOPE, **scope}, receive, send))
        return [call.args[0] for call in send.call_args_list]

    def environment_of(self, *messages: dict[str, Any], **scope: Any) -> dict[str, Any]:
        """Return the environment that an application gets for a request, with its body."""
        environment: dict[str, Any] = {}

        def application(environ, start_response):
            environment.update(environ, body=environ["wsgi.input"].read())
            start_response("200 OK", [])
            return []

        self.exchange(application, *messages, **scope)
        return environment

    def test_a_whole_answer_is_closed_once_as_one_that_streams(self) -> None:
        class Answer(list[bytes]):
            streaming = False
            closings = 0

            def close(self) -> None:
                self.closings += 1

        answer = Answer([b"one ", b"two"])

        def application(environ, start_response):
            start_response("200 OK", [])
            return answer

        for count, answer.streaming in enumerate((False, True), start=1):
            self.exchange(application, _part(b""))
            self.assertEqual(answer.closings, count)

    def test_an_application_sees_a_request_as_the_standard_says(self) -> None:
        seen: dict[str, Any] = {}

        @validator
        def application(environ, start_response):
            seen.update(environ, body=environ["wsgi.input"].read(5), thread=threading.current_thread().name)
            headers = [("Content-Type", "text/plain"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
            start_response("201 Created", headers)
            return [b"one ", b"two"]

        sent = self.exchange(application, _part(b"he", more=True), _part(b"llo"))
        self.assertEqual(seen["PATH_INFO"].encode("latin-1").decode(), "/p/ü")
        self.assertEqual((seen["QUERY_STRING"], seen["HTTP_X_MANY"], seen["body"]), ("a=1", "1,2", b"hello"))
        self.assertEqual(seen["CONTENT_LENGTH"], "5")
        self.assertTrue(seen["thread"].startswith("web"))
        self.assertEqual(sent[0]["status"], 201)
        self.assertEqual([value for name, value in sent[0]["headers"] if name == b"set-cookie"], [b"a=1", b"b=2"])
        self.assertEqual(b"".join(message.get("body", b"") for message in sent), b"one two")
        self.assertFalse(sent[-1]["more_body"])

    def test_of_a_body_that_is_too_long_no_more_than_one_byte_over_is_kept(self) -> None:
        environment = self.environment_of(*[_part(b"x" * 8, more=True)] * 2)
        self.assertEqual((environment["CONTENT_LENGTH"], environment["body"]), ("11", b"x" * 11))

    def test_a_client_that_goes_away_reaches_no_application(self) -> None:
        sent = self.exchange(self.fail, _part(b"x", more=True), {"type": "http.disconnect"})
        self.assertEqual(sent, [])

    def test_a_header_with_an_underscore_cannot_pass_for_one_with_a_hyphen(self) -> None:
        headers = [(b"x_session_id", b"forged"), (b"cookie", b"a=1"), (b"cookie", b"b=2")]
        environment = self.environment_of(_part(b""), headers=headers)
        self.assertNotIn("HTTP_X_SESSION_ID", environment)
        self.assertEqual(environment["HTTP_COOKIE"], "a=1; b=2")

    def test_an_answer_is_closed_even_when_it_fails(self) -> None:
        broken = mock.MagicMock(spec=["__iter__", "close"])
        broken.__iter__.side_effect = RuntimeError("broken")

        def application(environ, start_response):
            start_response("200 OK", [])
            return broken

        with self.assertRaisesRegex(RuntimeError, "broken"):
            self.exchange(application, _part(b""))
        broken.close.assert_called()


class UnreadTests(TestCase):
    """One thread, and a client that reads nothing until the others have their answers."""

    def exchange_two(self, answer: Any, **limits: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Spool]:
        """Return the messages to the client that reads late, those to another, and the spool."""

        def application(environ, start_response):
            start_response("200 OK", [])
            return answer() if environ["REQUEST_METHOD"] == "GET" else [b"quick"]

        spool = Spool(Path(self.enterContext(tempfile.TemporaryDirectory(dir=run_home()))), **limits)
        bridge = WsgiBridge(application, max_body=10, threads=1, spool=spool)
        self.addCleanup(bridge.close)
        late: list[dict[str, Any]] = []
        receive, send = mock.AsyncMock(return_value=_part(b"")), mock.AsyncMock()

        async def main() -> None:
            reads = asyncio.Event()

            async def send_late(message: dict[str, Any]) -> None:
                await reads.wait()
                late.append(message)

            waiting = asyncio.ensure_future(bridge({**SCOPE, "method": "GET"}, receive, send_late))
            await asyncio.sleep(0)
            async with asyncio.timeout(DEADLINE_SECONDS):
                await bridge(dict(SCOPE), receive, send)
                reads.set()
                await waiting

        asyncio.run(main())
        return late, [call.args[0] for call in send.call_args_list], spool

    def test_an_answer_that_is_not_read_holds_no_thread(self) -> None:
        chunk = bytes(range(256)) * 256
        answers = {"streamed": lambda: (chunk for _ in range(50)), "whole": lambda: [chunk] * 50}
        for name, answer in answers.items():
            with self.subTest(name):
                late, quick, spool = self.exchange_two(answer)
                self.assertEqual([message.get("body") for message in quick], [None, b"quick"])
                self.assertEqual(b"".join(message.get("body", b"") for message in late), chunk * 50)
                self.assertFalse(late[-1]["more_body"])
                self.assertEqual((spool.bytes, list(spool.folder.iterdir())), (0, []))

    def test_what_waits_for_all_clients_is_bounded(self) -> None:
        with self.assertLogs("memoryhub.ops.serving.bridge", "WARNING"):
            late, quick, spool = self.exchange_two(lambda: [b"x" * 3_000_000], most_bytes=1_000_000)
        self.assertEqual((late[0]["status"], quick[0]["status"], spool.bytes), (503, 200, 0))


class StreamTests(TestCase):
    """The streams of a bridge, without a browser."""

    def setUp(self) -> None:
        self.version = "1"
        source = live.LiveSource("pump", lambda: self.version, lambda: self.version)
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

    def test_a_change_that_cannot_be_read_at_once_is_sent_later(self) -> None:
        async def follow() -> None:
            closed = asyncio.Event()
            sent: list[Any] = []
            page = asyncio.ensure_future(self.open(sent, closed))
            await self.until(lambda: sent[-1:] == [b"data: 2\n\n"])
            self.assertEqual(sent, [200, b"data: 2\n\n"])
            closed.set()
            await page

        version = mock.Mock(side_effect=[Unavailable("the store is locked"), Unavailable("the store is locked"), "2"])
        self.response.source = live.LiveSource("locked", lambda: "same", version)
        with mock.patch.object(live, "RETRY_SECONDS", 0.01):
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
HOST = b"\r\nHost: localhost\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
# Each has a text that is refused, whatever the protocol's own parser makes of it
REFUSED = {
    "a length that is given twice": [
        HEAD + lengths + b"\r\nbody"
        for lengths in (
            b"Content-Length: 4\r\nContent-Length: 4\r\n",
            b"Content-Length: 4\r\ncontent-length: 4\r\n",
            b"Content-Length: 4\nX: y\nContent-Length:4\n",
            b"Content-Length: 4, 4\r\n",
            b"Content-Length: 4,\r\n 4\r\n",
        )
    ],
    "a version other than 1.0 and 1.1": [
        *(b"GET / " + version + HOST for version in b"HTTP/9.9 HTTP/0.9 HTTP/2.0 HTTP/1.2 HTTP/1.10 http/1.1".split()),
        b"GET / " + HOST,
        b"GET /\r\n\r\n",
    ],
    "a request line without two single spaces": [
        line + HOST
        for line in (b"GET  / HTTP/1.1", b"GET /  HTTP/1.1", b" GET / HTTP/1.1", b"GET / HTTP/1.1 ", b"GET\t/ HTTP/1.1")
    ],
    "a line without CRLF, folded, or with a control character": [
        b"GET / HTTP/1.1" + lines
        for lines in (
            b"\nHost: localhost\r\n\r\n",
            b"\r\nHost: localhost\n\r\n",
            b"\r\nHost: localhost\r\n\n",
            b"\r\nHost: localhost\n\n",
            b"\r\nHost: localhost\rX: y\r\n\r\n",
            b"\r\nHost: localhost\r\nX: y\r\n z\r\n\r\n",
            b"\r\nHost: localhost\r\nX: y\r\n\tz\r\n\r\n",
            b"\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
            b"\r\nHost: localhost\r\nX\0: y\r\n\r\n",
        )
    ],
    "a body with two encodings or no length": [
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        *(HEAD + b"Content-Length: " + length + b"\r\n\r\n" for length in (b"+5", b"-5", b"0x5", b"5, 5", b"9" * 21)),
    ],
    "a size of a chunk that is no short hexadecimal number": [
        CHUNKED + size + b"\r\nbody\r\n0\r\n\r\n"
        for size in (
            *(b"0" * 19 + b"4", b"f" * 20, b"000000004", b"-4", b"+4", b"0x4", b" 4", b"4_", b""),
            *(b"4;" + b"a" * 1000, b"4;a\rb", b"4;a\0b"),
        )
    ],
    "a chunk whose lines do not end with CRLF": [
        CHUNKED + chunks
        for chunks in (b"4\nbody\r\n0\r\n\r\n", b"4\r\nbody\n0\r\n\r\n", b"4\r\nbody\r\n0\r\nX: y\n\n", b"0\r\n\n")
    ],
    "a header over 16 KiB": [
        HEAD + b"X: " + b"a" * (16 * 1024 - len(HEAD + b"X: \r\n\r\n") + 1) + b"\r\n\r\n",
        HEAD + b"X: " + b"a" * 120_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 16 * 1024 + b" HTTP/1.1" + HOST,
    ],
}


class StrictConnectionTests(TestCase):
    def body_of(self, *parts: bytes) -> bytes:
        """Return the body of the request in the parts that arrive."""
        connection, body = StrictConnection(), b""
        for part in parts:
            connection.receive_data(part)
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                body += event.data if isinstance(event, h11.Data) else b""
                if isinstance(event, h11.EndOfMessage):
                    return bytes(body)
        raise AssertionError("the request has no end")

    def test_what_a_proxy_may_read_otherwise_is_refused_however_it_arrives(self):
        for rule, texts in REFUSED.items():
            for text in texts:
                for parts in ((text,), (text[:1000], text[1000:]), (text[: len(HEAD) + 19], text[len(HEAD) + 19 :])):
                    with (
                        self.subTest(rule, text=text[:80], parts=len(parts)),
                        self.assertRaises(h11.RemoteProtocolError),
                    ):
                        self.body_of(*parts)

    def test_a_sound_request_is_read(self):
        self.assertEqual(HEADER_BYTES, 16 * 1024)
        room = HEADER_BYTES - len(HEAD + b"X: \r\n\r\n")
        long = b"Content-Length: 4\r\n" * 5000
        for text, body in (
            (b"GET / HTTP/1.0" + HOST, b""),
            (b"GET / HTTP/1.1" + HOST, b""),
            (HEAD + b"X: " + b"a" * room + b"\r\n\r\n", b""),
            (HEAD + b"X-Content-Length: 4\r\nContent-Length: %d\r\n\r\n" % len(long) + long, long),
            (CHUNKED + b"4\r\nbody\r\n0\r\n\r\n", b"body"),
            (CHUNKED + b"00000004\r\nbody\r\n0\r\n\r\n", b"body"),
            (CHUNKED + b"4;name=value\r\nbody\r\n0\r\n\r\n", b"body"),
            (CHUNKED + b"4 \r\nbody\r\n0\r\nTrailer: x\r\n\r\n", b"body"),
        ):
            with self.subTest(text=text[:80]):
                self.assertEqual(self.body_of(text), body)

    def test_the_next_request_of_a_connection_is_checked_too(self):
        connection = StrictConnection()
        twice = HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx"
        connection.receive_data(b"GET / HTTP/1.1" + HOST + twice)
        self.assertIsInstance(connection.next_event(), h11.Request)
        self.assertIsInstance(connection.next_event(), h11.EndOfMessage)
        connection.send(h11.Response(status_code=204, headers=[]))
        connection.send(h11.EndOfMessage())
        connection.start_next_cycle()
        with self.assertRaises(h11.RemoteProtocolError):
            connection.next_event()


class RecordTests(TestCase):
    def line_of(self, name: str, message: str, *args: object) -> str:
        stream = io.StringIO()
        logs.line_handler(stream).handle(logging.LogRecord(name, logging.WARNING, "", 0, message, args, None))
        return stream.getvalue()

    def test_a_long_path_is_cut_and_a_sign_in_link_masked(self):
        path = "/" + "a" * 100_000
        for name, message, args in (
            ("django.request", "%s: %s", ("Not Found", path)),
            ("django.request", "Method Not Allowed (%s): %s", ("PUT", path)),
            ("django.security.csrf", "Forbidden (%s): %s", ("CSRF cookie not set.", path)),
        ):
            line = self.line_of(name, message, *args)
            self.assertLess(len(line), 400)
            self.assertIn(args[0], line)
            self.assertIn("/aaa", line)
        self.assertIn("b" * 1_000, self.line_of("memoryhub.jobs", "%s", "b" * 1_000))
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
