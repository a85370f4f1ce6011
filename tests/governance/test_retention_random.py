from __future__ import annotations

import random
from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decisions.schemas import DecisionLink, DecisionRecord, DecisionSupersede
from decisions.services import link_decisions, record_decision, supersede_decision
from governance.retention import run as running
from governance.retention.run import run_retention
from governance.retention.schemas import HoldPlace, RetentionRunRequest
from governance.retention.selectors import place_hold
from memories import services
from memories.pack import pack_context
from memories.schemas import MemoryDelete, MemoryTouch, MemoryUpdate, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.schemas.query import ContextPackRequest
from memories.services.relations import create_relation
from memoryhub.core import clock
from memoryhub.core.errors import HubError
from memoryhub.core.origin import use_origin
from sessions_app.schemas import (
    CommitRead,
    EventAppend,
    IterationComplete,
    IterationStart,
    SessionEnd,
    SessionStart,
    TurnBegin,
    TurnEnd,
)
from sessions_app.services import end_session, iterations, record_commit, start_session
from sessions_app.services.turns import append_event, begin_turn, end_turn
from tests.governance.retaining import NOW, RetentionTestCase, documents_with

WORDS = "marmalade cardamom porridge kumquat anchovy walnut".split()
EXAMPLES = 12
WHATS = ["captured", "pack", "deleted", "memory", "session", "decision", "iteration", "commit"]
RULES = st.lists(
    st.fixed_dictionaries({"what": st.sampled_from(WHATS), "after_days": st.sampled_from([1, 100, 300, 500, None])}),
    max_size=6,
)


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
        start_session(command=SessionStart(session_id=self.name(), purpose=self.text(), mode=mode))

    def do_end(self) -> None:
        discard = self.random.random() < 0.5
        end_session(command=SessionEnd(session_id=self.name(), summary=self.text(), discard=discard))

    def do_turn(self) -> None:
        turn = begin_turn(command=TurnBegin(session_id=self.name(), turn_id=str(self.random.random())))
        for kind in ("message.user", "message.assistant", "note.added"):
            command = EventAppend(type=kind, payload={"content": self.text()}, ack_token=turn.ack_token)
            self.said.append(append_event(command=command).position)
        if self.random.random() < 0.8:
            end_turn(command=TurnEnd(ack_token=turn.ack_token))

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
        record_commit(command=CommitRead(sha=f"{self.commits:040x}", message=message, files=["a.py"]))

    def do_iterate(self) -> None:
        iterations.start_iteration(command=IterationStart(command="feature", description=self.text()))

    def do_complete(self) -> None:
        iterations.complete_iteration(command=IterationComplete(outcome=self.text()))

    def do_pack(self) -> None:
        pack_context(command=ContextPackRequest(query=self.random.choice(WORDS), max_tokens=400))

    def do_hold(self) -> None:
        streams = [f"session:{self.name()}", f"memory:{self.some(self.memories)}"]
        if self.random.random() < 0.3:
            place_hold(command=HoldPlace(stream_id=self.random.choice(streams), reason="asked about"))


class RandomTests(RetentionTestCase):
    stores = 0

    def test_what_goes_is_what_was_said_and_a_rebuild_comes_out_the_same(self):
        tried = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        tried(given(st.integers(0, 2**32), st.integers(40, 90), RULES)(self.check))()

    def check(self, seed: int, steps: int, rules: list[dict[str, Any]]) -> None:
        self.stores += 1
        with self.store(f"story-{self.stores}"):
            Story(seed, steps)
            self.settings(retention=rules)
            before, plan = set(self.erased()), self.plan()
            with mock.patch.object(running, "BATCH", 4):
                run = run_retention(command=RetentionRunRequest(digest=plan.digest), progress=self.between_batches)
            self.assertEqual(len(set(self.erased()) - before), plan.events)
            self.assertEqual((run.events, run.report.left) if run else (0, 0), (plan.events, 0))
            self.assertEqual(self.plan().going, [])
            self.assertEqual(self.plan().kept, plan.kept)
            found = self.found()
            self.assert_sound()
            self.assertEqual(self.found(), found)

    def between_batches(self, _done: int, _total: int) -> None:
        self.assert_sound()

    def found(self) -> dict[str, list[int]]:
        return {word: documents_with(word) for word in WORDS}
