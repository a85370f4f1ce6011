"""State of a mirror's folder: what the last pass wrote, what is there now, and the report of this pass."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter, ValidationError

from memoryhub import env
from memoryhub.core.disk import replacing
from memoryhub.core.errors import ConflictError, HubError, Locked, Unavailable
from memoryhub.core.file_locks import lock
from memoryhub.core.slugs import file_slug
from memoryhub.core.validation import explain
from memoryhub.transfer.mirror import files
from memoryhub.transfer.mirror.files import MirrorDocument, Skipped, Stamp


class Scan:
    """What a folder has, by the ids of memories and decisions."""

    def __init__(self, folder: Path, state: MirrorState) -> None:
        self.folder = folder
        self.state = state
        self.skipped: list[MirrorStep] = []
        self.memories: dict[str, MirrorFile] = {}
        self.decisions: dict[str, MirrorFile] = {}
        # Files without an id, and copies of a file with one
        self.new: list[MirrorFile] = []
        self.paths: set[str] = set()
        self.conflicts: set[str] = set()
        self.is_changed = self.is_touched = False

    def find(self) -> None:
        owners = {entry.path: (False, uid, entry) for uid, entry in self.state.memories.items()}
        owners |= {entry.path: (True, uid, entry) for uid, entry in self.state.decisions.items()}
        claims: dict[tuple[bool, str], list[MirrorFile]] = {}
        for path, stamp in sorted(files.find(self.folder)):
            if path != path.encode("utf-8", "replace").decode():
                self.skipped.append(left_step(ascii(path), "its name is not UTF-8"))
                continue
            self.paths.add(path)
            if files.is_conflict(path):
                self.conflicts.add(path)
                continue
            is_decision, uid, entry = owners.get(path, (False, "", None))
            file = MirrorFile(path, stamp)
            if entry is None or entry.stamp != stamp:
                self.read(file, entry)
                document = file.document
                if document and (document.uid or not entry):
                    is_decision = bool(document.decision)
                    uid = document.uid
            if uid:
                claims.setdefault((is_decision, uid), []).append(file)
            elif file.document:
                self.new.append(file)
        for (is_decision, uid), rivals in claims.items():
            self.claim(uid, rivals, is_decision=is_decision)
        self.is_changed |= len(self.memories) < len(self.state.memories)
        self.is_changed |= len(self.decisions) < len(self.state.decisions)

    def read(self, file: MirrorFile, entry: MirrorEntry | None) -> None:
        try:
            document = files.read(self.folder / file.path, file.stamp)
        except Skipped as why:
            self.skipped.append(left_step(file.path, str(why)))
            file.is_skipped = True
            self.is_changed = True
            return
        if entry and document.digest == entry.file:
            entry.stamp = files.settled(file.stamp)
            self.is_touched = True
        else:
            file.document = document
            self.is_changed = True

    # If several files have one id, the one at the known place keeps it; the others are copies
    def claim(self, uid: str, rivals: list[MirrorFile], *, is_decision: bool) -> None:
        entry = self.state.memories.get(uid)
        if is_decision:
            entry = self.state.decisions.get(uid)
        last_path = entry.path if entry else ""
        named = [rival for rival in rivals if not rival.document or rival.document.names(uid)]
        claimed = min(named or rivals, key=lambda rival: (rival.path != last_path, rival.path))
        if claimed.document and entry and claimed.document.digest == entry.file:
            claimed.document = None
            entry.stamp = files.settled(claimed.stamp)
        copies = [rival for rival in rivals if rival is not claimed]
        if is_decision:
            self.decisions[uid] = claimed
            why = f"a copy of {claimed.path}, which is a decision"
            self.skipped += [left_step(copy.path, why) for copy in copies]
        else:
            self.memories[uid] = claimed
            self.new += [copy for copy in copies if copy.document]


_LOCK_SECONDS = 0.1
# Before 2, a redaction renamed the files of memories with a redacted title only
_FORMAT = 2


@dataclass(slots=True)
class MirrorEntry:
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
class MirrorState:
    store: str
    folder: str
    form: str
    # By the id that is the same in each hub
    memories: dict[str, MirrorEntry] = field(default_factory=dict)
    decisions: dict[str, MirrorEntry] = field(default_factory=dict)
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


def _state_path(folder: Path) -> Path:
    return env.home() / "mirrors" / f"{sha256(os.fsencode(folder)).hexdigest()[:16]}.json"


def load(folder: Path, store: str, form: str) -> MirrorState:
    """Return the state of a folder, empty if it is mirrored for the first time.

    Raises:
        ConflictError: it is a mirror of another store, or in another form.
    """
    try:
        data = json.loads(_state_path(folder).read_bytes())
        if data["format"] < _FORMAT:
            data["erasure"] = 0
        state = _STATE.validate_python(data)
    except FileNotFoundError:
        return MirrorState(store, str(folder), form)
    except (ValueError, TypeError, KeyError) as error:
        raise Unavailable(
            f"{_state_path(folder)} is damaged; delete it, and the mirror compares all files again"
        ) from error
    if (state.store, state.form) != (store, form):
        raise ConflictError(
            f"{folder} is a mirror of {state.store} in the form {state.form}; mirror to another folder, or delete "
            f"{_state_path(folder)} first"
        )
    return state


_STATE = TypeAdapter(MirrorState)


def save(state: MirrorState) -> None:
    path = _state_path(Path(state.folder))
    path.parent.mkdir(mode=0o700, exist_ok=True)
    data = {"format": _FORMAT} | _STATE.dump_python(state)
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


@dataclass(slots=True)
class MirrorFile:
    """The file of a memory or decision; without a document it is unchanged, or was skipped."""

    path: str
    stamp: Stamp
    document: MirrorDocument | None = None
    is_skipped: bool = False


class Paths:
    """The path of each memory and decision, by id; other files link to them."""

    def __init__(self, folder: Path, names: Iterable[str], redacted: Collection[int]) -> None:
        self.folder = folder
        self.redacted = redacted
        # In lower case: some disks do not tell cases apart
        self.used = set(map(str.lower, names))
        self.by_id: dict[int, str] = {}

    def assign(
        self,
        folder: str,
        titles: Mapping[int, str],
        ids: Mapping[str, int],
        entries: Mapping[str, MirrorEntry],
        files: Mapping[str, MirrorFile],
    ) -> None:
        """Choose the path of each memory or decision: where its file is, or was, or a new one in ``folder``.

        The file of a redacted one is named after its title again, because its name may have the text.
        """
        for uid in entries.keys() & files.keys():
            entries[uid].path = files[uid].path
        for uid, entity_id in ids.items():
            place = files.get(uid) or entries.get(uid)
            if place and entity_id in titles:
                title = titles[entity_id]
                path = place.path
                if entity_id in self.redacted and file_name(title) not in path:
                    path = self.free(str(PurePosixPath(path).parent), title)
                self.by_id[entity_id] = path
        for entity_id, title in titles.items():
            if entity_id not in self.by_id:
                self.by_id[entity_id] = self.free(folder, title)

    def free(self, folder: str, title: str) -> str:
        """Return a path for a new file that no other file has."""
        name = file_name(title)
        number = 1
        path = f"{folder}/{name}.md"
        while path.lower() in self.used or os.path.lexists(self.folder / path):
            number += 1
            path = f"{folder}/{name}-{number}.md"
        self.used.add(path.lower())
        return path


def file_name(title: str) -> str:
    """Return the name of a new file with this title, without its ending."""
    return file_slug(title) or "memory"


class Did(StrEnum):
    """What a step does."""

    # In the folder
    WRITTEN = "written"
    REMOVED = "removed"
    # In the store
    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    RESTORED = "restored"
    CONFLICT = "conflict"
    # They are equal already
    READ = "read"
    # The file stays as it is, and so does the store
    LEFT = "left"


@dataclass(slots=True)
class MirrorStep:
    did: Did
    path: str
    act: Callable[[MirrorStep], None]
    why: str = ""


@dataclass(slots=True)
class MirrorReport:
    folder: str
    steps: list[MirrorStep] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        counted = Counter(step.did for step in self.steps)
        return {did.value: counted[did] for did in Did if counted[did]}


def left_step(path: str, why: str) -> MirrorStep:
    return MirrorStep(Did.LEFT, path, lambda _: None, why)


def try_step(step: MirrorStep) -> str:
    """Do a step; return why it could not be done, or ""."""
    try:
        step.act(step)
    except (Locked, Unavailable):  # the same for all steps
        raise
    except HubError as error:
        return error.message
    except ValidationError as error:
        return explain(error)
    except Skipped as error:
        return str(error)
    except OSError as error:
        return f"can't use {error.filename}: {error.strerror}"
    return ""
