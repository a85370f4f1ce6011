"""Compare what commits change, as ``git patch-id`` does: without places in files and without white space."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
# Asks git with arguments and standard input; None if it fails or does not answer in time
Ask = Callable[[Sequence[str], bytes], bytes | None]
# A commit, and the one that it is compared with; "" for its parent
Pair = tuple[str, str]
# Each file with the names of its content before and after
Content = frozenset[tuple[bytes, tuple[bytes, bytes]]]

_COMMON = ("--stdin", "-r", "--no-renames", "--root", "--always", "--no-ext-diff", "--no-textconv", f"-O{os.devnull}")
_RAW = ("diff-tree", "--raw", "-z", "--no-abbrev", *_COMMON, "--format=%x00commit%x00%H%x00%an <%ae>%x00%at%x00%s%x00")
# Git prints no content of larger files
_PATCH = (
    *("-c", "core.bigFileThreshold=512k", "diff-tree", "--patch", "--unified=0", "--inter-hunk-context=0"),
    *("--full-index", *_COMMON, "--src-prefix=a/", "--dst-prefix=b/", "--format=%x00%H"),
)
_START = b"commit"
_HEADER = re.compile(rb"\x00([0-9a-f]{40,64})\Z")
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_MODES = (b"new file mode", b"deleted file mode", b"old mode", b"new mode")
_WHITE = re.compile(rb"\s+")
# A line with fewer letters and digits, such as a brace or `else:`, shows nothing
_LEAST_TEXT = 6
# Lines of a change that must be all there, and the share of a longer one
_FEW_LINES, _LEAST_SHARE = 5, 0.8
_NO_TEXT = re.compile(rb"[\W_]+")
# Pairs that are compared at once
_PART = 250
# Files of a commit that are compared, and whose lines are
_MOST_FILES, _MOST_READ = 2_000, 100
_MAX_FILES = 100


@dataclass(frozen=True, slots=True)
class CommitChange:
    """What a commit changes, by the names of contents: known without the contents themselves."""

    # Author, time of authorship and subject, which a rebase, a cherry-pick and an amendment leave as they are
    identity: bytes = b""
    # Path to the name of the content before and after; only zeros where there is none
    files: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)

    @property
    def content(self) -> Content:
        return frozenset(self.files.items())


@dataclass(frozen=True, slots=True)
class Patch:
    """The lines that a commit changes."""

    digest: bytes
    # Hashes of the lines that it adds and that have some text, with their files
    added: frozenset[int]

    def is_part_of(self, other: Patch) -> bool:
        """Return whether another patch is the same, or adds nearly all of its lines."""
        return self.digest == other.digest or is_most(len(self.added & other.added), len(self.added))


def read_changes_of(ask: Ask, pairs: Sequence[Pair]) -> dict[Pair, CommitChange]:
    """Map pairs to what they change, by the names of contents; those that git can't compare are left out."""
    return _read_in_parts(ask, _RAW, pairs, lambda output: _parse_raw(iter(output.split(b"\0"))))


def read_patches_of(ask: Ask, pairs: Sequence[Pair]) -> dict[Pair, Patch]:
    """Map pairs to their patches; those that git can't print, as in a partial clone, are left out."""
    return _read_in_parts(ask, _PATCH, pairs, lambda output: _parse_patches(output.split(b"\n")))


# One pair that fails, or is too large, spoils the answer for all
def _read_in_parts(
    ask: Ask, command: Sequence[str], pairs: Sequence[Pair], parse: Callable[[bytes], Iterator[T]]
) -> dict[Pair, T]:
    results: dict[Pair, T] = {}
    parts = [pairs[start : start + _PART] for start in range(0, len(pairs), _PART)]
    while parts:
        part = parts.pop()
        output = ask(command, _lines_of(part))
        if output is None:
            half = len(part) // 2
            parts += [part[:half], part[half:]] if half else []
            continue
        answers = list(parse(output))
        if len(answers) == len(part):
            results |= dict(zip(part, answers, strict=True))
    return results


def is_most(count: int, total: int) -> bool:
    """Return whether some lines are nearly all of a change, as conflicts leave them; of a short one, all."""
    if total < _FEW_LINES:
        return 0 < total == count
    return count >= _LEAST_SHARE * total


