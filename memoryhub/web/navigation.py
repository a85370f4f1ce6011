"""The navigation of every page: the sections of a store, and the pages of the whole hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.urls import NoReverseMatch, reverse

from governance.inbox import count_entries
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.permissions import GLOBAL, HUB, Act, may
from memoryhub.web.addresses import Place


@dataclass(frozen=True, slots=True)
class Page:
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

    def is_for(self, user: Any, place: Place) -> bool:
        is_of_kind = (place.is_project or not self.in_projects_only) and (place.key != GLOBAL or self.in_global)
        return is_of_kind and may(user, self.act, place=place.key)

    def is_shown(self, url_name: str) -> bool:
        return any(url_name == name or url_name.startswith(f"{name}_") for name in (self.name, *self.also))


@dataclass(frozen=True, slots=True)
class Section:
    label: str
    icon: str
    pages: Sequence[Page]


def _count_inbox() -> int:
    return sum(count_entries().values())


SECTIONS = (
    Section("Overview", "overview", [Page("Overview", "index", view="")]),
    Section(
        "Inbox",
        "inbox",
        [
            Page("Inbox", "inbox", view="", count=_count_inbox, also=("memories_review", "governance_affirmation")),
            Page("Conflicts", "memories_conflict"),
        ],
    ),
    Section(
        "Knowledge",
        "knowledge",
        [
            Page("All memories", "memories_memory"),
            *(Page(kind.plural, f"memories_{kind.name}") for kind in KINDS.values()),
            Page("Tags", "memories_tag"),
            Page("Search", "memories_searchdocument"),
            Page("Context packs", "memories_contextpack", view="now"),
        ],
    ),
    Section("Decisions", "decisions", [Page("Decisions", "decisions_decision")]),
    Section(
        "Activity",
        "activity",
        [
            Page("Sessions", "sessions_app_session", in_projects_only=True),
            Page("Turns", "sessions_app_turn", in_projects_only=True),
            Page("Iterations", "sessions_app_iteration", in_projects_only=True),
            Page("Commits", "sessions_app_commit", in_projects_only=True),
            Page("Blame", "blame", view="", in_projects_only=True),
            Page("Worth", "worth", view="", in_projects_only=True),
        ],
    ),
    Section(
        "Governance",
        "governance",
        [
            Page("Redaction", "governance_redaction"),
            Page("Retention", "governance_retentionrun"),
            Page("Holds", "governance_hold"),
            Page("Roll back", "governance_rollback"),
            Page("Imports", "imports", view="", also=("import",)),
            Page("Audit", "audit", view=""),
        ],
    ),
    Section("Log", "log", [Page("Events", "core_rawevent"), Page("Replay", "replay", view="")]),
    Section(
        "Settings",
        "settings",
        [
            Page("Settings", "settings", view="", act=Act.GOVERN),
            Page("Members", "members", view="", act=Act.GOVERN, in_global=False),
            Page("Secrets", "secrets", view=""),
            Page("Description", "describe", view="", act=Act.GOVERN),
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


def sections(user: Any, place: Place, url_name: str) -> list[dict[str, Any]]:
    """Return the sections of a store with their pages, those that the user may open, and what is pending in each."""
    found = [_section(section, user, place, url_name) for section in SECTIONS]
    return [section for section in found if section["pages"]]


def _section(section: Section, user: Any, place: Place, url_name: str) -> dict[str, Any]:
    pages = [_page(page, url, url_name) for page, url in _open_pages(section, user, place)]
    return {
        "label": section.label,
        "icon": section.icon,
        "url": pages[0]["url"] if pages else "",
        "pages": pages,
        "current": any(page["current"] for page in pages),
        "count": sum(page["count"] for page in pages),
    }


def _open_pages(section: Section, user: Any, place: Place) -> Iterator[tuple[Page, str]]:
    for page in section.pages:
        if page.is_for(user, place):
            try:
                yield page, page.path
            except NoReverseMatch:  # an app may be left out
                continue


def _page(page: Page, url: str, url_name: str) -> dict[str, Any]:
    return {"label": page.label, "url": url, "current": page.is_shown(url_name), "count": page.count()}


def pages_of(user: Any, place: Place) -> list[tuple[str, str, str]]:
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
