"""Adapters: how each memory server is started, written to and asked, from ``servers/NAME.toml``."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from memoryhub.core.errors import Invalid
from memoryhub.management.bench import fill_template

SERVERS = Path(__file__).parent / "servers"
CHECKOUT = Path(__file__).parents[2]


def _one_group(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    if pattern and groups != 1:
        raise ValueError("needs exactly one group, around the id")
    return pattern


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolCall(_Strict):
    tool: str = Field(min_length=1)
    arguments: dict[str, Any] = {}

    def filled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        arguments: dict[str, Any] = fill_template(self.arguments, values)
        return arguments


class WriteCall(ToolCall):
    # A regular expression with one group, which the answer of a write has around the id
    id: Annotated[str, AfterValidator(_one_group)] = ""


class ServerAdapter(_Strict):
    """A memory server over stdio, as its documentation tells a user to install and configure it."""

    name: str = Field(pattern=r"[a-z0-9][a-z0-9._-]*")
    licence: str
    install: str
    source: str
    # Why these settings are its best, by its own documentation
    settings: str
    command: list[str] = Field(min_length=1)
    environment: dict[str, str] = {}
    write: WriteCall
    search: ToolCall
    delete: ToolCall | None = None
    # What it gives unasked, at a prompt or the start of a task
    context: ToolCall | None = None

    def command_in(self, programs: Path, home: Path) -> list[str]:
        return [str(word) for word in fill_template(self.command, self._places(programs, home))]

    def environment_in(self, programs: Path, home: Path) -> dict[str, str]:
        return {
            name: str(fill_template(value, self._places(programs, home))) for name, value in self.environment.items()
        }

    def _places(self, programs: Path, home: Path) -> dict[str, str]:
        program = str((programs / self.name).resolve())
        return {"program": program, "home": str(home), "python": sys.executable, "checkout": str(CHECKOUT)}


def read_adapter(name: str, folder: Path = SERVERS) -> ServerAdapter:
    """Read ``NAME.toml`` in the folder.

    Raises:
        Invalid: there is no such file, or it is not an adapter; the message names the first mistake.
    """
    path = folder / f"{name}.toml"
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in folder.glob("*.toml")))
        raise Invalid(f"there is no adapter {name!r}; there are: {names}")
    try:
        adapter = ServerAdapter.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        mistake = error.errors()[0]
        place = ".".join(map(str, mistake["loc"]))
        raise Invalid(f"{path.name}: {place}: {mistake['msg'].removeprefix('Value error, ')}") from error
    except (OSError, ValueError) as error:
        raise Invalid(f"{path.name} cannot be read as TOML: {error}") from error
    for title, call, placeholder in (("write", adapter.write, "{text}"), ("search", adapter.search, "{query}")):
        if placeholder not in str(call.arguments):
            raise Invalid(f"{path.name}: {title}.arguments has no {placeholder}, so every call would be the same")
    return adapter
