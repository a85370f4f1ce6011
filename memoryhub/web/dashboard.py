"""The overview of a store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from django.db.models import Count, QuerySet
from django.db.models.functions import Substr
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from decisions.admin.listing import brief, status, warnings
from decisions.contributions import IN_FORCE
from decisions.models import Decision
from governance.imports.batches import Batch, Gain, gain_of, list_batches
from governance.redaction.copies import last_look
from governance.staleness.selectors import count_stale
from memories.admin.listing import kind_and_type
from memories.admin.listing import warnings as memory_warnings
from memories.models import Conflict, Memory, MemoryKind
from memories.review.selectors import count_waiting
from memoryhub.core import clock, log
from memoryhub.core.admin.charts import BarChart, bar_chart
from memoryhub.core.backends.selected import stores
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import Scope, current_store, org_store, project_store
from memoryhub.core.text import counted
from memoryhub.registry.projects import projects_of
from memoryhub.web.addresses import Place
from sessions_app.models import Commit, Session, SessionStatus
from sessions_app.selectors import profile


@dataclass(frozen=True, slots=True)
class Pending:
    count: int
    # With the count: "2 memories need review"
    label: str
    view: str
    query: str = ""

    @property
    def url(self) -> str:
        return reverse(self.view) + self.query


def pending_work() -> list[Pending]:
    """Return the queues that are not empty, most urgent first."""
    queues = [_conflicts(), _secrets(), _proposed(), _stale()]
    return [queue for queue in queues if queue.count]


def _conflicts() -> Pending:
    count = outside_quarantine(Conflict.objects.filter(resolved_at__isnull=True), "memory_id").count()
    label = f"{count} unresolved conflict{'' if count == 1 else 's'}"
    return Pending(count, label, "admin:memories_conflict_changelist", "?state=open")


def _secrets() -> Pending:
    look = last_look()
    count = look.finds if look else 0
    label = f"{counted(count, 'possible secret')} found in older texts by the current rules"
    return Pending(count, label, "admin:governance_redaction_changelist")


def _proposed() -> Pending:
    count = count_waiting()
    label = f"{counted(count, 'memory', 'memories')} {_need(count)} review"
    return Pending(count, label, "admin:memories_review_changelist")


def _stale() -> Pending:
    count = count_stale()
    label = f"{counted(count, 'item')} {_need(count)} rechecking"
    return Pending(count, label, "admin:governance_affirmation_changelist")


def _need(count: int) -> str:
    return "needs" if count == 1 else "need"


DAYS = 30
_LATEST = 8
_ACTIVE = 6
_DECISIONS = 5
# How long the overview shows what an import has brought
_NEWS_DAYS = 7


def overview() -> dict[str, Any]:
    by_kind = count_by_kind()
    sessions = outside_quarantine(Session.objects.all())
    active = sessions.filter(status=SessionStatus.ACTIVE)
    return {
        **description(),
        "memory_count": sum(by_kind.values()),
        "queues": pending_work(),
        "imported": latest_import(),
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


def latest_import() -> tuple[Batch, Gain] | None:
    """Return the newest import of the past week with what it brought, unless it was undone."""
    since = clock.now() - timedelta(days=_NEWS_DAYS)
    latest = next((batch for batch in list_batches() if batch.began_at >= since and not batch.is_undone), None)
    return (latest, gain_of(latest)) if latest else None


def count_by_kind() -> dict[str, int]:
    return dict(Memory.objects.live().values_list("kind").annotate(memories=Count("id")))


def latest_memories() -> list[tuple[Memory, SafeString]]:
    """Return the last changed memories, each with badges of its kind, its type and its state."""
    latest = Memory.objects.live().defer("content", "resource_links").order_by("-updated_at", "-id")[:_LATEST]
    return [(memory, format_html("{} {}", kind_and_type(memory), memory_warnings(memory))) for memory in latest]


def decisions_in_force() -> QuerySet[Decision]:
    return outside_quarantine(Decision.objects.filter(status__in=IN_FORCE))


def latest_decisions() -> list[tuple[Decision, SafeString, str]]:
    latest = decisions_in_force().defer("context", "rationale", "alternatives").order_by("-id")[:_DECISIONS]
    return [
        (decision, format_html("{} {}", status(decision.status), warnings(decision)), brief(decision.chosen))
        for decision in latest
    ]


def description() -> dict[str, Any]:
    """Return the store's profile, its organisation, and its projects if it is an organisation."""
    store, view = current_store(), profile()
    members = projects_of(store.name) if store.scope is Scope.ORG else []
    return {
        "profile": view,
        "organisation": Place.of(org_store(view.org)) if view.org else None,
        "members": [Place.of(project_store(project)) for project in members],
        "metadata": json.dumps(view.metadata, ensure_ascii=False, indent=2) if view.metadata else "",
    }


def activity() -> BarChart:
    counts = events_per_day(DAYS)
    total = sum(counts.values())
    return bar_chart(
        counts, description=f"{counted(total, 'event')} in the past {DAYS} days; a day begins at midnight UTC"
    )


def events_per_day(days: int) -> dict[date, int]:
    """Return the number of events per day, oldest first; the last day is today, in UTC."""
    today = clock.now().date()
    first = today - timedelta(days=days - 1)
    recent = RawEvent.objects.filter(occurred_at__gte=first.isoformat())
    per_day = recent.annotate(day=Substr("occurred_at", 1, 10)).values("day").annotate(events=Count("position"))
    counts = {row["day"]: row["events"] for row in per_day.order_by("day")}
    window = [first + timedelta(days=index) for index in range(days)]
    return {day: counts.get(day.isoformat(), 0) for day in window}


def store_bytes() -> int:
    return sum(stores.sizes(current_store()).values())
