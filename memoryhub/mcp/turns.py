"""The session and turn of this connection, where the client does not keep them itself."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memoryhub.core.errors import HubError
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import use_store
from memoryhub.mcp.binding import Binding
from sessions_app.services.adapter import Place, enter_turn, leave_turn

logger = logging.getLogger(__name__)


class TurnKeeper:
    """Knows the connection's session, and puts its writes into a turn of it."""

    def __init__(self, binding: Binding, session_id: str) -> None:
        self.session_id = session_id
        self._binding = binding
        self._place: Place | None = None

    @contextmanager
    def turn(self, actor: str) -> Iterator[None]:
        """Let what is written inside belong to the connection's turn; needs the store to be current."""
        place = enter_turn(session_id=self.session_id, agent=actor, directory=str(Path.cwd()))
        self.session_id = place.session_id
        self._place = place if place.turn_id else None
        with use_origin(session_id=place.session_id, turn_id=place.turn_id):
            yield

    def leave(self) -> None:
        """Close the turn that is still open, now that the client has gone; what fails is logged, and time closes it."""
        if self._place is None:
            return
        try:
            with use_store(self._binding.store()), use_origin(source="mcp", actor="memory-hub"):
                leave_turn(place=self._place)
        except HubError as error:
            logger.warning("the turn could not be closed: %s", error)
