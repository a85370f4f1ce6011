"""Lines of a file, with the commits that they come from."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.text import flat
from sessions_app.git.process import MAX_AUTHOR, moment_of, reason_of, run, text_of

_BLAME_OPTIONS = ("--porcelain", "-w", "-M", "-C", "--no-textconv")
_BLAME_HEADER = re.compile(rb"([0-9a-f]{40,64}) \d+ (\d+)(?: \d+)?")
_DIFF_OPTIONS = ("--no-index", "--unified=0", "--text", "-w", "--no-color", "--no-ext-diff", "--no-textconv")
# A hunk: the first line and the number of lines in the old and in the new file; a number of 1 is left out
_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)
_MAX_BYTES = 8 * 2**20
_MAX_SUMMARY = 300
_NEVER = moment_of(b"0")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file, and the commit that it comes from."""

    number: int
    text: str
    # "" if the line is not committed; then the author, the summary and the path are empty too
    sha: str = ""
    author: str = ""
    committed_at: datetime = _NEVER
    summary: str = ""
    # Where it was in that commit
    path: str = ""


_UNCOMMITTED = Line(0, "")


def blame(repository: Path, path: str, content: bytes, *, first: int = 1, last: int | None = None) -> list[Line]:
    """Return lines of a file of the working tree with their commits; moved and copied lines are followed.

    Args:
        repository: the top of the working tree.
        path: relative to it.
        content: what the file contains now.
        first: number of the first line, from 1.
        last: number of the last one; default: the end of the file.

    Raises:
        Invalid: git does not track the file, or it has no such lines.
        Unavailable: git is not installed or does not answer.
    """
    texts = content.removesuffix(b"\n").split(b"\n")
    if first > len(texts):
        raise Invalid(f"{path} has only {len(texts)} line{'s' * (len(texts) > 1)}")
    committed = _committed(repository, path)
    last = min(last or len(texts), len(texts))
    numbers = {number: number for number in range(first, last + 1)}
    if committed != content:
        numbers = _numbers_before(committed, content, range(first, last + 1))
    origins = _blamed(repository, path, sorted(numbers.values()))
    lines = []
    for number in range(first, last + 1):
        text = text_of(texts[number - 1].rstrip(b"\r"))
        origin = origins.get(numbers.get(number, 0))
        lines.append(replace(origin or _UNCOMMITTED, number=number, text=text))
    return lines


# The newest commit is blamed, not the working file: git would run the file through a program that the repository's
# attributes name.
def _committed(repository: Path, path: str) -> bytes:
    answer = run(repository, "cat-file", "blob", f"HEAD:{path}", max_output=_MAX_BYTES)
    if answer.returncode == 0:
        return answer.stdout
    if run(repository, "ls-files", "--error-unmatch", "--", f":(literal){path}").returncode == 0:
        return b""
    raise Invalid(f"git can't blame {path}: {reason_of(answer.stderr)}")


def _numbers_before(old: bytes, new: bytes, lines: range) -> dict[int, int]:
    """Map the numbers of lines that are in both contents, from the new to the old one."""
    numbers: dict[int, int] = {}
    next_old = next_new = 1
    for old_first, old_count, new_first, new_count in [*_hunks(old, new), (lines.stop, 0, lines.stop, 0)]:
        # Git numbers a hunk without lines by the line before it
        until = new_first + (not new_count)
        for number in range(max(next_new, lines.start), min(until, lines.stop)):
            numbers[number] = number - next_new + next_old
        next_new = until + new_count
        next_old = old_first + (not old_count) + old_count
    return numbers


def _hunks(old: bytes, new: bytes) -> list[tuple[int, int, int, int]]:
    with tempfile.TemporaryDirectory(prefix="memory-hub-") as name:
        folder = Path(name)
        (folder / "old").write_bytes(old)
        (folder / "new").write_bytes(new)
        answer = run(folder, "diff", *_DIFF_OPTIONS, "old", "new")
    if answer.returncode > 1:
        raise Unavailable(f"git cannot compare the file with its last commit: {reason_of(answer.stderr)}")
    hunks = (match.groups(default=b"1") for match in _HUNK.finditer(answer.stdout))
    return [(int(old), int(old_count), int(new), int(new_count)) for old, old_count, new, new_count in hunks]


def _blamed(repository: Path, path: str, numbers: list[int]) -> dict[int, Line]:
    if not numbers:
        return {}
    window = f"{numbers[0]},{numbers[-1]}"
    answer = run(repository, "blame", *_BLAME_OPTIONS, "-L", window, "HEAD", "--", path)
    if answer.returncode:
        raise Invalid(f"git can't blame {path}: {reason_of(answer.stderr)}")
    return {line.number: line for line in _parse_blame(answer.stdout)}


# For each line of the file a header, `sha old new [count]`, and the line after a tab; the fields of a new commit are
# between them.
def _parse_blame(output: bytes) -> Iterator[Line]:
    commits: dict[str, dict[bytes, bytes]] = {}
    fields: dict[bytes, bytes] = {}
    sha, number = "", 0
    for line in output.split(b"\n"):
        if line.startswith(b"\t"):
            yield Line(
                number,
                "",
                sha,
                flat(text_of(fields.get(b"author", b"")))[:MAX_AUTHOR],
                moment_of(fields.get(b"committer-time", b"0")),
                flat(text_of(fields.get(b"summary", b"")))[:_MAX_SUMMARY],
                text_of(fields.get(b"filename", b"")),
            )
        elif header := _BLAME_HEADER.match(line):
            sha, number = header[1].decode("ascii"), int(header[2])
            fields = commits.setdefault(sha, {})
        else:
            name, _, value = line.partition(b" ")
            fields[name] = value
