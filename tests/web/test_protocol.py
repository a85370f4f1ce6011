"""What the server refuses before a request is one: long headers, two lengths, and what proxies read differently."""

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
