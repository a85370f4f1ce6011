"""Stores that clean and rolled-back callers write to, by a test's choice or at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from random import Random
from typing import Any

from decisions.schemas import DecisionEvidence, DecisionGet, DecisionLink, DecisionMark, DecisionRecord
from decisions.selectors import get_decisions
from decisions.services import add_evidence, link_decisions, mark_decision, record_decision
from governance.rollback.schemas import Preview, RollbackMake, RollbackPlan, RollbackUndo, RollbackView
from governance.rollback.service import preview, roll_back, undo_rollback
from governance.staleness.schemas import Affirm
from governance.staleness.service import affirm
from memories.models import Conflict, Memory, Relation
from memories.review.schemas import ReviewTouch, ReviewVerdict
from memories.review.services import review_memory, withdraw_verdict
from memories.schemas import (
    ConflictResolve,
    MemoryDelete,
    MemoryGet,
    MemoryList,
    MemoryRestore,
    MemoryUpdate,
    MemoryWrite,
)
from memories.schemas.links import RelationCreate, RelationDelete, TagCreate
from memories.schemas.query import ConflictList
from memories.selectors import get_memories, list_memories
from memories.selectors.versions import list_conflicts
from memories.services import delete_memory, resolve_conflict, restore_memory, update_memory, write_memory
from memories.services.links import create_relation, create_tag, delete_relation
from memoryhub.core import log
from memoryhub.core.errors import HubError
from memoryhub.core.log.quarantine import QUARANTINE_PLACED, QuarantinePlaced
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import current_origin, use_origin
from sessions_app.schemas import ProjectDescribe, SessionEnd, SessionStart, SettingsChange
from sessions_app.services import end_session, start_session
from sessions_app.services.profile import change_settings, describe
from tests.support import HubTestCase

SCRATCH = "s-scratch"
ROLLED_BACK = {"actor": "mallory", "session_id": "s-bad", "source": "mcp"}


def quarantine(*ids: int) -> None:
    with log.transaction():
        log.append(log.prepare(QUARANTINE_PLACED, QuarantinePlaced(ids=list(ids))), stream="quarantine")


class RollbackTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada", session_id="s-good", source="rest"))

    def by(self, *, rolled_back: bool) -> AbstractContextManager[Any]:
        """Let the block's events be of the caller that is rolled back, or of the current one."""
        return use_origin(**(ROLLED_BACK if rolled_back else {}))

    def write(self, title: str, *, rolled_back: bool = False, **fields: Any) -> int:
        with self.by(rolled_back=rolled_back):
            return write_memory(command=MemoryWrite(title=title, content=f"{title}, it says.", **fields)).id

    def revise(self, memory_id: int, content: str, *, rolled_back: bool = False, **fields: Any) -> None:
        with self.by(rolled_back=rolled_back):
            update_memory(command=MemoryUpdate(id=memory_id, content=content, **fields))

    def decide(self, title: str, *, rolled_back: bool = False, **fields: Any) -> int:
        with self.by(rolled_back=rolled_back):
            return record_decision(command=DecisionRecord(title=title, chosen=f"Choose {title}.", **fields)).id

    def delete(self, memory_id: int, *, rolled_back: bool = False) -> None:
        with self.by(rolled_back=rolled_back):
            delete_memory(command=MemoryDelete(id=memory_id))

    def mark(self, decision_id: int, status: str, *, rolled_back: bool = False) -> None:
        with self.by(rolled_back=rolled_back):
            mark_decision(command=DecisionMark(id=decision_id, status=status))

    def relate(self, source: int, target: int, *, rolled_back: bool = False) -> int:
        with self.by(rolled_back=rolled_back):
            command = RelationCreate(source=str(source), relation="related_to", target=str(target))
            return create_relation(command=command).id

    def unrelate(self, relation_id: int, *, rolled_back: bool = False) -> None:
        with self.by(rolled_back=rolled_back):
            delete_relation(command=RelationDelete(id=relation_id))

    def conflicting(self, *, rolled_back: bool = True) -> int:
        """Return a memory that ada revised, and then a caller who had not seen that."""
        memory = self.write("Kept")
        self.revise(memory, "Clean.")
        self.revise(memory, "Poisoned.", rolled_back=rolled_back, base_version=1)
        return memory

    @contextmanager
    def scratch(self) -> Iterator[None]:
        with use_origin(session_id=SCRATCH):
            start_session(command=SessionStart(session_id=SCRATCH, mode="scratch"))
            yield

    def set(self, **settings: Any) -> None:
        change_settings(command=SettingsChange(settings=settings))

    def view(self, memory_id: int) -> dict[str, Any]:
        return get_memories(command=MemoryGet(ids=[memory_id], include_deleted=True))[0]

    def decision(self, decision_id: int) -> dict[str, Any]:
        return get_decisions(command=DecisionGet(ids=[decision_id]))[0]

    def listed(self) -> list[int]:
        return [memory["id"] for memory in list_memories(command=MemoryList()).results]

    def conflicts(self) -> list[int]:
        return [conflict["id"] for conflict in list_conflicts(command=ConflictList()).results]

    def preview(self, **fields: Any) -> Preview:
        return preview(command=RollbackPlan.model_validate({"session_id": "s-bad", **fields}))

    def roll_back(self, **fields: Any) -> RollbackView:
        wanted = {"session_id": "s-bad", **fields}
        with use_origin(actor="olga", session_id="", source="admin"):
            token = self.preview(**{key: item for key, item in wanted.items() if key != "reason"}).confirm_token
            return roll_back(command=RollbackMake.model_validate({**wanted, "confirm_token": token}))

    def undo(self, rollback_id: int, reason: str = "") -> RollbackView:
        with use_origin(actor="olga", session_id="", source="admin"):
            return undo_rollback(command=RollbackUndo(id=rollback_id, reason=reason))

    def assert_rolls_back(self, state: Callable[[], Any], rolled_back: Any, undone: Any, **fields: Any) -> RollbackView:
        """Roll back and undo that; after each step the state must be as given, and a rebuild the same."""
        made = self.roll_back(**fields)
        self.assertEqual(rolled_back, state())
        self.assert_rebuilds()
        self.undo(made.id)
        self.assertEqual(undone, state())
        self.assert_rebuilds()
        return made


