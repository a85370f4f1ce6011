"""Record, supersede, link and mark decisions. Their text never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Q

from decisions.edges import heads, heads_of, path_between, replaced_by, superseded_among, visible_edges
from decisions.events import (
    DECISION_EVIDENCED,
    DECISION_LINKED,
    DECISION_MARKED,
    DECISION_RECORDED,
    DECISION_UNLINKED,
    Artifact,
    CommitEvidence,
    DecisionEvidenced,
    DecisionLinked,
    DecisionMarked,
    DecisionRecorded,
    DecisionUnlinked,
    Edge,
)
from decisions.models import KIND_OF_FIELD, LINEAGE, ArtifactKind, Decision, DecisionStatus, EdgeRelation, LinkType
from decisions.present import numbers
from decisions.schemas import (
    DecisionEvidence,
    DecisionFields,
    DecisionLink,
    DecisionMark,
    DecisionRecord,
    DecisionResult,
    DecisionSupersede,
    DecisionUnlink,
    Evidence,
)
from decisions.selectors import find_decision, find_decisions
from memories.events import ENTRY_ANCHORED, filled
from memories.schemas.validity import AnchorsChange
from memories.services.amendments import find_amendments
from memories.validity.amendment_rules import TitledText
from memories.validity.anchoring import change_anchors
from memories.validity.check_runs import parse_check
from memories.validity.copies import copied_from
from memories.validity.provenance import current_workplace, provenance_of
from memoryhub.config.current_settings import project_settings, settings_decided_by
from memoryhub.core import clock, log
from memoryhub.core.errors import ConflictError, Forbidden, Invalid, NotFound
from memoryhub.core.events.event_types import EventType
from memoryhub.core.events.rollback import Effect, Step, Values, define_effect
from memoryhub.core.origin import AGENT_PREFIX, Origin, current_origin
from memoryhub.core.schemas import Payload
from memoryhub.core.text import flat
from sessions_app.models import Commit


def add_evidence(*, command: DecisionEvidence) -> DecisionResult:
    """Add evidence to a decision, and replace its anchors; existing evidence is not added again.

    Raises:
        NotFound: there is no such decision, or no commit of a named #id.
        Invalid: nothing is named, or an anchor names nothing in the working tree.
        ConflictError: the project has no working tree here to find an anchor in.
    """
    key = command.idempotency_key
    with log.transaction():
        decision = find_decision(command.id)
        if log.find_by_key(key, DECISION_EVIDENCED, ENTRY_ANCHORED):
            return _answer(decision, is_new=False)
        commits, waiting = commits_named(command.commits, command.link_type)
        artifacts = [*artifacts_of(command), *waiting]
        is_new, redacted = False, list[str]()
        if commits or artifacts:
            payload = DecisionEvidenced(decision_id=decision.id, artifacts=artifacts, commits=commits)
            redacted = _append(decision, DECISION_EVIDENCED, payload, key)
            is_new, key = True, None
        elif command.anchors is None:
            raise Invalid(f"pass at least one of {', '.join(Evidence.model_fields)}")
        if command.anchors is not None:
            change = AnchorsChange(id=decision.id, anchors=command.anchors)
            is_new |= change_anchors(command=change, key=key).is_changed
        return _answer(decision, redacted=redacted, is_new=is_new)


def artifacts_of(evidence: Evidence) -> list[Artifact]:
    """Return the evidence other than commits.

    Raises:
        Invalid: a check cannot run.
    """
    artifacts = []
    for field, kind in KIND_OF_FIELD.items():
        for value in dict.fromkeys(getattr(evidence, field)):
            text = value.removeprefix("./") if kind is ArtifactKind.FILE_PATH else value
            if kind is ArtifactKind.CHECK:
                parse_check(value)
            artifacts.append(Artifact(kind=kind, value=text))
    return artifacts


def commits_named(
    names: Sequence[str], link_type: LinkType = LinkType.IMPLEMENTS
) -> tuple[list[CommitEvidence], list[Artifact]]:
    """Resolve commits by sha or #id; unknown shas become artifacts until the commit is recorded.

    Raises:
        NotFound: there is no commit of a #id.
    """
    ids = [int(name[1:]) for name in names if name.startswith("#")]
    shas = [name for name in names if not name.startswith("#")]
    recorded = _recorded_commits(names)
    for commit_id in ids:
        if commit_id not in recorded:
            raise NotFound(f"there is no commit #{commit_id} here; pass its sha, or record it first")
    unknown = [sha for sha in shas if not any(full.startswith(sha) for full in recorded.values())]
    commits = [CommitEvidence(commit_id=commit_id, link_type=link_type) for commit_id in sorted(recorded)]
    return commits, [Artifact(kind=ArtifactKind.COMMIT, value=sha) for sha in dict.fromkeys(unknown)]


def _recorded_commits(names: Sequence[str]) -> dict[int, str]:
    condition = Q(id__in=[int(name[1:]) for name in names if name.startswith("#")])
    for name in names:
        if not name.startswith("#"):
            condition |= Q(sha__gte=name, sha__lt=f"{name}g")
    return dict(Commit.objects.filter(condition).values_list("id", "sha"))


_TEXTS = ("title", "context", "chosen", "alternatives", "rationale", "impact", "phase", "topic", "status", "source")
_INHERITED = ("title", "impact", "phase", "topic", "context")


def record_decision(*, command: DecisionRecord) -> DecisionResult:
    """Record a decision with its edges and evidence, and supersede those it replaces.

    A proposed decision supersedes accepted ones once it is accepted, a rejected one never.

    Raises:
        NotFound: it names an unknown decision, or an unknown #id of a commit.
        ConflictError: it supersedes one that is already superseded, and ``branch`` is off; the data has the heads.
        Invalid: the status is ``superseded``.
    """
    if command.status is DecisionStatus.SUPERSEDED:
        raise Invalid("status superseded cannot be set; record the decision that replaces it")
    text = "\n\n".join([command.title, command.context, command.chosen, command.rationale])
    shas = list(_recorded_commits(command.commits).values())
    provenance = provenance_of(text, current_workplace(), files=command.files, commits=shas, names=command.anchors)
    copied = copied_from(command.title, command.chosen)
    with log.transaction():
        first = log.find_by_key(command.idempotency_key, DECISION_RECORDED)
        if first:
            return _answer(find_decision(first.position), is_new=False)
        edges = _edges(command)
        find_decisions(list(dict.fromkeys(edge.to for edge in edges)))
        refuse_superseded(edges, branch=command.branch)
        commits, waiting = commits_named(command.commits)
        payload = DecisionRecorded(
            **_fields(command),
            **filled(provenance=provenance, copied_from=copied),
            edges=edges,
            commits=commits,
            artifacts=[*artifacts_of(command), *waiting],
        )
        draft = log.prepare(DECISION_RECORDED, payload)
        event = log.append(draft, entity="decision", idempotency_key=command.idempotency_key)
        named = [edge.to for edge in edges if edge.relation is EdgeRelation.SUPERSEDES]
        superseded = replaced_by(event.position, named)
    result = DecisionResult(
        id=event.position,
        status=draft.payload.status,
        title=draft.payload.title,
        superseded=superseded,
        amendments=find_amendments(event.position, TitledText(draft.payload.chosen, draft.payload.title)),
        redacted=list(draft.redactions),
    )
    if draft.payload.status is DecisionStatus.PROPOSED:
        result.supersedes_once_accepted = [replaced for replaced in named if replaced not in superseded]
    return result


def supersede_decision(*, command: DecisionSupersede) -> DecisionResult:
    """Record a replacement; title, context, impact, phase and topic default to the earlier decision's.

    Raises:
        NotFound, ConflictError, Invalid: as ``record_decision``.
    """
    with log.transaction():
        earlier = find_decision(command.id)
        fields = command.model_dump(exclude={"id"}, exclude_unset=True, exclude_none=True)
        before = {name: getattr(earlier, name) for name in _INHERITED}
        # Older versions allowed line breaks in these.
        before |= {name: flat(before[name]) for name in ("title", "phase", "topic")}
        return record_decision(command=DecisionRecord(**{**before, **fields, "supersedes": [earlier.id]}))


def _fields(command: DecisionFields) -> dict[str, Any]:
    fields = command.model_dump(include=set(_TEXTS), exclude_unset=True)
    fields["author"] = command.author or current_origin().actor
    if command.decided_at:
        fields["decided_at"] = clock.to_text(command.decided_at)
    return fields


def _edges(command: DecisionRecord) -> list[Edge]:
    edges: list[Edge] = []
    for relation in EdgeRelation:
        edges += [Edge(relation=relation, to=to) for to in dict.fromkeys(getattr(command, relation))]
    return edges


def refuse_superseded(edges: Sequence[Edge], *, branch: bool) -> None:
    """Raise if an edge supersedes a decision again, unless ``branch`` allows a second head.

    Raises:
        ConflictError: the target is already superseded; the data has the heads.
    """
    replaced = [edge.to for edge in edges if edge.relation is EdgeRelation.SUPERSEDES]
    superseded = superseded_among(replaced)
    if not superseded or branch:
        return
    current = heads_of(superseded[0])
    raise ConflictError(
        f"#{superseded[0]} is already superseded and {numbers(current)} is in force; supersede that, or pass "
        "branch=true for a second head",
        id=superseded[0],
        heads=current,
    )


# Decisions shown at each end of a path.
_ENDS = 10


def link_decisions(*, command: DecisionLink) -> DecisionResult:
    """Add an edge between two decisions; an existing edge is not added again.

    Raises:
        NotFound: one of them does not exist.
        ConflictError: the edge would close a cycle of supersedes, refines and depends_on; or the target is already
            superseded and ``branch`` is off.
        Invalid: both are the same.
    """
    if command.id == command.to:
        raise Invalid(f"#{command.id} cannot be linked to itself")
    with log.transaction():
        decision, _ = find_decisions([command.id, command.to])
        edge = Edge(relation=command.relation, to=command.to)
        if _edge_exists(command):
            return _answer(decision, is_new=False)
        if command.relation in LINEAGE:
            _refuse_cycle(command)
        refuse_superseded([edge], branch=command.branch)
        linked = DecisionLinked(decision_id=decision.id, edge=edge)
        _append(decision, DECISION_LINKED, linked, command.idempotency_key)
        named = [command.to] if command.relation is EdgeRelation.SUPERSEDES else []
        superseded = replaced_by(decision.id, named)
    return _answer(decision, superseded=superseded)


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
        if not _edge_exists(command):
            raise NotFound(
                f"#{command.id} does not name #{command.to} as {command.relation}; decision_get shows its edges"
            )
        edge = Edge(relation=command.relation, to=command.to)
        payload = DecisionUnlinked(decision_id=decision.id, edge=edge, reason=command.reason)
        _append(decision, DECISION_UNLINKED, payload, command.idempotency_key)
        decision.refresh_from_db()
    return _answer(decision)


def mark_decision(*, command: DecisionMark) -> DecisionResult:
    """Set a decision's status, or clear its review note.

    Accepting a decision supersedes those that it names; rejecting it brings them back into force.

    Raises:
        NotFound: there is no such decision.
        ConflictError: it is superseded, or is to be accepted without a choice.
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
            raise ConflictError(f"#{decision.id} is superseded; mark the decision that replaces it", id=decision.id)
        if command.status is DecisionStatus.ACCEPTED and not decision.chosen:
            raise ConflictError(
                f"#{decision.id} names no choice; supersede it with the decision that does", id=decision.id
            )
        named = list(visible_edges().filter(from_id=decision.id, relation="supersedes").values_list("to_id", flat=True))
        before = replaced_by(decision.id, named)
        payload = DecisionMarked(
            decision_id=decision.id,
            status=command.status,
            review="" if command.reviewed else None,
            reason=command.reason,
        )
        _append(decision, DECISION_MARKED, payload, command.idempotency_key)
        decision.refresh_from_db()
        superseded = [replaced for replaced in replaced_by(decision.id, named) if replaced not in before]
    return _answer(decision, superseded=superseded)


