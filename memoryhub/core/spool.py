"""The spool of hook events that the hub has not stored yet: ``<home>/spool/<day>.jsonl``. Standard library only.

Events for a team's hub have a spool for each project (``memoryhub.teams``): functions take its folder as ``at``.
"""

# Hooks append lines under the file's lock. The hub renames a file, stores its events, and deletes it. A line's id is
# the idempotency key of its events, so a file that is processed twice counts once.

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from memoryhub import env
from memoryhub.core.disk import replacing
from memoryhub.core.errors import Locked
from memoryhub.core.file_locks import is_at, lock, wait_for_lock

FOLDER = "spool"
REJECTED = "rejected"
TAKEN = ".taken"
# Hooks hold this lock, shared, until their events are in the spool.
ARRIVING = "arriving.lock"
TAKER_SECONDS = 30.0
# Names events by their digests, one a line
ATTEMPTS = "attempts"
_DIGEST = 16
_SLOW_SECONDS = 0.25
# How much later than the next event's a process may write its event
_LATE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledEvent:
    id: str
    # When it happened, in milliseconds since 1970.
    at: int
    client: str
    event: str
    # If empty, derived from the folder in the payload.
    project: str = ""
    payload: dict[str, Any] = field(default_factory=dict)
    # The client's window, as ``core.windows`` names it.
    window: str = ""
    # What git says of the commits that the event made, if another machine stores it.
    commits: list[dict[str, Any]] = field(default_factory=list)


# A line that is not an event.
@dataclass(frozen=True, slots=True)
class Broken:
    line: str
    reason: str


def folder() -> Path:
    return env.home() / FOLDER


def append(event: SpooledEvent, *, at: Path | None = None) -> None:
    line = line_of(event) + "\n"
    name = f"{time.strftime('%Y-%m-%d', time.gmtime())}.jsonl"
    _append_line(_ensure_folder(at or folder()) / name, line.encode("utf-8", "replace"))


def line_of(event: SpooledEvent) -> str:
    fields = asdict(event)
    if not event.commits:
        del fields["commits"]  # a hub of an older version, which may still run, does not know it
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def reject(key: str, reason: str, *, at: Path | None = None) -> None:
    line = json.dumps({"id": key, "reason": reason[:200]}) + "\n"
    _append_line(
        _ensure_folder(_ensure_folder(at or folder()) / REJECTED) / "unreadable.jsonl", line.encode("utf-8", "replace")
    )


def _ensure_folder(path: Path) -> Path:
    env.prepare_home()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)  # parents too are private: prepare_home sets the umask
    return path


def _append_line(path: Path, line: bytes) -> None:
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            wait_for_lock(descriptor)
            if is_at(path, descriptor):
                _write_line(descriptor, line)
                return
        finally:
            os.close(descriptor)


def _write_line(descriptor: int, line: bytes) -> None:
    # Half a line would spoil the next one, so a failed write is undone.
    before = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, line) < len(line):
            raise OSError("no room for the whole line")
    except OSError:
        os.ftruncate(descriptor, before)
        raise


def has_waiting(*, at: Path | None = None) -> bool:
    """Return whether hook events wait to be captured."""
    try:
        return any(name.endswith((".jsonl", TAKEN)) for name in os.listdir(at or folder()))  # noqa: PTH208
    except FileNotFoundError:
        return False


def count_waiting(*, at: Path | None = None) -> int:
    """Return how many hook events wait to be captured."""
    place = at or folder()
    while True:
        paths = [*place.glob("*.jsonl"), *place.glob(f"*.jsonl{TAKEN}")]
        try:
            return sum(path.read_bytes().count(b"\n") for path in paths)
        except FileNotFoundError:
            continue  # one was renamed or drained meanwhile


@contextmanager
def only_taker(*, seconds: float = 0.0, at: Path | None = None) -> Iterator[bool]:
    """Yield whether this process may drain the spool inside the block; False if another does, or nothing waits."""
    if not has_waiting(at=at):
        yield False
        return
    with _locking(at or folder(), seconds=seconds) as is_locked:
        yield is_locked


