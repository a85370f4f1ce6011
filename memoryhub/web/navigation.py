"""The navigation of every page, the palette that finds pages and entries, and the saved views of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
from memoryhub.core.permissions import GLOBAL, HUB, Act, may
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import LIKE
from memoryhub.core.stores.store import (
    StoreId,
    current_store,
    use_store,
)
from memoryhub.core.text import one_line
from memoryhub.registry.saved_views import delete_view, normal_query, rename_view, save_view, saved_views
from memoryhub.web.pages import StorePlace, apply_change, hub_page, number_from, visible_stores


@dataclass(frozen=True, slots=True)
class NavPage:
    label: str
    # Its URL's name: ``memories_tag`` for all pages of tags, or a whole name such as ``index``
    name: str
    # The view that the link opens
    view: str = "changelist"
    act: Act = Act.VIEW
    in_projects_only: bool = False
    in_global: bool = True
    count: Callable[[], int] = int
    # Whether it is listed only while it is open; the palette has it at any time
    only_while_open: bool = False
    # Further names of URLs
    also: Sequence[str] = ()

    @property
    def path(self) -> str:
        name = "_".join(filter(None, (self.name, self.view)))
        return reverse(f"admin:{name}", urlconf=settings.STORE_URLCONF)

    def is_for(self, user: Any, place: StorePlace) -> bool:
        is_of_kind = (place.is_project or not self.in_projects_only) and (place.key != GLOBAL or self.in_global)
        return is_of_kind and may(user, self.act, place=place.key)

    def is_shown(self, url_name: str) -> bool:
        return any(f"{url_name}_".startswith(f"{name}_") for name in (self.name, *self.also))


@dataclass(frozen=True, slots=True)
class NavSection:
    label: str
    icon: str
    pages: Sequence[NavPage]
    # Whether it is below the others, under “More”
    is_more: bool = False


# The five that carry the product come first: project, inbox, memory, decision, session
SECTIONS = (
    NavSection("Overview", "overview", [NavPage("Overview", "index", view="")]),
    NavSection(
        "Inbox",
        "inbox",
        [
            NavPage(
                "Inbox",
                "inbox",
                view="",
                count=lambda: sum(count_entries().values()),
                also=("memories_review", "memories_amendment", "governance_affirmation"),
            ),
            NavPage("Conflicts", "memories_conflict"),
        ],
    ),
    NavSection(
        "Memories",
        "knowledge",
        [
            NavPage("All memories", "memories_memory"),
            *(NavPage(kind.plural, f"memories_{kind.name}", only_while_open=True) for kind in KINDS.values()),
            NavPage("Search", "memories_searchdocument"),
            NavPage("Tags", "memories_tag"),
            NavPage("Context packs", "memories_contextpack", view="now"),
        ],
    ),
    NavSection("Decisions", "decisions", [NavPage("Decisions", "decisions_decision")]),
    NavSection(
        "Sessions",
        "activity",
        [
            NavPage("Sessions", "sessions_app_session", in_projects_only=True),
            NavPage("Turns", "sessions_app_turn", in_projects_only=True),
            NavPage("Iterations", "sessions_app_iteration", in_projects_only=True),
            NavPage("Commits", "sessions_app_commit", in_projects_only=True),
            NavPage("Blame", "blame", view="", in_projects_only=True),
            NavPage("Findings", "findings", view="", in_projects_only=True),
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
            NavPage("Imports", "imports", view="", also=("import", "import_start")),
            NavPage("Audit", "audit", view=""),
        ],
        is_more=True,
    ),
    NavSection("Log", "log", [NavPage("Events", "core_rawevent"), NavPage("Replay", "replay", view="")], is_more=True),
    NavSection(
        "Settings",
        "settings",
        [
            NavPage("Settings", "settings", view="", act=Act.GOVERN),
            NavPage("Members", "members", view="", act=Act.GOVERN, in_global=False),
            NavPage("Secrets", "secrets", view=""),
            NavPage("Description", "describe", view="", act=Act.GOVERN),
        ],
        is_more=True,
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
    # Whether the pages of a project have it under “More”
    is_more: bool = True


HUB_PAGES = (
    HubPage("Projects", "projects", "/", "home", is_more=False),
    HubPage("Global scope", "global", "/global/admin/", "", place=GLOBAL),
    HubPage("Jobs", "jobs", "/jobs", "jobs"),
    HubPage("People", "people", "/people", "people", Act.ADMINISTER),
    HubPage("Tokens", "tokens", "/tokens", "tokens"),
    HubPage("REST API", "api", "/api/v1/docs", "openapi-view"),
    HubPage("Help", "help", "/help/index.md", "help", is_more=False),
)


def sections(user: Any, place: StorePlace, url_name: str) -> list[dict[str, Any]]:
    """Return the sections of a store with their pages, those that the user may open, and what is pending in each."""
    listed = []
    for section in SECTIONS:
        pages = []
        for page in section.pages:
            if page.is_for(user, place):
                try:
                    url = page.path
                except NoReverseMatch:  # an app may be left out
                    continue
                is_current = page.is_shown(url_name)
                if page.only_while_open and not is_current:
                    continue
                pages.append({"label": page.label, "url": url, "current": is_current, "count": page.count()})
        if pages:
            entry: dict[str, Any] = {"label": section.label, "icon": section.icon, "url": pages[0]["url"]}
            entry["pages"] = pages
            entry["is_more"] = section.is_more
            entry["current"] = any(page["current"] for page in pages)
            entry["count"] = sum(page["count"] for page in pages)
            listed.append(entry)
    return listed


def hub_pages(user: Any, url_name: str) -> list[dict[str, Any]]:
    pages = []
    for page in HUB_PAGES:
        if may(user, page.act, place=page.place):
            is_current = bool(url_name) and page.name == url_name
            link = {"label": page.label, "icon": page.icon, "url": page.url, "current": is_current}
            pages.append({**link, "is_more": page.is_more})
    return pages


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
    # The id of an entry
    number: int = 0


@hub_page(Act.VIEW)
def show_palette(request: HttpRequest) -> HttpResponse:
    """Show what matches ``q``; with ``fragment``, only the list for ``shell.js``, from the page at ``from``."""
    typed = " ".join(request.GET.get("q", "").split())[:_MAX_CHARS]
    page = request.GET.get("from", "")
    visible = visible_stores()[:_MOST_STORES]
    current = next((store for store in visible if page.startswith(StorePlace.of(store).url)), None)
    if "fragment" not in request.GET:
        groups = find_links(typed, user=request.user, current=current)
        return render(request, "memoryhub/palette.html", {"groups": groups, "typed": typed})
    groups = find_links(typed, user=request.user, current=current, most_stores=_MOST_AT_ONCE)
    context = {"groups": groups, "typed": typed, "more": len(visible) > _MOST_AT_ONCE}
    return render(request, "memoryhub/palette_results.html", context)


def show_matching(request: HttpRequest) -> HttpResponse:
    """Show entries of the current store whose titles contain ``q``, for ``pick.js``; ``of`` names their types."""
    typed = " ".join(request.GET.get("q", "").split())[:_MAX_CHARS]
    sources = [source for source in request.GET.get("of", "").split(",") if source in PATHS] or list(PATHS)
    links: list[PaletteLink] = []
    if typed:
        links += _entries([current_store()], typed, sources=sources, most=_MOST_TO_PICK)
    return render(request, "memoryhub/pick_results.html", {"links": links})


def find_links(
    typed: str, *, user: Any, current: StoreId | None = None, most_stores: int = _MOST_STORES
) -> list[tuple[str, list[PaletteLink]]]:
    """Return links in groups with a title, those of the current store first.

    Entries come from the current store and the ``most_stores`` that were changed last.
    """
    stores = sorted(visible_stores()[:_MOST_STORES], key=lambda store: store != current)
    places = {store.alias: StorePlace.of(store) for store in stores}
    links = {
        "Pages": list(_page_links(user, current)),
        "Views": list(_view_links(user, stores, places)),
        "Actions": list(_action_links(user, current)),
        "Projects": [PaletteLink(place.label, place.url, place.kind) for place in places.values()],
    }
    groups = []
    if typed:
        searched = sorted(stores, key=lambda store: (store != current, -backend.changed_at(store)))[:most_stores]
        groups.append(("Entries", list(islice(_entries(searched, typed), 3 * _MOST_OF_A_GROUP))))
    for title, candidates in links.items():
        matches = filter(partial(_link_matches, typed.lower().split()), candidates)
        groups.append((title, list(islice(matches, _MOST_OF_A_GROUP))))
    return [(title, group) for title, group in groups if group]


def _page_links(user: Any, current: StoreId | None) -> Iterator[PaletteLink]:
    if current:
        place = StorePlace.of(current)
        root = reverse("admin:index", urlconf=settings.STORE_URLCONF)
        for section in SECTIONS:
            for page in section.pages:
                if page.is_for(user, place):
                    about = place.label if section.label == page.label else f"{place.label} · {section.label}"
                    yield PaletteLink(page.label, f"{place.url}{page.path.removeprefix(root)}", about)
    for hub_link in hub_pages(user, ""):
        yield PaletteLink(hub_link["label"], hub_link["url"], "Hub")


def _view_links(user: Any, stores: list[StoreId], places: dict[str, StorePlace]) -> Iterator[PaletteLink]:
    aliases = list(places)
    for view in sorted(saved_views(user=user, stores=stores), key=lambda view: aliases.index(view.store)):
        place = places[view.store]
        yield PaletteLink(view.name, f"{place.url}{view.page}?{view.query}", place.label)


def _action_links(user: Any, current: StoreId | None) -> Iterator[PaletteLink]:
    if current:
        place = StorePlace.of(current)
        for label, path, act in _ACTIONS:
            if may(user, act, place=place.key):
                yield PaletteLink(label, f"{place.url}{path}", place.label)
    for label, path, act in _HUB_ACTIONS:
        if may(user, act, place=HUB):
            yield PaletteLink(label, path, "Hub")


def _link_matches(words: list[str], link: PaletteLink) -> bool:
    text = f"{link.label} {link.about}".lower()
    return all(word in text for word in words)


# By a part of the title, so that it finds while a word is being typed; or by number
def _entries(
    stores: list[StoreId], typed: str, *, sources: Sequence[str] = tuple(PATHS), most: int = _MOST_OF_A_STORE
) -> Iterator[PaletteLink]:
    number = typed.removeprefix("#")
    parameters: list[Any] = []
    conditions = []
    if number.isdecimal():
        conditions = ["d.id = %s"]
        parameters = [int(number[:15])]
    else:
        for word in typed.lower().split()[:8]:
            # SQLite lowers ASCII alone, so a word may also begin with its capital.
            conditions.append(f"(lower(d.title) {LIKE} %s ESCAPE '!' OR d.title {LIKE} %s ESCAPE '!')")
            parameters += [f"%{_escape_like(word)}%", f"%{_escape_like(word.capitalize())}%"]
    outside, _ = parse("").conditions(None, "d.id")
    sql = (
        f"SELECT d.id, d.source, d.title FROM memories_searchdocument d WHERE d.source IN ({quoted(list(sources))}) "
        f"AND {' AND '.join([*outside, *conditions])} ORDER BY d.id DESC LIMIT {most}"
    )
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


def _escape_like(word: str) -> str:
    return word.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def change_views(request: HttpRequest) -> HttpResponse:
    """Save the view ``query`` of the list ``page``, or rename or delete the view ``view``."""
    posted = request.POST
    lists = {f"{model._meta.app_label}/{model._meta.model_name}/": model._meta for model in admin.site._registry}
    model = lists.get(posted.get("page", ""))
    if model is None:
        raise Http404("there is no such list")
    address = reverse(f"admin:{model.app_label}_{model.model_name}_changelist")
    query = normal_query(posted.get("query", ""))
    name = posted.get("name", "")
    owner: dict[str, Any] = {"user": request.user, "store": current_store()}
    if number := posted.get("view"):
        view_id = number_from(number)
        if "delete" in posted:
            apply_change(request, lambda: delete_view(**owner, view_id=view_id), "Deleted the view.")
        else:
            apply_change(request, lambda: rename_view(**owner, view_id=view_id, name=name), "Renamed the view.")
    else:
        saved = {**owner, "page": posted["page"], "name": name, "query": query}
        apply_change(request, lambda: save_view(**saved), "Saved the view.")
    return redirect(f"{address}?{query}" if query else address)
