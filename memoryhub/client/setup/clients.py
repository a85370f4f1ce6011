"""The clients that ``memory-hub setup`` configures, as data in ``clients.toml``."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memoryhub.config.repository import find_repository
from memoryhub.core.errors import Invalid, NotFound

_TABLE = Path(__file__).with_name("clients.toml")
_NAME = re.compile(r"\{(\w+)\}")


class HookTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    user: tuple[str, ...]
    repository: str
    timeout: int
    matcher: str
    matched: tuple[str, ...]
    events: tuple[str, ...]


class Client(BaseModel):
    """The fields are explained in ``clients.toml``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    name: str
    program: str
    folders: tuple[str, ...]
    user: tuple[str, ...]
    repository: str = ""
    servers: tuple[str, ...]
    nested: str = ""
    entry: dict[str, Any] = Field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    environment: str
    command_is_list: bool = False
    names_no_folder: bool = False
    hooks: HookTable | None = None

    @property
    def is_installed(self) -> bool:
        return bool(shutil.which(self.program)) or any(Path(_filled(folder)).is_dir() for folder in self.folders)

    def config_file(self, repository: Path | None) -> Path:
        """Return the file of the client's servers: the user's, or that of a repository."""
        if repository is None:
            return _place(self.user)
        if not self.repository:
            raise Invalid(f"{self.name} has no configuration per repository; omit --repository")
        return repository / self.repository

    def hooks_file(self, repository: Path | None) -> Path | None:
        if self.hooks is None:
            return None
        return _place(self.hooks.user) if repository is None else repository / self.hooks.repository


@cache
def all_clients() -> dict[str, Client]:
    table = tomllib.loads(_TABLE.read_text("utf-8"))
    return {name: Client(id=name, **fields) for name, fields in table.items()}


def find_client(client_id: str) -> Client:
    """Return the client of that id."""
    clients = all_clients()
    if client_id not in clients:
        raise NotFound(f"{client_id!r} is not a known client", choices=list(clients))
    return clients[client_id]


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
