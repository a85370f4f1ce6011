"""Memories that enough packs included and nobody ever used: find them, reject them, undo that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import QuerySet

from memories.events import Verdict
from memories.models import IGNORED_AFTER, Memory, MemoryUse, ReviewState
from memories.pack.sections import recallable_sources
from memories.review.schemas import ReviewTouch, ReviewVerdict
from memories.review.services import review_many, withdraw_verdict
from memories.schemas import SearchSourceName
from memories.scopes import levels
from memories.uses.events import Use
from memories.uses.notes import waiting_notes
from memories.worth.schemas import Zombie, Zombies
from memoryhub.core import clock
from memoryhub.core.errors import HubError, Invalid
from memoryhub.core.kinds import KINDS
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import one_line

MOST = 25
_TEXT_CHARS = 200
# Kinds with a section of packs, such as guidelines, are followed without being named
FOLLOWED = [kind.name for kind in KINDS.values() if kind.pack]


@dataclass(frozen=True, slots=True)
class Changed:
    ids: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def packable() -> QuerySet[Memory]:
    """Return the memories that packs may include, as far as their own state decides."""
    live: QuerySet[Memory] = Memory.objects.filter(deleted_at__isnull=True)
    return outside_quarantine(live.exclude(review=ReviewState.REJECTED))


def find_zombies() -> Zombies:
    """Return the memories that enough packs included and nobody ever used, those given most often first."""
    memories = packable().exclude(kind__in=FOLLOWED)
    ignored = _ignored().filter(memory_id__in=memories.values("id"))
    uses = {use.memory_id: use for use in ignored.order_by("-given", "memory_id")[:MOST]}
    in_bulk = Memory.objects.in_bulk(uses)
    lines = recallable_sources()[SearchSourceName.MEMORY](levels()[0], list(uses), clock.now())
    items: list[Zombie] = []
    for memory_id, use in uses.items():
        memory = in_bulk[memory_id]
        text = one_line(memory.content, _TEXT_CHARS)
        line = lines[memory_id].line if memory_id in lines else f"{memory.title}: {text}"
        zombie = Zombie(
            id=memory.id,
            title=memory.title,
            text=text,
            kind=memory.kind,
            type=memory.type,
            given=use.given,
            tokens=use.given * estimate_tokens(line),
            last_given_at=use.last_given_at,
            version=memory.version,
        )
        items.append(zombie)
    total = len(items) if len(items) < MOST else ignored.count()
    return Zombies(total=total, least_packs=IGNORED_AFTER, tokens=sum(item.tokens for item in items), items=items)


# Reads of the last hour may not be counted yet
def _ignored() -> QuerySet[MemoryUse]:
    notes = waiting_notes(current_store())
    read = {memory for note in notes if note.use is not Use.GIVEN for memory in note.ids}
    ignored: QuerySet[MemoryUse] = MemoryUse.objects.ignored().exclude(memory_id__in=read)
    return ignored


def reject_zombies(versions: Mapping[int, int]) -> Changed:
    """Reject memories that nobody used; ``versions`` are the versions that the caller saw, by id.

    A memory that was used or changed meanwhile is refused; the others are rejected all the same.

    Raises:
        Invalid: none is chosen, or too many are.
    """
    if not 0 < len(versions) <= MOST:
        raise Invalid(f"choose 1 to {MOST} memories; nothing was changed")
    packs = dict(_ignored().filter(memory_id__in=versions).values_list("memory_id", "given"))
    commands: list[ReviewVerdict] = []
    for memory, count in packs.items():
        reason = f"in {count} packs and never used"
        commands.append(
            ReviewVerdict(id=memory, base_version=versions[memory], verdict=Verdict.REJECTED, reason=reason)
        )
    outcomes = review_many(commands=commands)
    used = [f"#{memory} was used meanwhile; it stays" for memory in versions if memory not in packs]
    return Changed(
        [outcome.id for outcome in outcomes if not outcome.refused],
        [outcome.refused for outcome in outcomes if outcome.refused] + used,
    )


def restore_zombies(ids: Sequence[int]) -> Changed:
    """Undo the rejections of memories that have not changed since."""
    changed = Changed()
    for memory in ids[:MOST]:
        try:
            changed.ids.append(withdraw_verdict(command=ReviewTouch(id=memory)).id)
        except HubError as error:
            changed.refused.append(error.message)
    return changed
