"""The palette: pages, projects, actions and entries of all stores that contain what was typed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from memories.search.parsed_query import parse
from memoryhub.core.backends.selected import stores as backend
from memoryhub.core.errors import HubError
from memoryhub.core.events.event_types import quoted
from memoryhub.core.permissions import HUB, Act, may, reaches
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import LIKE
from memoryhub.core.stores.store import (
    GLOBAL_STORE,
    StoreId,
    current_store,
    list_orgs,
    list_projects,
    org_store,
    project_store,
    use_store,
)
from memoryhub.core.text import one_line
from memoryhub.registry.saved_views import saved_views
from memoryhub.web.addresses import Place
from memoryhub.web.hub_pages import hub_page
from memoryhub.web.navigation import hub_pages, pages_of

# Entries of a store, links of a group, and stores that are searched
_MOST_OF_A_STORE = 5
_MOST_TO_PICK = 8
_MOST_OF_A_GROUP = 12
_MOST_STORES = 200
# Stores of which entries are looked for while a person types: opening one takes milliseconds
_MOST_AT_ONCE = 24
_MAX_CHARS = 200
PATHS = {
    "memory": "memories/memory/{}/change/",
    "decision": "decisions/decision/{}/change/",
    "session": "sessions_app/session/{}/change/",
    "commit": "sessions_app/commit/{}/change/",
}
# What a person does in a store: label, path below its overview, permission
_ACTIONS = (
    ("Write a memory", "memories/memory/add/", Act.WRITE),
    ("Record a decision", "decisions/decision/add/", Act.WRITE),
    ("Redact a text", "governance/redaction/", Act.GOVERN),
    ("Roll back a session", "governance/rollback/", Act.GOVERN),
    ("Delete by age", "governance/retentionrun/", Act.GOVERN),
    ("Verify the log", "core/rawevent/", Act.WRITE),
)
_HUB_ACTIONS = (
    ("New project", "/new/project", Act.GOVERN),
    ("New organisation", "/new/organisation", Act.GOVERN),
    ("New token", "/tokens#new", Act.VIEW),
    ("Invite a person", "/people#new", Act.ADMINISTER),
)


@dataclass(frozen=True, slots=True)
class Link:
    label: str
    url: str
    # Where it leads: a project, and the kind of the entry
    about: str = ""
    # Of an entry
    number: int = 0


@hub_page(Act.VIEW)
def show_palette(request: HttpRequest) -> HttpResponse:
    """Show what matches ``q``; with ``fragment``, only the list for ``shell.js``, from the page at ``from``."""
    typed = " ".join(request.GET.get("q", "").split())[:_MAX_CHARS]
    is_typing = "fragment" in request.GET
    most = _MOST_AT_ONCE if is_typing else _MOST_STORES
    groups = find(typed, user=request.user, current=_store_at(request.GET.get("from", "")), most_stores=most)
    template = "memoryhub/palette_results.html" if is_typing else "memoryhub/palette.html"
    return render(request, template, {"groups": groups, "typed": typed, "more": is_typing and len(_stores()) > most})


def show_matching(request: HttpRequest) -> HttpResponse:
    """Show entries of the current store whose titles contain ``q``, for ``pick.js``; ``of`` names their types."""
    typed = " ".join(request.GET.get("q", "").split())[:_MAX_CHARS]
    sources = [source for source in request.GET.get("of", "").split(",") if source in PATHS] or list(PATHS)
    links = list(_entries([current_store()], typed, sources=sources, most=_MOST_TO_PICK)) if typed else []
    return render(request, "memoryhub/pick_results.html", {"links": links})


def find(
    typed: str, *, user: Any, current: StoreId | None = None, most_stores: int = _MOST_STORES
) -> list[tuple[str, list[Link]]]:
    """Return links in groups with a title, those of the current store first.

    Entries come from the current store and the ``most_stores`` that were changed last.
    """
    stores = sorted(_stores(), key=lambda store: store != current)
    links = {
        "Pages": [*(_pages(user, current) if current else ()), *_hub_links(user)],
        "Views": _views(user, stores),
        "Actions": [*(_actions(user, current) if current else ()), *_hub_actions(user)],
        "Projects": [Link(Place.of(store).label, Place.of(store).url, Place.of(store).kind) for store in stores],
    }
    groups = [(title, _matching(found, typed)[:_MOST_OF_A_GROUP]) for title, found in links.items()]
    if typed:
        searched = sorted(stores, key=lambda store: (store != current, -backend.changed_at(store)))[:most_stores]
        groups.insert(0, ("Entries", list(islice(_entries(searched, typed), 3 * _MOST_OF_A_GROUP))))
    return [(title, found) for title, found in groups if found]


def _stores() -> list[StoreId]:
    shared = [GLOBAL_STORE] if reaches(GLOBAL_STORE.place) else []
    return [*map(project_store, list_projects()), *map(org_store, list_orgs()), *shared][:_MOST_STORES]


def _store_at(path: str) -> StoreId | None:
    return next((store for store in _stores() if path and path.startswith(Place.of(store).url)), None)


def _pages(user: Any, store: StoreId) -> Iterator[Link]:
    place = Place.of(store)
    for section, label, path in pages_of(user, place):
        yield Link(label, f"{place.url}{path}", place.label if section == label else f"{place.label} · {section}")


def _views(user: Any, stores: list[StoreId]) -> list[Link]:
    places = {store.alias: Place.of(store) for store in stores}
    found = sorted(saved_views(user=user, stores=stores), key=lambda view: list(places).index(view.store))
    return [
        Link(view.name, f"{places[view.store].url}{view.page}?{view.query}", places[view.store].label) for view in found
    ]


def _hub_links(user: Any) -> Iterator[Link]:
    return (Link(page["label"], page["url"], "Hub") for page in hub_pages(user, ""))


def _actions(user: Any, store: StoreId) -> Iterator[Link]:
    place = Place.of(store)
    possible = (action for action in _ACTIONS if may(user, action[2], place=place.key))
    return (Link(label, f"{place.url}{path}", place.label) for label, path, _ in possible)


def _hub_actions(user: Any) -> Iterator[Link]:
    return (Link(label, path, "Hub") for label, path, act in _HUB_ACTIONS if may(user, act, place=HUB))


def _matching(links: list[Link], typed: str) -> list[Link]:
    words = typed.lower().split()
    return [link for link in links if all(word in f"{link.label} {link.about}".lower() for word in words)]


# By a part of the title, so that it finds while a word is being typed; or by number
def _entries(
    stores: list[StoreId], typed: str, *, sources: Sequence[str] = tuple(PATHS), most: int = _MOST_OF_A_STORE
) -> Iterator[Link]:
    number = typed.removeprefix("#")
    words = [] if number.isdecimal() else typed.lower().split()[:8]
    # SQLite lowers ASCII alone, so a word may also begin with its capital
    like = f"(lower(d.title) {LIKE} %s ESCAPE '!' OR d.title {LIKE} %s ESCAPE '!')"
    likes = " AND ".join([like] * len(words)) or "d.id = %s"
    outside, _ = parse("").conditions(None, "d.id")
    sql = (
        f"SELECT d.id, d.source, d.title FROM memories_searchdocument d WHERE d.source IN ({quoted(list(sources))}) "
        f"AND {' AND '.join(outside)} AND {likes} ORDER BY d.id DESC LIMIT {most}"
    )
    parameters: list[Any] = [f"%{_escaped(form)}%" for word in words for form in (word, word.capitalize())] or [
        int(number[:15])
    ]
    for store in stores:
        place = Place.of(store)
        try:
            with use_store(store):
                found = rows.fetch(sql, parameters)
        except HubError:  # a damaged store is named on the home page
            continue
        for entry, source, title in found:
            about = f"{place.label} · {source} #{entry}"
            yield Link(one_line(title, 120), f"{place.url}{PATHS[source].format(entry)}", about, entry)


def _escaped(word: str) -> str:
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")
