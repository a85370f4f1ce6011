"""What a tool call is bound to: its caller, project, session and turn. Does not import the SDK."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from memoryhub.config.current_settings import NO_FOLDER, FolderSettings, read_folder
from memoryhub.config.identity import bind_project, identify_project
from memoryhub.core.errors import Forbidden, HubError
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import EVERYTHING, Grant
from memoryhub.core.stores.store import StoreId, project_store, use_store
from memoryhub.core.windows import session_of
from memoryhub.mcp.threads import Workers
from sessions_app.services.sessions import TurnPlace, entered_turn, leave_turn

logger = logging.getLogger(__name__)


class Binding:
    """Finds the project on first use. After a failure, each call tries again and reports it.

    Without a directory, as in the hub, clients work elsewhere: settings come from the hub, and no project is created.
    """

    def __init__(self, project: str | None, directory: Path | None) -> None:
        self.project = project
        self.creates = directory is not None
        self.directory = directory
        self._store: StoreId | None = None
        self._folder: FolderSettings | None = None
        self._recorded = project is not None
        self._lock = threading.Lock()

    @property
    def lane(self) -> str:
        """The project whose calls run in turn with this one's; "" until it is found."""
        return self._store.name if self._store else self.project or ""

    def store(self) -> StoreId:
        with self._lock:
            if self._store is None:
                directory = self.directory or Path()
                self._store = project_store(identify_project(project=self.project, directory=directory))
            return self._store

    def folder(self) -> FolderSettings:
        if self.directory is None:
            return NO_FOLDER
        store = self.store()
        with self._lock:
            if self._folder is None:
                self._folder = read_folder(self.directory, store.name)
            return self._folder

    def check(self, project_id: object) -> StoreId:
        # Tools accept project_id, but only the id of this project.
        store = self.store()
        if project_id is not None and project_id != store.name:
            project = str(project_id)[:64]
            way = f"start another one with --project {project}"
            if self.directory is None:
                way = f"use the address /p/{project}/mcp"
            problem = f"this server is bound to project {store.name!r}; {way} to reach that project"
            raise Forbidden(problem, project_id=store.name)
        return store

    def note_folder(self) -> None:
        # Records the folder as the project's own, once the project has a store.
        if self._recorded or self.directory is None:
            return
        self._recorded = True
        try:
            bind_project(self.store().name, self.directory)
        except (HubError, OSError):
            logger.warning("could not record the project's folder", exc_info=True)


SESSION_HEADER = "mcp-session-id"
# Key of the ``Admitted`` in the scope of an HTTP request
ADMITTED = "memoryhub.admitted"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The caller of an HTTP request, and the project of its address."""

    project: str
    # "" with the hub's own token: then the client's name is the actor.
    actor: str = ""
    grant: Grant = EVERYTHING
    # The token that sessions belong to, and whose calls and streams are counted
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a tool; ``connection`` is the one whose turn its writes belong to."""

    actor: str
    connection: str
    # Over stdio everything is allowed, as for the user who started the process.
    grant: Grant = EVERYTHING
    # By which the log recognises a call that is repeated; "" if it is not
    key: str = ""


# An HTTP connection without a call for this long is closed; the SDK ends its session after the same time.
IDLE_SECONDS = 30 * 60.0


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """The session that a connection is in; its relay names it to the next hub."""

    session: str = ""
    # Whether the client named the session, on the command line or with session_start.
    is_chosen: bool = False
    # The id of the session that the connection's first write begins; "" for any
    new_session: str = ""
    # The client's process, whose hooks name its session
    window: str = ""


class TurnKeeper:
    def __init__(self, binding: Binding, state: ConnectionState) -> None:
        self.state = state
        self._binding = binding
        self._turn: TurnPlace | None = None
        self.used_at = time.monotonic()

    @property
    def session_id(self) -> str:
        """The session that the client chose, else the one of its window's hooks, else the one of this connection."""
        if self.state.is_chosen:
            return self.state.session
        return session_of(self.state.window) or self.state.session

    def choose(self, session_id: str) -> None:
        """Continue in the session that a call has started or resumed; in none of its own after it was ended."""
        self.state = replace(self.state, session=session_id, is_chosen=bool(session_id))

    @contextmanager
    def turn(self, actor: str) -> Iterator[None]:
        """Assign writes inside to the connection's turn; the store must be current."""
        entering = entered_turn(
            session_id=self.session_id,
            new_session=self.state.new_session,
            agent=actor,
            directory=self._binding.folder().directory,
            is_of_window=not self.state.is_chosen and bool(session_of(self.state.window)),
        )
        with entering as turn, use_origin(session_id=turn.session_id, turn_id=turn.turn_id):
            self.state = replace(self.state, session=turn.session_id)
            self._turn = turn
            yield

    def leave(self) -> None:
        """Close the open turn. Failures are logged; the turn then expires."""
        if self._turn is None or not self._turn.turn_id:
            return
        try:
            with use_store(self._binding.store()), use_origin(source="mcp", actor="memory-hub"):
                leave_turn(place=self._turn)
        except HubError as error:
            logger.warning("the turn could not be closed: %s", error)


class TurnKeepers:
    """The keepers of all connections: one over stdio, one per client over HTTP."""

    def __init__(self, binding: Binding, workers: Workers, state: ConnectionState) -> None:
        self._binding = binding
        self._state = state
        self._workers = workers
        self._keepers: dict[str, TurnKeeper] = {}

    async def of(self, connection: str) -> TurnKeeper:
        """Return or create the keeper of ``connection``; idle ones are closed first."""
        await self.leave_idle(but=connection)
        keeper = self._keepers.get(connection)
        if keeper is None:
            keeper = self._keepers[connection] = TurnKeeper(self._binding, self._state)
        keeper.used_at = time.monotonic()
        return keeper

    async def leave_idle(self, *, but: str = "") -> None:
        before = time.monotonic() - IDLE_SECONDS
        for connection, keeper in list(self._keepers.items()):
            if connection != but and keeper.used_at < before:
                await self.leave(connection)

    async def leave(self, connection: str) -> None:
        keeper = self._keepers.pop(connection, None)
        if keeper is not None:
            await self._workers.run(lambda _: keeper.leave(), writes=True, project=self._binding.lane)

    def leave_all(self) -> None:
        for keeper in self._keepers.values():
            keeper.leave()
