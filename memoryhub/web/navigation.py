"""The navigation of every page, the palette that finds pages and entries, and the saved views of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse

from governance.inbox import count_entries
from memories.search.parsed_query import parse
from memoryhub.core.backends.selected import stores as backend
from memoryhub.core.errors import HubError
from memoryhub.core.events.event_types import quoted
from memoryhub.core.kinds import KINDS
from memoryhub.core.permissions import GLOBAL, HUB, Act, may, reaches
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
from memoryhub.registry.saved_views import delete_view, normal_query, rename_view, save_view, saved_views
from memoryhub.web.pages import StorePlace, apply_change, hub_page


@dataclass(frozen=True, slots=True)
class NavPage:
    label: str
    # Of the URL: ``memories_tag`` for all pages of tags, or a whole name such as ``index``
    name: str
    # The view that the link opens
    view: str = "changelist"
    act: Act = Act.VIEW
    in_projects_only: bool = False
    in_global: bool = True
    count: Callable[[], int] = int
    # Further names of URLs
    also: Sequence[str] = ()

    @property
    def path(self) -> str:
        name = f"{self.name}_{self.view}" if self.view else self.name
        return reverse(f"admin:{name}", urlconf=settings.STORE_URLCONF)

    def is_for(self, user: Any, place: StorePlace) -> bool:
        is_of_kind = (place.is_project or not self.in_projects_only) and (place.key != GLOBAL or self.in_global)
        return is_of_kind and may(user, self.act, place=place.key)

    def is_shown(self, url_name: str) -> bool:
        return any(url_name == name or url_name.startswith(f"{name}_") for name in (self.name, *self.also))


@dataclass(frozen=True, slots=True)
class NavSection:
    label: str
    icon: str
    pages: Sequence[NavPage]


def _count_inbox() -> int:
    return sum(count_entries().values())


SECTIONS = (
    NavSection("Overview", "overview", [NavPage("Overview", "index", view="")]),
    NavSection(
        "Inbox",
        "inbox",
        [
            NavPage("Inbox", "inbox", view="", count=_count_inbox, also=("memories_review", "governance_affirmation")),
            NavPage("Conflicts", "memories_conflict"),
        ],
    ),
    NavSection(
        "Knowledge",
        "knowledge",
        [
            NavPage("All memories", "memories_memory"),
            *(NavPage(kind.plural, f"memories_{kind.name}") for kind in KINDS.values()),
            NavPage("Tags", "memories_tag"),
            NavPage("Search", "memories_searchdocument"),
            NavPage("Context packs", "memories_contextpack", view="now"),
        ],
    ),
    NavSection("Decisions", "decisions", [NavPage("Decisions", "decisions_decision")]),
    NavSection(
        "Activity",
        "activity",
        [
            NavPage("Sessions", "sessions_app_session", in_projects_only=True),
            NavPage("Turns", "sessions_app_turn", in_projects_only=True),
            NavPage("Iterations", "sessions_app_iteration", in_projects_only=True),
            NavPage("Commits", "sessions_app_commit", in_projects_only=True),
            NavPage("Blame", "blame", view="", in_projects_only=True),
            NavPage("Worth", "worth", view="", in_projects_only=True),
        ],
    ),
    NavSection(
        "Governance",
        "governance",
        [
            NavPage("Redaction", "governance_redaction"),
            NavPage("Retention", "governance_retentionrun"),
            NavPage("Holds", "governance_hold"),
            NavPage("Roll back", "governance_rollback"),
            NavPage("Imports", "imports", view="", also=("import",)),
            NavPage("Audit", "audit", view=""),
        ],
    ),
    NavSection("Log", "log", [NavPage("Events", "core_rawevent"), NavPage("Replay", "replay", view="")]),
    NavSection(
        "Settings",
        "settings",
        [
            NavPage("Settings", "settings", view="", act=Act.GOVERN),
            NavPage("Members", "members", view="", act=Act.GOVERN, in_global=False),
            NavPage("Secrets", "secrets", view=""),
            NavPage("Description", "describe", view="", act=Act.GOVERN),
        ],
    ),
)


@dataclass(frozen=True, slots=True)
class HubPage:
    label: str
    icon: str
    url: str
    name: str
    act: Act = Act.VIEW
    place: str = HUB


HUB_PAGES = (
    HubPage("Projects", "projects", "/", "home"),
    HubPage("Global scope", "global", "/global/admin/", "", place=GLOBAL),
    HubPage("Jobs", "jobs", "/jobs", "jobs"),
    HubPage("People", "people", "/people", "people", Act.ADMINISTER),
    HubPage("Tokens", "tokens", "/tokens", "tokens"),
    HubPage("REST API", "api", "/api/v1/docs", "openapi-view"),
    HubPage("Help", "help", "/help/index.md", "help"),
)


def sections(user: Any, place: StorePlace, url_name: str) -> list[dict[str, Any]]:
    """Return the sections of a store with their pages, those that the user may open, and what is pending in each."""
    listed = [_section(section, user, place, url_name) for section in SECTIONS]
    return [section for section in listed if section["pages"]]


def _section(section: NavSection, user: Any, place: StorePlace, url_name: str) -> dict[str, Any]:
    pages = [_page(page, url, url_name) for page, url in _open_pages(section, user, place)]
    return {
        "label": section.label,
        "icon": section.icon,
        "url": pages[0]["url"] if pages else "",
        "pages": pages,
        "current": any(page["current"] for page in pages),
        "count": sum(page["count"] for page in pages),
    }


def _open_pages(section: NavSection, user: Any, place: StorePlace) -> Iterator[tuple[NavPage, str]]:
    for page in section.pages:
        if page.is_for(user, place):
            try:
                yield page, page.path
            except NoReverseMatch:  # an app may be left out
                continue


def _page(page: NavPage, url: str, url_name: str) -> dict[str, Any]:
    return {"label": page.label, "url": url, "current": page.is_shown(url_name), "count": page.count()}


def pages_of(user: Any, place: StorePlace) -> list[tuple[str, str, str]]:
    """Return the pages of any store that the user may open: section, label, path below the store's overview."""
    root = reverse("admin:index", urlconf=settings.STORE_URLCONF)
    return [
        (section.label, page.label, page.path.removeprefix(root))
        for section in SECTIONS
        for page in section.pages
        if page.is_for(user, place)
    ]


