"""Read where a working tree is and what it has checked out, from git's own files.

A search asks for it, so an answer is cached until one of the files that it was read from changes.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from memoryhub.config.repository import find_repository, is_folder
from memoryhub.core.errors import Unavailable
from memoryhub.core.foreign_files import read_foreign
from sessions_app.git.process import run, text_of

T = TypeVar("T")
# What ``stat`` says of a file or a folder; None if there is none
Signature = tuple[int, ...] | None

_BRANCH = "refs/heads/"
_SHA = re.compile(rb"([0-9a-f]{40}(?:[0-9a-f]{24})?)\s*\Z")
# Bytes of HEAD and of a file with one ref
_REF_BYTES = 4_096
# 100,000 packed refs have 7 MB
_PACKED_BYTES = 64 * 2**20
# A ref may name another one, as in git
_MAX_LINKS = 5
# HEAD of a repository whose refs are in tables
_IN_TABLES = "refs/heads/.invalid"
_SECONDS = 2.0
_MOST_CACHED = 512


@dataclass(frozen=True, slots=True)
class WorkingTree:
    """A working tree: its top folder, the shared git directory, and what is checked out.

    ``head`` is the hash of the newest commit, "" if there is none or it is not known. ``branch`` is a name such as
    ``feature/login``, "" for a detached HEAD.
    """

    top: Path
    common_dir: Path
    head: str
    branch: str


def working_tree_at(directory: Path) -> WorkingTree | None:
    """Return the working tree that contains a folder; None outside git, in a bare repository and for no folder."""
    location = _locations.of(os.path.abspath(directory), _locate)  # noqa: PTH100  (a path object takes as long as all else)
    if location is None:
        return None
    return _trees.of(location.git_dir, lambda _, files: _read_tree(location, files))


def branch_tip(tree: WorkingTree, branch: str) -> str | None:
    """Return the hash of a local branch's newest commit; "" if there is no such branch, None if it is not known."""
    if not branch:
        return ""
    return _tips.of(f"{tree.common_dir}\0{branch}", lambda _, files: _read_tip(tree.common_dir, branch, files))


def main_of_remote(tree: WorkingTree) -> str:
    """Return the name of the branch that a clone of ``origin`` began with; "" if that is not known."""
    content = _Files().read(f"{tree.common_dir}/refs/remotes/origin/HEAD")
    return _linked_ref(content).removeprefix("refs/remotes/origin/")


@dataclass(frozen=True, slots=True)
class _Location:
    top: Path
    git_dir: str
    common_dir: Path


@dataclass(slots=True)
class _Files:
    """The files that an answer depends on, as they were before they were read."""

    signatures: dict[str, Signature] = field(default_factory=dict)
    is_complete: bool = True

    def exists(self, path: str) -> bool:
        self.signatures[path] = _signature(path)
        return self.signatures[path] is not None

    def read(self, path: str, limit: int = _REF_BYTES) -> bytes:
        """Return the content of a file; b"" if there is none or it is no plain file of that size."""
        if not self.exists(path):
            return b""
        try:
            return read_foreign(path, limit=limit)
        except OSError:
            return b""


