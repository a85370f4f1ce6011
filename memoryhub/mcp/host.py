"""The server over HTTP, for one project or for all: what the gate passes requests to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from django.db import connections
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from memoryhub.core.stores import connections as store_connections
from memoryhub.core.stores.store import project_store
from memoryhub.mcp import listing
from memoryhub.mcp.binding import IDLE_SECONDS, Binding, TurnKeepers
from memoryhub.mcp.calls import Calls, Questions
from memoryhub.mcp.gate import Backend
from memoryhub.mcp.server import build_server
from memoryhub.mcp.subscriptions import Subscriptions
from memoryhub.mcp.threads import THREAD_END_SECONDS, Workers
from memoryhub.ops.serving.live import Streams


class Host:
    """The SDK's server, and the calls, sessions and turns of each project."""

    def __init__(
        self,
        *,
        bind: Callable[[str], Binding],
        profile: str,
        streams: Streams,
        session: str = "",
        writers: int = 1,
        readers: int = 2,
    ) -> None:
        self._bind = bind
        self._session = session
        self._projects: dict[str, tuple[Calls, TurnKeepers]] = {}
        self._workers = Workers(
            on_thread_end=connections.close_all,
            leave=lambda project: store_connections.detach(project_store(project).alias),
            writers=writers,
            readers=readers,
        )
        self._questions = Questions()
        self._subscriptions = Subscriptions(self._workers, streams)
        server = build_server(
            lambda project: self._of(project)[0], self._questions, profile=profile, subscriptions=self._subscriptions
        )
        listing.extend_for_tests(server)
        # The gate has its own limits; a session is never ended before the gate forgets it.
        self._manager = StreamableHTTPSessionManager(server, session_idle_timeout=IDLE_SECONDS, max_sessions=None)
        self._ended = asyncio.Event()

    async def start(self) -> Backend:
        ready = asyncio.Event()
        self._running = asyncio.create_task(self._run(ready))
        await ready.wait()
        return Backend(self._manager.handle_request, self._stop_work, self._end_session, self._end_idle, self._close)

    def finish(self) -> None:
        """End threads and open turns, after the event loop."""
        self._workers.join(THREAD_END_SECONDS)
        for _, keepers in self._projects.values():
            keepers.leave_all()

    # Its task group must be entered and left by one task.
    async def _run(self, ready: asyncio.Event) -> None:
        async with self._manager.run():
            ready.set()
            await self._ended.wait()

    def _of(self, project: str) -> tuple[Calls, TurnKeepers]:
        if project not in self._projects:
            binding = self._bind(project)
            keepers = TurnKeepers(binding, self._session, self._workers)
            self._projects[project] = Calls(self._workers, binding, keepers), keepers
        return self._projects[project]

    def _stop_work(self) -> None:
        self._questions.stop()
        self._workers.stop()
        self._subscriptions.close()

    async def _end_session(self, session_id: str, project: str) -> None:
        self._subscriptions.end_session(session_id, project)
        await self._of(project)[1].leave(session_id)

    async def _end_idle(self) -> None:
        for _, keepers in list(self._projects.values()):
            await keepers.leave_idle()

    async def _close(self) -> None:
        self._ended.set()
        await self._running
