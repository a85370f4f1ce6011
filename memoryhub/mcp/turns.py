"""The session and turn of each connection, for clients that don't manage them (decision 10)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from memoryhub.core.errors import HubError
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import use_store
from memoryhub.core.windows import session_of
from memoryhub.mcp.binding import Binding
from memoryhub.mcp.threads import Workers
from sessions_app.services.adapter import Place, entered_turn, leave_turn

logger = logging.getLogger(__name__)

# An HTTP connection without a call for this long is closed; the SDK ends its session after the same time.
IDLE_SECONDS = 30 * 60.0


class TurnKeeper:
    """The session of a connection and the turn of its writes."""

    def __init__(self, binding: Binding, session_id: str, window: str = "") -> None:
        self._session_id = session_id
        # Whether the client named the session, on the command line or with session_start.
        self._is_chosen = bool(session_id)
        self._window = window
        self._binding = binding
        self._place: Place | None = None
        self.used_at = time.monotonic()

    @property
    def session_id(self) -> str:
        """The session that the client chose, else the one of its window's hooks, else the one of this connection."""
        return self._session_id if self._is_chosen else session_of(self._window) or self._session_id

    def choose(self, session_id: str) -> None:
        """Continue in the session that a call has started or resumed; in none of its own after it was ended."""
        self._session_id = session_id
        self._is_chosen = bool(session_id)

    @contextmanager
    def turn(self, actor: str) -> Iterator[None]:
        """Assign writes inside to the connection's turn; the store must be current."""
        entering = entered_turn(
            session_id=self.session_id,
            agent=actor,
            directory=self._binding.folder().directory,
            is_of_window=not self._is_chosen and bool(session_of(self._window)),
        )
        with entering as place, use_origin(session_id=place.session_id, turn_id=place.turn_id):
            self._session_id = place.session_id
            self._place = place if place.turn_id else None
            yield

    def leave(self) -> None:
        """Close the open turn. Failures are logged; the turn then expires."""
        if self._place is None:
            return
        try:
            with use_store(self._binding.store()), use_origin(source="mcp", actor="memory-hub"):
                leave_turn(place=self._place)
        except HubError as error:
            logger.warning("the turn could not be closed: %s", error)


class TurnKeepers:
    """The keepers of all connections: one over stdio, one per client over HTTP."""

    def __init__(self, binding: Binding, session_id: str, workers: Workers, window: str = "") -> None:
        self._binding = binding
        self._session_id = session_id
        self._window = window
        self._workers = workers
        self._keepers: dict[str, TurnKeeper] = {}

    async def of(self, connection: str) -> TurnKeeper:
        """Return or create the keeper of ``connection``; idle ones are closed first."""
        await self.leave_idle(but=connection)
        keeper = self._keepers.get(connection)
        if keeper is None:
            keeper = self._keepers[connection] = TurnKeeper(self._binding, self._session_id, self._window)
        keeper.used_at = time.monotonic()
        return keeper

    async def leave_idle(self, *, but: str = "") -> None:
        before = time.monotonic() - IDLE_SECONDS
        for name in [name for name, keeper in self._keepers.items() if name != but and keeper.used_at < before]:
            await self.leave(name)

    async def leave(self, connection: str) -> None:
        keeper = self._keepers.pop(connection, None)
        if keeper is not None:
            await self._workers.run(lambda _: keeper.leave(), writes=True, project=self._binding.project or "")

    def leave_all(self) -> None:
        for keeper in self._keepers.values():
            keeper.leave()
