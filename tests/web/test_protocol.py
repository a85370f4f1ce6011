"""What the server refuses before a request is one: long headers, and lengths that are given twice."""

from __future__ import annotations

from unittest import TestCase

import h11

from memoryhub.ops.serving.protocol import HEADER_BYTES, StrictConnection

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
