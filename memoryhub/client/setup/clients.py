"""Where each client keeps its configuration on this machine."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from memoryhub.config.clients import Client, ClientFile
from memoryhub.config.repository import find_repository, find_worktree, resolved
from memoryhub.core.errors import Invalid

_NAME = re.compile(r"\{(\w+)\}")
_FOLDER = "{folder}"


@dataclass(frozen=True, slots=True)
class SetupTarget:
    """The files of a client that `setup` changes."""

    # Its ``servers`` are the keys that lead to the servers in ``config``.
    client: Client
    config: Path
    hooks: Path | None
    # The file of the librarian
    agent: Path | None = None
    skill: Path | None = None
    permissions: Path | None = None
    status_line: Path | None = None
    # The option of the command that chooses these files, after a space.
    option: str = ""
    # Whether the server counts in every folder, not in one.
    is_for_all: bool = False
    repository: Path | None = None


def user_target(client: Client) -> SetupTarget:
    """Return the user's files, which count in every folder."""
    return replace(_target(client, None), is_for_all=True)


def repository_target(client: Client, top: Path) -> SetupTarget:
    """Return the files of a repository, which everyone gets who works on it."""
    return replace(_target(client, top), option=" --repository", repository=top)


def _target(client: Client, repository: Path | None, config: Path | None = None) -> SetupTarget:
    config = config or config_file(client, repository)
    permissions = file_of(client.permissions, repository)
    if client.permissions and not client.permissions.user:
        permissions = config
    return SetupTarget(
        client,
        config,
        file_of(client.hooks, repository),
        agent=file_of(client.agent, repository),
        skill=file_of(client.skill, repository),
        permissions=permissions,
        status_line=file_of(client.status_line, repository),
    )


def folder_target(client: Client, directory: Path) -> SetupTarget:
    """Return the server's configuration for one folder, and the user's hooks.

    The user's own file where the client keeps folders apart in it, else that of the working tree. A client that has
    neither gets the user's, for every folder.
    """
    if client.folder:
        return _target(in_folder(client, str(project_folder(directory))), None)
    if not client.repository:
        return user_target(client)
    repository = find_worktree(directory)
    return _target(client, None, config_file(client, repository.top if repository else resolved(directory)))


def in_folder(client: Client, folder: str) -> Client:
    """Return the client with the keys that lead to the servers of a folder in the user's file."""
    keys = tuple(folder if key == _FOLDER else key for key in client.folder)
    return client.model_copy(update={"servers": keys})


def project_folder(directory: Path) -> Path:
    """Return the main folder of the folder's repository, which linked worktrees share, else the folder itself."""
    folder = resolved(directory)
    repository = find_repository(folder)
    return repository.folder if repository else folder


def is_installed(client: Client) -> bool:
    if shutil.which(client.program) or _place(client.user).exists():
        return True
    return any(Path(folder).is_dir() for folder in map(_filled, client.folders) if folder)


def config_file(client: Client, repository: Path | None) -> Path:
    """Return the file of the client's servers: the user's, or that of a repository."""
    if repository is None:
        return _place(client.user)
    if not client.repository:
        raise Invalid(f"{client.name} has no configuration per repository; omit --repository")
    paths = [repository / path for path in client.repository]
    return _inside(repository, next((path for path in paths if path.exists()), paths[0]))


def file_of(declared: ClientFile | None, repository: Path | None) -> Path | None:
    """Return a declared file: the user's, or that of a repository; None if there is no such file."""
    if declared is None:
        return None
    if repository is None:
        return _place(declared.user) if declared.user else None
    if not declared.repository:
        return None
    return _inside(repository, repository / declared.repository)


# Files are changed through links, which a repository may lead to the user's own files
def _inside(repository: Path, path: Path) -> Path:
    if not resolved(path).is_relative_to(resolved(repository)):
        raise Invalid(f"{path} leads out of the repository through a link, so it is not used; remove the link first")
    return path


def repository_of(directory: Path) -> Path:
    """Return the top of the folder's working tree."""
    repository = find_worktree(directory)
    if repository is None:
        raise Invalid(f"{directory.resolve()} is not in a git repository; change to one, or omit --repository")
    return repository.top


# A template whose environment variable is set takes precedence; then an existing file, then one in an existing folder.
def _place(templates: tuple[str, ...]) -> Path:
    filled = {template: Path(path) for template in templates if (path := _filled(template))}
    from_variables = [path for template, path in filled.items() if set(_NAME.findall(template)) - set(_folders())]
    paths = from_variables or list(filled.values())
    existing = [path for path in paths if path.exists()] or [path for path in paths if path.parent.is_dir()]
    return (existing or paths)[0]


# "" if a variable of the template is not set.
def _filled(template: str) -> str:
    names = _NAME.findall(template)
    values = _folders() | {name: os.environ.get(name, "") for name in names if name.isupper()}
    if not all(map(values.get, names)):
        return ""
    return template.format_map(values)


def _folders() -> dict[str, str]:
    home = str(Path.home())
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    applications = f"{home}/Library/Application Support" if sys.platform == "darwin" else config
    return {"home": home, "config": config, "applications": applications}
