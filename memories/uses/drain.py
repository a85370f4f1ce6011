"""Fold notes of reads into events. Each note counts once, even if the process is killed."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memories.events import USE
from memories.models import Memory, MemoryCitation, MemoryUse
from memories.uses.events import MEMORIES_USED, MemoriesUsed, Use
from memories.uses.notes import TAKEN, WAITING, folder_of, read_notes
from memoryhub.core import clock, log
from memoryhub.core.events.event_types import Retention, define_event
from memoryhub.core.events.projection import Event, projects
from memoryhub.core.events.rollback import NOTHING_DEPENDS
from memoryhub.core.file_locks import try_lock, wait_for_lock
from memoryhub.core.log.read import as_parameter
from memoryhub.core.schemas import EventRef, Payload
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from memoryhub.core.stores.store import current_store
from sessions_app.models import Session

# Protocol: files are renamed first, so that no reader appends to them. The event with their counts names them, and they
# are deleted once it is committed: a file that is still there and named by the last such event is not counted again.

# Use counts outlive a deleted memory this long, in case it is restored
AFTER = timedelta(days=30)
_AT_ONCE = 500
_STREAM = "uses"
_DELETED = (
    "SELECT u.memory_id FROM memories_memoryuse u JOIN memories_memory m ON m.id = u.memory_id "
    "WHERE m.deleted_at < %s ORDER BY u.memory_id LIMIT %s"
)


class UsesPruned(Payload):
    memory_ids: list[EventRef]


USES_PRUNED = define_event(
    "memories.uses_pruned",
    UsesPruned,
    label="Memories uses pruned",
    group=USE,
    retention=Retention.KEPT,
    rollback=NOTHING_DEPENDS,
    changes_stream=False,
)


def prune_uses(*, now: datetime, until: float) -> int:
    """Delete the use counts of memories that were deleted a month ago; return their number.

    Args:
        now: the time until which ages are counted.
        until: monotonic time at which to stop; at least one batch is done.
    """
    total = 0
    while True:
        with log.transaction():
            ids = rows.column(_DELETED, [rows.time_value(now - AFTER), _AT_ONCE])
            if ids:
                log.append(log.prepare(USES_PRUNED, UsesPruned(memory_ids=ids)), stream=_STREAM)
        total += len(ids)
        if not ids or time.monotonic() >= until:
            return total


@projects(USES_PRUNED)
def forget_uses(event: Event[UsesPruned]) -> None:
    MemoryCitation.objects.filter(memory_id__in=event.payload.memory_ids).delete()
    MemoryUse.objects.filter(memory_id__in=event.payload.memory_ids).delete()


# Small files per event, which bounds its size
_FILES_AT_ONCE = 4
_IDS_OF_SESSION = 1_000


def count_uses() -> int:
    """Fold the notes of the current store into events; return the number of uses.

    Does nothing while another process does it.
    """
    folder = folder_of(current_store())
    if not folder.is_dir():
        return 0
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        return _fold_all(folder) if try_lock(descriptor) else 0
    finally:
        os.close(descriptor)


def _fold_all(folder: Path) -> int:
    last = log.events().of_type(MEMORIES_USED).last()
    if last and last.payload_json:
        _remove_files(folder, json.loads(last.payload_json)["files"])
    # Renamed away from the readers; with those that a killed process left, oldest first
    for path in folder.glob(f"*{WAITING}"):
        claimed = path.with_name(f"{time.time_ns()}-{path.stem}{TAKEN}")
        path.rename(claimed)
        with claimed.open("rb") as file:
            wait_for_lock(file.fileno())  # waits for a reader that opened it before the rename
    files = sorted(folder.glob(f"*{TAKEN}"))
    total = 0
    for start in range(0, len(files), _FILES_AT_ONCE):
        batch = files[start : start + _FILES_AT_ONCE]
        total += _fold(batch)
        _remove_files(folder, [path.name for path in batch])
    return total


def _fold(files: Sequence[Path]) -> int:
    notes = [note for path in files for note in read_notes(path)]
    counts: dict[Use, Counter[int]] = {}
    for note in notes:
        counts.setdefault(note.use, Counter()).update(note.ids)
    ids = sorted(set().union(*counts.values()))
    existing = set(Memory.objects.filter(id__in=as_parameter(IDS, ids)).values_list("id", flat=True))
    uses: dict[Use, dict[int, int]] = {}
    for use, counter in counts.items():
        counted = {memory_id: count for memory_id, count in counter.items() if memory_id in existing}
        if counted:
            uses[use] = counted
    by_session: dict[str, set[int]] = {}
    for note in notes:
        if note.session and note.use is not Use.GIVEN:
            by_session.setdefault(note.session, set()).update(note.ids)
    named = Session.objects.filter(session_id__in=by_session).values_list("id", "session_id")
    sessions = {session: sorted(by_session[name])[:_IDS_OF_SESSION] for session, name in named}
    if uses or sessions:
        last = min(datetime.fromtimestamp(max(note.at for note in notes), UTC), clock.now())
        names = [path.name for path in files]
        _record_uses(MemoriesUsed(uses=uses, sessions=sessions, used_at=clock.to_text(last), files=names))
    return sum(sum(counted.values()) for counted in uses.values())


def _record_uses(payload: MemoriesUsed) -> None:
    draft = log.prepare(MEMORIES_USED, payload)
    with log.transaction():
        log.append(draft, stream=_STREAM)


def _remove_files(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        (folder / Path(name).name).unlink(missing_ok=True)
