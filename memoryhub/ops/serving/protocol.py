"""HTTP/1.1 with limits of time and size: clients that send or read too slowly are disconnected."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any, ClassVar

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol

from memoryhub.ops.serving.limits import Limits

logger = logging.getLogger(__name__)

_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


# A request line and its headers
HEADER_BYTES = 16 * 1024
_END_OF_LINES = re.compile(rb"\n\r?\n")
# A line that doesn't end with CRLF, or continues the one before
_LOOSE_LINE = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]")
_LENGTH = re.compile(rb"^content-length[ \t]*:([^\n]*)", re.IGNORECASE | re.MULTILINE)
_LENGTH_DIGITS = 15
_CHUNK_SIZE = re.compile(rb"[0-9a-f]{1,8}[ \t]*(?:;[\t\x20-\x7e]{0,256})?\r\n", re.IGNORECASE)
_VERSIONS = (b"1.0", b"1.1")


# h11 reads some requests otherwise than a proxy in front of it may: it drops a length that repeats another, unfolds
# and ends lines leniently, and takes any version, and chunk sizes of 20 digits. It has no settings for these.
class StrictBuffer(ReceiveBuffer):
    # Called for heads and trailers; h11 limits those that arrive in parts
    def maybe_extract_lines(self) -> list[bytearray] | None:
        end = _END_OF_LINES.search(self._data)
        if end is not None:
            _check_lines(self._data, end)
        elif self._data[:1] == b"\n":
            raise h11.RemoteProtocolError("a line ends with CRLF")
        return super().maybe_extract_lines()

    # Called for the sizes of chunks
    def maybe_extract_next_line(self) -> bytearray | None:
        line = super().maybe_extract_next_line()
        if line is not None and not _CHUNK_SIZE.fullmatch(line):
            raise h11.RemoteProtocolError("a chunk has no valid size")
        return line


def _check_lines(received: bytearray, end: re.Match[bytes]) -> None:
    if received[:2] == b"\r\n":
        return  # no lines
    if end.end() > HEADER_BYTES:
        raise h11.RemoteProtocolError("the headers are too long", error_status_hint=431)
    if _LOOSE_LINE.search(received, 0, end.end()):
        raise h11.RemoteProtocolError("a line ends with CRLF and is not continued")
    lengths = _LENGTH.findall(received, 0, end.start())
    if len(lengths) > 1 or any(b"," in length or len(length.strip()) > _LENGTH_DIGITS for length in lengths):
        raise h11.RemoteProtocolError("a request has one Content-Length")


class StrictConnection(h11.Connection):
    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEADER_BYTES)
        self._receive_buffer = StrictBuffer()

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._check(event)
        return event

    @staticmethod
    def _check(request: h11.Request) -> None:
        if request.http_version not in _VERSIONS:
            raise h11.RemoteProtocolError("the version is not HTTP/1.0 or HTTP/1.1", error_status_hint=505)
        if request.http_version == b"1.0" and any(name == b"transfer-encoding" for name, _ in request.headers):
            raise h11.RemoteProtocolError("a request of HTTP/1.0 has no Transfer-Encoding")


class TimedProtocol(H11Protocol):
    limits: ClassVar[Limits] = Limits()

    # What the client is sending, and the timers of that and of an answer that it does not read
    _phase: str = ""
    _sending: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    @classmethod
    def with_limits(cls, limits: Limits) -> type[TimedProtocol]:
        return type("LimitedProtocol", (cls,), {"limits": limits})

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = StrictConnection()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._enter("headers")

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter("")
        self._stop_reading()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is h11.SEND_BODY:
            self._enter("body")
        elif self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._enter("headers")
        else:
            self._enter("")

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reading is None:
            self._reading = self.loop.call_later(self.limits.answer_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_reading()
        super().resume_writing()

    # A client that does not read the end of its last answer would otherwise keep the connection for good.
    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_late()

    def _abort_late(self) -> None:
        if self._reading is None and self.transport.get_write_buffer_size():
            self._reading = self.loop.call_later(self.limits.answer_seconds, self.transport.abort)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading.cancel()
            self._reading = None

    # A phase that goes on keeps its timer, so that single bytes gain no time.
    def _enter(self, phase: str) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        if self._sending:
            self._sending.cancel()
            self._sending = None
        if phase:
            seconds = self.limits.header_seconds if phase == "headers" else self.limits.body_seconds
            self._sending = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        logger.info("a client took too long to send the %s of a request", self._phase)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_TOO_LATE)
        self.transport.close()
        self._abort_late()