def hub_pages(user: Any, url_name: str) -> list[dict[str, Any]]:
    """Return the pages of the whole hub that the user may open."""
    return [
        {"label": page.label, "icon": page.icon, "url": page.url, "current": bool(url_name) and page.name == url_name}
        for page in HUB_PAGES
        if may(user, page.act, place=page.place)
    ]


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
class PaletteLink:
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
    groups = find_links(typed, user=request.user, current=_store_at(request.GET.get("from", "")), most_stores=most)
    template = "memoryhub/palette_results.html" if is_typing else "memoryhub/palette.html"
    return render(request, template, {"groups": groups, "typed": typed, "more": is_typing and len(_stores()) > most})


def show_matching(request: HttpRequest) -> HttpResponse:
    """Show entries of the current store whose titles contain ``q``, for ``pick.js``; ``of`` names their types."""
    typed = " ".join(request.GET.get("q", "").split())[:_MAX_CHARS]
    sources = [source for source in request.GET.get("of", "").split(",") if source in PATHS] or list(PATHS)
    links = list(_entries([current_store()], typed, sources=sources, most=_MOST_TO_PICK)) if typed else []
    return render(request, "memoryhub/pick_results.html", {"links": links})


def find_links(
    typed: str, *, user: Any, current: StoreId | None = None, most_stores: int = _MOST_STORES
) -> list[tuple[str, list[PaletteLink]]]:
    """Return links in groups with a title, those of the current store first.

    Entries come from the current store and the ``most_stores`` that were changed last.
    """
    stores = sorted(_stores(), key=lambda store: store != current)
    links = {
        "Pages": [*(_pages(user, current) if current else ()), *_hub_links(user)],
        "Views": _views(user, stores),
        "Actions": [*(_actions(user, current) if current else ()), *_hub_actions(user)],
        "Projects": [
            PaletteLink(StorePlace.of(store).label, StorePlace.of(store).url, StorePlace.of(store).kind)
            for store in stores
        ],
    }
    groups = [(title, _matching(candidates, typed)[:_MOST_OF_A_GROUP]) for title, candidates in links.items()]
    if typed:
        searched = sorted(stores, key=lambda store: (store != current, -backend.changed_at(store)))[:most_stores]
        groups.insert(0, ("Entries", list(islice(_entries(searched, typed), 3 * _MOST_OF_A_GROUP))))
    return [(title, candidates) for title, candidates in groups if candidates]


