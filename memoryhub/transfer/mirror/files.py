"""The files of a mirrored folder: finding, reading, formatting and writing them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from decisions.exporting import yaml_value
from memories.importing.files import front_matter_lines, split_front_matter
from memoryhub.core.disk import is_settled
from memoryhub.core.errors import Invalid
from memoryhub.core.foreign_files import read_foreign
from memoryhub.core.text import flat

MAX_BYTES = 2_000_000
MEMORY, DECISION, REVISION, PROVENANCE = "memory", "decision", "revision", "provenance"
# Written by the hub; all other keys belong to the user and are kept
RELATIONS = ("applies_to", "depends_on", "conflicts_with", "related_to", "supersedes", "derived_from")
_OWN = {MEMORY, REVISION, PROVENANCE, "kind", "type", "tags", "topic_key", "source", "attributes", "review", *RELATIONS}
_HEADING = re.compile(r"\s*# +(.*?)[ \t]*(?:\n|\Z)")
_CONFLICT = re.compile(r"\.conflict-\d+\.md\Z", re.IGNORECASE)
_UNMERGED = re.compile(r"^<<<<<<< .*?^=======$.*?^>>>>>>> ", re.DOTALL | re.MULTILINE)
_NEW_IDS = UUID("5f0a7f3e-6c3f-4a44-9c0b-6d6f2b0f7a11")
Stamp = tuple[int, int, int]

# A file that changed this recently may change again without a visible difference in its time
_SETTLED_SECONDS = 1.0


class Skipped(Exception):
    """A file cannot be read now; the message is the reason."""


@dataclass(frozen=True, slots=True)
class MirrorDocument:
    """A file, parsed."""

    text: str
    digest: str
    # What the front matter names: a memory, a decision, or neither
    memory: str = ""
    decision: str = ""
    # Digest of the version that the file was written from
    revision: str = ""
    title: str = ""
    content: str = ""
    # Keys of the front matter, in lower case
    matter: Mapping[str, Any] = field(default_factory=dict)
    # Lines of the front matter that belong to the user
    own_lines: str = ""

    @property
    def uid(self) -> str:
        return self.memory or self.decision

    def names(self, uid: str) -> bool:
        return uid in (self.memory, self.decision)


def find(folder: Path) -> Iterator[tuple[str, Stamp]]:
    """Yield the relative path and the stamp of each Markdown file. Links and hidden files are left out."""
    waiting = [""]
    while waiting:
        above = waiting.pop()
        with os.scandir(f"{folder}/{above}") as entries:
            for entry in entries:
                if entry.name.startswith((".", "~")):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{above}{entry.name}/")
                elif entry.name.lower().endswith(".md") and entry.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        yield f"{above}{entry.name}", _stamp(entry.stat(follow_symlinks=False))


def is_conflict(path: str) -> bool:
    return _CONFLICT.search(path) is not None


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, status.st_size, status.st_ino


def stamp_of(path: Path) -> Stamp | None:
    try:
        return _stamp(path.lstat())
    except FileNotFoundError:
        return None


def settled(stamp: Stamp) -> Stamp | tuple[()]:
    """Return the stamp, if the file can't have changed since without a visible difference in its time."""
    return stamp if is_settled(stamp[0], seconds=_SETTLED_SECONDS) else ()


def read(path: Path, stamp: Stamp) -> MirrorDocument:
    """Read and parse a file.

    Raises:
        Skipped: it changed while it was read, or is not text of a memory.
    """
    if stamp[1] > MAX_BYTES:
        raise Skipped(f"it is larger than {MAX_BYTES:,} bytes")
    try:
        raw = read_foreign(path, limit=MAX_BYTES, follows_links=False)
    except OSError as error:
        raise Skipped(f"it can't be read: {error.strerror}") from error
    if stamp_of(path) != stamp or len(raw) != stamp[1]:
        raise Skipped("it is being written")
    return parse(raw)


def parse(raw: bytes) -> MirrorDocument:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Skipped("it is not UTF-8 text") from error
    if "\0" in text:
        raise Skipped("it is not text")
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    if _UNMERGED.search(lines):
        raise Skipped("it has unresolved merge conflicts")
    try:
        matter, body = split_front_matter(lines)
    except Invalid as error:
        raise Skipped(error.message) from error
    title = ""
    heading = _HEADING.match(body)
    if heading and heading[1].strip():
        title = heading[1].strip()
        body = body[heading.end() :]
    return MirrorDocument(
        text=text,
        digest=digest(raw),
        memory=_identity(matter, MEMORY),
        decision=_identity(matter, DECISION),
        revision=str(matter.get(REVISION, "")),
        title=title or flat(str(matter.get("title") or "")).strip(),
        content=body.strip("\n"),
        matter=matter,
        own_lines="".join(lines for key, lines in front_matter_lines(lines).items() if key not in _OWN),
    )


