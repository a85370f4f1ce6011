"""Counters and timers that leave no event, summed across processes."""

# Each process keeps its counts in memory and writes them, at most a second later, to its own small file under
# ``<home>/metrics/``; readers sum all files. So a read costs only a dictionary update, and the log stays small.

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memoryhub import env
from memoryhub.core.disk import replacing
from memoryhub.core.file_locks import try_lock, wait_for_lock
from memoryhub.core.stores.routing import STORE_PREFIX, current_alias

Values = dict[str, dict[str, float]]

_SUMS = "ended.json"
_FOLDED = "folded files"


def metrics_folder() -> Path:
    return env.home() / "metrics"


# This process's file; its lock shows that the process lives.
class CounterFile:
    def __init__(self) -> None:
        self._folder = metrics_folder()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # Not of ``ids``: a thread draws it at any time, and would shift a sequence that is seeded
        self._name = f"{os.getpid()}-{secrets.token_hex(5)}"
        self._lock = os.open(self._folder / f"{self._name}.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        wait_for_lock(self._lock)

    def write(self, values: Values) -> None:
        _write_counts(self._folder / f"{self._name}.json", values)

    def close(self) -> None:
        os.close(self._lock)


def read_sums() -> Values:
    with _locked_folder() as folder:
        ended, folded = _read_ended(folder)
        for path in _process_files(folder):
            if path.name not in folded:
                _add_up(ended, _read_counts(path))
        return ended


def fold_ended() -> int:
    """Add the files of ended processes to the sums; return their number."""
    with _locked_folder() as folder:
        ended, folded = _read_ended(folder)
        _remove_files(folder, folded)
        dead = [path for path in _process_files(folder) if _has_ended(path)]
        for path in dead:
            _add_up(ended, _read_counts(path))
        # The sums record which files they include, so a crash before the files are removed counts nothing twice.
        names = [path.name for path in dead]
        if dead or folded:
            _write_counts(folder / _SUMS, {**ended, _FOLDED: dict.fromkeys(names, 1.0)})
        _remove_files(folder, names)
        return len(dead)


@contextmanager
def _locked_folder() -> Iterator[Path]:
    folder = metrics_folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        wait_for_lock(descriptor)
        yield folder
    finally:
        os.close(descriptor)


def _process_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.json"))


def _read_ended(folder: Path) -> tuple[Values, list[str]]:
    values = _read_counts(folder / _SUMS)
    return values, list(values.pop(_FOLDED, {}))


def _read_counts(path: Path) -> Values:
    # A missing or unreadable file has no counts.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        content = json.loads(path.read_text("utf-8"))
        return {str(store): dict(values) for store, values in content.items()}
    return {}


def _add_up(total: Values, more: Values) -> None:
    for store, values in more.items():
        summed = defaultdict(float, total.get(store, {}))
        for key, value in values.items():
            summed[key] += value
        total[store] = dict(summed)


def _has_ended(path: Path) -> bool:
    try:
        descriptor = os.open(path.with_suffix(".lock"), os.O_WRONLY)
    except FileNotFoundError:
        return True
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


def _remove_files(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
        (folder / name).with_suffix(".lock").unlink(missing_ok=True)


def _write_counts(path: Path, content: Values) -> None:
    with replacing(path, synced=False) as file:
        file.write(json.dumps(content).encode())


# Upper bounds of the histograms, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_FLUSH_SECONDS = 1.0
HOME_VARIABLE = "MEMORY_HUB_HOME"
# In place of a store, for what is counted outside of one
NO_STORE = "none"
_lock = threading.RLock()
# Store to ``name|label`` to value.
_values: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
_home = os.environ.get(HOME_VARIABLE)
_file: CounterFile | None = None
_flusher: threading.Timer | None = None


# A count with one label.
@dataclass(frozen=True, slots=True)
class Counter:
    name: str
    help: str
    label: str
    # Counted for the hub as a whole, not for each project
    of_hub: bool = False

    def __post_init__(self) -> None:
        _defined[self.name] = self

    def count(self, value: str, *, now: bool = True) -> None:
        # By default written at once: refusals are rare and must not be lost.
        _count({f"{self.name}|{value}": 1.0}, now=now)


# A histogram of seconds with one label.
@dataclass(frozen=True, slots=True)
class Timer:
    name: str
    help: str
    label: str

    def __post_init__(self) -> None:
        _defined[self.name] = self

    @contextmanager
    def time(self, value: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        seconds = time.perf_counter() - started
        bucket = next((str(bound) for bound in BUCKETS if seconds <= bound), "+Inf")
        key = f"{self.name}|{value}"
        _count({f"{key}|{bucket}": 1.0, f"{key}|sum": seconds}, now=False)


_defined: dict[str, Counter | Timer] = {}


def defined() -> list[Counter | Timer]:
    return list(_defined.values())


def _count(changes: dict[str, float], *, now: bool) -> None:
    store = (current_alias() or "").removeprefix(STORE_PREFIX) or NO_STORE
    global _flusher  # noqa: PLW0603 - one timer a process
    with _lock:
        if os.environ.get(HOME_VARIABLE) != _home:
            _reset()
        for key, value in changes.items():
            _values[store][key] += value
        if now:
            flush()
        elif _flusher is None:
            _flusher = threading.Timer(_FLUSH_SECONDS, flush)
            _flusher.daemon = True
            _flusher.start()


def flush() -> None:
    global _file, _flusher  # noqa: PLW0603 - one file a process
    # A failure loses counts, never the call that was counted.
    with _lock, contextlib.suppress(OSError):
        _flusher = None
        if _values and os.environ.get(HOME_VARIABLE) == _home:
            _file = _file or CounterFile()
            _file.write(_values)


def sums() -> dict[str, dict[str, float]]:
    """Return the sums of the counts of all processes of this machine, by store and key, including this process."""
    flush()
    return read_sums()


def _reset() -> None:
    # The process was forked, or its home changed.
    global _file, _flusher, _home
    if _file is not None:
        _file.close()
    _file, _flusher, _home = None, None, os.environ.get(HOME_VARIABLE)
    _values.clear()


def _reset_in_child() -> None:
    global _lock  # noqa: PLW0603 - the parent's may be held for ever
    _lock = threading.RLock()
    _reset()


atexit.register(flush)
os.register_at_fork(after_in_child=_reset_in_child)
