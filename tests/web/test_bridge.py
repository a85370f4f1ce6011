"""The bridge between the ASGI server and the WSGI application."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path
from typing import Any
from unittest import TestCase
from wsgiref.validate import validator

from memoryhub.ops.serving.bridge import WsgiBridge
from memoryhub.ops.serving.outbox import Spool
from tests.home import run_home
from tests.web.server import DEADLINE_SECONDS

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
