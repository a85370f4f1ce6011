"""Threads that run calls: one for writes, two for reads, each with its own database connections.

A slow read never delays a write, and writes never run concurrently. A cancelled read is interrupted inside SQLite; a
running write always finishes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from memoryhub.core.errors import Unavailable

T = TypeVar("T")

READERS = 2
_NUDGE_SECONDS = 0.02


class Interruptible(Protocol):
    def interrupt(self) -> None: ...


class Job(Generic[T]):
    def __init__(self, work: Callable[[Job[T]], T], loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[T] = loop.create_future()
        self._work = work
        self._loop = loop
        self._lock = threading.Lock()
        self._connection: Interruptible | None = None
        self._begun = self._finished = self._dropped = False

    def watch(self, connection: Interruptible | None) -> None:
        with self._lock:
            self._connection = connection

    @property
    def dropped(self) -> bool:
        return self._dropped

    def drop(self, *, interrupt: bool) -> bool:
        """Cancel the job if it is queued, or interrupt its statements if it runs and ``interrupt`` is true.

        Return False if it is done, or runs to its end.
        """
        with self._lock:
            if self._finished or (self._begun and not interrupt):
                return False
            self._dropped = True
            if self._begun and self._connection is not None:
                self._connection.interrupt()
        if self._begun:
            # An interrupt between two statements has no effect, so it is repeated.
            self._loop.call_later(_NUDGE_SECONDS, lambda: self.drop(interrupt=True))
        return True

    def run(self) -> None:
        """Do the work in this thread and pass the outcome to the event loop."""
        with self._lock:
            if self._dropped:
                return
            self._begun = True
        try:
            outcome = self._work(self)
        except BaseException as error:  # noqa: BLE001  (the caller gets it)
            self._finish(self.future.set_exception, error)
        else:
            self._finish(self.future.set_result, outcome)

    def _finish(self, settle: Callable[[Any], None], outcome: object) -> None:
        with self._lock:
            self._finished = True
            self._connection = None
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(lambda: None if self.future.done() else settle(outcome))


class Workers:
    def __init__(self, *, on_thread_end: Callable[[], None]) -> None:
        self._reads: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._writes: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._on_thread_end = on_thread_end
        self._waiting: dict[Job[Any], bool] = {}
        self._stopping = False
        queues = [("writer", self._writes), *((f"reader-{number}", self._reads) for number in range(READERS))]
        self._threads = [
            threading.Thread(target=self._serve, args=(queue,), name=f"memory-hub-{name}", daemon=True)
            for name, queue in queues
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[Job[T]], T], *, writes: bool) -> T:
        """Run ``work`` in a thread and return its result; cancelling the caller frees the thread."""
        if self._stopping:
            raise stopping_error()
        job = Job(work, asyncio.get_running_loop())
        self._waiting[job] = writes
        (self._writes if writes else self._reads).put(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            job.drop(interrupt=not writes)
            raise
        finally:
            del self._waiting[job]

    def stop(self) -> None:
        """Accept no more calls; end reads and queued calls with an error, and let a running write continue."""
        self._stopping = True
        for job, writes in list(self._waiting.items()):
            if job.drop(interrupt=not writes) and not job.future.done():
                job.future.set_exception(stopping_error())

    def join(self, seconds: float) -> None:
        """Stop the threads after their current job, and wait at most ``seconds`` for each."""
        self._stopping = True
        self._writes.put(None)
        for _ in range(READERS):
            self._reads.put(None)
        for thread in self._threads:
            thread.join(seconds)

    def _serve(self, queue: SimpleQueue[Job[Any] | None]) -> None:
        while (job := queue.get()) is not None:
            job.run()
            del job
        self._on_thread_end()


def stopping_error() -> Unavailable:
    return Unavailable("the server is stopping; start it again and repeat the call")
