"""Commits of a repository, and their changes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from memoryhub.config.repository import is_folder
from memoryhub.core import clock
from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from sessions_app.events import FileChange
from sessions_app.events.work import MAX_LINES
from sessions_app.git.process import MAX_AUTHOR, last_line, moment_of, run, stream, text_of
from sessions_app.schemas import CommitRecord

_START = b"commit"
_MAX_MESSAGE = 100_000
_MAX_FILES = 100_000
# Fields are separated by NUL bytes, which no message, author or path can contain.
_LOG_OPTIONS = (
    "--numstat",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--format=tformat:%x00commit%x00%H%x00%aN <%aE>%x00%ct%x00%B%x00",
)
_HEAD_OF_CHANGE = re.compile(rb"\x00([0-9a-f]{40,64})\n")
# Bounds the size of a diff: git prints no content of binary files.
_BIG_IS_BINARY = ("-c", "core.bigFileThreshold=512k")
_CHANGE_OPTIONS = (
    "--no-walk=unsorted",
    "--ignore-missing",
    "--patch",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--format=tformat:%x00%H",
)


def count_commits(repository: Path, *, limit: int | None = None, since: str | None = None) -> int:
    """Return the number of commits that ``read_commits`` yields."""
    window = _window(limit, since)
    if not _has_commits(repository):
        return 0
    done = run(repository, "rev-list", "--count", *window, "HEAD")
    return int(done.stdout) if done.returncode == 0 else 0


def read_commits(repository: Path, *, limit: int | None = None, since: str | None = None) -> Iterator[CommitRecord]:
    """Yield the commits reachable from HEAD, oldest first; with ``limit``, the newest ones.

    Merge commits have no files: their changes are those of the commits that they merge.
    """
    window = _window(limit, since)
    if not _has_commits(repository):
        return
    with stream(repository, "log", "--reverse", "-z", *_LOG_OPTIONS, *window, "HEAD", "--") as chunks:
        yield from _commits(_tokens(chunks))


def read_commit(repository: Path, revision: str) -> CommitRecord | None:
    """Return the commit of a hash, a short hash or ``HEAD``; None if there is no such commit or repository."""
    if not is_folder(repository):
        return None
    found = run(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if found.returncode:
        return None
    done = run(repository, "log", "-z", "--max-count=1", *_LOG_OPTIONS, found.stdout.decode("ascii").strip(), "--")
    return next(_commits(_tokens(iter([done.stdout]))), None)


def read_changes(repository: Path, shas: Sequence[str], paths: Sequence[str]) -> dict[str, str]:
    """Map full hashes to the unified diffs of these files; commits that the repository lacks are left out.

    Args:
        repository: a folder in the repository.
        shas: full hashes.
        paths: from the top of the repository.

    Raises:
        Unavailable: git is not installed or does not answer.
    """
    pathspecs = [f":(top,literal){path}" for path in paths]
    done = run(repository, *_BIG_IS_BINARY, "log", *_CHANGE_OPTIONS, *shas, "--", *pathspecs)
    _, *parts = _HEAD_OF_CHANGE.split(done.stdout)
    found = {sha.decode("ascii"): text_of(diff).strip("\n") for sha, diff in zip(parts[::2], parts[1::2], strict=True)}
    return {sha: diff for sha, diff in found.items() if sha in shas}


def _window(limit: int | None, since: str | None) -> list[str]:
    if limit is not None and limit < 1:
        raise Invalid(f"limit is {limit}; it must be 1 or more")
    window = [] if limit is None else [f"--max-count={limit}"]
    return window if since is None else [*window, f"--since={_date(since)}"]


def _date(since: str) -> str:
    try:
        return clock.from_text(since).isoformat()
    except ValueError as error:
        raise Invalid(f"since is {since!r}; write a date such as 2026-01-31 or 2026-01-31T08:30:00Z") from error


def _has_commits(repository: Path) -> bool:
    if not is_folder(repository):
        raise Invalid(f"{repository} is not a folder")
    done = run(repository, "rev-parse", "--git-dir")
    if done.returncode:
        raise Invalid(f"{repository} is not in a git repository: {last_line(done.stderr)}")
    return run(repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").returncode == 0


def _tokens(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\0")
        yield from whole
    if rest.strip():
        yield rest


# Tokens per commit: commit, sha, author, time, message; then its files, up to the next `commit`.
def _commits(tokens: Iterator[bytes]) -> Iterator[CommitRecord]:
    header: list[bytes] = []
    files: list[FileChange] = []
    for token in tokens:
        if token == _START:
            if header:
                yield _record(header, files)
            header, files = [next(tokens) for _ in range(4)], []
        elif b"\t" in token:
            files.append(_file(token, tokens))
    if header:
        yield _record(header, files)


# A token is `insertions TAB deletions TAB path`. For a renamed file the path is empty, and the old and the new path
# follow as tokens.
def _file(token: bytes, tokens: Iterator[bytes]) -> FileChange:
    insertions, deletions, path = token.lstrip(b"\n").split(b"\t", 2)
    if not path:
        next(tokens)
        path = next(tokens)
    return FileChange(path=text_of(path), insertions=_number(insertions), deletions=_number(deletions))


def _record(header: list[bytes], files: list[FileChange]) -> CommitRecord:
    sha, author, committed, message = header
    return CommitRecord(
        sha=sha.decode("ascii"),
        message=text_of(message).strip()[:_MAX_MESSAGE],
        author=flat(text_of(author))[:MAX_AUTHOR],
        committed_at=moment_of(committed),
        files=files[:_MAX_FILES],
    )


def _number(count: bytes) -> int | None:
    return min(int(count), MAX_LINES) if count.isdigit() else None
