"""A store that was filled over a year or two, and what retention makes of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from governance.retention.run import run_retention
from governance.retention.schemas import Plan, RetentionPlanRequest, RetentionRunRequest, RunView
from governance.retention.selectors import plan_retention
from memories import services
from memories.schemas import MemoryDelete, MemoryWrite
from memories.search.text_index import text_index
from memoryhub.core import clock, log
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import rows
from sessions_app.schemas import EventAppend, SessionEnd, SessionStart, SettingsChange, TurnBegin, TurnEnd
from sessions_app.services import end_session, start_session
from sessions_app.services.profile import change_settings
from sessions_app.services.turns import append_event, begin_turn, end_turn
from tests.support import HubTestCase

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def days_ago(days: float) -> Any:
    return clock.frozen(NOW - timedelta(days=days))


def documents_with(*words: str) -> list[int]:
    """Return the ids of the full-text index's documents that have one of the words, sorted."""
    return sorted(
        row[0] for row in rows.fetch(*text_index.with_any([[word] for word in words], by_score=False, most=10_000))
    )


class RetentionTestCase(HubTestCase):
    """Works in alpha, as ada; the clock stands at ``NOW`` unless a test turns it back."""

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada"))
        self.enterContext(clock.frozen(NOW))

    def session(self, name: str, *said: str, days: float, ended: bool = True, closed: bool = True) -> list[int]:
        """A session of one turn, so many days ago; return the positions of what the user said."""
        with days_ago(days):
            start_session(command=SessionStart(session_id=name, purpose=f"work of {name}"))
            turn = begin_turn(command=TurnBegin(session_id=name, turn_id="t-1"))
            positions = [
                append_event(
                    command=EventAppend(type="message.user", payload={"content": text}, ack_token=turn.ack_token)
                ).position
                for text in said
            ]
            if closed:
                end_turn(command=TurnEnd(ack_token=turn.ack_token))
            if ended:
                end_session(command=SessionEnd(session_id=name, summary="done"))
        return positions

    def memory(self, title: str, *, days: float, deleted: float | None = None, session: str = "", **fields: Any) -> int:
        """A memory that was written so many days ago, and perhaps deleted since."""
        with days_ago(days), use_origin(session_id=session):
            written = services.write_memory(command=MemoryWrite(title=title, content=f"text of {title}", **fields)).id
        if deleted is not None:
            with days_ago(deleted):
                services.delete_memory(command=MemoryDelete(id=written))
        return int(written)

    def settings(self, **values: Any) -> None:
        change_settings(command=SettingsChange(settings=values))

    def plan(self, **request: Any) -> Plan:
        return plan_retention(command=RetentionPlanRequest(**request))

    def run_plan(self) -> RunView:
        run = run_retention(command=RetentionRunRequest(digest=self.plan().digest))
        assert run
        return run

    def going(self) -> dict[str, int]:
        return {f"{share.what} {share.sub}".strip(): share.things for share in self.plan().going}

    def kept(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for share in self.plan().kept:
            found[share.says] = found.get(share.says, 0) + share.things
        return found

    def erased(self) -> list[int]:
        return [row[0] for row in rows.fetch("SELECT position FROM raw_events WHERE payload_json IS NULL")]

    def assert_sound(self) -> None:
        self.assertTrue(log.verify().ok)
        different = [table.table for table in log.rebuild().tables if not table.identical]
        self.assertEqual(different, [])
