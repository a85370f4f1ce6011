"""Events that wait for the hub: ``<home>/spool/<day>.jsonl``, one line each. Standard library only.

Hooks append; the hub takes a file away by renaming it, works through its lines, and removes it when all are done. Each
line has an id that is the idempotency key of what becomes of it, so a file that is worked through twice counts once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from memoryhub import env
from memoryhub.core.errors import Locked
from memoryhub.core.file_locks import lock, try_lock

FOLDER = "spool"
REJECTED = "rejected"
TAKEN = ".taken"
TAKER_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One event that waits."""

    id: str
    at: int
    """When it happened, in milliseconds since 1970."""
    client: str
    event: str
    project: str = ""
    """Empty: the one that the payload's folder belongs to."""
    payload: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that is no event."""

    line: str
    reason: str


def folder() -> Path:
    """Return the spool's folder. It may not exist yet."""
    return env.home() / FOLDER


def append(kept: Kept) -> None:
    """Add one line, whole, whatever others do at the same time."""
    line = line_of(kept) + "\n"
    _append(_made(folder()) / f"{time.strftime('%Y-%m-%d', time.gmtime())}.jsonl", line.encode("utf-8", "replace"))


def line_of(kept: Kept) -> str:
    """Return the line of an event, without its end."""
    return json.dumps(asdict(kept), ensure_ascii=False, separators=(",", ":"))


def reject(key: str, reason: str) -> None:
    """Note that an event could not be kept, without its content."""
    line = json.dumps({"id": key, "reason": reason[:200]}) + "\n"
    _append(_made(_made(folder()) / REJECTED) / "unreadable.jsonl", line.encode("utf-8", "replace"))


def _made(path: Path) -> Path:
    env.prepare_home()
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _append(path: Path, line: bytes) -> None:
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_still(path, descriptor):
                _write(descriptor, line)
                return
        finally:
            os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the path still leads to the open file; the hub may have taken it away meanwhile."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write(descriptor: int, line: bytes) -> None:
    """Write the whole line or nothing: half of one would spoil the next."""
    before = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, line) < len(line):
            raise OSError("no room for the whole line")
    except OSError:
        os.ftruncate(descriptor, before)
        raise


@contextmanager
def only_taker() -> Iterator[bool]:
    """Be the only one who takes from the spool inside the block; yields False where another is, or nothing waits."""
    place = folder()
    if not any(place.glob(f"*.jsonl{TAKEN}")) and not any(place.glob("*.jsonl")):
        yield False
        return
    descriptor = os.open(place / "taker.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield try_lock(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def taking(*, seconds: float = TAKER_SECONDS) -> Iterator[None]:
    """Be the only process that takes from the spool inside the block, whether anything waits or not.

    Raises:
        Locked: another process did so for all of ``seconds``.
    """
    descriptor = os.open(_made(folder()) / "taker.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not lock(descriptor, seconds=seconds):
            raise Locked("another process takes events from the spool; try again in a moment")
        yield
    finally:
        os.close(descriptor)


def take() -> list[Path]:
    """Take all files away from the hooks, and return them with those that were taken before, the oldest first.

    Needs ``only_taker``. No hook writes to a file any more when this returns.
    """
    _remove_drafts()
    for path in folder().glob("*.jsonl"):
        taken = path.with_name(f"{path.stem}-{time.time_ns()}.jsonl{TAKEN}")
        path.rename(taken)
        with taken.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # a hook that has opened it before writes to its end
    return sorted(folder().glob(f"*.jsonl{TAKEN}"))


def read(path: Path) -> tuple[list[Kept], list[Broken]]:
    """Return the events of a file in the order in which they happened, and the lines that are none."""
    events: list[Kept] = []
    broken: list[Broken] = []
    for raw in path.read_bytes().splitlines():
        line = raw.decode("utf-8", "replace")
        try:
            events.append(parsed(line))
        except (ValueError, TypeError, RecursionError) as error:
            broken.append(Broken(line, str(error)))
    return sorted(events, key=lambda event: event.at), broken


def parsed(line: str) -> Kept:
    """Return the event of a line.

    Raises:
        ValueError, TypeError, RecursionError: it is none.
    """
    kept = Kept(**json.loads(line))
    texts = (kept.id, kept.client, kept.event, kept.project)
    if not all(isinstance(text, str) for text in texts) or not isinstance(kept.payload, dict):
        raise ValueError("a field is of the wrong type")
    if not isinstance(kept.at, int) or not kept.id:
        raise ValueError("id or time is missing")
    return kept


def finish(path: Path, *, left: list[Kept], broken: list[Broken]) -> None:
    """Set the broken lines of a file aside, and leave in it only what is ``left``; it goes when nothing is."""
    if broken:
        lines = [json.dumps({"reason": each.reason, "line": each.line}, ensure_ascii=False) for each in broken]
        # Named by what it holds: set aside twice, after a crash between this step and the next, it is there once.
        name = f"{path.name.split('.', 1)[0]}-{hashlib.sha256(repr(lines).encode()).hexdigest()[:12]}.jsonl"
        _replace(_made(folder() / REJECTED) / name, lines)
    if left:
        _replace(path, [line_of(kept) for kept in left])
    else:
        path.unlink()


def each_line() -> Iterator[str]:
    """Yield every line that waits or was set aside, each once; takes nothing away."""
    seen: set[bytes] = set()
    for content in _contents():
        for line in content.splitlines():
            if line not in seen:
                seen.add(line)
                yield line.decode("utf-8", "replace")


def _contents() -> list[bytes]:
    while True:
        try:
            return [path.read_bytes() for path in _files()]
        except FileNotFoundError:
            continue  # it was taken, and has another name now, or it was drained


def rewrite(change: Callable[[str], str]) -> None:
    """Replace every line that waits or was set aside by what ``change`` makes of it; a file without a change stays.

    Needs ``taking``, so that no process has read a line and still acts on it. Hooks may append at the same time.
    """
    _remove_drafts()
    for path in _files():
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # a hook that waits for this lock sees then that the file is another
            before = file.read()
            after = b"".join(_changed(line, change) for line in before.splitlines(keepends=True))
            if after != before:
                _put(path, after)


def _changed(raw: bytes, change: Callable[[str], str]) -> bytes:
    line = raw.decode("utf-8", "replace").removesuffix("\n")
    changed = change(line)
    return raw if changed == line else changed.encode("utf-8", "replace") + b"\n"


def _files() -> list[Path]:
    """Return the files of lines: those that hooks write to first, since these become the taken ones."""
    place = folder()
    waiting = sorted(place.glob("*.jsonl"))
    return [*waiting, *sorted(place.glob(f"*.jsonl{TAKEN}")), *sorted((place / REJECTED).glob("*.jsonl"))]


def _remove_drafts() -> None:
    """Remove what a process left that died while it replaced a file; the file itself is still there."""
    for place in (folder(), folder() / REJECTED):
        for draft in place.glob(".*.jsonl*"):
            draft.unlink(missing_ok=True)


def _replace(path: Path, lines: list[str]) -> None:
    _put(path, ("\n".join(lines) + "\n").encode("utf-8", "replace"))


def _put(path: Path, content: bytes) -> None:
    """Put a file in another's place; after a power cut, either is there whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
