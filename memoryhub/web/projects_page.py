"""The home page: all projects by organisation, and what happened in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from memories.models import Memory
from memoryhub.core.admin.charts import BarChart
from memoryhub.core.errors import HubError
from memoryhub.core.permissions import Act, may
from memoryhub.core.stores.store import list_projects, project_store, use_store
from memoryhub.registry.organizations import OrgOverview
from memoryhub.registry.summaries import ProjectSummary, summarize_orgs, summarize_projects
from memoryhub.web.addresses import Place
from memoryhub.web.dashboard import activity, decisions_in_force, pending_work
from memoryhub.web.first_run import client_commands
from memoryhub.web.palette import PATHS

# Each costs a few queries
_MOST_PROJECTS = 12
_LATEST = 8


@dataclass(frozen=True, slots=True)
class Entry:
    title: str
    url: str
    # ``memory`` or ``decision``
    source: str
    changed: datetime
    place: Place


@dataclass(frozen=True, slots=True)
class Glance:
    """What happened in a project lately, and what waits for a person."""

    decisions: int
    activity: BarChart
    pending: list[str]
    latest: list[Entry]


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
    cards = _cards(summarize_projects())
    entries = (entry for card in cards if card.glance for entry in card.glance.latest)
    latest = nlargest(_LATEST, entries, key=lambda entry: entry.changed)
    context = {"groups": _grouped(cards), "latest": latest, "clients": client_commands()}
    return render(request, "memoryhub/home.html", context)


@never_cache
@require_safe
def find_admin(request: HttpRequest) -> HttpResponse:
    """Redirect to the admin of the only project, else to the list of projects: each has an admin of its own."""
    projects = list_projects() if may(request.user, Act.VIEW) else []
    return redirect(Place.of(project_store(projects[0])).url if len(projects) == 1 else "home")


def _cards(projects: list[ProjectSummary]) -> list[Card]:
    active = [(project.last_activity, project.project_id) for project in projects if project.last_activity]
    glances = {project_id: _glance(project_id) for _, project_id in nlargest(_MOST_PROJECTS, active)}
    return [Card(project, glances.get(project.project_id)) for project in projects]


def _glance(project_id: str) -> Glance | None:
    store = project_store(project_id)
    try:
        with use_store(store):
            pending = [queue.label for queue in pending_work()]
            return Glance(decisions_in_force().count(), activity(), pending, list(_latest(Place.of(store))))
    except HubError:  # the card names the problem of a damaged store
        return None


def _latest(place: Place) -> Iterable[Entry]:
    decisions = decisions_in_force().order_by("-id")
    memories = Memory.objects.live().order_by("-updated_at", "-id")
    found = [
        *(("decision", *row) for row in decisions.values_list("id", "title", "decided_at")[:_LATEST]),
        *(("memory", *row) for row in memories.values_list("id", "title", "updated_at")[:_LATEST]),
    ]
    for source, number, title, changed in found:
        yield Entry(title, f"{place.url}{PATHS[source].format(number)}", source, changed, place)


def _grouped(cards: list[Card]) -> list[Group]:
    """Return each organisation with its projects, then those without an organisation."""
    groups: list[Group] = [
        (org, [card for card in cards if card.project.org_id == org.org_id]) for org in summarize_orgs()
    ]
    known = {org.org_id for org, _ in groups if org}
    others = [card for card in cards if card.project.org_id not in known]
    return [*groups, (None, others)] if others else groups
