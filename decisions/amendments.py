"""A person's verdicts on what newer memories and decisions seem to amend."""

from __future__ import annotations

from decisions.models import Decision, DecisionStatus, EdgeRelation
from decisions.schemas import DecisionLink, DecisionMark
from decisions.services import link_decisions, mark_decision
from memories import scopes
from memories.events import AMENDMENT_JUDGED, AmendmentJudged
from memories.models import Amendment, AmendmentKind, RelationType
from memories.review.services import refuse_author
from memories.schemas.links import AmendmentResult, AmendmentVerdict, RelationCreate
from memories.search import engine
from memories.services.amendments import record_amendment
from memories.services.links import create_relation
from memories.validity.amendments import Pair
from memoryhub.core import log
from memoryhub.core.errors import ConflictError, Invalid, NotFound


def judge_amendment(*, command: AmendmentVerdict) -> AmendmentResult:
    """Accept that the newer of two entries supersedes the older, or dismiss it, so that the pair is never marked again.

    A decision that a memory amends becomes deprecated. The pair may be one that only a search has shown.

    Raises:
        NotFound: one of the entries does not exist.
        Gone: one of them is deleted.
        Invalid: one of them is a message, which supersedes nothing.
        ConflictError: the older one is superseded already, it would create a cycle, or the pair was accepted before.
        Forbidden: the caller wrote the newer entry, and does not use the admin.
    """
    is_accepted = command.verdict == "accepted"
    with scopes.writing(command.scope), log.transaction():
        amendment = _amendment_of(command)
        refuse_author(command.newer_id)
        if amendment.is_accepted is not is_accepted:
            if is_accepted:
                _supersede(command)
            elif amendment.is_accepted:
                raise ConflictError(
                    f"a person accepted that #{command.newer_id} supersedes #{command.older_id}; correct the older one "
                    "instead"
                )
            payload = AmendmentJudged(amendment_id=amendment.id, is_accepted=is_accepted, reason=command.reason)
            log.append(log.prepare(AMENDMENT_JUDGED, payload), stream=f"amendment:{amendment.id}")
    return AmendmentResult(
        id=amendment.id,
        newer_id=amendment.newer_id,
        older_id=amendment.older_id,
        kind=AmendmentKind(amendment.kind),
        is_accepted=is_accepted,
    )


def _amendment_of(command: AmendmentVerdict) -> Amendment:
    amendment = Amendment.objects.filter(newer_id=command.newer_id, older_id=command.older_id).first()
    if amendment is None:
        ids = {command.newer_id, command.older_id}
        if len(ids) < 2 or len(engine.documents_of(list(ids))) < 2:
            raise NotFound(f"#{command.newer_id} and #{command.older_id} are no two entries or messages of this store")
        amendment = record_amendment(Pair(command.newer_id, command.older_id, AmendmentKind.AMENDS))
    return amendment


def _supersede(command: AmendmentVerdict) -> None:
    newer, older = command.newer_id, command.older_id
    for entry_id, document in engine.documents_of([newer, older]).items():
        if document["source"] == "message":
            raise Invalid(f"#{entry_id} is a message, and only entries supersede others; write it as a memory")
    decisions = set(Decision.objects.filter(id__in=[newer, older]).values_list("id", flat=True))
    if older not in decisions:
        relation = RelationCreate(source=newer, relation=RelationType.SUPERSEDES, target=older, scope=command.scope)
        create_relation(command=relation)
    elif newer in decisions:
        link_decisions(command=DecisionLink(id=newer, relation=EdgeRelation.SUPERSEDES, to=older))
    else:
        reason = command.reason or f"amended by #{newer}"
        mark_decision(command=DecisionMark(id=older, status=DecisionStatus.DEPRECATED, reason=reason))
