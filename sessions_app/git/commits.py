"""Read commits, the commits of a file's lines, and when git saw files first and last."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from subprocess import CompletedProcess

from memoryhub.config.repository import is_folder
from memoryhub.core import clock
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.text import counted, flat
from sessions_app.events import MAX_LINES, FileChange
from sessions_app.git.diffs import compare_texts
from sessions_app.git.process import MAX_AUTHOR, moment_of, reason_of, run, run_in_repository, stream, text_of
from sessions_app.schemas import CommitRecord

_START = b"commit"
_MAX_MESSAGE = 100_000
# What a repository's configuration could change or slow down; without an order file, which git reads whole
DIFF_OPTIONS = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-show-signature", f"-O{os.devnull}")
# Bytes of a part of git's answer; the rest of a longer one is cut
_MAX_TOKEN = 2**20
# Parts of a commit before its files
_FIELDS = 4
_MAX_FILES = 100_000
# Git counts no lines of larger files: a blob of a megabyte can unpack to a gigabyte
_MOST_COUNTED = ("-c", "core.bigFileThreshold=16m")
# Files with the numbers of changed lines, and those that git can name without their contents
_COUNTED, _UNCOUNTED = ("--numstat",), ("--raw", "--no-abbrev", "--find-renames=100%")
# Fields are separated by NUL bytes, which no message, author or path can contain.
_FORMAT = "--format=tformat:%x00commit%x00%H%x00%aN <%aE>%x00%ct%x00%B%x00"
_MOST_COMMITS = 20_000
# A slash is no path: after it comes the time of a commit, then the files that it changed
_SLASH = b"/"
_CHANGED_NAMES = (
    *("log", f"--max-count={_MOST_COMMITS}", "-z", "--name-only", "--no-renames", "--relative", *DIFF_OPTIONS),
    "--format=tformat:%x00/%x00%ct%x00",
)
# Commits that are counted at once where some cannot be
_BATCH, _MOST_FAILURES = 200, 50
# Files that are named to git one by one
_FEW_FILES = 100
_HEAD_OF_CHANGE = re.compile(rb"\x00([0-9a-f]{40,64})\n")
# Bounds the size of a diff: git prints no content of binary files.
_BIG_IS_BINARY = ("-c", "core.bigFileThreshold=512k")
_CHANGE_OPTIONS = (
    "--no-walk=unsorted",
    "--ignore-missing",
    "--patch",
    *DIFF_OPTIONS,
    "--no-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--format=tformat:%x00%H",
)


def count_commits(repository: Path, *, limit: int | None = None, since: str | None = None) -> int:
    """Return the number of commits that ``read_commits`` yields."""
    window = _log_window(limit, since)
    if not _has_commits(repository):
        return 0
    answer = run(repository, "rev-list", "--count", *window, "HEAD")
    return int(answer.stdout) if answer.returncode == 0 else 0


def list_commits(repository: Path, *, limit: int) -> list[str]:
    """Return the hashes of the newest commits that are reachable from HEAD, the newest first."""
    if not _has_commits(repository):
        return []
    answer = run(repository, "rev-list", *_log_window(limit, None), "HEAD")
    return answer.stdout.decode("ascii").split() if answer.returncode == 0 else []


def read_commits(
    repository: Path,
    *,
    limit: int | None = None,
    since: str | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[CommitRecord]:
    """Yield the commits reachable from HEAD, oldest first; with ``limit``, the newest ones.

    Merge commits have no files: their changes are those of the commits that they merge. Where contents of files are
    absent, as in a partial clone, files have no line counts, and nothing is fetched; ``warn`` gets git's reason.
    """
    window = _log_window(limit, since)
    if not _has_commits(repository):
        return
    yielded, reason = 0, ""
    if not _is_partial(repository):
        try:
            with stream(repository, *_log(_COUNTED), "--reverse", *window, "HEAD", "--") as chunks:
                for commit in _parse_commits(_tokens(chunks)):
                    yielded += 1
                    yield commit
            return
        except Unavailable as error:
            if "exit_code" not in error.data:
                raise
            reason = error.message
    uncounted: list[str] = []
    with stream(repository, *_log(_UNCOUNTED), "--reverse", *window, "HEAD", "--") as chunks:
        remaining = islice(_parse_log(_tokens(chunks)), yielded, None)
        for commit in _LineCounts(repository, _absent_objects(repository)).of(remaining):
            # Only binary files have none in commits whose contents are there
            if commit.files and all(file.insertions is None for file in commit.files):
                uncounted.append(commit.sha)
            yield commit
    if uncounted:
        if not reason:
            problem = run(repository, *_log(_COUNTED), "--max-count=1", uncounted[0], "--").stderr
            reason = f"it is a partial clone, and nothing is fetched: {reason_of(problem)}"
        warn(f"{counted(len(uncounted), 'commit')} without line counts: {reason}")


def _absent_objects(repository: Path) -> set[bytes]:
    absent: set[bytes] = set()
    end = b""
    with stream(repository, "rev-list", "--objects", "--missing=print", "HEAD", "--") as chunks:
        for chunk in chunks:
            *lines, end = (end + chunk).split(b"\n")
            absent.update(line[1:] for line in lines if line.startswith(b"?"))
    return absent


@dataclass
class _LineCounts:
    repository: Path
    absent: set[bytes]
    # Calls of git that failed; after so many, the rest is not counted
    failures: int = 0

    def of(self, commits: Iterator[tuple[CommitRecord, set[bytes]]]) -> Iterator[CommitRecord]:
        while batch := list(islice(commits, _BATCH)):
            shas = [commit.sha for commit, blobs in batch if blobs and blobs.isdisjoint(self.absent)]
            records = self._counted(shas)
            yield from (records.get(commit.sha, commit) for commit, _ in batch)

    def _counted(self, shas: list[str]) -> dict[str, CommitRecord]:
        if not shas or self.failures >= _MOST_FAILURES:
            return {}
        answer = run(self.repository, *_log(_COUNTED), "--no-walk=unsorted", *shas, "--")
        if answer.returncode == 0:
            return {commit.sha: commit for commit in _parse_commits(_tokens(iter([answer.stdout])))}
        self.failures += 1
        if len(shas) == 1:
            return {}
        half = len(shas) // 2
        return self._counted(shas[:half]) | self._counted(shas[half:])


def read_commit(repository: Path, revision: str) -> CommitRecord | None:
    """Return the commit of a hash, a short hash or ``HEAD``; None if there is no such commit or repository.

    Raises:
        Unavailable: git is not installed, or cannot read the repository.
    """
    if not is_folder(repository):
        return None
    revision = f"{revision}^{{commit}}"
    answer = run_in_repository(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", revision)
    if answer is None or answer.returncode:
        return None
    sha = answer.stdout.decode("ascii").strip()
    # Without counts where contents of files are absent
    for files in (_COUNTED, _UNCOUNTED):
        history = run(repository, *_log(files), "--max-count=1", sha, "--")
        if history.returncode == 0:
            break
    else:
        raise Unavailable(f"git log ended with code {history.returncode} in {repository}: {reason_of(history.stderr)}")
    return next(_parse_commits(_tokens(iter([history.stdout]))), None)


def read_changes(repository: Path, shas: Sequence[str], paths: Sequence[str]) -> dict[str, str]:
    """Map full hashes to the unified diffs of files, whose paths are from the top of the repository.

    Commits that the repository lacks are left out.

    Raises:
        Unavailable: git is not installed or does not answer.
    """
    pathspecs = [f":(top,literal){path}" for path in paths]
    answer = run(repository, *_BIG_IS_BINARY, "log", *_CHANGE_OPTIONS, "--end-of-options", *shas, "--", *pathspecs)
    _, *parts = _HEAD_OF_CHANGE.split(answer.stdout)
    diffs = {sha.decode("ascii"): text_of(diff).strip("\n") for sha, diff in zip(parts[::2], parts[1::2], strict=True)}
    return {sha: diff for sha, diff in diffs.items() if sha in shas}


def last_changes(directory: Path, names: Collection[str]) -> dict[str, datetime]:
    """Map files to the time of the last commit that changed them; files that git does not track are left out.

    One call of git for all files. A file that none of the newest 20,000 commits changed gets the time of the
    oldest of them.

    Args:
        directory: a folder in a repository; outside one, and where git fails, the answer is empty.
        names: paths relative to the folder.
    """
    changes: dict[str, datetime] = {}
    try:
        tracked = run(directory, "ls-files", "-z", "--cached").stdout.split(b"\0")
        pending = set(map(os.fsdecode, tracked)).intersection(names)
        if not pending:
            return changes
        moment, commits = None, 0
        few = ["."]
        if len(pending) <= _FEW_FILES:
            few = [f":(literal){name}" for name in pending]
        with stream(directory, *_CHANGED_NAMES, "HEAD", "--", *few) as chunks:
            for token in (tokens := _tokens(chunks)):
                if token == _SLASH:
                    moment, commits = moment_of(next(tokens, b"")), commits + 1
                elif moment and (name := os.fsdecode(token.lstrip(b"\n"))) in pending:
                    pending.remove(name)
                    changes[name] = moment
                if not pending:
                    break
        if moment and commits == _MOST_COMMITS:
            changes |= dict.fromkeys(pending, moment)
        return changes
    except Unavailable:
        return changes


def _log(files: Sequence[str]) -> list[str]:
    return [*_MOST_COUNTED, "log", "-z", *files, *DIFF_OPTIONS, _FORMAT]


# A partial clone lacks contents of files, and git may not fetch them.
def _is_partial(repository: Path) -> bool:
    pattern = r"^(remote\..*\.promisor|extensions\.partialclone)$"
    return run(repository, "config", "--get-regexp", pattern).returncode == 0


def _log_window(limit: int | None, since: str | None) -> list[str]:
    if limit is not None and limit < 1:
        raise Invalid(f"limit is {limit}; it must be 1 or more")
    window = []
    if limit is not None:
        window.append(f"--max-count={limit}")
    try:
        if since is not None:
            window.append(f"--since={clock.from_input(since).isoformat()}")
    except ValueError as error:
        raise Invalid(f"since is {since!r}; write a date such as 2026-01-31 or 2026-01-31T08:30:00Z") from error
    return window


def _has_commits(repository: Path) -> bool:
    if not is_folder(repository):
        raise Invalid(f"{repository} is not a folder")
    if run_in_repository(repository, "rev-parse", "--git-dir") is None:
        raise Invalid(f"{repository} is not in a git repository; name the folder of one")
    return run(repository, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").returncode == 0


def _tokens(chunks: Iterator[bytes]) -> Iterator[bytes]:
    end = b""
    for chunk in chunks:
        *whole, end = (end + chunk).split(b"\0")
        yield from whole
        end = end[:_MAX_TOKEN]
    if end.strip():
        yield end


def _parse_commits(tokens: Iterator[bytes]) -> Iterator[CommitRecord]:
    yield from (commit for commit, _ in _parse_log(tokens))


# Tokens per commit: commit, sha, author, time, message; then its files, up to the next `commit`. Files that are not
# counted have the names of their contents, which are beside the commit.
def _parse_log(tokens: Iterator[bytes]) -> Iterator[tuple[CommitRecord, set[bytes]]]:
    header: list[bytes] = []
    files: list[FileChange] = []
    blobs: set[bytes] = set()
    for token in tokens:
        if token == _START:
            if len(header) == _FIELDS:
                yield _record(header, files), blobs
            header, files, blobs = list(islice(tokens, _FIELDS)), [], set()
            continue
        if token.lstrip(b"\n").startswith(b":"):
            blobs.update(sha for sha in token.split(b" ")[2:4] if sha.strip(b"0"))
            # `:old-mode new-mode old-sha new-sha status`; the path follows, for a renamed file after the old one
            if b" R" in token:
                next(tokens, b"")
            file = FileChange(path=text_of(next(tokens, b"")), insertions=None, deletions=None)
        elif b"\t" in token:
            file = _file(token, tokens)
        else:
            continue
        if len(files) < _MAX_FILES:
            files.append(file)
    if len(header) == _FIELDS:
        yield _record(header, files), blobs


# A token is `insertions TAB deletions TAB path`. For a renamed file the path is empty, and the old and the new path
# follow as tokens.
def _file(token: bytes, tokens: Iterator[bytes]) -> FileChange:
    insertions, deletions, path = token.lstrip(b"\n").split(b"\t", 2)
    if not path:
        next(tokens, b"")
        path = next(tokens, b"")
    return FileChange(path=text_of(path), insertions=_number(insertions), deletions=_number(deletions))


def _record(header: list[bytes], files: list[FileChange]) -> CommitRecord:
    sha, author, committed, message = header
    return CommitRecord(
        sha=sha.decode("ascii"),
        message=text_of(message).strip()[:_MAX_MESSAGE],
        author=flat(text_of(author))[:MAX_AUTHOR],
        committed_at=moment_of(committed),
        files=files,
    )


def _number(count: bytes) -> int | None:
    return min(int(count), MAX_LINES) if count.isdigit() else None


_FIRST_FORMAT = "--format=%x01%an%x00%at%x00%P"


@dataclass(frozen=True, slots=True)
class FirstCommit:
    author: str
    committed_at: datetime


def first_commits(directory: Path) -> dict[str, FirstCommit]:
    """Map the files below a folder, relative to it, to the commits that added them; empty outside git.

    A renamed file keeps its first commit. A shallow clone does not know when the files of
    its oldest commits were added, so these are left out.
    """
    try:
        history = _log_of_additions(directory, "--find-renames")
        if history.returncode:
            history = _log_of_additions(directory, "--find-renames=100%")  # a partial clone has no texts to compare
        is_shallow = run(directory, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
    except Unavailable:
        return {}
    first: dict[str, FirstCommit] = {}
    if history.returncode:
        return first
    for commit in history.stdout.split(b"\x01")[1:]:
        author, seconds, parents, *changes = [*commit.split(b"\0"), b"", b""]  # a file's name may hold the mark
        if is_shallow and not parents:
            continue
        added = FirstCommit(text_of(author), moment_of(seconds))
        _follow(list(map(os.fsdecode, changes)), added, first)
    return first


def _log_of_additions(directory: Path, renames: str) -> CompletedProcess[bytes]:
    options = ("--reverse", "--relative", "--name-status", "--diff-filter=AR", renames, "-z")
    return run(directory, "log", *options, _FIRST_FORMAT, "HEAD", "--", ".")


# Pairs of `A` and a path, or triples of `R100`, the old path and the new one
def _follow(changes: list[str], added: FirstCommit, first: dict[str, FirstCommit]) -> None:
    tokens = iter(changes)
    for token in tokens:
        kind = token.strip()
        if kind.startswith("R"):
            before, after = next(tokens, ""), next(tokens, "")
            first[after] = first.get(before, added)
        elif kind:
            first.setdefault(next(tokens, ""), added)


_BLAME_OPTIONS = ("--porcelain", "-w", "-M", "-C", "--no-textconv")
_BLAME_HEADER = re.compile(rb"([0-9a-f]{40,64}) \d+ (\d+)(?: \d+)?")
_COMPARE_OPTIONS = ("--no-index", "--unified=0", "--text", "-w", "--no-color", "--no-ext-diff", "--no-textconv")
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
    origins: dict[int, Line] = {}
    if numbers:
        window = f"{min(numbers.values())},{max(numbers.values())}"
        answer = run(repository, "blame", *_BLAME_OPTIONS, "-L", window, "HEAD", "--", path)
        if answer.returncode:
            raise Invalid(f"git can't blame {path}: {reason_of(answer.stderr)}")
        origins = {line.number: line for line in _parse_blame(answer.stdout)}
    lines = []
    for number in range(first, last + 1):
        text = text_of(texts[number - 1].rstrip(b"\r"))
        origin = origins.get(numbers.get(number, 0))
        lines.append(replace(origin or Line(0, ""), number=number, text=text))
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
    compared = compare_texts(old, new, "diff", *_COMPARE_OPTIONS)
    hunks = (match.groups(default=b"1") for match in _HUNK.finditer(compared))
    return [(int(old), int(old_count), int(new), int(new_count)) for old, old_count, new, new_count in hunks]


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
