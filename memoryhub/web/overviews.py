"""The home page of the hub, the overview of a store, and the first steps in a new one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nlargest
from typing import Any

from django.conf import settings
from django.db.models import Count, QuerySet
from django.db.models.functions import Substr
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from decisions.admin.listing import brief, status, warnings
from decisions.models import IN_FORCE, Decision
from governance.imports import Batch, Gain, gain_of
from governance.redaction.copies import last_look
from governance.staleness.selectors import count_stale
from memories.admin.listing import kind_and_type
from memories.admin.listing import warnings as memory_warnings
from memories.events import MEMORY_REVIEWED
from memories.models import Conflict, Memory, MemoryKind
from memories.review.selectors import count_waiting
from memoryhub.config.clients import all_clients
from memoryhub.core import clock, log
from memoryhub.core.admin.svg import BarChart, bar_chart
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import HubError
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.permissions import Act, may
from memoryhub.core.stores.store import Scope, current_store, list_projects, org_store, project_store, use_store
from memoryhub.core.text import counted
from memoryhub.demo.project import demo_store, make_demo
from memoryhub.registry.organizations import OrgOverview
from memoryhub.registry.projects import projects_of
from memoryhub.registry.summaries import ProjectSummary, summarize_orgs, summarize_projects
from memoryhub.web.navigation import PATHS
from memoryhub.web.pages import StorePlace, apply_change, hub_page
from sessions_app.models import Session, SessionStatus
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
    conflicts = outside_quarantine(Conflict.objects.filter(resolved_at__isnull=True), "memory_id").count()
    look = last_look()
    secrets = look.finds if look else 0
    proposed, stale = count_waiting(), count_stale()
    in_conflict = f"{conflicts} unresolved conflict{'' if conflicts == 1 else 's'}"
    with_secrets = f"{counted(secrets, 'possible secret')} found in older texts by the current rules"
    to_review = f"{counted(proposed, 'memory', 'memories')} need{'s' * (proposed == 1)} review"
    to_recheck = f"{counted(stale, 'item')} need{'s' * (stale == 1)} rechecking"
    queues = [
        Pending(conflicts, in_conflict, "admin:memories_conflict_changelist", "?state=open"),
        Pending(secrets, with_secrets, "admin:governance_redaction_changelist"),
        Pending(proposed, to_review, "admin:memories_review_changelist"),
        Pending(stale, to_recheck, "admin:governance_affirmation_changelist"),
    ]
    return [queue for queue in queues if queue.count]


DAYS = 30
_LATEST = 8
_ACTIVE = 6
_DECISIONS = 5
# How long the overview shows what an import has brought
_NEWS_DAYS = 7


def overview(batches: Sequence[Batch]) -> dict[str, Any]:
    by_kind = dict(Memory.objects.live().values_list("kind").annotate(memories=Count("id")))
    sessions = outside_quarantine(Session.objects.all())
    active = sessions.filter(status=SessionStatus.ACTIVE)
    return {
        **description(),
        "memory_count": sum(by_kind.values()),
        "queues": pending_work(),
        "imported": latest_import(batches),
        "by_kind": [(kind, kind.label, by_kind[kind]) for kind in MemoryKind if by_kind.get(kind)],
        "session_count": sessions.count(),
        "active_count": active.count(),
        "active_sessions": active.order_by("-started_at")[:_ACTIVE],
        "decision_count": outside_quarantine(Decision.objects.all()).count(),
        "event_count": log.head()[0],
        "latest": latest_memories(),
        "latest_decisions": latest_decisions(),
        "activity": activity(),
        "store_bytes": sum(stores.sizes(current_store()).values()),
    }


def latest_import(batches: Sequence[Batch]) -> tuple[Batch, Gain] | None:
    since = clock.now() - timedelta(days=_NEWS_DAYS)
    for batch in batches:
        if batch.began_at >= since and not batch.is_undone:
            return batch, gain_of(batch)
    return None


def latest_memories() -> list[tuple[Memory, SafeString]]:
    latest = Memory.objects.live().defer("content", "resource_links").order_by("-updated_at", "-id")[:_LATEST]
    return [(memory, format_html("{} {}", kind_and_type(memory), memory_warnings(memory))) for memory in latest]


def decisions_in_force() -> QuerySet[Decision]:
    return outside_quarantine(Decision.objects.filter(status__in=IN_FORCE))


def latest_decisions() -> list[tuple[Decision, SafeString, str]]:
    latest = decisions_in_force().defer("context", "rationale", "alternatives").order_by("-id")[:_DECISIONS]
    rows = []
    for decision in latest:
        badges = format_html("{} {}", status(decision.status), warnings(decision))
        rows.append((decision, badges, brief(decision.chosen)))
    return rows


def description() -> dict[str, Any]:
    """Return the store's profile, its organisation, and its projects if it is an organisation."""
    store = current_store()
    view = profile()
    context: dict[str, Any] = {"profile": view}
    if view.org:
        context["organisation"] = StorePlace.of(org_store(view.org))
    if store.scope is Scope.ORG:
        context["members"] = list(map(StorePlace.of, map(project_store, projects_of(store.name))))
    if view.metadata:
        context["metadata"] = json.dumps(view.metadata, ensure_ascii=False, indent=2)
    return context


