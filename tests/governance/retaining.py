"""Stores that were filled over a year or two, by a test's choice or at random, and what retention makes of them."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from decisions.schemas import DecisionLink, DecisionRecord, DecisionSupersede
from decisions.services import link_decisions, record_decision, supersede_decision
from governance.retention.schemas import HoldPlace, Plan, RetentionPlanRequest, RetentionRunRequest, RunView
from governance.retention.selectors import plan_retention
from governance.retention.service import place_hold, run_retention
from memories import services
from memories.pack import pack_context
from memories.schemas import MemoryDelete, MemoryTouch, MemoryUpdate, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.schemas.query import ContextPackRequest
from memories.search.index import text_index
from memories.services.links import create_relation
from memoryhub.core import clock
from memoryhub.core.errors import HubError
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import rows
from sessions_app import schemas as sessions
from sessions_app.services import end_session, record_commit, start_session, work
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
            start_session(command=sessions.SessionStart(session_id=name, purpose=f"work of {name}"))
            turn = begin_turn(command=sessions.TurnBegin(session_id=name, turn_id="t-1"))
            positions = []
            for text in said:
                payload = {"content": text}
                command = sessions.EventAppend(type="message.user", payload=payload, ack_token=turn.ack_token)
                positions.append(append_event(command=command).position)
            if closed:
                end_turn(command=sessions.TurnEnd(ack_token=turn.ack_token))
            if ended:
                end_session(command=sessions.SessionEnd(session_id=name, summary="done"))
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
        change_settings(command=sessions.SettingsChange(settings=values))

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


WORDS = "marmalade cardamom porridge kumquat anchovy walnut".split()


class Story:
    def __init__(self, seed: int, steps: int) -> None:
        self.random = random.Random(seed)
        self.memories: list[int] = []
        self.decisions: list[int] = []
        self.said: list[int] = []
        self.commits = 0
        acts = [getattr(self, name) for name in dir(self) if name.startswith("do_")]
        for step in range(steps):
            at = NOW - timedelta(days=720 * (1 - step / steps))
            with clock.frozen(at), use_origin(session_id=self.name()), suppress(HubError):
                self.random.choice(acts)()

    def name(self) -> str:
        return f"s-{self.random.randrange(4)}"

    def text(self) -> str:
        known = [*self.memories, *self.decisions, *self.said]
        named = f" as #{self.random.choice(known)} says" if known and self.random.random() < 0.5 else ""
        return f"{' '.join(self.random.sample(WORDS, 2))} {self.random.random()}{named}"

    def some(self, among: list[int]) -> int:
        return self.random.choice(among) if among else 1

    def do_session(self) -> None:
        mode = self.random.choice(["working", "scratch"])
        start_session(command=sessions.SessionStart(session_id=self.name(), purpose=self.text(), mode=mode))

    def do_end(self) -> None:
        discard = self.random.random() < 0.5
        end_session(command=sessions.SessionEnd(session_id=self.name(), summary=self.text(), discard=discard))

    def do_turn(self) -> None:
        turn = begin_turn(command=sessions.TurnBegin(session_id=self.name(), turn_id=str(self.random.random())))
        for kind in ("message.user", "message.assistant", "note.added"):
            command = sessions.EventAppend(type=kind, payload={"content": self.text()}, ack_token=turn.ack_token)
            self.said.append(append_event(command=command).position)
        if self.random.random() < 0.8:
            end_turn(command=sessions.TurnEnd(ack_token=turn.ack_token))

    do_another_turn = do_turn

    def do_memory(self) -> None:
        scope = self.random.choice(["project", "session"])
        command = MemoryWrite(title=self.text()[:60], content=self.text(), scope=scope)
        self.memories.append(services.write_memory(command=command).id)

    def do_revise(self) -> None:
        services.update_memory(command=MemoryUpdate(id=self.some(self.memories), base_version=1, content=self.text()))

    def do_delete(self) -> None:
        services.delete_memory(command=MemoryDelete(id=self.some(self.memories)))

    def do_restore(self) -> None:
        services.restore_memory(command=MemoryTouch(id=self.some(self.memories)))

    def do_relate(self) -> None:
        ends = [*self.memories, *self.decisions]
        command = RelationCreate(relation="related_to", source=self.some(ends), target=self.some(ends))
        create_relation(command=command)

    def do_decide(self) -> None:
        command = DecisionRecord(title=self.text()[:60], chosen=self.text(), rationale=self.text())
        self.decisions.append(record_decision(command=command).id)

    def do_supersede(self) -> None:
        command = DecisionSupersede(id=self.some(self.decisions), chosen=self.text())
        self.decisions.append(supersede_decision(command=command).id)

    def do_link(self) -> None:
        ends: dict[str, Any] = {"id": self.some(self.decisions), "to": self.some(self.decisions)}
        link_decisions(command=DecisionLink(relation=self.random.choice(["supersedes", "relates_to"]), **ends))

    def do_commit(self) -> None:
        self.commits += 1
        message = f"{self.text()}\n\nDecision: #{self.some(self.decisions)}"
        record_commit(command=sessions.CommitRead(sha=f"{self.commits:040x}", message=message, files=["a.py"]))

    def do_iterate(self) -> None:
        work.start_iteration(command=sessions.IterationStart(command="feature", description=self.text()))

    def do_complete(self) -> None:
        work.complete_iteration(command=sessions.IterationComplete(outcome=self.text()))

    def do_pack(self) -> None:
        pack_context(command=ContextPackRequest(query=self.random.choice(WORDS), max_tokens=400))

    def do_hold(self) -> None:
        streams = [f"session:{self.name()}", f"memory:{self.some(self.memories)}"]
        if self.random.random() < 0.3:
            place_hold(command=HoldPlace(stream_id=self.random.choice(streams), reason="asked about"))