def _edge_exists(command: DecisionLink | DecisionUnlink) -> bool:
    edges = visible_edges().filter(from_id=command.id, relation=command.relation, to_id=command.to)
    return bool(edges.exists())


def _refuse_cycle(command: DecisionLink) -> None:
    path = path_between(command.to, command.id)
    if path:
        parts = [f"#{decision_id}" for decision_id in path]
        hidden = len(path) - 2 * _ENDS
        if hidden > 0:
            parts[_ENDS:-_ENDS] = [f"({hidden} more)"]
        chain = " → ".join(parts)
        raise ConflictError(
            f"#{command.id} {command.relation} #{command.to} would close a cycle: {chain} → #{command.to}", path=path
        )


# Returns the types of the secrets that were masked
def _append(decision: Decision, event_type: EventType[Any], payload: Payload, key: str | None) -> list[str]:
    draft = log.prepare(event_type, payload)
    log.append(draft, stream=f"decision:{decision.id}", idempotency_key=key)
    return list(draft.redactions)


def _answer(decision: Decision, **fields: Any) -> DecisionResult:
    return DecisionResult(id=decision.id, status=decision.status, title=decision.title, **fields)


def _put_status_back(steps: Sequence[Step], reason: str) -> None:
    current = heads([step.id for step in steps])
    for step in steps:
        status = _possible_status(step.after, is_head=current.get(step.id) == [step.id])
        payload = DecisionMarked(decision_id=step.id, status=status, reason=reason)
        log.append(log.prepare(DECISION_MARKED, payload), stream=f"decision:{step.id}")


# Roll-back cannot accept a decision that is superseded now, whatever its status was.
def _possible_status(value: str, *, is_head: bool) -> DecisionStatus:
    status = DecisionStatus(value)
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
            read=_read_status, thing="decision", also=(DECISION_RECORDED.name,), unset="marked as reviewed, which stays"
        ),
        apply=_put_status_back,
    )
)


# Where ``capture_decisions`` is off, agents record no decisions; people still do. Agents call over MCP, or over REST
# with an agent's token. They may still mark, link and add evidence.
@log.guard
def refuse_decisions(event_type: EventType[Any], origin: Origin) -> Origin:
    """Refuse a new decision of an agent if the setting is off."""
    is_agent = origin.source == "mcp" or (origin.source == "rest" and origin.actor.startswith(AGENT_PREFIX))
    if event_type is DECISION_RECORDED and is_agent and not project_settings().capture_decisions:
        raise Forbidden(
            "agents cannot record decisions here: capture_decisions is false, set by "
            f"{settings_decided_by()['capture_decisions']}; ask the user to record it in the admin"
        )
    return origin
