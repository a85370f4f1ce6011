"""The bodies of HTTP requests, read whole: their size, time and sum are limited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.responses import PlainTextResponse, Response
from starlette.types import Message, Receive

from memoryhub.core.errors import Busy

# Of all requests that are read or answered at the moment
MOST_BYTES = 64 * 1024 * 1024
# How long one body may take to arrive
MOST_SECONDS = 30.0


class Bodies:
    def __init__(self) -> None:
        self.held = 0

    @contextmanager
    def one(self) -> Iterator[Body]:
        body = Body(self)
        try:
            yield body
        finally:
            self.held -= len(body.content)


class Body:
    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.content = bytearray()

    async def read(self, receive: Receive, most: int) -> Response | None:
        """Read it; return the response to one that is too long or too slow.

        Raises:
            Busy: all bodies together are too large.
        """
        try:
            async with asyncio.timeout(MOST_SECONDS):
                while await self._read_part(receive):
                    if len(self.content) > most:
                        return PlainTextResponse("The body is too large\n", 413)
        except TimeoutError:
            return PlainTextResponse("The body took too long\n", 408)
        return PlainTextResponse("The body is too large\n", 413) if len(self.content) > most else None

    def replayed_by(self, receive: Receive) -> Receive:
        messages: list[Message] = [{"type": "http.request", "body": bytes(self.content), "more_body": False}]

        async def replayed() -> Message:
            return messages.pop() if messages else await receive()

        return replayed

    async def _read_part(self, receive: Receive) -> bool:
        message = await receive()
        part = message.get("body", b"")
        if self._bodies.held + len(part) > MOST_BYTES:
            raise Busy("the bodies of all requests together are too large; try again in a moment")
        self._bodies.held += len(part)
        self.content += part
        return bool(message.get("more_body", False))
