from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Q

from decisions.events import (
    DECISION_EVIDENCED,
    DECISION_RECORDED,
    Artifact,
    CommitEvidence,
    DecisionEvidenced,
    DecisionRecorded,
    Edge,
)
from decisions.models import ArtifactKind, DecisionStatus, EdgeRelation, LinkType
from decisions.schemas import (
    DecisionEvidence,
    DecisionFields,
    DecisionRecord,
    DecisionResult,
    DecisionSupersede,
    Evidence,
)
from decisions.selectors.decisions import find_decision, find_decisions
from decisions.selectors.edges import heads, replaced_by, superseded_among
from memoryhub.core import clock, log
from memoryhub.core.errors import Conflict, Invalid, NotFound
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import current_origin
from memoryhub.core.text import flat
from sessions_app.models import Commit

_KIND_OF_FIELD = {
    "files": ArtifactKind.FILE_PATH,
    "prs": ArtifactKind.PR,
    "notes": ArtifactKind.NOTE,
    "validations": ArtifactKind.VALIDATION,
}


def add_evidence(*, command: DecisionEvidence) -> DecisionResult:
    """Add evidence to a decision; existing evidence is not added again.

    Raises:
        NotFound: there is no such decision, or no commit of a named #id.
        Invalid: no evidence is named.
    """
    with log.transaction():
        decision = find_decision(command.id)
        answer = DecisionResult(id=decision.id, status=decision.status, title=decision.title)
        if log.find_by_key(command.idempotency_key, DECISION_EVIDENCED):
            return answer.model_copy(update={"is_new": False})
        commits, waiting = commits_named(command.commits, command.link_type)
        artifacts = [*artifacts_of(command), *waiting]
        if not commits and not artifacts:
            raise Invalid(f"pass at least one of {', '.join(Evidence.model_fields)}")
        payload = DecisionEvidenced(decision_id=decision.id, artifacts=artifacts, commits=commits)
        draft = log.prepare(DECISION_EVIDENCED, payload)
        log.append(draft, stream=f"decision:{decision.id}", idempotency_key=command.idempotency_key)
        return answer.model_copy(update={"redacted": list(draft.redactions)})


def artifacts_of(evidence: Evidence) -> list[Artifact]:
    """Return the evidence other than commits."""
    return [
        Artifact(kind=kind, value=value.removeprefix("./") if kind is ArtifactKind.FILE_PATH else value)
        for field, kind in _KIND_OF_FIELD.items()
        for value in dict.fromkeys(getattr(evidence, field))
    ]


def commits_named(
    names: Sequence[str], link_type: LinkType = LinkType.IMPLEMENTS
) -> tuple[list[CommitEvidence], list[Artifact]]:
    """Resolve commits by sha or #id; unknown shas become artifacts until the commit is recorded.

    Raises:
        NotFound: there is no commit of a #id.
    """
    ids = [int(name[1:]) for name in names if name.startswith("#")]
    shas = [name for name in names if not name.startswith("#")]
    wanted = Q(id__in=ids)
    for sha in shas:
        wanted |= Q(sha__gte=sha, sha__lt=f"{sha}g")
    known = dict(Commit.objects.filter(wanted).values_list("id", "sha")) if names else {}
    missing = [commit_id for commit_id in ids if commit_id not in known]
    if missing:
        raise NotFound(f"there is no commit #{missing[0]} here; pass its sha, or record it first")
    unknown = [sha for sha in shas if not any(full.startswith(sha) for full in known.values())]
    commits = [CommitEvidence(commit_id=commit_id, link_type=link_type) for commit_id in sorted(known)]
    return commits, [Artifact(kind=ArtifactKind.COMMIT, value=sha) for sha in dict.fromkeys(unknown)]


_TEXTS = ("title", "context", "chosen", "alternatives", "rationale", "impact", "phase", "topic", "status", "source")
_INHERITED = ("title", "impact", "phase", "topic", "context")
_RELATIONS = tuple(EdgeRelation)


def record_decision(*, command: DecisionRecord) -> DecisionResult:
    """Record a decision with its edges and evidence, and supersede those it replaces.

    A proposed decision supersedes accepted ones once it is accepted, a rejected one never.

    Raises:
        NotFound: it names an unknown decision, or an unknown #id of a commit.
        Conflict: it supersedes one that is already superseded, and ``branch`` is off; the data has the heads.
        Invalid: the status is ``superseded``.
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
        named = [edge.to for edge in edges if edge.relation is EdgeRelation.SUPERSEDES]
        superseded = replaced_by(event.position, named)
    return DecisionResult(
        id=event.position,
        status=draft.payload.status,
        title=draft.payload.title,
        superseded=superseded,
        supersedes_once_accepted=_waiting(named, superseded, draft.payload.status),
        redacted=list(draft.redactions),
    )


def _waiting(named: Sequence[int], superseded: Sequence[int], status: DecisionStatus) -> list[int]:
    if status is not DecisionStatus.PROPOSED:
        return []
    return [decision_id for decision_id in named if decision_id not in superseded]


def supersede_decision(*, command: DecisionSupersede) -> DecisionResult:
    """Record a replacement; title, context, impact, phase and topic default to the earlier decision's.

    Raises:
        NotFound, Conflict, Invalid: as ``record_decision``.
    """
    with log.transaction():
        earlier = find_decision(command.id)
        given = command.model_dump(exclude={"id"}, exclude_unset=True, exclude_none=True)
        before = {name: getattr(earlier, name) for name in _INHERITED}
        # Older versions allowed line breaks in these.
        before |= {name: flat(before[name]) for name in ("title", "phase", "topic")}
        return record_decision(command=DecisionRecord(**{**before, **given, "supersedes": [earlier.id]}))


def _check_status(status: DecisionStatus) -> None:
    if status is DecisionStatus.SUPERSEDED:
        raise Invalid("status superseded cannot be set; record the decision that replaces it")


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
    """Raise if an edge supersedes a decision again, unless ``branch`` allows a second head.

    Raises:
        Conflict: the target is already superseded; the data has the heads.
    """
    replaced = [edge.to for edge in edges if edge.relation is EdgeRelation.SUPERSEDES]
    superseded = superseded_among(replaced)
    if not superseded or branch:
        return
    current = heads(superseded[:1]).get(superseded[0], [])
    listed = ", ".join(f"#{head}" for head in current)
    raise Conflict(
        f"#{superseded[0]} is already superseded and {listed} is in force; supersede that, or pass branch=true for "
        "a second head",
        id=superseded[0],
        heads=current,
    )


def _again(event: RawEvent) -> DecisionResult:
    decision = find_decision(event.position)
    return DecisionResult(id=decision.id, status=decision.status, title=decision.title, is_new=False)