# How often each is done.
_WEIGHTS = {
    "write": 4, "note": 2, "revise": 6, "stale": 3, "rename": 2, "retag": 1, "promote": 1, "delete": 4, "restore": 4,
    "erase": 0.5, "verdict": 4, "withdraw": 1, "resolve": 3, "relate": 5, "unrelate": 5, "tag": 1,
    "decide": 4, "link": 3, "mark": 4, "prove": 2, "set": 1, "policy": 1, "describe": 1, "affirm": 2, "end": 0.7,
}  # fmt: skip
_SEED = "write:0:0 write:1:1 write:2:2 note:0:0 note:1:1 decide:0:3 decide:1:3 relate:0:1 relate:1:0 delete:2:0".split()
_NAMES = ("alpha", "beta", "gamma", "delta")
Step = tuple[str, int, int]


def random_steps(chance: Random, most: int) -> list[Step]:
    """Return up to so many things to do, some kinds of which are rare."""
    kinds = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=chance.randint(most // 3, most))
    return [(kind, chance.randrange(4), chance.randrange(4)) for kind in kinds]


class DeedTestCase(RollbackTestCase):
    """Each ``do_…`` takes two numbers from 0 to 3 that choose what it is done to, and how."""

    memories: list[int]
    decisions: list[int]

    def prepare(self, deeds: list[tuple[bool, Step]], *, reviewed: bool = False) -> None:
        """Let clean callers do a little, then both do some; ``reviewed``: whatever is written waits for a person."""
        self.memories, self.decisions = [], []
        start_session(command=SessionStart(session_id=SCRATCH, mode="scratch"))
        for seed in _SEED:
            kind, one, other = seed.split(":")
            self.act((kind, int(one), int(other)))
        if reviewed:
            self.do_policy(0, 1)
        for rolled_back, step in deeds:
            self.act(step, rolled_back=rolled_back)

    def act(self, step: Step, *, rolled_back: bool = False) -> None:
        kind, one, other = step
        origin = {"actor": "mallory", "source": "mcp"} if rolled_back else {}
        session = {"session_id": SCRATCH} if kind in ("note", "end", "promote") else {}
        with suppress(HubError), use_origin(**origin, **session):
            getattr(self, f"do_{kind}")(one, other)

    def memory(self, index: int, **wanted: Any) -> int:
        """Return one of the memories that are as wanted; any other where there are none."""
        known = Memory.objects.filter(id__in=self.memories, **wanted).order_by("id").values_list("id", flat=True)
        return picked(list(known) or self.memories, index)

    def do_write(self, one: int, other: int) -> None:
        topic: dict[str, Any] = {"topic_key": f"t/{_NAMES[one]}"} if other == 0 else {}
        self.memories.append(self.write(f"{_NAMES[one]} {other}", **topic))

    def do_note(self, one: int, other: int) -> None:
        scope = "session" if other % 2 else "project"
        topic: dict[str, Any] = {"topic_key": f"t/{_NAMES[one]}"} if other == 3 else {}
        self.memories.append(self.write(f"{_NAMES[one]} note", scope=scope, **topic))

    def do_revise(self, one: int, other: int) -> None:
        memory = self.memory(one, deleted_at=None)
        self.revise(memory, f"{_NAMES[one]} was revised, it says, {len(self.memories)} {other}")

    def do_stale(self, one: int, other: int) -> None:
        memory = self.memory(one, version__gt=1, deleted_at=None)
        self.revise(memory, f"{_NAMES[one]} was revised unseen {len(self.memories)} {other}", base_version=1)

    def do_rename(self, one: int, other: int) -> None:
        self.revise(self.memory(one), f"{_NAMES[other]} has a name.", title=f"{_NAMES[other]} {other}")

    def do_retag(self, one: int, other: int) -> None:
        self.revise(self.memory(one), f"{_NAMES[other]} has tags.", tags=[_NAMES[other]])

    def do_promote(self, one: int, _: int) -> None:
        memory = self.memory(one, scope="session", deleted_at=None)
        self.revise(memory, f"{_NAMES[one]} is for all.", promote=True, scope="session")

    def do_delete(self, one: int, _: int) -> None:
        self.delete(self.memory(one))

    def do_restore(self, one: int, other: int) -> None:
        version = {"version": 1} if other == 3 else {}
        memory = self.memory(one) if version else self.memory(one, deleted_at__isnull=False)
        restore_memory(command=MemoryRestore(id=memory, **version))

    def do_erase(self, one: int, _: int) -> None:
        """Without wiping the file's free space, which takes long and changes no row."""
        if self.memory(one) in self.memories:
            log.erase_streams([f"memory:{self.memory(one)}"], reason="test")

    def do_verdict(self, one: int, other: int) -> None:
        verdict = "accepted" if other % 2 else "rejected"
        memory = self.memory(one, review="proposed", deleted_at=None)
        reviewer = current_origin().actor.replace("ada", "bob")  # nobody may review what they wrote
        with use_origin(actor=reviewer):
            review_memory(command=ReviewVerdict(id=memory, verdict=verdict, reason=str(other)))

    def do_withdraw(self, one: int, _: int) -> None:
        known = RawEvent.objects.filter(event_type="memory.reviewed").order_by("-position")
        reviewed = [int(stream.partition(":")[2]) for stream in known.values_list("stream_id", flat=True)]
        withdraw_verdict(command=ReviewTouch(id=picked(reviewed, one)))

    def do_resolve(self, one: int, other: int) -> None:
        resolution = ("keep_a", "keep_b", "merge", "both")[other]
        merged: dict[str, Any] = {"content": f"{_NAMES[one]} merged"} if resolution == "merge" else {}
        known = list(Conflict.objects.filter(resolved_at__isnull=True).order_by("id").values_list("id", flat=True))
        result = resolve_conflict(command=ConflictResolve(id=picked(known, one), resolution=resolution, **merged))
        self.memories += [result.split_id] if result.split_id else []

    def do_decide(self, one: int, other: int) -> None:
        relation = ("supersedes", "refines", "depends_on", "relates_to")[other]
        edges: dict[str, Any] = {relation: [picked(self.decisions, one)]} if self.decisions else {}
        self.decisions.append(self.decide(_NAMES[one], **edges, branch=True))

    def do_link(self, one: int, other: int) -> None:
        relation = ("supersedes", "refines", "depends_on", "relates_to")[other]
        earlier = picked(self.decisions, one + other)
        link_decisions(command=DecisionLink(id=picked(self.decisions, one), relation=relation, to=earlier, branch=True))

    def do_mark(self, one: int, other: int) -> None:
        status = ("accepted", "rejected", "deprecated", "proposed")[other]
        self.mark(picked(self.decisions, one), status)

    def do_prove(self, one: int, other: int) -> None:
        add_evidence(command=DecisionEvidence(id=picked(self.decisions, one), notes=[f"note {other}"]))

    def do_relate(self, one: int, other: int) -> None:
        source, target = self.memory(one, deleted_at=None), self.memory(one + 1 + other % 2, deleted_at=None)
        relation = ("related_to", "depends_on")[other % 2]
        command = RelationCreate(source=str(source), relation=relation, target=str(target))
        create_relation(command=command)

    def do_unrelate(self, one: int, _: int) -> None:
        present = list(Relation.objects.order_by("-id").values_list("id", flat=True))
        self.unrelate(picked(present, one))

    def do_tag(self, one: int, _: int) -> None:
        create_tag(command=TagCreate(name=f"tag-{_NAMES[one]}", category="c"))

    def do_set(self, _: int, other: int) -> None:
        self.set(ack_token_minutes=10 + other)

    def do_policy(self, _: int, other: int) -> None:
        self.set(review_policy="all" if other % 2 else "off")

    def do_describe(self, one: int, other: int) -> None:
        describe(command=ProjectDescribe(description=f"{_NAMES[one]} {other}"))

    def do_affirm(self, one: int, other: int) -> None:
        affirm(command=Affirm(id=picked(self.decisions, one) if other % 2 else self.memory(one)))

    def do_end(self, one: int, other: int) -> None:
        keep = {"keep": [self.memory(one)]} if other == 3 else {}
        end_session(command=SessionEnd(session_id=SCRATCH, discard=other > 0, **keep))


def picked(ids: list[int], index: int) -> int:
    """Return one of the ids; one that names nothing where there are none."""
    return ids[index % len(ids)] if ids else 10**9
