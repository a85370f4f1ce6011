"""Declarations of MCP tools, resources and prompts, which apps register in ``tools.py`` and ``prompts.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from memoryhub.core.paging import answers_json, as_lines, fit, size_of
from memoryhub.core.schemas import Listing
from memoryhub.core.text import compact_json


class ToolGroup(StrEnum):
    # Profile core lists CORE, work adds WORK, full lists all.

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
    text: str
    # The same as JSON, with meta if it is a list
    data: dict[str, Any]
    # Session of the connection after this call, if it began or ended one; empty for none
    session_id: str | None = None


def listed(listing: Listing, line: Callable[[dict[str, Any]], str], *, none: str) -> Answer:
    return Answer(as_lines(listing, line, none=none), listing.model_dump(mode="json", exclude_none=True))


def fitted(items: list[dict[str, Any]], max_tokens: int | None, text: Callable[[dict[str, Any]], str]) -> Answer:
    ids = [f"#{item['id']}" for item in items]
    render = compact_json if answers_json() else text
    sizes = [size_of(render(item)) + _BETWEEN for item in items]
    fitting, tokens = fit(sizes, lambda count: size_of(_frame(ids[count:])), max_tokens)
    omitted = ids[fitting:]
    is_over = max_tokens is not None and tokens > max_tokens
    data = {"results": items[:fitting], "left_out": omitted, "truncated": bool(omitted) or is_over}
    texts = [*map(text, items[:fitting])]
    if omitted:
        texts.append(_omission_note(omitted))
    return Answer("\n\n".join(texts), data)


# Bytes between two texts
_BETWEEN = 2


def _frame(omitted: list[str]) -> str:
    if answers_json():
        return compact_json({"results": [], "left_out": omitted, "truncated": False})
    return _omission_note(omitted) if omitted else ""


def _omission_note(ids: list[str]) -> str:
    return f"(left out for max_tokens: {', '.join(ids)}; get them by id)"


# Takes the typed prefix; returns completions, most likely first, at most one more than are shown.
Suggest = Callable[[str], list[str]]
MAX_SUGGESTIONS = 100


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    # One line for the model
    description: str
    # Flat arguments. The server adds format (text or json) to every tool.
    input: type[BaseModel]
    # Takes the validated input; runs with store and origin set; raises HubError.
    handler: Callable[[Any], Answer]
    group: ToolGroup = ToolGroup.CORE
    writes: bool = False
    destructive: bool = False
    idempotent: bool = False
    # It begins or ends sessions and turns itself, so the server opens none for it.
    keeps_turns: bool = False
    # A read that appends an event, so it needs the write lock.
    records: bool = False
    # The name that the profile full lists: the one that clients of other memory servers know
    full_name: str = ""
    # Other names of the tool and of its arguments; accepted, but not listed.
    aliases: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict, hash=False)
    # Faster handler if only the text is needed
    in_words: Callable[[Any], str] | None = None
    # URI of the page in which clients with MCP Apps show the answer
    view: str = ""

    @property
    def other_names(self) -> tuple[str, ...]:
        # All names are accepted in every profile.
        return tuple(filter(None, (self.full_name, *self.aliases)))


@dataclass(frozen=True, slots=True)
class Resource:
    uri_template: str
    name: str
    description: str
    # Takes the template's parameters; returns JSON data or text; raises HubError.
    read: Callable[[dict[str, str]], dict[str, Any] | str]
    mime_type: str = "application/json"
    # Reading it appends an event.
    records: bool = False
    # Completions by parameter name
    suggest: Mapping[str, Suggest] = field(default_factory=dict)

    @property
    def is_view(self) -> bool:
        # The page of a tool, which refers to it; it isn't listed.
        return self.uri_template.startswith("ui://")


@dataclass(frozen=True, slots=True)
class Prompt:
    """An MCP prompt, which the user picks from a menu and the model answers."""

    name: str
    description: str
    # Text arguments, each with a description
    input: type[BaseModel]
    # Takes the validated input; returns the user's message; reads no store.
    render: Callable[[Any], str]
    # Completions by argument name
    suggest: Mapping[str, Suggest] = field(default_factory=dict)


_tools: dict[str, Tool] = {}
_aliases: dict[str, str] = {}
_resources: dict[str, Resource] = {}
_prompts: dict[str, Prompt] = {}


def register_tools(*tools: Tool) -> None:
    for tool in tools:
        _tools[tool.name] = tool
        _aliases.update(dict.fromkeys(tool.other_names, tool.name))


def register_resources(*resources: Resource) -> None:
    _resources.update({resource.uri_template: resource for resource in resources})


def register_prompts(*prompts: Prompt) -> None:
    _prompts.update({prompt.name: prompt for prompt in prompts})


def all_tools() -> list[Tool]:
    return list(_tools.values())


def find_tool(name: str) -> Tool | None:
    # Some clients write "." for "_".
    for candidate in (name, name.replace(".", "_")):
        tool = _tools.get(_aliases.get(candidate, candidate))
        if tool:
            return tool
    return None


def all_resources() -> list[Resource]:
    return list(_resources.values())


def all_prompts() -> list[Prompt]:
    return sorted(_prompts.values(), key=lambda prompt: prompt.name)
