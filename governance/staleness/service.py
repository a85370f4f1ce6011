from __future__ import annotations

from typing import Any

from decisions.edges import heads_of
from decisions.models import Decision, DecisionStatus
from decisions.present import numbers
from decisions.schemas import DecisionMark
from decisions.services import mark_decision
from governance.events import THING_AFFIRMED, ThingAffirmed
from governance.models import Affirmation
from governance.staleness.schemas import Affirm, AffirmResult, Retire, RetireResult, StaleKind
from memories.events import ProvenanceRecord
from memories.models import CodeAnchor, Memory, ReviewState
from memories.schemas import MemoryTouch, MemoryUpdate
from memories.schemas.validity import AnchorsChange
from memories.services import delete_memory, update_memory
from memories.services.revise import live_memory
from memories.validity.anchoring import change_anchors, record_of
from memories.validity.branches import where_merged
from memories.validity.freshness import renewed
from memories.validity.models import Provenance
from memoryhub.core import clock, log
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import ConflictError, Invalid, NotFound
from memoryhub.core.log.quarantine import quarantined_among
from sessions_app.git.worktree import WorkingTree
from sessions_app.selectors import caller_tree


def affirm(*, command: Affirm) -> AffirmResult:
    """Record that a memory or decision is still valid; its review period starts again.

    A pending review after a revert is settled. An expired memory becomes valid again: until ``valid_until``, or
    without an end. Its anchors are compared with the code as it is now, also those that the command names.

    Raises:
        NotFound: no memory or decision has this id.
        Gone: the memory is deleted.
        ConflictError: it is superseded, not accepted, or quarantined.
        Invalid: ``valid_until`` is in the past, or the item has no such field; or an anchor names nothing.
    """
    with log.transaction():
        thing = _live_entry(command.id)
        first = log.find_by_key(command.idempotency_key, THING_AFFIRMED)
        if first:
            return _result(thing, is_new=False)
        _settle(thing, command)
        if command.anchors is not None:
            change_anchors(command=AnchorsChange(id=command.id, anchors=command.anchors, reason=command.reason))
        payload = ThingAffirmed(entity_id=command.id, reason=command.reason)
        renewal = _renewal(command.id)
        if renewal:
            payload = payload.model_copy(update={"provenance": renewal})
        draft = log.prepare(THING_AFFIRMED, payload)
        kind = "decision" if isinstance(thing, Decision) else "memory"
        log.append(draft, stream=f"{kind}:{command.id}", idempotency_key=command.idempotency_key)
        return _result(thing, redacted=list(draft.redactions))


def retire(*, command: Retire) -> RetireResult:
    """Retire what is no longer valid: soft-delete a memory, mark a decision as deprecated.

    Raises:
        NotFound, Gone, ConflictError: as ``affirm``.
    """
    with log.transaction():
        thing = _live_entry(command.id)
        if isinstance(thing, Decision):
            mark = {"status": DecisionStatus.DEPRECATED, "reviewed": bool(thing.review), "reason": command.reason}
            mark_decision(command=DecisionMark(id=thing.id, **mark))
        else:
            delete_memory(command=MemoryTouch(id=thing.id, reason=command.reason))
    return RetireResult(id=thing.id, kind=_kind(thing), title=thing.title)


def _live_entry(entity_id: int) -> Memory | Decision:
    entity = find_entities([entity_id]).get(entity_id)
    if entity is None or entity.type not in ("memory", "decision"):
        problem = f"#{entity_id} is a {entity.type}" if entity else f"there is no #{entity_id} in this store"
        raise NotFound(f"{problem}; give the id of a memory or decision", id=entity_id)
    if quarantined_among([entity_id]):
        raise ConflictError(f"#{entity_id} is in quarantine; release it before you affirm it", id=entity_id)
    if entity.type == "decision":
        return _accepted_decision(entity_id)
    memory = live_memory(entity_id)
    if memory.review != ReviewState.ACCEPTED:
        raise ConflictError(f"#{entity_id} is {memory.review}; accept it in the review queue instead", id=entity_id)
    return memory


def _accepted_decision(entity_id: int) -> Decision:
    decision: Decision = Decision.objects.get(id=entity_id)
    if decision.status == DecisionStatus.SUPERSEDED:
        current = numbers(heads_of(entity_id))
        raise ConflictError(f"#{entity_id} is superseded; affirm its replacement: {current}", id=entity_id)
    if decision.status != DecisionStatus.ACCEPTED:
        raise ConflictError(f"#{entity_id} is {decision.status}; accept it before you affirm it", id=entity_id)
    return decision


# Otherwise it would be stale again at once
def _settle(thing: Memory | Decision, command: Affirm) -> None:
    if command.valid_until and command.valid_until <= clock.now():
        raise Invalid("valid_until is in the past; give a future time or omit it")
    if isinstance(thing, Decision):
        if command.valid_until:
            raise Invalid("a decision has no valid_until; omit it, or supersede the decision")
        if thing.review:
            mark_decision(command=DecisionMark(id=thing.id, reviewed=True, reason=command.reason))
        return
    has_expired = thing.valid_until is not None and thing.valid_until <= clock.now()
    if has_expired or command.valid_until:
        until = clock.to_text(command.valid_until) if command.valid_until else None
        attributes: dict[str, Any] = {"valid_until": until}
        reason = command.reason or "affirmed"
        update_memory(command=MemoryUpdate(id=thing.id, attributes=attributes, change_reason=reason))


# None where there is nothing to renew, or no working tree to compare with
def _renewal(entity_id: int) -> ProvenanceRecord | None:
    tree = caller_tree()
    if tree is None:
        return None
    anchors = [record_of(anchor) for anchor in CodeAnchor.objects.filter(entity_id=entity_id).order_by("number")]
    provenance = Provenance.objects.filter(id=entity_id).first()
    commit = branch = learnt_at = ""
    if provenance:
        learnt_at = provenance.commit
        commit, branch = _learnt_at(provenance, tree)
    if not anchors and not commit:
        return None
    return ProvenanceRecord(commit=commit, branch=branch, anchors=renewed(anchors, tree, learnt_at))


# Where it counts as learnt from now on, if that is not where it was: what was learnt in work that is not here was
# confirmed here, and on its own branch it was confirmed later. What another branch has stays where it was learnt.
def _learnt_at(provenance: Provenance, tree: WorkingTree) -> tuple[str, str]:
    is_elsewhere = where_merged([provenance], tree).get(provenance.id) is False
    if tree.head and (is_elsewhere or (tree.branch and tree.branch == provenance.branch)):
        return tree.head, tree.branch
    return "", ""


def _result(thing: Memory | Decision, **fields: Any) -> AffirmResult:
    affirmed_at = Affirmation.objects.get(entity_id=thing.id).affirmed_at
    return AffirmResult(id=thing.id, kind=_kind(thing), title=thing.title, affirmed_at=affirmed_at, **fields)


def _kind(thing: Memory | Decision) -> str:
    return StaleKind.DECISION.value if isinstance(thing, Decision) else str(thing.kind)
