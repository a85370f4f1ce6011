"""The clients that can be connected, and where each keeps its configuration; all of it is data, in ``clients.toml``."""

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
    """Where a client's hooks stand, and at which of its events the hub is told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    user: tuple[str, ...]
    repository: str
    timeout: int
    matcher: str
    matched: tuple[str, ...]
    events: tuple[str, ...]


class Client(BaseModel):
    """One client; ``clients.toml`` says what each field means."""

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
        """Whether its program is on the path, or a folder of its is there."""
        return bool(shutil.which(self.program)) or any(Path(_filled(each)).is_dir() for each in self.folders)

    def config_file(self, repository: Path | None) -> Path:
        """Return the file of its servers: the user's, or that of a repository.

        Raises:
            Invalid: it reads no file of a repository.
        """
        if repository is None:
            return _place(self.user)
        if not self.repository:
            raise Invalid(f"{self.name} reads no file of a repository; leave --repository out")
        return repository / self.repository

    def hooks_file(self, repository: Path | None) -> Path | None:
        """Return the file of its hooks; None where it has none."""
        if self.hooks is None:
            return None
        return _place(self.hooks.user) if repository is None else repository / self.hooks.repository


@cache
def all_clients() -> dict[str, Client]:
    """Return the clients by their ids."""
    table = tomllib.loads(_TABLE.read_text("utf-8"))
    return {name: Client(id=name, **fields) for name, fields in table.items()}


def find_client(client_id: str) -> Client:
    """Return a client.

    Raises:
        NotFound: none of that id is known; the data names those that are.
    """
    known = all_clients()
    if client_id not in known:
        raise NotFound(f"{client_id!r} is no client that is known", choices=list(known))
    return known[client_id]


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
