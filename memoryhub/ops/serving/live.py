"""Tell open pages, and clients that subscribed over MCP, that what they show has changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memories.uses.notes import notes_files, notes_size
from memoryhub.core import log
from memoryhub.core.backends.selected import machines, stores
from memoryhub.core.disk import file_stamps, is_settled
from memoryhub.core.errors import HubError
from memoryhub.core.stores.store import StoreId, current_store, use_store

logger = logging.getLogger(__name__)

# Streams of one process, and of a person in it; one more is refused, and its page shows that it is not live
MOST_STREAMS, MOST_STREAMS_OF_A_PERSON = 200, 50
LOOK_SECONDS = 0.25
# Until a source that could not be read, such as a locked store, is read again
RETRY_SECONDS = 2.0
HEARTBEAT_SECONDS = 15.0
# Then the browser connects again
LIFE_SECONDS = 60.0
# A file that changed this recently may change again without a visible difference in its time
_SETTLED_SECONDS = 0.1

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class LiveSource:
    """What a page shows. ``version`` is called only if ``stamp``, which must be cheap, differs from before."""

    name: str
    stamp: Callable[[], object]
    version: Callable[[], str]


def stamp_of_files(files: Iterable[Path]) -> object:
    """Return what differs when one of the files has changed, or has just been changed."""
    stamps = file_stamps(files)
    are_settled = all(is_settled(stamp.changed, seconds=_SETTLED_SECONDS) for stamp in stamps)
    return stamps, 0 if are_settled else time.monotonic_ns()


def source_of_store(store: StoreId) -> LiveSource:
    files = stores.watched(store)

    def stamp() -> object:
        return machines.stamp(store), stamp_of_files([*files, *notes_files(store)])

    def version() -> str:
        with use_store(store):
            return store_version()

    return LiveSource(store.alias, stamp, version)


def store_version() -> str:
    """Return what changes with every event of the current store, and every read by an agent."""
    return f"{log.head()[0]}-{notes_size(current_store())}"


class Watcher:
    """Watches one source for all of its listeners."""

    def __init__(self, source: LiveSource, threads: Executor) -> None:
        self._source, self._threads = source, threads
        self._changed = asyncio.Condition()
        self.version = ""
        self.listeners = 0
        self.task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        seen: object = None
        while True:
            stamp = self._source.stamp()
            if stamp != seen:
                seen = stamp
                while not await self._read():
                    await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)

    async def _read(self) -> bool:
        try:
            version = await asyncio.get_running_loop().run_in_executor(self._threads, self._source.version)
        except HubError as error:
            logger.info("%s cannot be followed: %s", self._source.name, error)
            return False
        if version != self.version:
            self.version = version
            async with self._changed:
                self._changed.notify_all()
        return True

    async def version_after(self, seen: str) -> str:
        """Return the version as soon as it differs from ``seen``."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.version != seen)
        return self.version

    async def messages(self) -> AsyncIterator[bytes]:
        ends, sent = time.monotonic() + LIFE_SECONDS, ""
        while time.monotonic() < ends:
            if self.version != sent:
                sent = self.version
                yield f"data: {sent}\n\n".encode()
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self.version_after(sent)
            except TimeoutError:
                yield b":\n\n"


class Streams:
    """The open streams of a server. A source has one watcher, which ends with its last listener."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._watchers: dict[str, Watcher] = {}
        # The person of each
        self._open: dict[asyncio.Future[None], str] = {}

    @property
    def counts(self) -> tuple[int, int]:
        """The open streams, and the watchers."""
        return len(self._open), len(self._watchers)

    def is_full_for(self, person: str) -> bool:
        streams = sum(name == person for name in self._open.values())
        return len(self._open) >= MOST_STREAMS or streams >= MOST_STREAMS_OF_A_PERSON

    async def run(
        self, source: LiveSource, person: str, receive: Receive, send: Send, *, may_follow: Callable[[], bool]
    ) -> None:
        """Send messages until the client disconnects, loses the right to them, its time is over, or the server stops.

        ``may_follow`` is called in a thread before each message and heartbeat.
        """
        sending = asyncio.ensure_future(self._send(source, send, may_follow))
        gone = asyncio.ensure_future(_disconnected(receive))
        self._open[sending] = person
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._open[sending]
            sending.cancel()
            gone.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)

    async def _send(self, source: LiveSource, send: Send, may_follow: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        with self.watching(source) as watcher:
            async for message in watcher.messages():
                if not await loop.run_in_executor(self._threads, may_follow):
                    return
                await send({"type": "http.response.body", "body": message, "more_body": True})

    @contextlib.contextmanager
    def watching(self, source: LiveSource) -> Iterator[Watcher]:
        watcher = self._watchers.get(source.name) or Watcher(source, self._threads)
        self._watchers[source.name] = watcher
        watcher.listeners += 1
        try:
            yield watcher
        finally:
            watcher.listeners -= 1
            if not watcher.listeners:
                del self._watchers[source.name]
                watcher.task.cancel()

    def close(self) -> None:
        for sending in self._open:
            sending.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
