"""What the real server answered last time, kept so that the next start can answer before it is imported.

Standard library only. A snapshot counts only while nothing that shapes the answers has changed: the key lists the
Python, the installed SDK, and every source file of the hub with its size and time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from memoryhub import env

TEST_TOOLS_VARIABLE = "MEMORY_HUB_TEST_TOOLS"

Answers = dict[str, dict[str, str]]
"""Protocol revision -> method -> the result as JSON text."""

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("memoryhub", "sessions_app", "memories", "decisions", "governance")
_DISTRIBUTIONS = ("django", "mcp", "mcp_types", "pydantic", "pydantic_core")
_SKIPPED_FOLDERS = frozenset({"migrations", "__pycache__", "templates", "static"})


def load(profile: str, key: list[str]) -> Answers | None:
    """Return the answers kept for ``profile`` under ``key``, or None where there are none."""
    try:
        kept = json.loads(_path(profile).read_bytes())
        return kept["answers"] if kept["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(profile: str, key: list[str], answers: Answers) -> None:
    """Keep ``answers`` for the next start (0600), replacing the file in one step.

    Raises:
        OSError: the home folder cannot be written.
    """
    path = _path(profile)
    env.prepare_home()
    path.parent.mkdir(mode=0o700, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"key": key, "answers": answers}, file)
        draft.replace(path)
    except OSError:
        with suppress(OSError):  # on a read-only disk nothing can be removed either
            draft.unlink()
        raise


def _path(profile: str) -> Path:
    return env.home() / "cache" / f"mcp-{profile}.json"


def current_key() -> list[str]:
    """Return what the answers depend on, as text that differs when any of it does."""
    key = [sys.version, os.environ.get(TEST_TOOLS_VARIABLE, ""), *_installed()]
    for package in _PACKAGES:
        key.extend(_sources(str(_ROOT / package)))
    return key


def _installed() -> Iterator[str]:
    """Yield the names of the metadata folders, which carry the versions, without importing what they describe."""
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
