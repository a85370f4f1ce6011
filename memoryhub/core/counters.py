"""Counts of what leaves no event: refusals and how long answers took. True across processes.

Each process keeps its counts in memory and, a second later at most, in one small file of its own under
``<home>/metrics/``; whoever wants the sums reads all the files. Nothing is written to the log, and nothing on a read's
time but a dictionary.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from memoryhub.core.counter_files import CounterFile, read_sums
from memoryhub.core.routing import STORE_PREFIX, current_alias

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the histograms, in seconds."""

_FLUSH_SECONDS = 1.0
HOME_VARIABLE = "MEMORY_HUB_HOME"
_lock = threading.RLock()
_values: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
"""Store to ``name|label`` to value."""
_home = os.environ.get(HOME_VARIABLE)
_file: CounterFile | None = None
_flusher: threading.Timer | None = None


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
    store = (current_alias.get() or "").removeprefix(STORE_PREFIX) or "none"
    with _lock:
        if os.environ.get(HOME_VARIABLE) != _home:
            _begin_anew()
        for key, value in changes.items():
            _values[store][key] += value
        if now:
            flush()
        elif _flusher is None:
            _flush_soon()


def _flush_soon() -> None:
    global _flusher  # noqa: PLW0603 - one timer a process
    _flusher = threading.Timer(_FLUSH_SECONDS, flush)
    _flusher.daemon = True
    _flusher.start()


def flush() -> None:
    """Write this process's file; a failure loses counts, never the call that was counted."""
    global _file, _flusher  # noqa: PLW0603 - one file a process
    with _lock, contextlib.suppress(OSError):
        _flusher = None
        if _values and os.environ.get(HOME_VARIABLE) == _home:
            _file = _file or CounterFile()
            _file.write(_values)


def sums() -> dict[str, dict[str, float]]:
    """Return the sums of all processes' counts, by store and key, those of this process included."""
    flush()
    return read_sums()


def _begin_anew() -> None:
    """Count from nothing: this process is another than the one that counted, or its home is."""
    global _file, _flusher, _home
    if _file is not None:
        _file.close()
    _file, _flusher, _home = None, None, os.environ.get(HOME_VARIABLE)
    _values.clear()


def _begin_anew_in_child() -> None:
    global _lock  # noqa: PLW0603 - the parent's may be held for ever
    _lock = threading.RLock()
    _begin_anew()


atexit.register(flush)
os.register_at_fork(after_in_child=_begin_anew_in_child)
