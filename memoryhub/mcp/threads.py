"""Threads that run calls: some for writes, some for reads, each with its own database connections.

A slow read never delays a write, and writes to one project never run concurrently. A cancelled read is interrupted
in the database; a running write always finishes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from memoryhub.core.errors import Busy, Unavailable

T = TypeVar("T")

# Reads at once of one project, and the reading threads of a server for one project. A server for many projects has more
# threads, so that no project can occupy them all.
READS_AT_ONCE = 2
# Calls of one project that wait for a thread, reads and writes each
MAX_QUEUED = 100
# Stores that a thread stays connected to; half a megabyte each, more for large ones
MOST_CONNECTIONS = 12
# How long a running write may delay the exit, and a thread its end
LAST_WRITE_SECONDS = 30.0
THREAD_END_SECONDS = 30.0
_NUDGE_SECONDS = 0.02


class ThreadJob(Generic[T]):
    def __init__(self, project: str, work: Callable[[ThreadJob[T]], T], loop: asyncio.AbstractEventLoop) -> None:
        self.project = project
        self.future: asyncio.Future[T] = loop.create_future()
        self._work = work
        self._loop = loop
        self._lock = threading.Lock()
        # The backend's, which can be interrupted
        self._connection: Any = None
        self._begun = False
        self._finished = False
        self.dropped = False

    def watch(self, connection: Any) -> None:
        with self._lock:
            self._connection = connection

    def drop(self, *, interrupt: bool) -> bool:
        """Cancel the job if it is queued, or interrupt its statements if it runs and ``interrupt`` is true.

        Return False if it is done, or runs to its end.
        """
        with self._lock:
            if self._finished or (self._begun and not interrupt):
                return False
            self.dropped = True
            if self._begun and self._connection is not None:
                self._connection.interrupt()
        if self._begun:
            # An interrupt between two statements has no effect, so it is repeated.
            self._loop.call_later(_NUDGE_SECONDS, lambda: self.drop(interrupt=True))
        return True

    def run(self) -> None:
        """Do the work in this thread and pass the outcome to the event loop."""
        with self._lock:
            if self.dropped:
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
            self._loop.call_soon_threadsafe(self._settle, settle, outcome)

    def _settle(self, settle: Callable[[Any], None], outcome: object) -> None:
        if not self.future.done():
            settle(outcome)


class Lanes:
    """Threads for writes and threads for reads, shared by projects: each project's calls run in turn with the others'.

    A project has one write at a time, and at most ``READS_AT_ONCE`` reads.
    """

    def __init__(
        self,
        *,
        on_thread_end: Callable[[], None],
        leave: Callable[[str], None] = lambda _: None,
        writers: int = 1,
        readers: int = READS_AT_ONCE,
    ) -> None:
        """``leave`` closes the current thread's connection to a project's store."""
        self._writes = _Lane("writer", writers, at_once=1, leave=leave, on_thread_end=on_thread_end)
        self._reads = _Lane("reader", readers, at_once=READS_AT_ONCE, leave=leave, on_thread_end=on_thread_end)
        self.ended = False

    def put(self, job: ThreadJob[Any], *, writes: bool) -> None:
        if self.ended:
            raise stopping_error()
        lane = self._writes if writes else self._reads
        lane.put(job)

    def join(self, seconds: float) -> None:
        """Stop the threads after their current job, and wait at most ``seconds`` for each."""
        self.ended = True
        for lane in (self._writes, self._reads):
            lane.end()
        for lane in (self._writes, self._reads):
            lane.join(seconds)


class Workers:
    """The calls of a connection, or of all that share a server, in the threads of the lanes."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._waiting: dict[ThreadJob[Any], bool] = {}
        self._stopping = False

    async def run(self, work: Callable[[ThreadJob[T]], T], *, writes: bool, project: str = "") -> T:
        """Run ``work`` in a thread and return its result; cancelling the caller frees the thread.

        Raises:
            Busy: too many of the project's calls are queued.
        """
        if self._stopping:
            raise stopping_error()
        job = ThreadJob(project, work, asyncio.get_running_loop())
        self._lanes.put(job, writes=writes)
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


class _Lane:
    """Threads that take jobs from the projects in turn, and at most ``at_once`` of one project at a time."""

    def __init__(
        self, name: str, threads: int, *, at_once: int, leave: Callable[[str], None], on_thread_end: Callable[[], None]
    ) -> None:
        self._at_once = at_once
        self._leave = leave
        self._on_thread_end = on_thread_end
        self._lock = threading.Lock()
        # In the order of their turns; a project without queued jobs is absent.
        self._queues: OrderedDict[str, deque[ThreadJob[Any]]] = OrderedDict()
        self._running: Counter[str] = Counter()
        self._ended = False
        self._threads = [_Thread(f"memory-hub-{name}-{number}", self._serve) for number in range(threads)]
        self._idle = list(self._threads)
        for thread in self._threads:
            thread.start()

    def put(self, job: ThreadJob[Any]) -> None:
        with self._lock:
            if self._idle and self._running[job.project] < self._at_once:
                self._running[job.project] += 1
                # One that is connected to the store, if possible
                thread = next((thread for thread in self._idle if job.project in thread.recent), self._idle[0])
                self._idle.remove(thread)
                thread.inbox.put(job)
                return
            queue = self._queues.setdefault(job.project, deque())
            if len(queue) >= MAX_QUEUED:
                raise Busy(f"{MAX_QUEUED} calls of this project are waiting already; repeat the call in a moment")
            queue.append(job)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for thread in self._idle:
                thread.inbox.put(None)

    def join(self, seconds: float) -> None:
        for thread in self._threads:
            thread.join(seconds)

    def _serve(self, thread: _Thread) -> None:
        job = thread.inbox.get()
        while job is not None:
            job.run()
            project = job.project
            del job  # its answer, while this thread waits
            thread.recent[project] = None
            thread.recent.move_to_end(project)
            if len(thread.recent) > MOST_CONNECTIONS:
                self._leave(thread.recent.popitem(last=False)[0])
            job = self._next_job(thread, project) or thread.inbox.get()
        self._on_thread_end()

    def _next_job(self, thread: _Thread, last: str) -> ThreadJob[Any] | None:
        with self._lock:
            self._running[last] -= 1
            if not self._running[last]:
                del self._running[last]
            # No idle thread has to be woken: only ``last`` has a place that it did not have before.
            project = next((name for name in self._queues if self._running[name] < self._at_once), None)
            if project is None:
                self._idle.append(thread)
                if self._ended:
                    thread.inbox.put(None)
                return None
            queue = self._queues.pop(project)
            job = queue.popleft()
            if queue:
                self._queues[project] = queue  # behind the others
            self._running[project] += 1
            return job


class _Thread(threading.Thread):
    def __init__(self, name: str, serve: Callable[[_Thread], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._serve = serve
        self.inbox: SimpleQueue[ThreadJob[Any] | None] = SimpleQueue()
        # The projects whose stores it is connected to, the least recently used first
        self.recent: OrderedDict[str, None] = OrderedDict()

    def run(self) -> None:
        self._serve(self)


STOPPING = "the server is stopping; start it again and repeat the call"


def stopping_error() -> Unavailable:
    return Unavailable(STOPPING)
