"""Supported clients, as data in ``clients.toml``: their configuration files and hooks."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from memoryhub.config.hook_table import EFFECTS, HookEffect
from memoryhub.core.errors import NotFound

# The name of the hub's entry in a client's file
SERVER = "memory-hub"
FILE = Path(__file__).with_name("clients.toml")
# Stands for the token's environment variable in ``Http.token``
_VARIABLE = "NAME"
# Stands for the tool in ``Permissions.rule``
_TOOL = "TOOL"


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class ClientFile(_Declared):
    """A file of the client, by its possible paths: the user's, and that of a repository, if the client has one."""

    user: tuple[str, ...]
    repository: str = ""


class Command(_Declared):
    """A tool that runs commands: paths of the command, its output, and its exit code or a text that contains it."""

    command: str
    output: tuple[str, ...]
    exit_code: tuple[str, ...] = ()
    exit_text: str = ""


class Edit(_Declared):
    """A tool that edits a file: paths of the new ``text``, or of ``old`` and ``new``; ``pairs`` is a list of these.

    ``patch`` is the path of a patch that names its files itself.
    """

    path: str = ""
    patch: str = ""
    text: str = ""
    pairs: str = ""
    old: str = ""
    new: str = ""


def _effect(name: object) -> object:
    if isinstance(name, str):
        return EFFECTS.get(name, name)
    return name


class Hook(_Declared):
    """The effect of one of the client's events, and the paths of what is recorded."""

    effect: Annotated[HookEffect, BeforeValidator(_effect)]
    type: str = ""
    content: tuple[str, ...] = ()
    result: str = ""
    is_error: bool = False
    commands: dict[str, Command] = Field(default_factory=dict)
    edits: dict[str, Edit] = Field(default_factory=dict)
    echo: str = ""
    transcript: str = ""
    is_set_up: bool = True
    timeout: int = 0
    takes_context: bool = True
    tools: str = ""

    @property
    def tool_names(self) -> list[str]:
        """The tools that run commands or edit files."""
        return [*self.commands, *self.edits]

    def paths(self) -> Iterator[str]:
        """Yield all paths in the client's JSON that are read for this hook."""
        yield from (*self.content, self.result, self.transcript)
        for tool in (*self.commands.values(), *self.edits.values()):
            for paths in tool.model_dump().values():
                yield from [paths] if isinstance(paths, str) else paths


class Hooks(ClientFile):
    """Hooks by the client's event names; the other fields are explained in ``clients.toml``."""

    timeout: int
    matcher: str = ""
    ignored: tuple[str, ...] = ()
    version: int = 0
    flat: bool = False
    plugin: str = ""
    answer: str = ""
    skipped: dict[str, str] = Field(default_factory=dict)
    unrecorded: tuple[str, ...] = ()
    events: dict[str, Hook]
    session: str = "session_id"
    directory: str = "cwd"
    root: str = ""
    agent: str = "agent_id"
    tool: str = "tool_name"
    call: str = "tool_use_id"
    input: str = "tool_input"
    reason: str = "reason"
    start: str = "source"

    @model_validator(mode="before")
    @classmethod
    def _share_tools(cls, fields: dict[str, Any]) -> dict[str, Any]:
        events: dict[str, dict[str, Any]] = dict(fields["events"])
        for name, event in events.items():
            if "tools" in event:
                shared = events[event["tools"]]
                events[name] = {"commands": shared["commands"], "edits": shared.get("edits", {}), **event}
        return {**fields, "events": events}

    def find(self, event: str) -> Hook | None:
        if event in self.ignored:
            return Hook(effect=HookEffect.NOTHING)
        return self.events.get(event)

    def set_up(self) -> dict[str, Hook]:
        """Return the hooks that ``setup`` writes into the client's configuration."""
        return {name: hook for name, hook in self.events.items() if hook.is_set_up}


class SameName(StrEnum):
    """What becomes of the user's entry in a folder that has an entry of the same name."""

    REPLACED = "replaced"
    MERGED = "merged"
    BOTH = "both"


