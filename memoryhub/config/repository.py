"""Read the repository of a folder from git's own files. Standard library only; starts no process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from memoryhub.core.foreign_files import read_foreign
from memoryhub.env import working_folder_text

_SECTION = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_SETTING = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(.*)")
_URL = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//(?:[^/@]*@)?(?P<host>[^/]*)/*(?P<path>.*)$", re.IGNORECASE)
_SCP = re.compile(r"^(?:[^@/:]+@)?(?P<host>[^/:]{2,}):/*(?P<path>.*)$")


# Characters of a path or an address; Linux opens no longer path
_MAX_PATH = 4_096
# git adds a section for each branch: a config of 64 KB is not rare
_CONFIG_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository: its shared git directory, its main folder, and its remotes' URLs by name."""

    common_dir: Path
    folder: Path
    remotes: dict[str, str]
    is_submodule: bool
    is_linked: bool
    is_bare: bool
    # The folder that it was found at, and that folder's git directory; a linked working tree has one of its own
    top: Path
    git_dir: Path
    has_worktree: bool

    @property
    def folder_name(self) -> str:
        """Return the main folder's name, without ``.git`` for a bare repository."""
        return self.folder.name.removesuffix(".git")


def find_repository(directory: Path) -> Repository | None:
    """Return the repository that contains the folder, or None.

    A folder of a working tree that looks like a bare repository is a part of that tree: a clone may track such a
    folder, with a configuration of its author's.
    """
    for folder in (directory, *directory.parents):
        git_dir = _git_dir(folder)
        if git_dir is None:
            continue
        is_in_worktree = git_dir == folder and any(_git_dir(parent) not in (None, parent) for parent in folder.parents)
        if not is_in_worktree:
            return _repository(folder, git_dir)
    return None


def find_worktree(directory: Path) -> Repository | None:
    """Return the repository whose working tree contains the folder, or None."""
    repository = find_repository(resolved(directory))
    if repository is None or not repository.has_worktree:
        return None
    return repository


def remote_name(url: str) -> str:
    """Return the repository's name: the last part of a remote's URL, without ``.git``."""
    parts = [part for part in re.split(r"[/\\:]+", url.rstrip("/\\")) if part]
    if len(parts) > 1 and parts[-1] == ".git":
        parts.pop()
    if not parts:
        return ""
    return unquote(parts[-1]).removesuffix(".git")


def remote_identity(url: str) -> str:
    """Return ``host/path`` of a URL: equal for https and ssh, and without credentials."""
    match = _URL.match(url) or _SCP.match(url)
    if match is None:
        return url.rstrip("/").removesuffix("/.git").removesuffix(".git")
    path = match["path"].rstrip("/").removesuffix(".git")
    host = match["host"].lower()
    return f"{host}/{path}" if host else f"/{path}"


def _git_dir(folder: Path) -> Path | None:
    entry = folder / ".git"
    if is_folder(entry):
        return entry if is_file(entry / "HEAD") else None
    if is_file(entry):
        text = _read_git_file(entry, _MAX_PATH)
        if not text.startswith("gitdir:"):
            return None
        target = resolved(folder / text.removeprefix("gitdir:").strip())
        return target if is_folder(target) else None
    if is_file(folder / "HEAD") and is_folder(folder / "objects") and is_folder(folder / "refs"):
        return folder
    return None


def resolved(path: Path) -> Path:
    """Return the path without symbolic links; one that can't be resolved, such as a loop of links, stays as it is."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # a RuntimeError for a loop (Python 3.12 and older)
        return path.absolute()


# The folder of the person for whom the hub runs a command
_working_folder: ContextVar[Path | None] = ContextVar("working_folder", default=None)


@contextmanager
def work_in(folder: Path | None) -> Iterator[None]:
    """Let ``working_folder`` return this folder inside, or with None the one of this process."""
    token = _working_folder.set(folder)
    try:
        yield
    finally:
        _working_folder.reset(token)


def working_folder() -> Path:
    """Return the folder that this process works in, which may be deleted."""
    if folder := _working_folder.get():
        return folder
    try:
        return Path.cwd()
    except OSError:
        return Path(working_folder_text())


def is_folder(path: Path) -> bool:
    """Return whether the path is a readable folder; False for names that are too long."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Return whether the path is a readable file."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _repository(folder: Path, git_dir: Path) -> Repository:
    common = git_dir
    pointer = _read_git_file(git_dir / "commondir", _MAX_PATH).strip()
    if pointer:
        common = git_dir / pointer
    common = resolved(common)
    settings = list(_settings(_read_git_file(common / "config", _CONFIG_BYTES)))
    is_submodule = "modules" in common.parts and bool(_worktree(settings))
    main = _main_folder(common, settings) if pointer else folder
    if folder == git_dir:
        main = _main_folder(folder, settings)
    remotes: dict[str, str] = {}
    for section, key, value in settings:
        if section.startswith("remote.") and key == "url" and value:
            remotes.setdefault(section.removeprefix("remote."), value)
    is_bare = git_dir == folder
    is_said_to_be_bare = any((section, key, value) == ("core", "bare", "true") for section, key, value in settings)
    has_worktree = bool(pointer) or not (is_bare or is_said_to_be_bare)
    return Repository(common, main, remotes, is_submodule, bool(pointer), is_bare, folder, git_dir, has_worktree)


def _main_folder(common: Path, settings: list[tuple[str, str, str]]) -> Path:
    worktree = _worktree(settings)
    if worktree:
        return resolved(common / worktree)
    return common.parent if common.name.startswith(".") else common


def _worktree(settings: list[tuple[str, str, str]]) -> str:
    # Set for submodules, whose git directory is inside the parent's.
    return next((value for section, key, value in settings if (section, key) == ("core", "worktree")), "")


def _settings(text: str) -> Iterator[tuple[str, str, str]]:
    # The git config format: subsections become ``remote.origin``.
    section = ""
    for line in text.splitlines():
        if len(line) > _MAX_PATH:
            continue
        header = _SECTION.match(line)
        if header:
            section = header[1].lower()
            if header[2]:
                section += "." + header[2].replace('\\"', '"').replace("\\\\", "\\")
            line = line[header.end() :]  # noqa: PLW2901  (a setting may follow on the same line)
        setting = _SETTING.match(line)
        if setting:
            yield section, setting[1].lower(), _value(setting[2])


def _value(raw: str) -> str:
    text = raw.strip()
    if text.startswith('"'):
        closing = re.match(r'"((?:[^"\\]|\\.)*)"', text)
        if closing is None:
            return text.strip('"')
        return re.sub(r"\\(.)", r"\1", closing[1])
    return re.split(r"\s[#;]", text, maxsplit=1)[0].strip()


# "" for what can't be read, as git ignores such a folder
def _read_git_file(path: Path, limit: int) -> str:
    try:
        return read_foreign(path, limit=limit).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