def _identity(matter: Mapping[str, Any], name: str) -> str:
    value = matter.get(name)
    if not value or not isinstance(value, str):
        return ""
    try:
        return str(UUID(value))
    except ValueError:
        raise Skipped(f"its front matter has a {name!r} that is not an id of a hub") from None


def digest(raw: bytes) -> str:
    return sha256(raw).hexdigest()


def new_id(path: str, document: MirrorDocument) -> str:
    """Return the id of a file that has none. It is the same in each hub that sees the file, and when tried again."""
    return str(uuid5(_NEW_IDS, f"{path}\n{document.digest}"))


def with_id(document: MirrorDocument, uid: str) -> str:
    """Return the text with another id of its memory, and otherwise as the user wrote it."""
    line = f"{MEMORY}: {uid}"
    end = "\r\n" if "\r\n" in document.text else "\n"
    if document.memory:
        return re.sub(rf"(?im)^{MEMORY}[ \t]*:.*?(?=\r?$)", line, document.text, count=1)
    if document.matter or front_matter_lines(document.text.replace("\r\n", "\n")):
        first, remainder = document.text.split("\n", 1)
        return f"{first}\n{line}{end}{remainder}"
    return f"---{end}{line}{end}---{end}{end}{document.text}"


def formatted(matter: Mapping[str, Any], title: str, content: str, own_lines: str = "") -> str:
    """Return the text of a memory's file; values are JSON, which is YAML too."""
    lines = "".join(f"{name}: {yaml_value(value)}\n" for name, value in matter.items())
    return f"---\n{lines}{own_lines}---\n\n# {flat(title)}\n\n{content}\n"


def write(path: Path, text: str, expected: Stamp | None, temporary: Path) -> Stamp | None:
    """Replace a file and return its new stamp; None if it is no longer what ``expected`` says, and it is left alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary.open("wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    try:
        if expected is None:
            _move(temporary, path)
            return stamp_of(path)
        if stamp_of(path) != expected:
            return None
        temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        written = stamp_of(temporary)
        if _swap(temporary, path, expected, written):
            return written
        return None
    except FileExistsError:
        return None
    finally:
        temporary.unlink(missing_ok=True)


def _move(temporary: Path, path: Path) -> None:
    """Move a file to a place where there is none; FileExistsError if there is one."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # no hard links on this disk
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        temporary.replace(path)


# An editor may save the file after its stamp was compared. The old file is therefore exchanged with the new one and
# compared once more: if it is not the expected one, it is put back.
def _swap(temporary: Path, path: Path, expected: Stamp, written: Stamp | None) -> bool:
    if not _exchange(temporary, path):
        temporary.replace(path)
        return True
    if stamp_of(temporary) == expected:
        return True
    while stamp_of(temporary) != written and _exchange(temporary, path):
        pass
    return False


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two files in one step; False where the system cannot, or one of them is gone."""
    paths = os.fsencode(one), os.fsencode(other)
    if hasattr(_LIBC, "renameat2"):  # Linux
        return bool(_LIBC.renameat2(_HERE, paths[0], _HERE, paths[1], _EXCHANGE) == 0)
    if hasattr(_LIBC, "renamex_np"):  # macOS
        return bool(_LIBC.renamex_np(*paths, _EXCHANGE) == 0)
    return False


_LIBC = ctypes.CDLL(None)
# AT_FDCWD; RENAME_EXCHANGE and RENAME_SWAP
_HERE, _EXCHANGE = -100, 2


def remove(path: Path, expected: Stamp, temporary: Path) -> bool:
    """Remove a file; False if it is no longer what ``expected`` says, and it is left alone."""
    if stamp_of(path) != expected:
        return False
    path.replace(temporary)
    is_expected = stamp_of(temporary) == expected
    if not is_expected:
        with contextlib.suppress(FileExistsError):  # saved once more: the newer one stays
            _move(temporary, path)
    temporary.unlink(missing_ok=True)
    return is_expected
