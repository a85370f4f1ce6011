"""Every page of a hub with the sample project, an empty one and one with a long name, found by following its links."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium import webdriver

from tests.web.server import ROOT, Server

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
            "findings/",
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
    """A page that the browser shows, and its address."""

    path: str
    # Whether no page with its template was shown before
    is_first: bool = True


@dataclass
class Walk:
    """What a browser that is signed in finds of a hub with the sample project."""

    browser: webdriver.Chrome
    address: str
    # Whether to show only what is of the sample project, or only the rest
    is_of_sample: bool
    seen: set[str] = field(default_factory=set)
    templates: set[str] = field(default_factory=set)

    def is_wanted(self, path: str) -> bool:
        return self.is_of_sample == path.startswith(DEMO)

    def pages(self) -> Iterator[Page]:
        """Open each page and yield it, while the browser shows it."""
        coming = deque(filter(self.is_wanted, STARTS))
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
            template = re.sub("^/[po]/[^/]+|^/global", "/place", kind)
            self.seen |= {kind, _kind(path)}
            yield Page(shown, template not in self.templates)
            self.templates.add(template)
            found = [link for link in self.browser.execute_script(_LINKS) if _FOLLOWED.match(link)]
            coming += [link for link in dict.fromkeys(found) if link not in asked and self.is_wanted(link)]
            asked |= set(found)


def _kind(path: str) -> str:
    """Return what pages of one kind have in common: their address without numbers, names and query."""
    place = urlsplit(path).path
    place = re.sub(r"(/stream|/named|/sha|/tokens|/people)/[^/]+", r"\1/x", place)
    return re.sub(r"/\d+(?=/|$)", "/n", place)


@contextlib.contextmanager
def sample_hub(home: Path) -> Iterator[Server]:
    """Serve the sample project, an empty project and one with a long name."""
    variables = {"MEMORY_HUB_HOME": str(home), "MEMORY_HUB_AUTOSTART": "off", "MEMORY_HUB_EMBEDDING_MODEL": "none"}
    options: Any = {"env": {**os.environ, **variables, "PYTHONUNBUFFERED": "1"}, "cwd": ROOT}
    program = [sys.executable, str(ROOT / "manage.py")]
    subprocess.run([*program, "demo"], check=True, stdout=subprocess.DEVNULL, **options)
    output: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen([*program, "serve", "--port", "0"], **output, **options)
    server = Server(home, process=process)
    try:
        server.wait_until_ready()
        _fill(server)
        path = str(ROOT / "tests/transfer/data/server-memory/memory.jsonl")
        words = ["import", "server-memory", path, "--project", LONG]
        subprocess.run([*program, *words], check=True, capture_output=True, **options)
        yield server
    finally:
        server.close()


def _fill(server: Server) -> None:
    """Add an empty project, an organisation, and a project with what the sample lacks: what cannot be undone."""

    def post(path: str, body: dict[str, Any]) -> Any:
        reply = server.api("POST", path, body)
        assert reply.status in (200, 201), (path, reply.body)
        return reply.json()

    post("orgs", {"org_id": ORG})
    for project in (EMPTY, LONG):
        post("projects", {"project_id": project})
    post(f"projects/{LONG}/memories", {"title": "Wrong", "content": "Written by mistake."})
    for route, selection in (("rollbacks", {"source": "rest"}), ("redactions", {"text": "by mistake"})):
        token = post(f"projects/{LONG}/{route}/preview", selection)["confirm_token"]
        post(f"projects/{LONG}/{route}", {**selection, "confirm_token": token, "reason": "A test"})
    memory = post(f"projects/{LONG}/memories", {"title": "Right", "content": "First text."})["id"]
    server.api("PATCH", f"projects/{LONG}/memories/{memory}", {"content": "Second text."})
    post(f"projects/{LONG}/holds", {"stream_id": f"memory:{memory}", "reason": "Evidence"})


def emulate_scheme(browser: webdriver.Chrome, scheme: str) -> None:
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
