"""HTTP/1.1 with time limits: clients that send or read too slowly are disconnected."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from memoryhub.ops.serving.limits import Limits

logger = logging.getLogger(__name__)

_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class TimedProtocol(H11Protocol):
    limits: ClassVar[Limits] = Limits()

    # What the client is sending, and the timers of that and of an answer that it does not read
    _phase: str = ""
    _sending: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    @classmethod
    def with_limits(cls, limits: Limits) -> type[TimedProtocol]:
        return type("LimitedProtocol", (cls,), {"limits": limits})

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.write(_TOO_MANY)
            transport.close()
            return
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