class Http(_Declared):
    """The keys of a client's entry for a server over HTTP, and how it takes the token from elsewhere."""

    url: str = "url"
    headers: str = "headers"
    token: str = "${NAME}"  # noqa: S105 - a variable
    variable: str = ""
    input: str = ""
    entry: dict[str, Any] = Field(default_factory=dict)

    def entry_for(self, url: str, variable: str) -> dict[str, Any]:
        """Return the entry for a hub over HTTP. It names where the client finds the token, and never holds it."""
        if self.variable:
            return {**self.entry, self.url: url, self.variable: variable}
        token = self.token.replace(_VARIABLE, variable)
        return {**self.entry, self.url: url, self.headers: {"Authorization": f"Bearer {token}"}}

    def asked(self) -> dict[str, Any]:
        """Return the input that asks for the token."""
        return {"type": "promptString", "id": self.input, "description": "Token for Memory Hub", "password": True}

    def variable_of(self, entry: Mapping[str, Any]) -> str:
        """Return the environment variable from which an entry takes the token, "" if it names none."""
        if self.variable:
            return str(entry.get(self.variable) or "")
        headers = entry.get(self.headers)
        if not isinstance(headers, dict):
            return ""
        text = headers.get("Authorization")
        head, _, tail = f"Bearer {self.token}".partition(_VARIABLE)
        match = re.fullmatch(rf"{re.escape(head)}(\w+){re.escape(tail)}", str(text))
        return match[1] if match else ""


class Agent(ClientFile):
    """The file of a sub-agent, as the client reads it; the fields are explained in ``clients.toml``."""

    fields: tuple[str, ...]
    more: dict[str, Any] = Field(default_factory=dict)


class Permissions(ClientFile):
    """Where the client lists tools that it uses without asking; the fields are explained in ``clients.toml``."""

    user: tuple[str, ...] = ()
    keys: tuple[str, ...]
    rule: str
    value: Any = None
    name: str = ""
    is_in_entry: bool = False
    is_whole_file: bool = False
    note: str = ""

    def item(self, rule: str) -> Any:
        """Return what the client's list, or its table under the rule, has for a tool."""
        if self.name:
            return {self.name: rule, **self.value}
        return rule if self.value is None else copy.deepcopy(self.value)

    def rules(self, tools: Iterable[str]) -> list[str]:
        """Return the client's names of the tools."""
        return [self.rule.replace(_TOOL, tool) for tool in tools]


class StatusLine(ClientFile):
    """Where the client takes the command of its status line; ``keys`` lead to it."""

    keys: tuple[str, ...]


class Client(_Declared):
    """The fields are explained in ``clients.toml``."""

    id: str
    name: str
    program: str
    folders: tuple[str, ...]
    user: tuple[str, ...]
    repository: tuple[str, ...] = ()
    servers: tuple[str, ...]
    folder: tuple[str, ...] = ()
    same_name: SameName = SameName.REPLACED
    nested: str = ""
    entry: dict[str, Any] = Field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    environment: str
    command: str = "command"
    command_is_list: bool = False
    names_no_folder: bool = False
    note: str = ""
    http: Http | None = None
    hooks: Hooks | None = None
    agent: Agent | None = None
    skill: ClientFile | None = None
    permissions: Permissions | None = None
    status_line: StatusLine | None = None

    def http_text(self, url: str, variable: str) -> str:
        """Return the text of a configuration file for a hub over HTTP, "" if the client has no such entry.

        It names the environment variable of the token, or an input that asks for it.
        """
        if self.http is None:
            return ""
        data: dict[str, Any] = self.http.entry_for(url, variable)
        place = (*self.servers, SERVER)
        if self.user[0].endswith(".toml"):
            rows = [f"{key} = {json.dumps(value)}" for key, value in data.items()]  # a text of JSON is one of TOML
            return "\n".join([f"[{'.'.join(place)}]", *rows])
        for name in reversed(place):
            data = {name: data}
        if self.http.input:
            data["inputs"] = [self.http.asked()]
        return json.dumps(data, indent=2)


@cache
def all_clients() -> dict[str, Client]:
    """Return all clients by id, in the order of the table."""
    table = tomllib.loads(FILE.read_text("utf-8"))
    return {name: Client(id=name, **fields) for name, fields in table.items()}


@cache
def hook_clients() -> dict[str, Hooks]:
    """Return the clients' hooks by client id, without clients that have none."""
    return {name: client.hooks for name, client in all_clients().items() if client.hooks}


def find_client(client_id: str) -> Client:
    """Return the client of that id."""
    clients = all_clients()
    if client_id not in clients:
        raise NotFound(f"{client_id!r} is not a known client", choices=list(clients))
    return clients[client_id]
