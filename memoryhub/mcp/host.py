"""The server over HTTP, for one project or for all: behind the gate, with subscriptions to resources."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError

from memoryhub.core.errors import HubError, Invalid, NotFound, TooMany
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import StoreId, project_store, use_store
from memoryhub.mcp import listing
from memoryhub.mcp.binding import (
    ADMITTED,
    IDLE_SECONDS,
    SESSION_HEADER,
    Admitted,
    Binding,
    ConnectionState,
    TurnKeepers,
)
from memoryhub.mcp.calls import Calls, Context, Questions
from memoryhub.mcp.server import Match, Resources, build_server
from memoryhub.mcp.threads import THREAD_END_SECONDS, Lanes, Workers
from memoryhub.ops.serving.live import Streams, source_of_store


class Host:
    """The SDK's server, and the calls, sessions and turns of each project."""

    def __init__(
        self,
        *,
        bind: Callable[[str], Binding],
        profile: str,
        streams: Streams,
        lanes: Lanes,
        session: str = "",
    ) -> None:
        self._bind = bind
        self._state = ConnectionState(session, is_chosen=bool(session))
        self._projects: dict[str, tuple[Calls, TurnKeepers]] = {}
        self._lanes = lanes
        self._workers = Workers(lanes)
        self._questions = Questions()
        self._subscriptions = Subscriptions(self._workers, streams)
        server = build_server(lambda project: self._of(project)[0], profile=profile)
        self._subscriptions.serve_with(server)
        listing.extend_for_tests(server)
        # The gate has its own limits; a session is never ended before the gate forgets it.
        self._manager = StreamableHTTPSessionManager(server, session_idle_timeout=IDLE_SECONDS, max_sessions=None)
        self._ended = asyncio.Event()

        self.handle = self._manager.handle_request

    async def start(self) -> Host:
        ready = asyncio.Event()
        self._running = asyncio.create_task(self._run(ready))
        await ready.wait()
        return self

    def finish(self) -> None:
        """Wait for the threads, and close the open turns."""
        self._lanes.join(THREAD_END_SECONDS)
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
            keepers = TurnKeepers(binding, self._workers, self._state)
            self._projects[project] = Calls(self._workers, binding, keepers, self._questions), keepers
        return self._projects[project]

    def stop_work(self) -> None:
        self._questions.stop()
        self._workers.stop()
        self._subscriptions.close()

    async def end_session(self, session_id: str, project: str) -> None:
        self._subscriptions.end_session(session_id, project)
        await self._of(project)[1].leave(session_id)

    async def end_idle(self) -> None:
        for _, keepers in list(self._projects.values()):
            await keepers.leave_idle()

    async def close(self) -> None:
        self._ended.set()
        await self._running


logger = logging.getLogger(__name__)

MOST_URIS = 50
MOST_RESOURCES_OF_A_STORE = 500
# Seconds between two looks at a store that changes all the time
PAUSE_SECONDS = 0.5


class Subscriptions:
    def __init__(self, workers: Workers, streams: Streams) -> None:
        self._workers = workers
        self._streams = streams
        self._resources = Resources()
        self._followers: dict[str, _Follower] = {}

    def serve_with(self, server: Server[Any]) -> None:
        server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)
        server.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, self._listen)

    def close(self) -> None:
        """End the streams of all subscribers, and follow no store any more."""
        for follower in self._followers.values():
            follower.close()
        self._followers.clear()

    def end_session(self, session_id: str, project: str) -> None:
        follower = self._followers.get(project)
        if follower:
            follower.leave(session_id)
            self._forget_unused(project)

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        project, session_id = _place_of(context)
        with _errors():
            match = self._match(str(params.uri), project)
            await self._follower(project).join(session_id, context.session, str(params.uri), match)
        return types.EmptyResult()

    async def _unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        project, session_id = _place_of(context)
        follower = self._followers.get(project)
        if follower:
            follower.leave(session_id, str(params.uri))
            self._forget_unused(project)
        return types.EmptyResult()

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        project, _ = _place_of(context)
        uris = list(dict.fromkeys(map(str, params.notifications.resource_subscriptions or ())))
        with _errors():
            if len(uris) > MOST_URIS:
                raise Invalid(f"one stream follows at most {MOST_URIS} resources")
            matches = {uri: self._match(uri, project) for uri in uris}
        follower = self._follower(project)
        try:
            with ExitStack() as stack:
                with _errors():
                    for uri, match in matches.items():
                        stack.enter_context(follower.watching(uri, match))
                    await follower.look()
                return await follower.listen(context, params)
        finally:
            self._forget_unused(project)

    def _match(self, uri: str, project: str) -> Match:
        match = self._resources.find(uri)
        if match is None:
            raise NotFound(f"no resource matches {uri[:200]!r}")
        if match.project_id not in (None, project):
            raise Invalid(f"this server is bound to project {project!r}; subscribe at the other project's address")
        if match.resource.records:
            raise Invalid(f"{uri[:200]!r} can't be followed, because reading it is recorded; read it when you need it")
        return match

    def _follower(self, project: str) -> _Follower:
        if project not in self._followers:
            self._followers[project] = _Follower(project_store(project), self._workers, self._streams)
        return self._followers[project]

    def _forget_unused(self, project: str) -> None:
        follower = self._followers.get(project)
        if follower and not follower.is_used:
            follower.close()
            del self._followers[project]