@contextmanager
def _locking(place: Path, *, seconds: float) -> Iterator[bool]:
    descriptor = os.open(place / "taker.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield lock(descriptor, seconds=seconds)
    finally:
        os.close(descriptor)


def wait_for_arriving(*, seconds: float, at: Path | None = None) -> None:
    """Wait until the hooks that ended before now have spooled their events: later events are captured after them."""
    try:
        descriptor = os.open((at or folder()) / ARRIVING, os.O_RDWR)
    except OSError:
        return
    try:
        lock(descriptor, seconds=seconds)
    finally:
        os.close(descriptor)


@contextmanager
def taking(*, seconds: float = TAKER_SECONDS) -> Iterator[None]:
    """Be the only process that drains the spool inside the block, even if it is empty."""
    # Lock order: this lock before the store's, as the drain takes them (decision 31).
    with _locking(_ensure_folder(folder()), seconds=seconds) as is_locked:
        if not is_locked:
            raise Locked("another process is draining the spool; try again in a moment")
        yield


def take(*, at: Path | None = None) -> list[Path]:
    """Rename all files so that hooks no longer write to them, and return them with those taken before, oldest first.

    Requires ``only_taker``.
    """
    place = at or folder()
    _remove_drafts(place)
    for path in place.glob("*.jsonl"):
        target = path.with_name(f"{path.stem}-{time.time_ns()}.jsonl{TAKEN}")
        path.rename(target)
        with target.open("rb") as file:
            wait_for_lock(file.fileno())  # wait for a hook that opened it before
    return sorted(place.glob(f"*.jsonl{TAKEN}"))


class Attempts:
    """Notes which event takes long, so that one at which processes are killed is recognised. Requires ``only_taker``.

    A killed process leaves its note. Two in a row at the same event, as for its use of memory, are the event's fault.
    """

    # The file has the event at which the last process was killed, and the one that this process handles. Other events
    # are not noted: a process that a person kills would often be at the first one, which takes longest.

    def __init__(self, *, at: Path | None = None) -> None:
        self._path = (at or folder()) / ATTEMPTS
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        notes = os.read(self._file, 4 * (_DIGEST + 1)).decode("ascii", "replace").split()
        self._suspect = notes[-1] if notes else ""
        # The event at which two processes in a row were killed, or ""
        self._fatal = ""
        if len(notes) > 1 and notes[-2] == self._suspect:
            self._fatal = self._suspect
        self._put(self._suspect)
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._event: SpooledEvent | None = None
        self._thread = threading.Thread(target=self._note_slow_events, daemon=True)
        self._thread.start()

    def is_fatal(self, event: SpooledEvent) -> bool:
        """Return whether two processes in a row were killed at this event."""
        return bool(self._fatal) and _id_digest(event) == self._fatal

    @contextmanager
    def handling(self, event: SpooledEvent) -> Iterator[None]:
        self._event = event
        try:
            yield
        finally:
            with self._lock:
                self._event = None
                if os.fstat(self._file).st_size > len(self._suspect) + 1:
                    self._put(self._suspect)

    def forget(self, *, waiting: Iterable[SpooledEvent]) -> None:
        """Forget the event at which the last process was killed, unless it still waits. All others were handled."""
        if not self._suspect or self._suspect not in map(_id_digest, waiting):
            self._path.unlink(missing_ok=True)

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        os.close(self._file)

    def _note_slow_events(self) -> None:
        before = None
        while not self._end.wait(_SLOW_SECONDS):
            with self._lock:
                if self._event and self._event is before:
                    self._put(self._suspect, _id_digest(self._event))
                before = self._event

    def _put(self, *digests: str) -> None:
        content = "".join(f"{digest}\n" for digest in digests if digest).encode()
        os.pwrite(self._file, content, 0)
        os.ftruncate(self._file, len(content))


def _id_digest(event: SpooledEvent) -> str:
    return hashlib.sha256(event.id.encode("utf-8", "replace")).hexdigest()[:_DIGEST]


def read(path: Path) -> tuple[list[SpooledEvent], list[Broken]]:
    events: list[SpooledEvent] = []
    broken: list[Broken] = []
    for raw in path.read_bytes().splitlines():
        line = raw.decode("utf-8", "replace")
        try:
            events.append(parsed(line))
        except (ValueError, TypeError, RecursionError) as error:
            broken.append(Broken(line, str(error)))
    return in_order(events), broken


def in_order(events: Iterable[SpooledEvent]) -> list[SpooledEvent]:
    """Sort events by their times; where the clock was set back, those from before come first, as they were written."""
    times_set_back = latest = 0
    keyed: list[tuple[int, int, SpooledEvent]] = []
    for event in events:
        if event.at < latest - _LATE_SECONDS * 1000:
            times_set_back += 1
            latest = 0
        latest = max(latest, event.at)
        keyed.append((times_set_back, event.at, event))
    return [event for *_, event in sorted(keyed, key=itemgetter(0, 1))]


def parsed(line: str) -> SpooledEvent:
    event = SpooledEvent(**json.loads(line))
    texts = (event.id, event.client, event.event, event.project, event.window)
    is_whole = isinstance(event.payload, dict) and isinstance(event.commits, list)
    if not all(isinstance(text, str) for text in texts) or not is_whole:
        raise ValueError("a field is of the wrong type")
    if not isinstance(event.at, int) or not event.id:
        raise ValueError("id or time is missing")
    return event


def finish(path: Path, *, waiting: list[SpooledEvent], broken: list[Broken]) -> None:
    """Move the broken lines of a file aside, and keep only the events in ``left``, or delete the file."""
    if broken:
        lines = [json.dumps({"reason": flaw.reason, "line": flaw.line}, ensure_ascii=False) for flaw in broken]
        # Named by its content: written twice, after a crash between this step and the next, it exists once.
        name = f"{path.name.split('.', 1)[0]}-{hashlib.sha256(repr(lines).encode()).hexdigest()[:12]}.jsonl"
        _write_lines(_ensure_folder(path.parent / REJECTED) / name, lines)
    if waiting:
        _write_lines(path, [line_of(event) for event in waiting])
    else:
        path.unlink()


def each_line() -> Iterator[str]:
    """Yield every distinct line of the spool, including rejected ones, without draining it."""
    seen: set[bytes] = set()
    for content in _contents():
        for line in content.splitlines():
            if line not in seen:
                seen.add(line)
                yield line.decode("utf-8", "replace")


def _contents() -> list[bytes]:
    while True:
        try:
            return [path.read_bytes() for path in _spool_files()]
        except FileNotFoundError:
            continue  # it was renamed or drained meanwhile


def rewrite(change: Callable[[str], str]) -> None:
    """Apply ``change`` to every line of the spool, including rejected ones; unchanged files stay as they are.

    Requires ``taking``, so that no process still acts on a line that it read. Hooks may append at the same time.
    """
    _remove_drafts(folder())
    for path in _spool_files():
        with path.open("rb") as file:
            wait_for_lock(file.fileno())  # a hook that waits for this lock then opens the new file
            lines = file.read().splitlines(keepends=True)
            rewritten = list(lines)
            for place, raw in enumerate(lines):
                line = raw.decode("utf-8", "replace").removesuffix("\n")
                changed = change(line)
                if changed != line:
                    rewritten[place] = changed.encode("utf-8", "replace") + b"\n"
            if rewritten != lines:
                _put(path, b"".join(rewritten))


def _spool_files() -> list[Path]:
    place = folder()
    # Files that hooks write to come first, because they become the taken ones.
    waiting = sorted(place.glob("*.jsonl"))
    return [*waiting, *sorted(place.glob(f"*.jsonl{TAKEN}")), *sorted((place / REJECTED).glob("*.jsonl"))]


def _remove_drafts(place: Path) -> None:
    for part in (place, place / REJECTED):
        for draft in part.glob(".*.jsonl*"):
            draft.unlink(missing_ok=True)


def _write_lines(path: Path, lines: list[str]) -> None:
    _put(path, ("\n".join(lines) + "\n").encode("utf-8", "replace"))


def _put(path: Path, content: bytes) -> None:
    with replacing(path) as file:  # after a power cut, the old or the new file is complete (decision 31)
        file.write(content)
