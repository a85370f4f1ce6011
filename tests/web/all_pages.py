"""Every page of a hub, found by following its links: one of each kind, so that a new page needs no list."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from selenium import webdriver

LONG = "a-project-with-the-longest-name-that-anyone-would-ever-give-it"
EMPTY = "empty-project"
ORG = "acme"
DEMO = "/p/demo/admin/"
# Where the links begin: what shows most of the sample, what only a form leads to, and what nothing links to.
STARTS = (
    "/",
    f"{DEMO}decisions/decision/?status=superseded",  # with a lineage
    f"{DEMO}memories/conflict/",
    f"{DEMO}sessions_app/session/?status=ended",
    DEMO,
    *(
        f"{DEMO}{path}"
        for path in (
            "sessions_app/session/",
            "decisions/decision/",
            "inbox/",
            "memories/memory/review/",
            "governance/affirmation/",
            "governance/retentionrun/",
            "governance/rollback/?session_id=quick-fixes",
            "memories/memory/?q=gauge",
            "decisions/decision/?q=gauge",
            "governance/redaction/?q=gauge",
            "memories/memory/?use=used",
            "memories/memory/?kind=guideline&kind=knowledge&since=365",
            "memories/memory/?state=deleted",
            "core/rawevent/as-of/?position=40",
            "secrets/",
            "secrets/?part=rules",
            "secrets/?q=github",
            "worth/?period=all",
            "no-such-page/",
        )
    ),
    f"/p/{EMPTY}/admin/",
    f"/p/{EMPTY}/admin/memories/memory/",
    f"/p/{LONG}/admin/",
    f"/p/{LONG}/admin/memories/memory/",
    f"/p/{LONG}/admin/sessions_app/session/",
    f"/p/{LONG}/admin/imports/",
    *(f"/p/{LONG}/admin/governance/{name}/" for name in ("rollback", "redaction", "hold")),
    f"/o/{ORG}/admin/",
    "/global/admin/",
    "/api/v1/docs",
    "/admin/login/",
    "/no-such-page",
)
# Of the documents, two; of the projects, the sample, and what only the one with the long name has.
_FOLLOWED = re.compile(
    r"/p/demo/admin/|/(people|jobs|api/v1/docs|help/|help/reference/settings\.md)$|/(tokens|new)"
    rf"|/p/{LONG}/admin/((governance/\w+|memories/memory)/\d+/(change|compare)?|imports/\d+/)"
)
_LINKS = """
return [...document.querySelectorAll('a[href]:not([download])')]
    .filter(link => link.origin === location.origin).map(link => link.pathname + link.search);
"""


@dataclass(frozen=True, slots=True)
class Page:
    """A page that the browser shows, its name, and the address that led to it."""

    name: str
    path: str


@dataclass
class Walk:
    """What a browser that is signed in finds of a hub with the sample project."""

    browser: webdriver.Chrome
    address: str
    seen: set[str] = field(default_factory=set)

    def pages(self) -> Iterator[Page]:
        """Open each page and yield it, while the browser shows it."""
        coming = deque(STARTS)
        asked = set(coming)
        while coming:
            path = coming.popleft()
            if path not in STARTS and _kind(path) in self.seen:
                continue
            self.browser.get(f"{self.address}{path}")
            shown = self.browser.execute_script("return location.pathname + location.search")
            kind = _kind(shown)
            if self.browser.execute_script("return document.contentType") != "text/html" or (
                kind in self.seen and path not in STARTS
            ):
                continue
            self.seen |= {kind, _kind(path)}
            yield Page(_name(path if path in STARTS else kind), shown)
            found = [link for link in self.browser.execute_script(_LINKS) if _FOLLOWED.match(link)]
            coming += [link for link in dict.fromkeys(found) if link not in asked]
            asked |= set(found)


def _kind(path: str) -> str:
    """Return what pages of one kind have in common: their address without numbers, names and query."""
    place = urlsplit(path).path
    place = re.sub(r"(/stream|/named|/sha|/tokens|/people)/[^/]+", r"\1/x", place)
    return re.sub(r"/\d+(?=/|$)", "/n", place)


def _name(path: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", path.replace("/p/demo/admin", "/demo").lower()).strip("-") or "home"
