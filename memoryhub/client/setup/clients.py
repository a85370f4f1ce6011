"""Where each client keeps its configuration on this machine."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from memoryhub.config.clients import Client
from memoryhub.config.repository import find_repository
from memoryhub.core.errors import Invalid

_NAME = re.compile(r"\{(\w+)\}")


def is_installed(client: Client) -> bool:
    """Return whether the client's program is on the path, or one of its folders exists."""
    return bool(shutil.which(client.program)) or any(Path(_filled(folder)).is_dir() for folder in client.folders)


def config_file(client: Client, repository: Path | None) -> Path:
    """Return the file of the client's servers: the user's, or that of a repository.

    Raises:
        Invalid: it reads no file of a repository.
    """
    if repository is None:
        return _place(client.user)
    if not client.repository:
        raise Invalid(f"{client.name} reads no file of a repository; leave --repository out")
    return repository / client.repository


def hooks_file(client: Client, repository: Path | None) -> Path | None:
    """Return the file of the client's hooks; None where it has none."""
    if client.hooks is None:
        return None
    return _place(client.hooks.user) if repository is None else repository / client.hooks.repository


def repository_of(directory: Path) -> Path:
    """Return the top of the working tree that holds the folder.

    Raises:
        Invalid: it is in no repository.
    """
    directory = directory.resolve()
    top = next((each for each in (directory, *directory.parents) if (each / ".git").exists()), None)
    if top is None or find_repository(directory) is None:
        raise Invalid(f"{directory} is in no git repository; go to one, or leave --repository out")
    return top


def _place(templates: tuple[str, ...]) -> Path:
    """Return the file that is there, else one whose folder is, else the first; a variable that is set decides."""
    filled = {each: Path(path) for each in templates if (path := _filled(each))}
    decided = [path for each, path in filled.items() if set(_NAME.findall(each)) - set(_folders())]
    places = decided or list(filled.values())
    there = [path for path in places if path.exists()] or [path for path in places if path.parent.is_dir()]
    return (there or places)[0]


def _filled(template: str) -> str:
    """Return the template with its names replaced, or "" where one is a variable that is not set."""
    values = _folders() | {name: os.environ.get(name, "") for name in _NAME.findall(template) if name.isupper()}
    return _NAME.sub(lambda name: values[name[1]], template) if all(map(values.get, _NAME.findall(template))) else ""


def _folders() -> dict[str, str]:
    home = str(Path.home())
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    applications = f"{home}/Library/Application Support" if sys.platform == "darwin" else config
    return {"home": home, "config": config, "applications": applications}
