"""Evidence of decisions: commits, files, pull requests, notes, validations."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q

from decisions.events import DECISION_EVIDENCED, Artifact, CommitEvidence, DecisionEvidenced
from decisions.models import ArtifactKind, LinkType
from decisions.schemas import DecisionEvidence, DecisionResult, Evidence
from decisions.selectors.decisions import find_decision
from memoryhub.core import log
from memoryhub.core.errors import Invalid, NotFound
from sessions_app.models import Commit

_KIND_OF_FIELD = {
    "files": ArtifactKind.FILE_PATH,
    "prs": ArtifactKind.PR,
    "notes": ArtifactKind.NOTE,
    "validations": ArtifactKind.VALIDATION,
}


def add_evidence(*, command: DecisionEvidence) -> DecisionResult:
    """Add evidence to a decision; what is there already is there once.

    Raises:
        NotFound: there is no such decision, or no commit of a #id that is named.
        Invalid: nothing is named.
    """
    with log.transaction():
        decision = find_decision(command.id)
        answer = DecisionResult(id=decision.id, status=decision.status, title=decision.title)
        if log.find_by_key(command.idempotency_key, DECISION_EVIDENCED):
            return answer.model_copy(update={"is_new": False})
        commits, waiting = commits_named(command.commits, command.link_type)
        artifacts = [*artifacts_of(command), *waiting]
        if not commits and not artifacts:
            raise Invalid(f"name some evidence: {', '.join(Evidence.model_fields)}")
        payload = DecisionEvidenced(decision_id=decision.id, artifacts=artifacts, commits=commits)
        draft = log.prepare(DECISION_EVIDENCED, payload)
        log.append(draft, stream=f"decision:{decision.id}", idempotency_key=command.idempotency_key)
        return answer.model_copy(update={"redacted": list(draft.redactions)})


def artifacts_of(evidence: Evidence) -> list[Artifact]:
    """Return what is named beside commits."""
    return [
        Artifact(kind=kind, value=value.removeprefix("./") if kind is ArtifactKind.FILE_PATH else value)
        for field, kind in _KIND_OF_FIELD.items()
        for value in dict.fromkeys(getattr(evidence, field))
    ]


def commits_named(
    names: Sequence[str], link_type: LinkType = LinkType.IMPLEMENTS
) -> tuple[list[CommitEvidence], list[Artifact]]:
    """Return the commits that are named by sha or #id, and those shas that no commit has yet: they wait for it.

    Raises:
        NotFound: a #id is no commit.
    """
    ids = [int(name[1:]) for name in names if name.startswith("#")]
    shas = [name for name in names if not name.startswith("#")]
    wanted = Q(id__in=ids)
    for sha in shas:
        wanted |= Q(sha__gte=sha, sha__lt=f"{sha}g")
    known = dict(Commit.objects.filter(wanted).values_list("id", "sha")) if names else {}
    missing = [each for each in ids if each not in known]
    if missing:
        raise NotFound(f"there is no commit #{missing[0]} here; name it by its sha, or record it first")
    waiting = [sha for sha in shas if not any(each.startswith(sha) for each in known.values())]
    commits = [CommitEvidence(commit_id=each, link_type=link_type) for each in sorted(known)]
    return commits, [Artifact(kind=ArtifactKind.COMMIT, value=sha) for sha in dict.fromkeys(waiting)]
