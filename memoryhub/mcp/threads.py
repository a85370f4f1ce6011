"""Threads that run calls: some for writes, some for reads, each with its own database connections.

A slow read never delays a write, and writes to one project never run concurrently. A cancelled read is interrupted
inside SQLite; a running write always finishes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from memoryhub.core.errors import Busy, Unavailable

T = TypeVar("T")

# Of a server for one project; one for many has more, so that no project can occupy them all.
READERS = READS_AT_ONCE = 2
# Calls of one project that wait for a thread, reads and writes each
MAX_QUEUED = 100
# How long a running write may delay the exit, and a thread its end
LAST_WRITE_SECONDS = 30.0
THREAD_END_SECONDS = 30.0
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
    """Threads for writes and threads for reads, shared by projects: each project's calls run in turn with the others'.

    A project has one write at a time, and at most ``READS_AT_ONCE`` reads.
    """

    def __init__(self, *, on_thread_end: Callable[[], None], writers: int = 1, readers: int = READERS) -> None:
        self._writes = _Lane("writer", writers, at_once=1, on_thread_end=on_thread_end)
        self._reads = _Lane("reader", readers, at_once=READS_AT_ONCE, on_thread_end=on_thread_end)
        self._waiting: dict[Job[Any], bool] = {}
        self._stopping = False

    async def run(self, work: Callable[[Job[T]], T], *, writes: bool, project: str = "") -> T:
        """Run ``work`` in a thread and return its result; cancelling the caller frees the thread.

        Raises:
            Busy: too many of the project's calls are queued.
        """
        if self._stopping:
            raise stopping_error()
        job = Job(work, asyncio.get_running_loop())
        (self._writes if writes else self._reads).put(project, job)
        self._waiting[job] = writes
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
        for lane in (self._writes, self._reads):
            lane.end()
        for lane in (self._writes, self._reads):
            lane.join(seconds)


class _Lane:
    """Threads that take jobs from the projects in turn, and at most ``at_once`` of one project at a time."""

    def __init__(self, name: str, threads: int, *, at_once: int, on_thread_end: Callable[[], None]) -> None:
        self._at_once = at_once
        self._on_thread_end = on_thread_end
        # In the order of their turns; a project without queued jobs is absent.
        self._queues: OrderedDict[str, deque[Job[Any]]] = OrderedDict()
        self._running: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._ended = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"memory-hub-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, project: str, job: Job[Any]) -> None:
        with self._changed:
            queue = self._queues.setdefault(project, deque())
            if len(queue) >= MAX_QUEUED:
                raise Busy(f"{MAX_QUEUED} calls of this project are waiting already; repeat the call in a moment")
            queue.append(job)
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        for thread in self._threads:
            thread.join(seconds)

    def _serve(self) -> None:
        while (turn := self._take_turn()) is not None:
            turn.job.run()
            self._leave(turn.project)
            del turn
        self._on_thread_end()

    def _take_turn(self) -> _Turn | None:
        with self._changed:
            while (project := self._next()) is None:
                if self._ended:
                    return None
                self._changed.wait()
            queue = self._queues.pop(project)
            job = queue.popleft()
            if queue:
                self._queues[project] = queue  # behind the others
            self._running[project] += 1
            return _Turn(project, job)

    def _next(self) -> str | None:
        return next((project for project in self._queues if self._running[project] < self._at_once), None)

    # No other thread has to be woken: this one looks for the next job itself.
    def _leave(self, project: str) -> None:
        with self._changed:
            self._running[project] -= 1
            if not self._running[project]:
                del self._running[project]


@dataclass(frozen=True, slots=True)
class _Turn:
    project: str
    job: Job[Any]


def stopping_error() -> Unavailable:
    return Unavailable("the server is stopping; start it again and repeat the call")
