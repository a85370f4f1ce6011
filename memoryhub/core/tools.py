"""What MCP tools, resources and prompts are.

Apps declare theirs in ``tools.py`` and ``prompts.py`` and register them; the MCP door lists and calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from memoryhub.core.paging import as_lines, fit
from memoryhub.core.schemas import Listing


class ToolGroup(StrEnum):
    """Which profile lists a tool: ``core`` lists core; ``work`` adds work; ``full`` lists all."""

    CORE = "core"
    WORK = "work"
    TURNS = "turns"
    SCOPES = "scopes"
    REGISTRY = "registry"
    TAGS = "tags"
    QUERY = "query"
    ITERATIONS = "iterations"


@dataclass(frozen=True, slots=True)
class Answer:
    """A tool's answer in its two forms; a caller gets one of them, and both say the same."""

    text: str
    """Lines for a model; the last says what was left out and how to get it."""
    data: dict[str, Any]
    """The same as JSON data, with ``meta`` where it is a list."""
    session_id: str | None = None
    """Where the call began or ended a session: the one that this connection goes on in, or empty for none."""


def listed(listing: Listing, line: Callable[[dict[str, Any]], str], *, none: str) -> Answer:
    """Answer with a page: a line an item; ``none`` is the text where there is no item. The data has no nulls."""
    return Answer(as_lines(listing, line, none=none), listing.model_dump(mode="json", exclude_none=True))


def fitted(found: list[dict[str, Any]], max_tokens: int | None, text: Callable[[dict[str, Any]], str]) -> Answer:
    """Answer with whole items, as many as fit the budget, and the ids of the others."""
    kept = fit(found, max_tokens, text)
    left = [f"#{item['id']}" for item in found[len(kept) :]]
    note = [f"(left out for max_tokens: {', '.join(left)}; get them by id)"] if left else []
    return Answer("\n\n".join([*map(text, kept), *note]), {"results": kept, "left_out": left})


Suggest = Callable[[str], list[str]]
"""Takes what was typed so far; returns what it may become, the likeliest first, and one more than is shown."""
MAX_SUGGESTIONS = 100
"""How many suggestions a client is shown."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One MCP tool: its contract and the one domain call behind it."""

    name: str
    description: str
    """One line, made for a model."""
    input: type[BaseModel]
    """The flat arguments. The door adds ``format`` (text or json) to every tool."""
    handler: Callable[[Any], Answer]
    """Takes the validated input; runs with the store and origin set; raises ``HubError``."""
    group: ToolGroup = ToolGroup.CORE
    writes: bool = False
    destructive: bool = False
    idempotent: bool = False
    keeps_turns: bool = False
    """It begins or ends sessions and turns itself, so the door opens none for it."""
    records: bool = False
    """A question that leaves an event behind: to the caller it changes nothing, but the log must be written."""
    aliases: tuple[str, ...] = ()
    """Names of the same call in the documents the hub was conceived from; accepted, never listed."""
    renamed: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Its arguments' names in those documents, each with the name of ours that it became; accepted, never listed."""
    in_words: Callable[[Any], str] | None = None
    """Makes the text of the answer alone, where both forms of it take longer; default: the handler's."""
    view: str = ""
    """The address of the page in which a client that has MCP Apps shows the answer; others show its text."""


@dataclass(frozen=True, slots=True)
class Resource:
    uri_template: str
    name: str
    description: str
    read: Callable[[dict[str, str]], dict[str, Any] | str]
    """Takes the template's parameters as text; returns JSON data, or the text itself; raises ``HubError``."""
    mime_type: str = "application/json"
    records: bool = False
    """Reading it leaves an event behind."""
    suggest: Mapping[str, Suggest] = field(default_factory=dict)
    """What completes its parameters, by their names."""

    @property
    def is_view(self) -> bool:
        """Whether it is the view of a tool, which names it; such ones are in no list."""
        return self.uri_template.startswith("ui://")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One MCP prompt: a request that a user picks from a menu, and that tells the model what to do."""

    name: str
    description: str
    input: type[BaseModel]
    """The arguments: texts, each with a description."""
    render: Callable[[Any], str]
    """Takes the validated input; returns what the user says; asks no store."""
    suggest: Mapping[str, Suggest] = field(default_factory=dict)
    """What completes its arguments, by their names."""


_tools: dict[str, Tool] = {}
_aliases: dict[str, str] = {}
_resources: dict[str, Resource] = {}
_prompts: dict[str, Prompt] = {}


def register_tools(*tools: Tool) -> None:
    """Make tools known to the MCP door, in the order in which it will list them."""
    for tool in tools:
        _tools[tool.name] = tool
        _aliases.update(dict.fromkeys(tool.aliases, tool.name))


def register_resources(*resources: Resource) -> None:
    _resources.update({resource.uri_template: resource for resource in resources})


def register_prompts(*prompts: Prompt) -> None:
    _prompts.update({prompt.name: prompt for prompt in prompts})


def all_tools() -> list[Tool]:
    return list(_tools.values())


def find_tool(name: str) -> Tool | None:
    """Return a tool by its name, by a name from the seeds, or by either written with dots."""
    for candidate in (name, name.replace(".", "_")):
        tool = _tools.get(_aliases.get(candidate, candidate))
        if tool:
            return tool
    return None


def all_resources() -> list[Resource]:
    return list(_resources.values())


def all_prompts() -> list[Prompt]:
    return sorted(_prompts.values(), key=lambda prompt: prompt.name)
