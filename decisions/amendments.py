"""Judge amendments of decisions and memories."""

from __future__ import annotations

from decisions.models import Decision, DecisionStatus, EdgeRelation
from decisions.schemas import DecisionLink, DecisionMark
from decisions.services import link_decisions, mark_decision
from memories import scopes
from memories.schemas.links import AmendmentResult, AmendmentVerdict
from memories.services import amendments
from memoryhub.core import log


def accept_amendment(*, command: AmendmentVerdict) -> AmendmentResult:
    """Mark the older of two entries as superseded by the newer; a decision that a memory amends becomes deprecated.

    Raises:
        NotFound: one of the entries does not exist.
        Gone: one of them is deleted.
        Invalid: one of them is a message.
        ConflictError: it is superseded already, or it would create a cycle.
    """
    with scopes.writing(command.scope), log.transaction():
        decisions = set(
            Decision.objects.filter(id__in=[command.newer_id, command.older_id]).values_list("id", flat=True)
        )
        if command.older_id not in decisions:
            return amendments.accept_amendment(command=command)
        if command.newer_id in decisions:
            relation = EdgeRelation.SUPERSEDES
            link_decisions(command=DecisionLink(id=command.newer_id, relation=relation, to=command.older_id))
        else:
            reason = command.reason or f"amended by #{command.newer_id}"
            mark_decision(command=DecisionMark(id=command.older_id, status=DecisionStatus.DEPRECATED, reason=reason))
        return amendments.judge_amendment(command, is_accepted=True)