@dataclass(slots=True)
class _Followed:
    match: Match
    # The digest of its text when it was last read; "" if it has not been read
    digest: str = ""
    subscribers: int = 0


class _Follower:
    """Compares the resources of a store after each change of it."""

    def __init__(self, store: StoreId, workers: Workers, streams: Streams) -> None:
        self._store = store
        self._workers = workers
        self._streams = streams
        self._followed: dict[str, _Followed] = {}
        self._sessions: dict[str, _Recipient] = {}
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus)
        self._checking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_used(self) -> bool:
        return bool(self._followed or self._sessions)

    async def join(self, session_id: str, session: ServerSession, uri: str, match: Match) -> None:
        recipient = self._sessions.get(session_id)
        if recipient is None:
            recipient = self._sessions[session_id] = _Recipient(session)
        if uri in recipient.uris:
            return
        if len(recipient.uris) >= MOST_URIS:
            raise TooMany(f"one session follows at most {MOST_URIS} resources; unsubscribe from some")
        recipient.uris[uri] = stack = ExitStack()
        stack.enter_context(self.watching(uri, match))
        await self.look()

    def leave(self, session_id: str, uri: str | None = None) -> None:
        """End a session's subscription to a resource, or all of them."""
        recipient = self._sessions.get(session_id)
        if recipient is None:
            return
        uris = [uri] if uri else list(recipient.uris)
        for name in uris:
            if stack := recipient.uris.pop(name, None):
                stack.close()
        if not recipient.uris:
            recipient.close()
            del self._sessions[session_id]

    def close(self) -> None:
        self.listen.close()
        for recipient in self._sessions.values():
            recipient.close()
        if self._task:
            self._task.cancel()

    @contextmanager
    def watching(self, uri: str, match: Match) -> Iterator[None]:
        if uri not in self._followed and len(self._followed) >= MOST_RESOURCES_OF_A_STORE:
            raise TooMany(f"{MOST_RESOURCES_OF_A_STORE} resources of this project are followed already")
        followed = self._followed.setdefault(uri, _Followed(match))
        followed.subscribers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            followed.subscribers -= 1
            if not followed.subscribers:
                del self._followed[uri]

    async def look(self) -> None:
        """Read what is followed, and notify of what has changed since it was read before."""
        async with self._checking:
            matches = {uri: followed.match for uri, followed in self._followed.items()}
            digests = await self._workers.run(lambda _: self._read(matches), writes=False, project=self._store.name)
            for uri, digest in digests.items():
                followed = self._followed.get(uri)
                if followed is None:
                    continue
                has_changed = followed.digest not in ("", digest)
                followed.digest = digest
                if has_changed:
                    await self._bus.publish(ResourceUpdated(uri))
                    for recipient in self._sessions.values():
                        if uri in recipient.uris:
                            recipient.notify(uri)

    async def _follow(self) -> None:
        with self._streams.watching(source_of_store(self._store)) as watcher:
            version = ""
            while True:
                changed = await watcher.version_after(version)
                # The part before the dash is the log; the other part changes with each read.
                if changed.partition("-")[0] != version.partition("-")[0]:
                    try:
                        await self.look()
                    except HubError as error:
                        logger.info("the resources of %s cannot be followed: %s", self._store.name, error)
                    except Exception:
                        logger.exception("the resources of %s cannot be followed", self._store.name)
                version = changed
                await asyncio.sleep(PAUSE_SECONDS)

    # Not as an agent, so that it doesn't count as a use.
    def _read(self, matches: dict[str, Match]) -> dict[str, str]:
        with use_store(self._store), use_origin(source="job", actor="memory-hub"):
            digests = {}
            for uri, match in matches.items():
                try:
                    text = match.read()
                except HubError as error:
                    text = f"{error.code} {error.message}"
                digests[uri] = hashlib.sha256(text.encode()).hexdigest()
            return digests


class _Recipient:
    """A session with a handshake. What it has not read yet is sent once, and doesn't delay others."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self.uris: dict[str, ExitStack] = {}
        self._due: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None

    def notify(self, uri: str) -> None:
        self._due[uri] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send())

    def close(self) -> None:
        if self._task:
            self._task.cancel()

    async def _send(self) -> None:
        while self._due:
            uri = next(iter(self._due))
            del self._due[uri]
            try:
                await self._session.send_resource_updated(uri)
            except Exception:
                logger.exception("a client could not be notified")


def _place_of(context: Context) -> tuple[str, str]:
    request: Any = context.request
    admitted: Admitted = request.scope[ADMITTED]
    return admitted.project, request.headers.get(SESSION_HEADER, "")


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except HubError as error:
        raise MCPError(types.INVALID_PARAMS, f"{error.code}: {error.message}", {"code": error.code}) from error
