"""What a fixture is: how it is listed, and how it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Result = dict[str, Any]
Answering = Callable[[Any, Any], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool or a prompt."""

    listed: Result
    answer: Answering


def tool(name: str, answer: Answering, schema: Result | None = None) -> dict[str, Offered]:
    """Return a tool under its name."""
    listed = {"name": name, "description": f"Conformance: {name}.", "inputSchema": schema or {"type": "object"}}
    return {name: Offered(listed, answer)}


def prompt(name: str, answer: Answering, *arguments: str) -> dict[str, Offered]:
    """Return a prompt under its name."""
    listed = [{"name": argument, "description": argument, "required": True} for argument in arguments]
    return {name: Offered({"name": name, "description": f"Conformance: {name}.", "arguments": listed}, answer)}


def said(*content: Result | str) -> Result:
    """Return a tool's answer; a string is text."""
    return {"content": [part if isinstance(part, dict) else text(part) for part in content], "resultType": "complete"}


def text(words: str) -> Result:
    """Return a part of an answer."""
    return {"type": "text", "text": words}


def prompted(*content: Result) -> Result:
    """Return a prompt's messages."""
    return {"messages": [{"role": "user", "content": part} for part in content], "resultType": "complete"}
