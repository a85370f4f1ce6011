"""The first steps in a new store, as they really happened, and the sample project by one click."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from decisions.contributions import IN_FORCE
from decisions.models import Decision
from memories.events import MEMORY_REVIEWED
from memories.models import Memory
from memoryhub.config.clients import all_clients
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.models import RawEvent
from memoryhub.core.permissions import Act
from memoryhub.demo.project import demo_store, make_demo
from memoryhub.web.addresses import Place
from memoryhub.web.hub_pages import apply_change, hub_page

# A store with more events needs no first steps, and looking for them would take long
_MOST_EVENTS = 2_000
_HIDDEN = "hidden_first_steps"
_BY_CLIENTS = ("mcp", "hook")


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    label: str
    # What was found, or what to do
    text: str
    is_done: bool
    url: str = ""


@dataclass(frozen=True, slots=True)
class ClientCommand:
    name: str
    command: str


def client_commands() -> list[ClientCommand]:
    return [ClientCommand(client.name, f"memory-hub setup {client.id}") for client in all_clients().values()]


def first_steps(request: HttpRequest, place: Place) -> list[Step]:
    """Return the first steps in the current store; empty if all are done, hidden, or there are many events."""
    if not place.is_project or log.head()[0] > _MOST_EVENTS or place.id in request.session.get(_HIDDEN, ()):
        return []
    steps = [_client(), _memory(place), _decision(), _review()]
    return [] if all(step.is_done for step in steps) else steps


def _client() -> Step:
    first = RawEvent.objects.filter(source__in=_BY_CLIENTS).order_by("position").first()
    text = f"{first.actor or first.source} made the first call." if first else "Waiting for its first call."
    return Step("client", "Connect a client", text, first is not None)


def _memory(place: Place) -> Step:
    first = Memory.objects.live().order_by("id").first()
    to_do = f"Ask the agent to remember something, or run `memory-hub import markdown docs/ --project {place.id}`."
    is_done = first is not None or Memory.objects.exists()
    text = f"“{first.title}”" if first else "Done." if is_done else to_do
    return Step("memory", "Store a memory", text, is_done, reverse("admin:memories_memory_add"))


def _decision() -> Step:
    first = Decision.objects.filter(status__in=IN_FORCE).order_by("id").first()
    is_done = first is not None or Decision.objects.exists()
    to_do = "Tell the agent what you chose and why, or import decision records."
    text = f"“{first.title}”" if first else "Done." if is_done else to_do
    return Step("decision", "Record a decision", text, is_done, reverse("admin:decisions_decision_add"))


def _review() -> Step:
    done = RawEvent.objects.filter(event_type=MEMORY_REVIEWED.name).exists()
    text = "You reviewed what an agent proposed." if done else "Accept or reject what agents propose."
    return Step("review", "Review a memory", text, done, reverse("admin:memories_review_changelist"))


def can_load_sample() -> bool:
    return not stores.exists(demo_store())


@require_POST
@hub_page(Act.GOVERN)
def load_sample(request: HttpRequest) -> HttpResponse:
    """Create the sample project, unless it exists, and show it."""
    place = Place.of(demo_store())
    apply_change(request, make_demo, "Loaded the sample project. Delete it with `memory-hub demo --remove`.")
    return redirect(place.url)


@require_POST
@hub_page(Act.WRITE)
def hide_first_steps(request: HttpRequest, project: str) -> HttpResponse:
    request.session[_HIDDEN] = sorted({*request.session.get(_HIDDEN, ()), project})
    return redirect(f"/p/{project}/admin/")
