"""Every page of a hub, found by following its links, and a picture of each.

``python -m tests.web.all_pages FOLDER [CHECKOUT]`` takes the pictures at 1440 and 400 pixels, light and dark. A hub
with the sample project, an empty one and one with a long name runs from the checkout, by default this one.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from selenium import webdriver

from tests.admin.browser import quitting, start_browser
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
    # Whether no page with its template was shown before
    is_first: bool = True


@dataclass
class Walk:
    """What a browser that is signed in finds of a hub with the sample project."""

    browser: webdriver.Chrome
    address: str
    # Whether to show only what is of the sample project, or only the rest
    is_of_sample: bool | None = None
    seen: set[str] = field(default_factory=set)
    templates: set[str] = field(default_factory=set)

    def is_wanted(self, path: str) -> bool:
        return self.is_of_sample in (None, path.startswith(DEMO))

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
            yield Page(_name(path if path in STARTS else kind), shown, template not in self.templates)
            self.templates.add(template)
            found = [link for link in self.browser.execute_script(_LINKS) if _FOLLOWED.match(link)]
            coming += [link for link in dict.fromkeys(found) if link not in asked and self.is_wanted(link)]
            asked |= set(found)


def _kind(path: str) -> str:
    """Return what pages of one kind have in common: their address without numbers, names and query."""
    place = urlsplit(path).path
    place = re.sub(r"(/stream|/named|/sha|/tokens|/people)/[^/]+", r"\1/x", place)
    return re.sub(r"/\d+(?=/|$)", "/n", place)


def _name(path: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", path.replace("/p/demo/admin", "/demo").lower()).strip("-") or "home"


_WIDTHS = (1440, 400)
_SCHEMES = ("light", "dark")
_TALLEST = 6000


@contextlib.contextmanager
def sample_hub(home: Path, checkout: Path = ROOT) -> Iterator[Server]:
    """Serve the sample project, an empty project and one with a long name."""
    environment = {
        **os.environ,
        "MEMORY_HUB_HOME": str(home),
        "MEMORY_HUB_AUTOSTART": "off",
        "MEMORY_HUB_EMBEDDING_MODEL": "none",
        "PYTHONUNBUFFERED": "1",
    }
    program = [str(checkout / ".venv/bin/python"), str(checkout / "manage.py")]
    subprocess.run([*program, "demo"], env=environment, cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen(
        [*program, "serve", "--port", "0"],
        env=environment,
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    server = Server(home, process=process)
    try:
        server.wait_until_ready()
        _fill(server)
        imported = [str(ROOT / "tests/transfer/data/server-memory/memory.jsonl"), "--project", LONG]
        arguments = ["import", "server-memory", *imported]
        subprocess.run([*program, *arguments], env=environment, check=True, capture_output=True)
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


def take_pictures(browser: webdriver.Chrome, folder: Path, name: str) -> None:
    for width in _WIDTHS:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        height = min(browser.execute_script("return document.documentElement.scrollHeight"), _TALLEST)
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "height": max(height, 900)})
        for scheme in _SCHEMES:
            emulate_scheme(browser, scheme)
            clip = {"x": 0, "y": 0, "width": width, "height": max(height, 900), "scale": 1}
            picture = browser.execute_cdp_cmd(
                "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip, "optimizeForSpeed": True}
            )
            (folder / f"{name}.{width}.{scheme}.png").write_bytes(base64.b64decode(picture["data"]))


def emulate_scheme(browser: webdriver.Chrome, scheme: str) -> None:
    features = [
        {"name": "prefers-color-scheme", "value": scheme},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def main(folder: Path, checkout: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sample_hub(Path(place, "home"), checkout) as server:
        browser = start_browser(f"{place}/browser")
        with quitting(browser):
            browser.get(server.link)
            for page in Walk(browser, server.address).pages():
                take_pictures(browser, folder, page.name)
                print(page.name, page.path, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT)
