"""Fixtures of the conformance suite; the server loads the module that ``MEMORY_HUB_TEST_TOOLS`` names.

What the hub can't declare wraps the server's handlers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from pydantic import BaseModel, Field

from memoryhub.core.errors import Invalid
from memoryhub.core.tools import (
    Answer,
    Prompt,
    Resource,
    Tool,
    register_prompts,
    register_resources,
    register_tools,
)
from tests.mcp.conformance import media, questions, speaking

Handler = Callable[[Any, Any], Awaitable[Any]]


class Nothing(BaseModel):
    """No arguments."""


class TwoArguments(BaseModel):
    arg1: str = Field(description="First test argument")
    arg2: str = Field(description="Second test argument")


def _simple_text(_: Nothing) -> Answer:
    return Answer("This is a simple text response for testing.", {})


def _error(_: Nothing) -> Answer:
    raise Invalid("This tool intentionally returns an error for testing")


def _template(parameters: dict[str, str]) -> dict[str, Any]:
    return {"id": parameters["id"], "templateTest": True, "data": f"Data for ID: {parameters['id']}"}


register_tools(
    Tool("test_simple_text", "Answer with text.", Nothing, _simple_text),
    Tool("test_error_handling", "Fail.", Nothing, _error),
)
register_resources(Resource("test://template/{id}/data", "template", "One of many.", _template))
register_prompts(
    Prompt("test_simple_prompt", "Plain.", Nothing, lambda _: "This is a simple prompt for testing."),
    Prompt(
        "test_prompt_with_arguments",
        "With arguments.",
        TwoArguments,
        lambda given: f"Prompt with arguments: arg1='{given.arg1}', arg2='{given.arg2}'",
        suggest={"arg1": lambda typed: [word for word in ("paris", "park", "party") if word.startswith(typed)]},
    ),
)


def extend_server(server: Server[Any]) -> None:
    """Wrap the server's handlers with the fixtures that the hub can't declare."""
    tools = {**media.TOOLS, **speaking.TOOLS, **questions.TOOLS}
    prompts = {**media.PROMPTS, **questions.PROMPTS}
    server.get_tool_input_schema = _with_schemas(
        {name: tool.listed["inputSchema"] for name, tool in tools.items()}, server
    )
    _add(server, "tools/list", types.PaginatedRequestParams, "tools", [tool.listed for tool in tools.values()])
    _add(server, "prompts/list", types.PaginatedRequestParams, "prompts", [known.listed for known in prompts.values()])
    _add(server, "resources/list", types.PaginatedRequestParams, "resources", media.RESOURCES.values())
    _choose(
        server, "tools/call", types.CallToolRequestParams, "name", {name: tool.answer for name, tool in tools.items()}
    )
    _choose(
        server, "prompts/get", types.GetPromptRequestParams, "name", {name: p.answer for name, p in prompts.items()}
    )
    _choose(
        server, "resources/read", types.ReadResourceRequestParams, "uri", dict.fromkeys(media.RESOURCES, media.read)
    )
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, _agree)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, _agree)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _agree)


def _with_schemas(schemas: dict[str, Any], server: Server[Any]) -> Callable[[str], Any]:
    original = server.get_tool_input_schema
    assert original
    return lambda name: schemas.get(name) or original(name)


def _original(server: Server[Any], method: str) -> Handler:
    entry = server.get_request_handler(method)
    assert entry
    return entry.handler


def _add(server: Server[Any], method: str, params: type[BaseModel], key: str, more: Iterable[Any]) -> None:
    original, extra = _original(server, method), list(more)

    async def list_all(context: Any, page: Any) -> Any:
        found = await original(context, page)
        return {**found, key: [*found[key], *extra]}

    server.add_request_handler(method, params, list_all)


def _choose(server: Server[Any], method: str, params: type[BaseModel], key: str, answers: dict[str, Handler]) -> None:
    original = _original(server, method)

    async def answer(context: Any, given: Any) -> Any:
        return await answers.get(str(getattr(given, key)), original)(context, given)

    server.add_request_handler(method, params, answer)


async def _agree(_context: Any, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()
