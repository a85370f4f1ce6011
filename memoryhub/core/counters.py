"""Counts of what leaves no event: refusals and how long answers took. True across processes.

Each process keeps its counts in memory and in one small file of its own under ``<home>/metrics/<project>/``; whoever
wants the sums reads all the files. Nothing is written to the log, and nothing on a read's time but a dictionary.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memoryhub import env
from memoryhub.core import ids
from memoryhub.core.routing import STORE_PREFIX, current_alias

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histograms, in seconds."""

_FLUSH_SECONDS = 1.0
_lock = threading.Lock()
_values: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
"""Project to ``name|label`` to value."""
_flushed_at = 0.0
_file_name = ""


@dataclass(frozen=True, slots=True)
class Counter:
    """A count with one label."""

    name: str
    help: str
    label: str

    def count(self, value: str) -> None:
        """Add one; it is in the file when this returns, because refusals are rare and must not be lost."""
        _add({f"{self.name}|{value}": 1.0}, now=True)


@dataclass(frozen=True, slots=True)
class Timer:
    """A histogram of seconds with one label."""

    name: str
    help: str
    label: str

    @contextmanager
    def time(self, value: str) -> Iterator[None]:
        """Measure the block."""
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        bucket = next((str(bound) for bound in BUCKETS if seconds <= bound), "+Inf")
        key = f"{self.name}|{value}"
        _add({f"{key}|{bucket}": 1.0, f"{key}|sum": seconds}, now=False)


_defined: dict[str, Counter | Timer] = {}


def define(name: str, text: str, label: str) -> Counter:
    """Register a counter and return it."""
    counter = Counter(name, text, label)
    _defined[name] = counter
    return counter


def define_timer(name: str, text: str, label: str) -> Timer:
    """Register a timer and return it."""
    timer = Timer(name, text, label)
    _defined[name] = timer
    return timer


def defined() -> list[Counter | Timer]:
    """Return all that are registered."""
    return list(_defined.values())


def _add(changes: dict[str, float], *, now: bool) -> None:
    project = (current_alias.get() or "").removeprefix(STORE_PREFIX) or "none"
    with _lock:
        for key, value in changes.items():
            _values[project][key] += value
        if now or time.monotonic() - _flushed_at > _FLUSH_SECONDS:
            _flush()


def _flush() -> None:
    """Write this process's file; a failure loses counts, never the call that was counted."""
    global _flushed_at, _file_name  # noqa: PLW0603 - one file a process
    _flushed_at = time.monotonic()
    _file_name = _file_name or f"{os.getpid()}-{ids.short_id()}.json"
    with contextlib.suppress(OSError):
        folder = metrics_folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        draft = folder / f".{_file_name}"
        draft.write_text(json.dumps(_values))
        draft.chmod(0o600)
        draft.replace(folder / _file_name)


def metrics_folder() -> Path:
    """Return the folder of the processes' files."""
    return env.home() / "metrics"


def sums() -> dict[str, dict[str, float]]:
    """Return the sums of all processes' counts, by store and key, those of this process included."""
    with _lock:
        if _values:
            _flush()
    total: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for path in metrics_folder().glob("[0-9]*.json"):
        with contextlib.suppress(OSError, ValueError):
            for project, values in json.loads(path.read_text()).items():
                for key, value in values.items():
                    total[project][key] += value
    return total


@atexit.register
def _flush_at_exit() -> None:
    if _values:
        _flush()
