"""Read a range of commits, and files as they were at its ends, without a working tree."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memoryhub.core.errors import Invalid, NotFound, Unavailable
from memoryhub.core.text import flat
from sessions_app.git.process import MAX_AUTHOR, reason_of, run, stream, text_of, top_of_worktree

# Two or three dots: both mean the commits of the second end that the first one lacks
_RANGE = re.compile(r"(?P<base>[^.](?:.*?[^.])?)\.\.\.?(?P<head>(?!\.).*)", re.DOTALL)
_MAX_NAME = 300
_FILE_MODES = (b"100644", b"100755")
# Bytes of the files that one call of git prints
_BATCH_BYTES = 16 * 2**20
_BATCH_FILES = 500
_SLASH = b"/"


@dataclass(frozen=True, slots=True)
class CommitRange:
    """The commits of a branch that another one lacks."""

    top: Path
    # As it was asked for
    name: str
    # The newest commit that both ends have, and the ends
    fork: str
    base: str
    head: str
    # Names of the branches at the ends, "" where they are not known
    base_branch: str
    branch: str
    commits: frozenset[str]


def find_range(directory: Path, name: str) -> CommitRange:
    """Return the range that ``BASE..HEAD`` names in the repository of a folder.

    Raises:
        Invalid: the name is no range, the folder is in no working tree, or the ends have no commit in common.
        NotFound: there is no such commit.
        Unavailable: git is not installed or fails, or the clone lacks a part of the history.
    """
    match = _RANGE.fullmatch(name)
    if match is None or len(name) > _MAX_NAME or "\0" in name:
        raise Invalid(f"{flat(name[:_MAX_NAME])!r} is not a range of commits; write BASE..HEAD, such as main..HEAD")
    top = top_of_worktree(directory)
    if run(top, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true":
        raise Unavailable(
            f"{top} is a shallow clone, which does not have all commits of {flat(name)}; run `git fetch --unshallow`"
        )
    head_name = match["head"] or "HEAD"
    base = _find_commit(top, match["base"])
    head = _find_commit(top, head_name)
    fork = run(top, "merge-base", base, head)
    if fork.returncode:
        raise Invalid(f"the ends of {flat(name)} have no commit in common; name another BASE")
    commits = run(top, "rev-list", f"{base}..{head}", "--")
    if commits.returncode:
        raise Unavailable(f"git cannot list the commits of {flat(name)}: {reason_of(commits.stderr)}")
    return CommitRange(
        top=top,
        name=name,
        fork=_line(fork.stdout),
        base=base,
        head=head,
        base_branch=_branch_named(top, match["base"]),
        branch=_branch_named(top, head_name),
        commits=frozenset(commits.stdout.decode("ascii").split()),
    )


def _find_commit(top: Path, name: str) -> str:
    answer = run(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if answer.returncode or not answer.stdout.strip():
        raise NotFound(f"there is no commit {flat(name)!r} in {top}; run `git fetch`, or name another one")
    return _line(answer.stdout)


# "" for a hash and a detached HEAD
def _branch_named(top: Path, name: str) -> str:
    answer = run(top, "rev-parse", "--symbolic-full-name", "--verify", "--quiet", "--end-of-options", name)
    kind, _, branch = _line(answer.stdout).removeprefix("refs/").partition("/")
    if kind == "heads":
        return branch
    return branch.partition("/")[2] if kind == "remotes" else ""


def _line(output: bytes) -> str:
    return text_of(output.removesuffix(b"\n"))


@dataclass(frozen=True, slots=True)
class CommittedFile:
    sha: str
    size: int


def list_committed(top: Path, commit: str, folder: str, ending: str) -> dict[str, CommittedFile]:
    """Map the paths of plain files below a folder, as a commit has them, to their contents.

    Args:
        top: of the working tree.
        commit: a hash.
        folder: its path from the top, "" for all.
        ending: of the file's name, in lower case.

    Raises:
        Unavailable: git cannot read the commit.
    """
    where = ["--", f"{folder.rstrip('/')}/"] if folder.strip("/") else []
    files: dict[str, CommittedFile] = {}
    end = b""
    with stream(top, "ls-tree", "-r", "-l", "-z", "--full-tree", commit, *where) as chunks:
        for chunk in chunks:
            *lines, end = (end + chunk).split(b"\0")
            for line in lines:
                facts, _, path = line.partition(b"\t")
                mode, _, sha, size = facts.split()
                if mode in _FILE_MODES and path.lower().endswith(ending.encode()) and size.isdigit():
                    files[os.fsdecode(path)] = CommittedFile(sha.decode("ascii"), int(size))
    return files


def read_committed(top: Path, files: Sequence[CommittedFile]) -> Iterator[bytes]:
    """Yield the contents of files, in their order.

    Raises:
        Unavailable: git cannot read one, as in a partial clone.
    """
    for batch in _batches(files):
        answer = run(top, "show", "--no-textconv", *(file.sha for file in batch))
        if answer.returncode or len(answer.stdout) != sum(file.size for file in batch):
            raise Unavailable(f"git cannot read committed files in {top}: {reason_of(answer.stderr)}")
        start = 0
        for file in batch:
            yield answer.stdout[start : start + file.size]
            start += file.size


def _batches(files: Sequence[CommittedFile]) -> Iterator[list[CommittedFile]]:
    batch: list[CommittedFile] = []
    size = 0
    for file in files:
        if batch and (size + file.size > _BATCH_BYTES or len(batch) == _BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch


def authors_of_files(span: CommitRange, folder: str) -> dict[str, list[str]]:
    """Map the files of a folder that commits of a range changed to their authors, the latest first."""
    where = [f":(top,literal){folder}"] if folder.strip("/") else []
    options = ("log", "-z", "--name-only", "--no-renames", "--no-show-signature", f"-O{os.devnull}")
    authors: dict[str, list[str]] = {}
    author = ""
    # A slash is no path: after it comes the author of a commit, then the files that it changed
    pieces = _pieces(span.top, *options, "--format=tformat:%x00/%x00%an%x00", f"{span.base}..{span.head}", "--", *where)
    for piece in pieces:
        if piece == _SLASH:
            author = flat(text_of(next(pieces, b"")))[:MAX_AUTHOR]
        elif path := piece.lstrip(b"\n"):
            names = authors.setdefault(os.fsdecode(path), [])
            if author not in names:
                names.append(author)
    return authors


def _pieces(top: Path, *arguments: str) -> Iterator[bytes]:
    end = b""
    with stream(top, *arguments) as chunks:
        for chunk in chunks:
            *pieces, end = (end + chunk).split(b"\0")
            yield from pieces
