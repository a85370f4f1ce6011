"""Lines of a file, with the commits that they come from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from sessions_app.git.process import MAX_AUTHOR, last_line, moment_of, run, text_of

_BLAME_OPTIONS = ("--porcelain", "-w", "-M", "-C", "--no-textconv")
_BLAME_HEADER = re.compile(rb"([0-9a-f]{40,64}) \d+ (\d+)(?: \d+)?")
_FILTER = re.compile(r"[\w.-]{1,100}")
_MAX_SUMMARY = 300


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file, and the commit that it comes from."""

    number: int
    text: str
    # "" if the line is not committed
    sha: str
    author: str
    committed_at: datetime
    summary: str
    # Where it was in that commit
    path: str


def blame(repository: Path, path: str, *, first: int = 1, last: int | None = None) -> list[Line]:
    """Return lines of a file of the working tree with their commits; moved and copied lines are followed.

    Args:
        repository: the top of the working tree.
        path: relative to it.
        first: number of the first line, from 1.
        last: number of the last one; default: the end of the file.

    Raises:
        Invalid: git does not track the file, or it has no such lines.
        Unavailable: git is not installed or does not answer.
    """
    window = f"{first},{'' if last is None else last}"
    done = run(repository, *_without_filter(repository, path), "blame", *_BLAME_OPTIONS, "-L", window, "--", path)
    if done.returncode:
        raise Invalid(f"git can't blame {path}: {last_line(done.stderr).removeprefix('fatal: ')}")
    return list(_blamed(done.stdout))


# Attributes of the repository can select a program that git would run on the file's content
def _without_filter(repository: Path, path: str) -> list[str]:
    found = run(repository, "check-attr", "-z", "filter", "--", path).stdout.split(b"\0")
    name = os.fsdecode(found[2]) if len(found) > 2 else ""
    if not _FILTER.fullmatch(name) or name in ("unspecified", "unset", "set"):
        return []
    return ["-c", f"filter.{name}.clean=", "-c", f"filter.{name}.process=", "-c", f"filter.{name}.required=false"]


# For each line of the file a header, `sha old new [count]`, and the line after a tab; the fields of a new commit are
# between them.
def _blamed(output: bytes) -> Iterator[Line]:
    commits: dict[str, dict[bytes, bytes]] = {}
    fields: dict[bytes, bytes] = {}
    sha, number = "", 0
    for line in output.split(b"\n"):
        if line.startswith(b"\t"):
            yield _line(sha, number, fields, line[1:])
        elif header := _BLAME_HEADER.match(line):
            sha, number = header[1].decode("ascii"), int(header[2])
            fields = commits.setdefault(sha, {})
        else:
            name, _, value = line.partition(b" ")
            fields[name] = value


def _line(sha: str, number: int, fields: dict[bytes, bytes], text: bytes) -> Line:
    return Line(
        number,
        text_of(text.rstrip(b"\r")),
        "" if set(sha) == {"0"} else sha,
        flat(text_of(fields.get(b"author", b"")))[:MAX_AUTHOR],
        moment_of(fields.get(b"committer-time", b"0")),
        flat(text_of(fields.get(b"summary", b"")))[:_MAX_SUMMARY],
        text_of(fields.get(b"filename", b"")),
    )