def activity() -> BarChart:
    """Return the chart of the events per day; the last day is today, in UTC."""
    first = clock.now().date() - timedelta(days=DAYS - 1)
    recent = log.events().window(since=first.isoformat()).annotate(day=Substr("occurred_at", 1, 10))
    by_day = dict(recent.order_by("day").values_list("day").annotate(events=Count("position")))
    days = [first + timedelta(days=index) for index in range(DAYS)]
    counts = {day: by_day.get(day.isoformat(), 0) for day in days}
    total = counted(sum(counts.values()), "event")
    return bar_chart(counts, description=f"{total} in the past {DAYS} days; a day begins at midnight UTC")


# A store with more events needs no first steps, and looking for them would take long
_MOST_EVENTS = 2_000
_HIDDEN = "hidden_first_steps"
_BY_CLIENTS = ("mcp", "hook")


@dataclass(frozen=True, slots=True)
class FirstStep:
    name: str
    label: str
    # What was found, or what to do
    text: str
    is_done: bool
    url: str = ""


def client_commands() -> list[dict[str, str]]:
    return [{"name": client.name, "command": f"memory-hub setup {client.id}"} for client in all_clients().values()]


def first_steps(request: HttpRequest, place: StorePlace) -> list[FirstStep]:
    """Return the first steps in the current store; empty if all are done, hidden, or there are many events."""
    if not place.is_project or log.head()[0] > _MOST_EVENTS or place.id in request.session.get(_HIDDEN, ()):
        return []
    called = "Waiting for its first call."
    call = log.events().filter(source__in=_BY_CLIENTS).first()
    if call:
        called = f"{call.actor or call.source} made the first call."
    memory = _first_title(Memory.objects.live(), Memory.objects.all())
    remember = f"Ask the agent to remember something, or run `memory-hub import markdown docs/ --project {place.id}`."
    decision = _first_title(Decision.objects.filter(status__in=IN_FORCE), Decision.objects.all())
    decide = "Tell the agent what you chose and why, or import decision records."
    review = "Accept or reject what agents propose."
    is_reviewed = log.events().of_type(MEMORY_REVIEWED).exists()
    if is_reviewed:
        review = "You reviewed what an agent proposed."
    steps = [
        FirstStep("client", "Connect a client", called, call is not None),
        FirstStep("memory", "Store a memory", memory or remember, bool(memory), reverse("admin:memories_memory_add")),
        FirstStep(
            "decision", "Record a decision", decision or decide, bool(decision), reverse("admin:decisions_decision_add")
        ),
        FirstStep("review", "Review a memory", review, is_reviewed, reverse("admin:memories_review_changelist")),
    ]
    if all(step.is_done for step in steps):
        return []
    return steps


