"""What agents do, for the tests of the pages that show it."""

from __future__ import annotations

from typing import Any

from memoryhub.core.events.projection import Event
from sessions_app.models import Session, Turn
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn
from tests.admin.base import AdminTestCase


class WorkingTestCase(AdminTestCase):
    def start(self, name: str, purpose: str = "", project: str = "alpha") -> int:
        with self.store(project, actor="agent", source="mcp", session_id=name):
            session: Session = start_session(command=SessionStart(session_id=name, purpose=purpose))
            return session.id

    def turn(self, session: str, *happenings: tuple[str, dict[str, Any]], ends: bool = True, summary: str = "") -> Turn:
        with self.store(actor="agent", source="mcp"):
            turn = automatic_turn(session_id=session)
            for kind, payload in happenings:
                append_automatically(turn=turn, type=kind, payload=payload)
            return close_turn(turn, summary=summary) if ends else turn

    def ask(self, session: str, *prompts: str, ends: bool = True) -> Turn:
        return self.turn(session, *[("message.user", {"content": prompt}) for prompt in prompts], ends=ends)

    def tell(self, turn: Turn, kind: str, **payload: Any) -> Event[Any]:
        with self.store(actor="agent", source="mcp"):
            return append_automatically(turn=turn, type=kind, payload=payload)
