"""The server's answers from the last run, so that the next start can answer before it has imported anything.

A snapshot is valid as long as its key matches: Python, installed SDK, and size and time of every source file of the
hub. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from memoryhub import env
from memoryhub.core.disk import replacing

TEST_TOOLS_VARIABLE = "MEMORY_HUB_TEST_TOOLS"

# Protocol revision -> method -> result as JSON text
Answers = dict[str, dict[str, str]]

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("memoryhub", "sessions_app", "memories", "decisions", "governance")
_DISTRIBUTIONS = ("django", "mcp", "mcp_types", "pydantic", "pydantic_core")
_SKIPPED_FOLDERS = frozenset({"migrations", "__pycache__", "templates", "static"})


def load(profile: str, key: list[str]) -> Answers | None:
    try:
        kept = json.loads(_path(profile).read_bytes())
        return kept["answers"] if kept["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(profile: str, key: list[str], answers: Answers) -> None:
    path = _path(profile)
    env.prepare_home()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with replacing(path, synced=False) as file:
        file.write(json.dumps({"key": key, "answers": answers}).encode())


def _path(profile: str) -> Path:
    return env.home() / "cache" / f"mcp-{profile}.json"


def current_key() -> list[str]:
    """Return the cache key: everything that the answers depend on."""
    key = [sys.version, os.environ.get(TEST_TOOLS_VARIABLE, ""), *_installed()]
    for package in _PACKAGES:
        key.extend(_sources(str(_ROOT / package)))
    return key


def _installed() -> Iterator[str]:
    # The names of the metadata folders contain the versions.
    for folder in filter(None, sys.path):
        with suppress(OSError):
            for name in sorted(os.listdir(folder)):  # noqa: PTH208  (twice as fast)
                if name.endswith(".dist-info") and name.partition("-")[0].lower() in _DISTRIBUTIONS:
                    yield f"{folder}/{name}"


def _sources(folder: str) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED_FOLDERS:
                yield from _sources(entry.path)
            elif entry.name.endswith(".py"):
                stat = entry.stat()
                yield f"{entry.path} {stat.st_size} {stat.st_mtime_ns}"
