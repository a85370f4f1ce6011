"""The clients that the hub knows, as ``clients.toml`` declares them: their configuration files and their hooks."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from memoryhub.core.errors import NotFound

FILE = Path(__file__).with_name("clients.toml")


class Effect(StrEnum):
    """What a hook's event does to the session and its turn."""

    START = "start"
    """The session begins or goes on; the client shows its model what the hook answers."""
    PROMPT = "prompt"
    """The open turn ends, and the next begins."""
    TOOL = "tool"
    """A tool was used in the turn; the client does not wait for the hub."""
    APPEND = "append"
    """Something else happened in the turn."""
    STOP = "stop"
    """The turn ends."""
    END = "end"
    """The session ends."""
    NOTHING = "nothing"
    """The event is known, and dropped."""


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Command(_Declared):
    """A tool that runs commands: the places of the command, its output, its exit code or a text that names that."""

    command: str
    output: tuple[str, ...]
    exit_code: tuple[str, ...] = ()
    exit_text: str


class Edit(_Declared):
    """A tool that edits a file: the place of the new ``text``, or of what was replaced; ``each`` is a list of such."""

    path: str
    text: str = ""
    each: str = ""
    old: str = ""
    new: str = ""


class Hook(_Declared):
    """One of a client's hook events."""

    effect: Effect
    type: str = ""
    content: tuple[str, ...] = ()
    result: str = ""
    is_error: bool = False
    commands: dict[str, Command] = Field(default_factory=dict)
    edits: dict[str, Edit] = Field(default_factory=dict)
    transcript: str = ""
    is_set_up: bool = True

    def places(self) -> Iterator[str]:
        """Yield the places of all that is read from the event."""
        yield from (*self.content, self.result, self.transcript)
        for tool in (*self.commands.values(), *self.edits.values()):
            for place in tool.model_dump().values():
                yield from (place,) if isinstance(place, str) else place


class Hooks(_Declared):
    """A client's hooks, and where its JSON has the session, the folder, the tool's call and why a session ended."""

    user: tuple[str, ...]
    repository: str
    timeout: int
    matcher: str
    ignored: tuple[str, ...] = ()
    events: dict[str, Hook]
    session: str = "session_id"
    directory: str = "cwd"
    tool: str = "tool_name"
    call: str = "tool_use_id"
    input: str = "tool_input"
    reason: str = "reason"

    def find(self, event: str) -> Hook | None:
        """Return what an event means; None where it is not known."""
        return self.events.get(event) or (Hook(effect=Effect.NOTHING) if event in self.ignored else None)

    def set_up(self) -> dict[str, Hook]:
        """Return the events that the client's configuration should name."""
        return {name: hook for name, hook in self.events.items() if hook.is_set_up}


class Client(_Declared):
    """One client; ``clients.toml`` explains each field."""

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
    hooks: Hooks | None = None


@cache
def all_clients() -> dict[str, Client]:
    """Return the clients by their ids."""
    table = tomllib.loads(FILE.read_text("utf-8"))
    return {name: Client(id=name, **fields) for name, fields in table.items()}


@cache
def hook_clients() -> dict[str, Hooks]:
    """Return the hooks of the clients that have any, by the clients' ids."""
    return {name: client.hooks for name, client in all_clients().items() if client.hooks}


def find_client(client_id: str) -> Client:
    """Return a client.

    Raises:
        NotFound: none of that id is known; the data names those that are.
    """
    known = all_clients()
    if client_id not in known:
        raise NotFound(f"{client_id!r} is no client that is known", choices=list(known))
    return known[client_id]
