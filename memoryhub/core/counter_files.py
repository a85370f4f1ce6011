"""The files of the counters: one a living process, and one that holds the sums of all that have ended.

A process holds a lock on a small file beside its own for as long as it lives, so that its counts are folded into the
sums only when it has ended, whatever happens to process numbers. Folding loses and doubles nothing, even when it is
cut short: the sums name the files that are in them, and those are not counted again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memoryhub import env
from memoryhub.core import ids
from memoryhub.core.file_locks import try_lock

Values = dict[str, dict[str, float]]

_SUMS = "ended.json"
_FOLDED = "folded files"


def metrics_folder() -> Path:
    """Return the folder of the processes' files."""
    return env.home() / "metrics"


class CounterFile:
    """This process's file."""

    def __init__(self) -> None:
        self._folder = metrics_folder()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._name = f"{os.getpid()}-{ids.short_id()}"
        self._lock = os.open(self._folder / f"{self._name}.lock", os.O_WRONLY | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def write(self, values: Values) -> None:
        """Replace the content, whole or not at all."""
        _replace(self._folder / f"{self._name}.json", values)

    def close(self) -> None:
        """Let the file be folded by whoever comes next."""
        os.close(self._lock)


def read_sums() -> Values:
    """Return the sums of all processes' counts, by store and key."""
    with _locked() as folder:
        ended, folded = _read_ended(folder)
        for path in _process_files(folder):
            if path.name not in folded:
                _add(ended, _read(path))
        return ended


def fold_ended() -> int:
    """Fold the files of processes that have ended into the sums; return how many there were."""
    with _locked() as folder:
        ended, folded = _read_ended(folder)
        _remove(folder, folded)
        dead = [path for path in _process_files(folder) if _has_ended(path)]
        for path in dead:
            _add(ended, _read(path))
        names = [path.name for path in dead]
        if dead or folded:
            _replace(folder / _SUMS, {**ended, _FOLDED: dict.fromkeys(names, 1.0)})
        _remove(folder, names)
        return len(dead)


@contextmanager
def _locked() -> Iterator[Path]:
    """Keep readers and folders of files apart; where nothing was counted yet, make the folder."""
    folder = metrics_folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(descriptor)


def _process_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.json"))


def _read_ended(folder: Path) -> tuple[Values, list[str]]:
    values = _read(folder / _SUMS)
    return values, list(values.pop(_FOLDED, {}))


def _read(path: Path) -> Values:
    """Return a file's counts; one that is gone or cannot be read holds none."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        content = json.loads(path.read_text())
        return {str(store): dict(values) for store, values in content.items()}
    return {}


def _add(total: Values, more: Values) -> None:
    for store, values in more.items():
        known = defaultdict(float, total.get(store, {}))
        for key, value in values.items():
            known[key] += value
        total[store] = dict(known)


def _has_ended(path: Path) -> bool:
    """Whether the process of a file is gone: nobody holds its lock."""
    try:
        descriptor = os.open(path.with_suffix(".lock"), os.O_WRONLY)
    except FileNotFoundError:
        return True
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


def _remove(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
        (folder / name).with_suffix(".lock").unlink(missing_ok=True)


def _replace(path: Path, content: Values) -> None:
    draft = path.with_name(f".{path.name}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
    draft.replace(path)
