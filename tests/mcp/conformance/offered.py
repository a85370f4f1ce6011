"""Fixtures: how they are listed, and how they answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Result = dict[str, Any]
Answering = Callable[[Any, Any], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Offered:
    listed: Result
    answer: Answering


def tool(name: str, answer: Answering, schema: Result | None = None) -> dict[str, Offered]:
    listed = {"name": name, "description": f"Conformance: {name}.", "inputSchema": schema or {"type": "object"}}
    return {name: Offered(listed, answer)}


def prompt(name: str, answer: Answering, *arguments: str) -> dict[str, Offered]:
    listed = [{"name": argument, "description": argument, "required": True} for argument in arguments]
    return {name: Offered({"name": name, "description": f"Conformance: {name}.", "arguments": listed}, answer)}


def text_result(*content: Result | str) -> Result:
    return {"content": [part if isinstance(part, dict) else text(part) for part in content], "resultType": "complete"}


def text(words: str) -> Result:
    return {"type": "text", "text": words}


def prompted(*content: Result) -> Result:
    return {"messages": [{"role": "user", "content": part} for part in content], "resultType": "complete"}
