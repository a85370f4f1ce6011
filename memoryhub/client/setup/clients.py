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
    return bool(shutil.which(client.program)) or any(Path(_filled(folder)).is_dir() for folder in client.folders)


def config_file(client: Client, repository: Path | None) -> Path:
    """Return the file of the client's servers: the user's, or that of a repository."""
    if repository is None:
        return _place(client.user)
    if not client.repository:
        raise Invalid(f"{client.name} has no configuration per repository; omit --repository")
    paths = [repository / path for path in client.repository]
    return next((path for path in paths if path.exists()), paths[0])


def hooks_file(client: Client, repository: Path | None) -> Path | None:
    if client.hooks is None:
        return None
    return _place(client.hooks.user) if repository is None else repository / client.hooks.repository


def repository_of(directory: Path) -> Path:
    """Return the top of the folder's working tree."""
    directory = directory.resolve()
    top = next((folder for folder in (directory, *directory.parents) if (folder / ".git").exists()), None)
    if top is None or find_repository(directory) is None:
        raise Invalid(f"{directory} is not in a git repository; change to one, or omit --repository")
    return top


# A template whose environment variable is set takes precedence; then an existing file, then one in an existing folder.
def _place(templates: tuple[str, ...]) -> Path:
    filled = {template: Path(path) for template in templates if (path := _filled(template))}
    from_variables = [path for template, path in filled.items() if set(_NAME.findall(template)) - set(_folders())]
    paths = from_variables or list(filled.values())
    existing = [path for path in paths if path.exists()] or [path for path in paths if path.parent.is_dir()]
    return (existing or paths)[0]


# "" if a variable of the template is not set.
def _filled(template: str) -> str:
    values = _folders() | {name: os.environ.get(name, "") for name in _NAME.findall(template) if name.isupper()}
    return _NAME.sub(lambda name: values[name[1]], template) if all(map(values.get, _NAME.findall(template))) else ""


def _folders() -> dict[str, str]:
    home = str(Path.home())
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    applications = f"{home}/Library/Application Support" if sys.platform == "darwin" else config
    return {"home": home, "config": config, "applications": applications}
