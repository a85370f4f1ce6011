"""How a store stands, on one page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.db.models import Count
from django.db.models.functions import Substr
from django.urls import reverse
from django.utils.safestring import SafeString

from decisions.admin.listing import brief, status
from decisions.contributions import IN_FORCE
from decisions.models import Decision
from governance.redaction.copies import last_look
from governance.staleness.selectors import count_stale
from memories.admin.listing import kind_and_type
from memories.models import Conflict, Memory, MemoryKind
from memories.review.selectors import count_waiting
from memoryhub.core import clock, log
from memoryhub.core.admin.charts import BarChart, bar_chart
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import Scope, current_store, org_store, project_store
from memoryhub.core.text import counted
from memoryhub.registry.projects import projects_of
from memoryhub.web.addresses import Place
from sessions_app.models import Commit, Session, SessionStatus
from sessions_app.selectors import profile


@dataclass(frozen=True, slots=True)
class Waiting:
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


DAYS = 30
_LATEST = 8
_ACTIVE = 6
_DECISIONS = 5


def overview() -> dict[str, Any]:
    by_kind = count_by_kind()
    sessions = outside_quarantine(Session.objects.all())
    active = sessions.filter(status=SessionStatus.ACTIVE)
    return {
        **belonging(),
        "memory_count": sum(by_kind.values()),
        "waiting": whats_waiting(),
        "by_kind": [(kind, kind.label, by_kind[kind]) for kind in MemoryKind if by_kind.get(kind)],
        "session_count": sessions.count(),
        "active_count": active.count(),
        "active_sessions": active.order_by("-started_at")[:_ACTIVE],
        "commit_count": outside_quarantine(Commit.objects.all()).count(),
        "event_count": log.head()[0],
        "latest": latest_memories(),
        "latest_decisions": latest_decisions(),
        "activity": activity(),
        "store_bytes": store_bytes(),
    }


def count_by_kind() -> dict[str, int]:
    return dict(Memory.objects.live().values_list("kind").annotate(memories=Count("id")))


def latest_memories() -> list[tuple[Memory, SafeString]]:
    """Return the memories that changed last, each with a mark that says what it is."""
    found = Memory.objects.live().defer("content", "resource_links").order_by("-updated_at", "-id")[:_LATEST]
    return [(memory, kind_and_type(memory)) for memory in found]


def latest_decisions() -> list[tuple[Decision, SafeString, str]]:
    told = outside_quarantine(Decision.objects.filter(status__in=IN_FORCE))
    found = told.defer("context", "rationale", "alternatives").order_by("-id")[:_DECISIONS]
    return [(each, status(each.status), brief(each.chosen)) for each in found]


def belonging() -> dict[str, Any]:
    """Return what the store says of itself, the organisation it belongs to, and the projects that belong to it."""
    store, known = current_store(), profile()
    members = projects_of(store.name) if store.scope is Scope.ORG else []
    return {
        "profile": known,
        "organisation": Place.of(org_store(known.org)) if known.org else None,
        "members": [Place.of(project_store(each)) for each in members],
        "metadata": json.dumps(known.metadata, ensure_ascii=False, indent=2) if known.metadata else "",
    }


def activity() -> BarChart:
    """Return the events of each of the past 30 days as a chart."""
    counts = events_per_day(DAYS)
    total = sum(counts.values())
    return bar_chart(counts, description=f"{counted(total, 'event')} in the past {DAYS} days")


def events_per_day(days: int) -> dict[date, int]:
    """Return how many events each of the past days saw, oldest first; the last one is today, in UTC."""
    today = clock.now().date()
    first = today - timedelta(days=days - 1)
    recent = RawEvent.objects.filter(occurred_at__gte=first.isoformat())
    found = recent.annotate(day=Substr("occurred_at", 1, 10)).values("day").annotate(events=Count("position"))
    counts = {row["day"]: row["events"] for row in found.order_by("day")}
    window = [first + timedelta(days=index) for index in range(days)]
    return {day: counts.get(day.isoformat(), 0) for day in window}


def store_bytes() -> int:
    """Return the size of the current store's files, in bytes."""
    path = current_store().path
    return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
