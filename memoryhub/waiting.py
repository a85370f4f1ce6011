"""What waits for a person in the current store: each sort with its number and where it is settled."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse

from governance.redaction.growth import last_look
from governance.staleness.selectors import count_stale
from memories.models import Conflict
from memories.review.selectors import count_waiting
from memoryhub.core.quarantine import outside_quarantine
from memoryhub.core.wording import counted


@dataclass(frozen=True, slots=True)
class Waiting:
    """One sort of thing that somebody should look at."""

    count: int
    says: str
    """With the number: ``2 memories wait for review``."""
    url: str


def whats_waiting() -> list[Waiting]:
    """Return what waits, the most urgent first; sorts of which nothing waits are left out."""
    found = [_conflicts(), _secrets(), _proposed(), _stale()]
    return [each for each in found if each.count]


def _conflicts() -> Waiting:
    count = outside_quarantine(Conflict.objects.filter(resolved_at__isnull=True), "memory_id").count()
    says = f"{counted(count, 'conflict')} between versions written at once {_wait(count)} to be settled"
    return Waiting(count, says, f"{reverse('admin:memories_conflict_changelist')}?state=open")


def _secrets() -> Waiting:
    look = last_look()
    count = look.finds if look else 0
    says = f"Today’s rules for secrets find {counted(count, 'place')} in what was kept before"
    return Waiting(count, says, reverse("admin:governance_redaction_changelist"))


def _proposed() -> Waiting:
    count = count_waiting()
    says = f"{counted(count, 'memory', 'memories')} {_wait(count)} for review"
    return Waiting(count, says, reverse("admin:memories_review_changelist"))


def _stale() -> Waiting:
    count = count_stale()
    says = f"{counted(count, 'thing')} {_wait(count)} to be affirmed"
    return Waiting(count, says, reverse("admin:governance_affirmation_changelist"))


def _wait(count: int) -> str:
    return "waits" if count == 1 else "wait"
