"""Take a picture of every page of a hub: ``python -m tests.web.screenshots FOLDER [CHECKOUT]``.

A hub with the sample project, an empty one and one with a long name runs from the checkout, by default this one. Each
page is taken at 1440 and 400 pixels, light and dark.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selenium import webdriver

from tests.admin.browser import quitting, start_browser
from tests.web.all_pages import EMPTY, LONG, ORG, Walk
from tests.web.server import ROOT, Server

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
