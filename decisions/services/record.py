"""Recording decisions, and superseding those that stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decisions.events import DECISION_RECORDED, DecisionRecorded, Edge
from decisions.models import DecisionStatus, EdgeRelation
from decisions.schemas import DecisionFields, DecisionRecord, DecisionResult, DecisionSupersede
from decisions.selectors.decisions import find_decision, find_decisions
from decisions.selectors.edges import heads, superseded_among
from decisions.services.evidence import artifacts_of, commits_named
from memoryhub.core import clock, log
from memoryhub.core.errors import Conflict, Invalid
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import current_origin
from memoryhub.core.wording import flat

_TEXTS = ("title", "context", "chosen", "alternatives", "rationale", "impact", "phase", "topic", "status", "source")
_INHERITED = ("title", "impact", "phase", "topic", "context")
_RELATIONS = tuple(EdgeRelation)


def record_decision(*, command: DecisionRecord) -> DecisionResult:
    """Record a decision with its edges and evidence; those that it supersedes are superseded from then on.

    Raises:
        NotFound: a decision or a commit's #id that it names is not there.
        Conflict: one that it supersedes is superseded already, and ``branch`` is off; the data names the heads.
        Invalid: the status is ``superseded``, which only another decision can make.
    """
    _check_status(command.status)
    with log.transaction():
        first = log.find_by_key(command.idempotency_key, DECISION_RECORDED)
        if first:
            return _again(first)
        edges = _edges(command)
        find_decisions(list(dict.fromkeys(edge.to for edge in edges)))
        refuse_superseded(edges, branch=command.branch)
        commits, waiting = commits_named(command.commits)
        payload = DecisionRecorded(
            **_fields(command),
            edges=edges,
            commits=commits,
            artifacts=[*artifacts_of(command), *waiting],
        )
        draft = log.prepare(DECISION_RECORDED, payload)
        event = log.append(draft, entity="decision", idempotency_key=command.idempotency_key)
    return DecisionResult(
        id=event.position,
        status=draft.payload.status,
        title=draft.payload.title,
        superseded=[edge.to for edge in edges if edge.relation is EdgeRelation.SUPERSEDES],
        redacted=list(draft.redactions),
    )


def supersede_decision(*, command: DecisionSupersede) -> DecisionResult:
    """Record the decision that replaces another; title, context, impact, phase and topic default to those of that one.

    Raises:
        NotFound, Conflict, Invalid: as ``record_decision``.
    """
    with log.transaction():
        earlier = find_decision(command.id)
        given = command.model_dump(exclude={"id"}, exclude_unset=True, exclude_none=True)
        before = {name: getattr(earlier, name) for name in _INHERITED}
        # An earlier version of the hub may have recorded these with line breaks.
        before |= {name: flat(before[name]) for name in ("title", "phase", "topic")}
        return record_decision(command=DecisionRecord(**{**before, **given, "supersedes": [earlier.id]}))


def _check_status(status: DecisionStatus) -> None:
    if status is DecisionStatus.SUPERSEDED:
        raise Invalid("status superseded comes of superseding alone; record the decision that replaces it")


def _fields(command: DecisionFields) -> dict[str, Any]:
    given = command.model_dump(include=set(_TEXTS), exclude_unset=True)
    given["author"] = command.author or current_origin().actor
    if command.decided_at:
        given["decided_at"] = clock.to_text(command.decided_at)
    return given


def _edges(command: DecisionRecord) -> list[Edge]:
    named = {relation: dict.fromkeys(getattr(command, relation)) for relation in _RELATIONS}
    return [Edge(relation=relation, to=to) for relation, ids in named.items() for to in ids]


def refuse_superseded(edges: Sequence[Edge], *, branch: bool) -> None:
    """Let nothing be superseded twice, unless a second head is what is wanted.

    Raises:
        Conflict: one that is to be superseded is so already; the data names the heads.
    """
    replaced = [edge.to for edge in edges if edge.relation is EdgeRelation.SUPERSEDES]
    gone = superseded_among(replaced)
    if not gone or branch:
        return
    standing = heads(gone[:1]).get(gone[0], [])
    listed = ", ".join(f"#{head}" for head in standing)
    raise Conflict(
        f"#{gone[0]} is superseded already, and {listed} stands now; supersede that, or pass branch=true for a second "
        "head",
        id=gone[0],
        heads=standing,
    )


def _again(event: RawEvent) -> DecisionResult:
    decision = find_decision(event.position)
    return DecisionResult(id=decision.id, status=decision.status, title=decision.title, is_new=False)
