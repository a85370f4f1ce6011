"""Edges and status of recorded decisions; their text never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decisions.events import (
    DECISION_LINKED,
    DECISION_MARKED,
    DECISION_RECORDED,
    DECISION_UNLINKED,
    DecisionLinked,
    DecisionMarked,
    DecisionUnlinked,
    Edge,
)
from decisions.models import LINEAGE, Decision, DecisionStatus, EdgeRelation
from decisions.schemas import DecisionLink, DecisionMark, DecisionResult, DecisionUnlink
from decisions.selectors.decisions import find_decision, find_decisions
from decisions.selectors.edges import heads, path_between, replaced_by, superseded_among, visible_edges
from decisions.services.record import refuse_superseded
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Invalid, NotFound
from memoryhub.core.events.rollback import Effect, Step, Values, define_effect

# Decisions shown at each end of a path.
_ENDS = 10


def link_decisions(*, command: DecisionLink) -> DecisionResult:
    """Add an edge between two decisions; an existing edge is not added again.

    Raises:
        NotFound: one of them does not exist.
        Conflict: the edge would close a cycle of supersedes, refines and depends_on; or the target is already
            superseded and ``branch`` is off.
        Invalid: both are the same.
    """
    if command.id == command.to:
        raise Invalid(f"#{command.id} cannot be linked to itself")
    with log.transaction():
        decision, _ = find_decisions([command.id, command.to])
        edge = Edge(relation=command.relation, to=command.to)
        if _is_there(command):
            return _answer(decision, is_new=False)
        if command.relation in LINEAGE:
            _refuse_cycle(command)
        refuse_superseded([edge], branch=command.branch)
        draft = log.prepare(DECISION_LINKED, DecisionLinked(decision_id=decision.id, edge=edge))
        log.append(draft, stream=f"decision:{decision.id}", idempotency_key=command.idempotency_key)
        named = [command.to] if command.relation is EdgeRelation.SUPERSEDES else []
        superseded = replaced_by(decision.id, named)
    return _answer(decision).model_copy(update={"superseded": superseded})


def unlink_decisions(*, command: DecisionUnlink) -> DecisionResult:
    """Remove an edge between two decisions; what it superseded is in force again unless another supersedes it.

    An import does not add it again.

    Raises:
        NotFound: one of the decisions does not exist, or there is no such edge.
    """
    with log.transaction():
        decision, _ = find_decisions([command.id, command.to])
        if log.find_by_key(command.idempotency_key, DECISION_UNLINKED):
            return _answer(decision, is_new=False)
        if not _is_there(command):
            raise NotFound(
                f"#{command.id} does not name #{command.to} as {command.relation}; decision_get shows its edges"
            )
        edge = Edge(relation=command.relation, to=command.to)
        payload = DecisionUnlinked(decision_id=decision.id, edge=edge, reason=command.reason)
        draft = log.prepare(DECISION_UNLINKED, payload)
        log.append(draft, stream=f"decision:{decision.id}", idempotency_key=command.idempotency_key)
        decision.refresh_from_db()
    return _answer(decision)


def mark_decision(*, command: DecisionMark) -> DecisionResult:
    """Set a decision's status, or clear its review note.

    Accepting a decision supersedes those that it names; rejecting it brings them back into force.

    Raises:
        NotFound: there is no such decision.
        Conflict: it is superseded, or is to be accepted without a choice.
        Invalid: the status is ``superseded``, or nothing is to change.
    """
    if command.status is DecisionStatus.SUPERSEDED:
        raise Invalid("status superseded cannot be set; record the decision that replaces it")
    if command.status is None and not command.reviewed:
        raise Invalid("nothing to change: pass status or reviewed=true")
    with log.transaction():
        decision = find_decision(command.id)
        if log.find_by_key(command.idempotency_key, DECISION_MARKED):
            return _answer(decision, is_new=False)
        if command.status is not None and superseded_among([decision.id]):
            raise Conflict(f"#{decision.id} is superseded; mark the decision that replaces it", id=decision.id)
        if command.status is DecisionStatus.ACCEPTED and not decision.chosen:
            raise Conflict(f"#{decision.id} names no choice; supersede it with the decision that does", id=decision.id)
        named = list(visible_edges().filter(from_id=decision.id, relation="supersedes").values_list("to_id", flat=True))
        before = replaced_by(decision.id, named)
        payload = DecisionMarked(
            decision_id=decision.id,
            status=command.status,
            review="" if command.reviewed else None,
            reason=command.reason,
        )
        log.append(
            log.prepare(DECISION_MARKED, payload),
            stream=f"decision:{decision.id}",
            idempotency_key=command.idempotency_key,
        )
        decision.refresh_from_db()
        superseded = [replaced for replaced in replaced_by(decision.id, named) if replaced not in before]
    return _answer(decision).model_copy(update={"superseded": superseded})


def _is_there(command: DecisionLink | DecisionUnlink) -> bool:
    edges = visible_edges().filter(from_id=command.id, relation=command.relation, to_id=command.to)
    return bool(edges.exists())


def _refuse_cycle(command: DecisionLink) -> None:
    path = path_between(command.to, command.id)
    if path:
        left = len(path) - 2 * _ENDS
        parts = [f"#{decision_id}" for decision_id in path]
        shown = [*parts[:_ENDS], f"({left} more)", *parts[-_ENDS:]] if left > 0 else parts
        chain = " → ".join(shown)
        raise Conflict(
            f"#{command.id} {command.relation} #{command.to} would close a cycle: {chain} → #{command.to}", path=path
        )


def _answer(decision: Decision, *, is_new: bool = True) -> DecisionResult:
    return DecisionResult(id=decision.id, status=decision.status, title=decision.title, is_new=is_new)


def _put_status_back(steps: Sequence[Step], reason: str) -> None:
    current = heads([step.id for step in steps])
    for step in steps:
        status = _possible_status(step.after, is_head=current.get(step.id) == [step.id])
        payload = DecisionMarked(decision_id=step.id, status=status, reason=reason)
        log.append(log.prepare(DECISION_MARKED, payload), stream=f"decision:{step.id}")


# Roll-back cannot accept a decision that is superseded now, whatever its status was.
def _possible_status(wanted: str, *, is_head: bool) -> DecisionStatus:
    status = DecisionStatus(wanted)
    if status in (DecisionStatus.DEPRECATED, DecisionStatus.REJECTED):
        return status
    if not is_head:
        return DecisionStatus.SUPERSEDED
    return DecisionStatus.ACCEPTED if status is DecisionStatus.SUPERSEDED else status


# A decision recorded without a status was accepted.
def _read_status(position: int, payload: Mapping[str, Any]) -> dict[int, str]:
    decision_id = payload.get("decision_id", position)
    status = payload.get("status") or ("accepted" if decision_id == position else "")
    return {decision_id: status} if status else {}


define_effect(
    Effect(
        "mark",
        110,
        "status put back",
        Values(
            read=_read_status,
            thing="decision",
            also=(DECISION_RECORDED.name,),
            unset="marked as reviewed, which stays",
        ),
        apply=_put_status_back,
    )
)
