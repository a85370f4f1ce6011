"""Folding notes into the log. Each line counts once, wherever the process is killed.

Files are renamed first, so that no reader writes to them any more. The event that has their counts names them, and
they go when it is kept: one that is still there, and named by the last such event, is not counted again.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from memories.uses.events import MEMORIES_USED, MemoriesUsed
from memories.uses.kinds import Use
from memories.uses.notes import WAITING, folder_of, read_notes
from memoryhub.core import clock, log, rows
from memoryhub.core.dialect import IDS
from memoryhub.core.file_locks import try_lock
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import current_store

_TAKEN = ".taken"
_FILES_AT_ONCE = 4
"""So many small files make one event, which bounds its size."""
_STREAM = "uses"


def count_uses() -> int:
    """Fold the notes of the current store into events; return how many uses they had.

    Nothing happens where another process is at it.
    """
    folder = folder_of(current_store())
    if not folder.is_dir():
        return 0
    with _only_one(folder) as alone:
        return _fold_all(folder) if alone else 0


def _fold_all(folder: Path) -> int:
    _remove(folder, _folded_last())
    taken, total = _take(folder), 0
    while taken:
        batch, taken = taken[:_FILES_AT_ONCE], taken[_FILES_AT_ONCE:]
        total += _fold(batch)
        _remove(folder, [path.name for path in batch])
    return total


@contextmanager
def _only_one(folder: Path) -> Iterator[bool]:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


def _take(folder: Path) -> list[Path]:
    """Take all files away from the readers, and return them with those that were taken before, the oldest first."""
    for path in folder.glob(f"*{WAITING}"):
        taken = path.with_name(f"{time.time_ns()}-{path.stem}{_TAKEN}")
        path.rename(taken)
        with taken.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # a reader that has opened it before writes to its end
    return sorted(folder.glob(f"*{_TAKEN}"))


def _fold(files: Sequence[Path]) -> int:
    notes = [note for path in files for note in read_notes(path)]
    counts: dict[Use, Counter[int]] = {}
    for note in notes:
        counts.setdefault(note.use, Counter()).update(note.ids)
    known = _memories_among({each for counted in counts.values() for each in counted})
    uses = {use: {each: count for each, count in counted.items() if each in known} for use, counted in counts.items()}
    uses = {use: counted for use, counted in uses.items() if counted}
    if uses:
        last = datetime.fromtimestamp(max(note.at for note in notes), UTC)
        _keep(MemoriesUsed(uses=uses, used_at=clock.to_text(last), files=[path.name for path in files]))
    return sum(sum(counted.values()) for counted in uses.values())


def _keep(payload: MemoriesUsed) -> None:
    draft = log.prepare(MEMORIES_USED, payload)
    with log.transaction():
        log.append(draft, stream=_STREAM)


def _memories_among(ids: set[int]) -> set[int]:
    among = json.dumps(sorted(ids))
    return {row[0] for row in rows.fetch(f"SELECT id FROM memories_memory WHERE id IN {IDS}", [among])}


def _folded_last() -> list[str]:
    last = RawEvent.objects.filter(event_type=MEMORIES_USED.name).order_by("-position").first()
    return list(json.loads(last.payload_json)["files"]) if last and last.payload_json else []


def _remove(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        (folder / Path(name).name).unlink(missing_ok=True)