def _stores() -> list[StoreId]:
    shared = [GLOBAL_STORE] if reaches(GLOBAL_STORE.place) else []
    return [*map(project_store, list_projects()), *map(org_store, list_orgs()), *shared][:_MOST_STORES]


def _store_at(path: str) -> StoreId | None:
    return next((store for store in _stores() if path and path.startswith(StorePlace.of(store).url)), None)


def _pages(user: Any, store: StoreId) -> Iterator[PaletteLink]:
    place = StorePlace.of(store)
    for section, label, path in pages_of(user, place):
        yield PaletteLink(
            label, f"{place.url}{path}", place.label if section == label else f"{place.label} · {section}"
        )


def _views(user: Any, stores: list[StoreId]) -> list[PaletteLink]:
    places = {store.alias: StorePlace.of(store) for store in stores}
    views = sorted(saved_views(user=user, stores=stores), key=lambda view: list(places).index(view.store))
    return [
        PaletteLink(view.name, f"{places[view.store].url}{view.page}?{view.query}", places[view.store].label)
        for view in views
    ]


def _hub_links(user: Any) -> Iterator[PaletteLink]:
    return (PaletteLink(page["label"], page["url"], "Hub") for page in hub_pages(user, ""))


def _actions(user: Any, store: StoreId) -> Iterator[PaletteLink]:
    place = StorePlace.of(store)
    possible = (action for action in _ACTIONS if may(user, action[2], place=place.key))
    return (PaletteLink(label, f"{place.url}{path}", place.label) for label, path, _ in possible)


def _hub_actions(user: Any) -> Iterator[PaletteLink]:
    return (PaletteLink(label, path, "Hub") for label, path, act in _HUB_ACTIONS if may(user, act, place=HUB))


def _matching(links: list[PaletteLink], typed: str) -> list[PaletteLink]:
    words = typed.lower().split()
    return [link for link in links if all(word in f"{link.label} {link.about}".lower() for word in words)]


# By a part of the title, so that it finds while a word is being typed; or by number
def _entries(
    stores: list[StoreId], typed: str, *, sources: Sequence[str] = tuple(PATHS), most: int = _MOST_OF_A_STORE
) -> Iterator[PaletteLink]:
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
        place = StorePlace.of(store)
        try:
            with use_store(store):
                matches = rows.fetch(sql, parameters)
        except HubError:  # a damaged store is named on the home page
            continue
        for entry, source, title in matches:
            about = f"{place.label} · {source} #{entry}"
            yield PaletteLink(one_line(title, 120), f"{place.url}{PATHS[source].format(entry)}", about, entry)


def _escaped(word: str) -> str:
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def list_of(page: str) -> str:
    """Return the address of a list.

    Raises:
        Http404: there is no such list.
    """
    for model in admin.site._registry:
        if page == f"{model._meta.app_label}/{model._meta.model_name}/":
            return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
    raise Http404("there is no such list")


def change_views(request: HttpRequest) -> HttpResponse:
    """Save the view ``query`` of the list ``page``, or rename or delete the view ``view``."""
    posted, store = request.POST, current_store()
    address, query = list_of(posted.get("page", "")), normal_query(posted.get("query", ""))
    name, number = posted.get("name", ""), posted.get("view", "")
    owner: dict[str, Any] = {"user": request.user, "store": store}
    if number:
        view_id = int(number) if number.isdecimal() and len(number) <= 15 else 0
        if "delete" in posted:
            apply_change(request, lambda: delete_view(**owner, view_id=view_id), "Deleted the view.")
        else:
            apply_change(request, lambda: rename_view(**owner, view_id=view_id, name=name), "Renamed the view.")
    else:
        saved = {**owner, "page": posted["page"], "name": name, "query": query}
        apply_change(request, lambda: save_view(**saved), "Saved the view.")
    return redirect(f"{address}?{query}" if query else address)
