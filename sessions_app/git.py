"""Read files and commits of a repository with the git binary."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from memoryhub.config.repository import is_folder
from memoryhub.core import clock
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.text import flat
from sessions_app.events import FileChange
from sessions_app.events.work import MAX_LINES
from sessions_app.schemas import CommitRecord

_TIMEOUT = 30
_CHUNK = 1 << 16
_START = b"commit"
_MAX_MESSAGE = 100_000
_MAX_AUTHOR = 300
_MAX_FILES = 100_000
_QUIET = (
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.quotePath=false",
    "-c",
    "i18n.logOutputEncoding=UTF-8",
    "-c",
    "log.showSignature=false",
)
# Fields are separated by NUL bytes, which no message, author or path can contain.
_LOG_OPTIONS = (
    "--numstat",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--format=tformat:%x00commit%x00%H%x00%aN <%aE>%x00%ct%x00%B%x00",
)
_HEAD_OF_CHANGE = re.compile(rb"\x00([0-9a-f]{40,64})\n")
_BLAME_OPTIONS = ("--porcelain", "-w", "-M", "-C", "--no-textconv")
_BLAME_HEADER = re.compile(rb"([0-9a-f]{40,64}) \d+ (\d+)(?: \d+)?")
_FILTER = re.compile(r"[\w.-]{1,100}")
_MAX_SUMMARY = 300
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


def list_files(directory: Path) -> list[str] | None:
    """Return the files below a folder that git tracks or does not ignore, relative to it; None outside git."""
    try:
        done = _run(directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except Unavailable:
        return None
    if done.returncode:
        return None
    return sorted({os.fsdecode(path) for path in done.stdout.split(b"\0") if path})


def path_in_worktree(directory: Path) -> str:
    """Return the folder's path in its worktree, such as ``docs/``; "" at the top and outside git."""
    try:
        done = _run(directory, "rev-parse", "--show-prefix")
    except Unavailable:
        return ""
    return "" if done.returncode else os.fsdecode(done.stdout.removesuffix(b"\n"))


def top_of_worktree(directory: Path) -> Path:
    """Return the top folder of the working tree that contains a folder.

    Raises:
        Invalid: there is no such folder, or it is in no working tree.
    """
    if not is_folder(directory):
        raise Invalid(f"{directory} is not a folder")
    done = _run(directory, "rev-parse", "--show-toplevel")
    if done.returncode or not done.stdout.strip():
        raise Invalid(f"{directory} is in no working tree of git")
    return Path(os.fsdecode(done.stdout.removesuffix(b"\n"))).resolve()


def count_commits(repository: Path, *, limit: int | None = None, since: str | None = None) -> int:
    """Return the number of commits that ``read_commits`` yields."""
    window = _window(limit, since)
    if not _has_commits(repository):
        return 0
    done = _run(repository, "rev-list", "--count", *window, "HEAD")
    return int(done.stdout) if done.returncode == 0 else 0


def read_commits(repository: Path, *, limit: int | None = None, since: str | None = None) -> Iterator[CommitRecord]:
    """Yield the commits reachable from HEAD, oldest first; with ``limit``, the newest ones.

    Merge commits have no files: their changes are those of the commits that they merge.
    """
    window = _window(limit, since)
    if not _has_commits(repository):
        return
    with _stream(repository, "log", "--reverse", "-z", *_LOG_OPTIONS, *window, "HEAD", "--") as chunks:
        yield from _commits(_tokens(chunks))


def read_commit(repository: Path, revision: str) -> CommitRecord | None:
    """Return the commit of a hash, a short hash or ``HEAD``; None if there is no such commit or repository."""
    if not is_folder(repository):
        return None
    found = _run(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if found.returncode:
        return None
    done = _run(repository, "log", "-z", "--max-count=1", *_LOG_OPTIONS, found.stdout.decode("ascii").strip(), "--")
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
    done = _run(repository, *_BIG_IS_BINARY, "log", *_CHANGE_OPTIONS, *shas, "--", *pathspecs)
    _, *parts = _HEAD_OF_CHANGE.split(done.stdout)
    found = {sha.decode("ascii"): _text(diff).strip("\n") for sha, diff in zip(parts[::2], parts[1::2], strict=True)}
    return {sha: diff for sha, diff in found.items() if sha in shas}


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
    done = _run(repository, *_without_filter(repository, path), "blame", *_BLAME_OPTIONS, "-L", window, "--", path)
    if done.returncode:
        raise Invalid(f"git can't blame {path}: {_last_line(done.stderr).removeprefix('fatal: ')}")
    return list(_blamed(done.stdout))


# Attributes of the repository can select a program that git would run on the file's content
def _without_filter(repository: Path, path: str) -> list[str]:
    found = _run(repository, "check-attr", "-z", "filter", "--", path).stdout.split(b"\0")
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
        _text(text.rstrip(b"\r")),
        "" if set(sha) == {"0"} else sha,
        flat(_text(fields.get(b"author", b"")))[:_MAX_AUTHOR],
        _moment(fields.get(b"committer-time", b"0")),
        flat(_text(fields.get(b"summary", b"")))[:_MAX_SUMMARY],
        _text(fields.get(b"filename", b"")),
    )


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
    done = _run(repository, "rev-parse", "--git-dir")
    if done.returncode:
        raise Invalid(f"{repository} is not in a git repository: {_last_line(done.stderr)}")
    return _run(repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").returncode == 0


def _command(directory: Path, arguments: tuple[str, ...]) -> list[str]:
    return ["git", "-C", str(directory), *_QUIET, *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def _run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # noqa: S603  (arguments of our own, no shell)
            _command(directory, arguments), capture_output=True, check=False, timeout=_TIMEOUT, env=_environment()
        )
    except FileNotFoundError as error:
        raise Unavailable("git is not installed; install it, or put it on the PATH") from error
    except (OSError, ValueError) as error:
        raise Unavailable(f"git cannot be started in {str(directory)[:80]!r}: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"git did not answer within {_TIMEOUT} s in {directory}") from error


@contextmanager
def _stream(directory: Path, *arguments: str) -> Iterator[Iterator[bytes]]:
    # Yields git's output in chunks; git's exit code is checked after the last one.
    process = subprocess.Popen(  # noqa: S603  (arguments of our own, no shell)
        _command(directory, arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    )
    output = process.stdout
    assert output is not None  # noqa: S101  (Popen was given a pipe)
    try:
        yield iter(lambda: output.read(_CHUNK), b"")
        if process.wait(_TIMEOUT):
            raise Unavailable(f"git log ended with code {process.returncode} in {directory}; try `git fsck` there")
    finally:
        output.close()
        process.kill()
        process.wait()


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
    return FileChange(path=_text(path), insertions=_number(insertions), deletions=_number(deletions))


def _record(header: list[bytes], files: list[FileChange]) -> CommitRecord:
    sha, author, committed, message = header
    return CommitRecord(
        sha=sha.decode("ascii"),
        message=_text(message).strip()[:_MAX_MESSAGE],
        author=flat(_text(author))[:_MAX_AUTHOR],
        committed_at=_moment(committed),
        files=files[:_MAX_FILES],
    )


def _number(count: bytes) -> int | None:
    return min(int(count), MAX_LINES) if count.isdigit() else None


# Old commits may be in Latin-1 without declaring an encoding.
def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


# git accepts times outside the range of datetime; these become 1970.
def _moment(seconds: bytes) -> datetime:
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


def _last_line(output: bytes) -> str:
    lines = _text(output).strip().splitlines()
    return lines[-1] if lines else "git gave no reason"