class _Cache(Generic[T]):
    """Answers by path; each holds as long as the files that it depends on are as they were."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[dict[str, Signature], T]] = {}

    def of(self, path: str, read: Callable[[str, _Files], T]) -> T:
        cached = self._answers.get(path)
        if cached is not None and all(_signature(name) == before for name, before in cached[0].items()):
            return cached[1]
        files = _Files()
        answer = read(path, files)
        if len(self._answers) >= _MOST_CACHED:
            self._answers.clear()
        if files.is_complete:
            self._answers[path] = (files.signatures, answer)
        return answer


_locations: _Cache[_Location | None] = _Cache()
_trees: _Cache[WorkingTree | None] = _Cache()
_tips: _Cache[str | None] = _Cache()


# A folder's times change with each file in it
def _signature(path: str) -> Signature:
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    if stat.S_ISDIR(status.st_mode):
        return status.st_dev, status.st_ino
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _locate(directory: str, files: _Files) -> _Location | None:
    files.exists(directory)
    if not is_folder(Path(directory)):
        return None
    folder = os.path.realpath(directory)
    repository = find_repository(Path(folder))
    for above in (Path(folder), *Path(folder).parents):
        has_git = files.exists(f"{above}/.git")
        if repository is not None and above == repository.top:
            break
        # It is broken or half made, and may become a repository without another change that is looked at
        files.is_complete = files.is_complete and not has_git
    if repository is None or not repository.has_worktree:
        return None
    return _Location(repository.top, str(repository.git_dir), repository.common_dir)


def _read_tree(location: _Location, files: _Files) -> WorkingTree | None:
    head = _head_link(location.git_dir, files)
    if not head:
        return None
    if sha := _SHA.match(head):
        return WorkingTree(location.top, location.common_dir, sha[1].decode("ascii"), "")
    name = _linked_ref(head)
    if name == _IN_TABLES:
        return _ask_git(location, files)
    sha_of_ref = _resolved_ref(location.common_dir, name, files)
    if sha_of_ref is None:
        return _ask_git(location, files)
    return WorkingTree(location.top, location.common_dir, sha_of_ref, _branch_of(os.fsencode(name)))


# "" for a ref that is no branch
def _branch_of(ref: bytes) -> str:
    if not ref.startswith(_BRANCH.encode()):
        return ""
    return text_of(ref.removeprefix(_BRANCH.encode()))


# Old versions of git made HEAD a symbolic link
def _head_link(git_dir: str, files: _Files) -> bytes:
    path = f"{git_dir}/HEAD"
    try:
        target = os.readlink(path)  # noqa: PTH115
    except (OSError, ValueError):
        return files.read(path)
    if not target.startswith("refs/"):
        return files.read(path)
    files.is_complete = False
    return f"ref: {target}".encode("utf-8", "surrogateescape")


# "" for what git would refuse
def _linked_ref(content: bytes) -> str:
    if not content.startswith(b"ref:"):
        return ""
    name = os.fsdecode(content.removeprefix(b"ref:").strip())
    has_parts = all(part not in ("", ".", "..") for part in name.split("/"))
    if name.startswith("refs/") and has_parts and "\0" not in name:
        return name
    return ""


# "" where the ref does not exist, as before the first commit; None where only git can tell
def _resolved_ref(common_dir: Path, name: str, files: _Files) -> str | None:
    for _ in range(_MAX_LINKS):
        if not name:
            return ""
        content = files.read(f"{common_dir}/{name}")
        if sha := _SHA.match(content):
            return sha[1].decode("ascii")
        if not content:
            return _packed_ref(f"{common_dir}/packed-refs", name, files)
        name = _linked_ref(content)
    return ""


def _read_tip(common_dir: Path, branch: str, files: _Files) -> str | None:
    if files.exists(f"{common_dir}/reftable"):
        return None
    link = f"ref: {_BRANCH}{branch}".encode("utf-8", "surrogateescape")
    return _resolved_ref(common_dir, _linked_ref(link), files)


def _packed_ref(path: str, name: str, files: _Files) -> str | None:
    content = files.read(path, _PACKED_BYTES)
    if not content and files.signatures[path] is not None:
        return None
    end = content.find(b" %s\n" % os.fsencode(name))
    sha = _SHA.match(content[content.rfind(b"\n", 0, max(end, 0)) + 1 : max(end, 0)])
    return sha[1].decode("ascii") if sha else ""


def _ask_git(location: _Location, files: _Files) -> WorkingTree:
    for directory in {location.git_dir, str(location.common_dir)}:
        files.exists(f"{directory}/reftable/tables.list")
    head = branch = ""
    try:
        commit = run(location.top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", seconds=_SECONDS)
        ref = run(location.top, "symbolic-ref", "--quiet", "HEAD", seconds=_SECONDS)
    except Unavailable:
        files.is_complete = False
        return WorkingTree(location.top, location.common_dir, head, branch)
    if commit.returncode == 0:
        head = text_of(commit.stdout).strip()
    if ref.returncode == 0:
        branch = _branch_of(ref.stdout.removesuffix(b"\n"))
    return WorkingTree(location.top, location.common_dir, head, branch)