def _first_title(current: QuerySet[Any], existing: QuerySet[Any]) -> str:
    """Return the first title in quotes; “Done.” if all items are gone again, and "" if there has been none."""
    first = current.order_by("id").first()
    if first:
        return f"“{first.title}”"
    return "Done." if existing.exists() else ""


def can_load_sample() -> bool:
    return not stores.exists(demo_store())


@require_POST
@hub_page(Act.GOVERN)
def load_sample(request: HttpRequest) -> HttpResponse:
    place = StorePlace.of(demo_store())
    apply_change(request, make_demo, "Loaded the sample project. Delete it with `memory-hub demo --remove`.")
    return redirect(place.url)


@require_POST
@hub_page(Act.WRITE)
def hide_first_steps(request: HttpRequest, project: str) -> HttpResponse:
    request.session[_HIDDEN] = sorted({*request.session.get(_HIDDEN, ()), project})
    return redirect(f"/p/{project}/admin/")


# Each costs a few queries
_MOST_PROJECTS = 12
_LATEST_ENTRIES = 8


@dataclass(frozen=True, slots=True)
class LatestEntry:
    title: str
    url: str
    # ``memory`` or ``decision``
    source: str
    changed: datetime
    place: StorePlace


@dataclass(frozen=True, slots=True)
class Glance:
    decisions: int
    activity: BarChart
    pending: list[str]
    latest: list[LatestEntry]


@dataclass(frozen=True, slots=True)
class Card:
    project: ProjectSummary
    # None if others were changed later, or the store could not be read
    glance: Glance | None


Group = tuple[OrgOverview | None, list[Card]]


@never_cache
@require_safe
def show_projects(request: HttpRequest) -> HttpResponse:
    if not may(request.user, Act.VIEW):
        return redirect(settings.LOGIN_URL)
    projects = summarize_projects()
    active = [(project.last_activity, project.project_id) for project in projects if project.last_activity]
    glances = {project_id: _glance(project_id) for _, project_id in nlargest(_MOST_PROJECTS, active)}
    cards = [Card(project, glances.get(project.project_id)) for project in projects]
    entries = (entry for card in cards if card.glance for entry in card.glance.latest)
    latest = nlargest(_LATEST_ENTRIES, entries, key=lambda entry: entry.changed)
    context = {"groups": _grouped(cards), "latest": latest, "clients": client_commands()}
    return render(request, "memoryhub/home.html", context)


@never_cache
@require_safe
def find_admin(request: HttpRequest) -> HttpResponse:
    """Redirect to the admin of the only project, else to the list of projects: each has an admin of its own."""
    if may(request.user, Act.VIEW) and len(projects := list_projects()) == 1:
        return redirect(StorePlace.of(project_store(projects[0])).url)
    return redirect("home")


def _glance(project_id: str) -> Glance | None:
    store = project_store(project_id)
    try:
        with use_store(store):
            pending = [queue.label for queue in pending_work()]
            latest = list(_latest_entries(StorePlace.of(store)))
            return Glance(decisions_in_force().count(), activity(), pending, latest)
    except HubError:  # the card names the problem of a damaged store
        return None


def _latest_entries(place: StorePlace) -> Iterable[LatestEntry]:
    decisions = decisions_in_force().order_by("-id")
    memories = Memory.objects.live().order_by("-updated_at", "-id")
    rows = {
        "decision": decisions.values_list("id", "title", "decided_at")[:_LATEST_ENTRIES],
        "memory": memories.values_list("id", "title", "updated_at")[:_LATEST_ENTRIES],
    }
    for source, entries in rows.items():
        for number, title, changed in entries:
            yield LatestEntry(title, f"{place.url}{PATHS[source].format(number)}", source, changed, place)


def _grouped(cards: list[Card]) -> list[Group]:
    groups: list[Group] = []
    without_org = cards
    for org in summarize_orgs():
        groups.append((org, [card for card in cards if card.project.org_id == org.org_id]))
        without_org = [card for card in without_org if card.project.org_id != org.org_id]
    if without_org:
        groups.append((None, without_org))
    return groups
