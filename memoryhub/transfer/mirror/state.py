"""What a mirror wrote and read last, in the hub's home: one file for each mirrored folder. It contains no text."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from memoryhub import env
from memoryhub.core.disk import replacing
from memoryhub.core.errors import Conflict, Locked, Unavailable
from memoryhub.core.file_locks import lock
from memoryhub.transfer.mirror.files import Stamp

_LOCK_SECONDS = 0.1
# Before 2, a redaction renamed the files of memories with a redacted title only
_FORMAT = 2


@dataclass(slots=True)
class Entry:
    """A memory or decision and its file, as they were when they were last equal."""

    path: str
    # The id in this store, and its version
    id: int
    version: int = 0
    # Digest of what the store had
    stored: str = ""
    # Digest of the file's bytes; its modification time, size and inode, or empty if it has to be read
    file: str = ""
    stamp: Stamp | tuple[()] = ()
    # The revision that the file names, and that of the store's text
    revision: str = ""
    known: str = ""
    # Files beside it that hold the other side of a conflict, with the digest of their bytes
    conflicts: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class State:
    store: str
    folder: str
    form: str
    # By the id that is the same in each hub
    memories: dict[str, Entry] = field(default_factory=dict)
    decisions: dict[str, Entry] = field(default_factory=dict)
    # Ids of files from another hub, with the id that this hub gave to the same memory
    aliases: dict[str, str] = field(default_factory=dict)
    # Edits of entries that are gone, by file, with the id here
    orphans: dict[str, int] = field(default_factory=dict)
    # The last event of the log that can change a file, and the last that removed text
    reached: str = ""
    # The same of decisions
    decided: str = ""
    erasure: int = 0

    @property
    def is_new(self) -> bool:
        return not (self.memories or self.decisions)


def _path(folder: Path) -> Path:
    return env.home() / "mirrors" / f"{sha256(os.fsencode(folder)).hexdigest()[:16]}.json"


def load(folder: Path, store: str, form: str) -> State:
    """Return the state of a folder, empty if it is mirrored for the first time.

    Raises:
        Conflict: it is a mirror of another store, or in another form.
    """
    try:
        data: dict[str, Any] = json.loads(_path(folder).read_bytes())
        for kind in _ENTRIES:
            data[kind] = {uid: _entry(entry) for uid, entry in data[kind].items()}
        if data.pop("format") < _FORMAT:
            data["erasure"] = 0
        state = State(**data)
    except FileNotFoundError:
        return State(store, str(folder), form)
    except (ValueError, TypeError, KeyError) as error:
        raise Unavailable(f"{_path(folder)} is damaged; delete it, and the mirror compares all files again") from error
    if (state.store, state.form) != (store, form):
        raise Conflict(
            f"{folder} is a mirror of {state.store} in the form {state.form}; mirror to another folder, or delete "
            f"{_path(folder)} first"
        )
    return state


def _entry(data: dict[str, Any]) -> Entry:
    return Entry(**{**data, "stamp": tuple(data["stamp"])})


# As ``asdict`` without copies, which are slow for large folders
def _data(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in _ENTRY}


_ENTRIES = ("memories", "decisions")
_STATE = tuple(name.name for name in fields(State))
_ENTRY = tuple(name.name for name in fields(Entry))


def save(state: State) -> None:
    """Replace the file of a state."""
    path = _path(Path(state.folder))
    path.parent.mkdir(mode=0o700, exist_ok=True)
    data = {"format": _FORMAT} | {name: getattr(state, name) for name in _STATE}
    data |= {kind: {uid: _data(entry) for uid, entry in getattr(state, kind).items()} for kind in _ENTRIES}
    with replacing(path) as file:
        file.write(json.dumps(data, ensure_ascii=False).encode())


# The folder itself is locked: the other mirror may belong to another hub
@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Exclude other mirrors of the folder.

    Raises:
        Locked: there is one.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not lock(descriptor, seconds=_LOCK_SECONDS):
            raise Locked(f"another mirror of {folder} is running; stop it first")
        yield
    finally:
        os.close(descriptor)