def is_in_files(ask: Ask, change: CommitChange, head: str) -> bool | None:
    """Return whether the files of a commit have nearly all lines that a change adds; None if git can't tell.

    A line that was there before counts as often as the change leaves it there. A file without new lines must have
    lost what the change removes.
    """
    if not change.files or len(change.files) > _MOST_READ or any(b"\n" in path for path in change.files):
        return False
    names = [name for path, (old, new) in change.files.items() for name in (old, new, head.encode() + b":" + path)]
    output = ask(("cat-file", "--batch"), b"".join(name + b"\n" for name in names))
    if output is None:
        return None
    contents = _parse_contents(output, names)
    unread = [name for pair in change.files.values() for name in pair if name.strip(b"0") and name not in contents]
    absent = [path for path in change.files if head.encode() + b":" + path not in contents]
    if unread or (absent and ask(("ls-tree", "--name-only", head, "--", *map(os.fsdecode, absent)), b"") != b""):
        return None
    count = total = 0
    for path, (old, new) in change.files.items():
        present = contents.get(head.encode() + b":" + path)
        has, number = _lines_present(contents.get(old), contents.get(new), present)
        count, total = count + has, total + number
    return is_most(count, total)


# The lines by which a file shows a change: those that it has now, and all
def _lines_present(before: bytes | None, after: bytes | None, present: bytes | None) -> tuple[int, int]:
    old, new = _counted_lines(before or b""), _counted_lines(after or b"")
    lines = [line for line in new - old if _has_text(line)]
    if after == present or after is None or b"\0" in after:
        number = max(len(lines), 1)
        return number * (after == present), number
    now = _counted_lines(present or b"")
    if lines:
        return sum(now[line] >= new[line] for line in lines), len(lines)
    lines = [line for line in old - new if _has_text(line)]
    return sum(now[line] <= new[line] for line in lines) * (present is not None), len(lines)


def _counted_lines(content: bytes) -> Counter[bytes]:
    return Counter(filter(None, (_WHITE.sub(b"", line) for line in content.split(b"\n"))))


def _has_text(line: bytes) -> bool:
    return len(_NO_TEXT.sub(b"", line)) >= _LEAST_TEXT


def _lines_of(pairs: Sequence[Pair]) -> bytes:
    return "".join(f"{sha} {base}".rstrip() + "\n" for sha, base in pairs).encode("ascii")


# `commit`, sha, author, time, subject; then for each file `:old-mode new-mode old new status` and its path
def _parse_raw(tokens: Iterator[bytes]) -> Iterator[CommitChange]:
    change: CommitChange | None = None
    for token in tokens:
        if token == _START:
            if change is not None:
                yield change
            _, *identity = islice(tokens, 4)
            change = CommitChange(b"\0".join(identity))
        elif token.lstrip(b"\n").startswith(b":") and change is not None:
            _, _, old, new, *_ = token.split(b" ")
            path = next(tokens, b"")
            if len(change.files) < _MOST_FILES:
                change.files[path] = (old, new)
    if change is not None:
        yield change


class _PatchLines:
    """The lines of a patch as they are read.

    A hunk tells how many lines it has, so that no line of a file is taken for a header.
    """

    def __init__(self) -> None:
        self.remaining = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._added: set[int] = set()
        self._file = self._index = b""

    def read(self, line: bytes) -> None:
        if self.remaining:
            if line[:1] in (b"+", b"-"):
                self.remaining -= 1
                self._add(line)
        elif line.startswith(b"diff --git "):
            self._file = line
            self._add(line)
        elif line.startswith(b"index "):
            self._index = line
        elif line.startswith(b"Binary files "):
            self._add(self._index)
        elif line.startswith(_MODES):
            self._add(line)
        elif hunk := _HUNK.match(line):
            self.remaining = sum(int(count) for count in hunk.groups(default=b"1"))

    def patch(self) -> Patch:
        return Patch(self._digest.digest(), frozenset(self._added))

    def _add(self, line: bytes) -> None:
        text = _WHITE.sub(b"", line)
        self._digest.update(text + b"\n")
        if text.startswith(b"+") and _has_text(text):
            self._added.add(hash((self._file, text)))


def _parse_patches(lines: Sequence[bytes]) -> Iterator[Patch]:
    patch: _PatchLines | None = None
    for line in lines:
        if _HEADER.match(line) and not (patch and patch.remaining):
            if patch:
                yield patch.patch()
            patch = _PatchLines()
        elif patch:
            patch.read(line)
    if patch:
        yield patch.patch()


def _parse_contents(output: bytes, names: Sequence[bytes]) -> dict[bytes, bytes]:
    contents: dict[bytes, bytes] = {}
    start = 0
    for name in names:
        end = output.find(b"\n", start)
        fields = output[start:end].rsplit(b" ", 2)
        start = end + 1
        if len(fields) == 3 and fields[1] == b"blob" and fields[2].isdigit():
            size = int(fields[2])
            contents[name] = output[start : start + size]
            start += size + 1
    return contents
