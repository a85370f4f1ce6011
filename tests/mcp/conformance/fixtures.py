"""Fixtures of the conformance suite; the server loads the module that ``MEMORY_HUB_TEST_TOOLS`` names.

What the hub can't declare wraps the server's handlers.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from pydantic import BaseModel, Field

from memoryhub.core.errors import Invalid
from memoryhub.core.tools import Answer, Prompt, Resource, Tool, register_prompts, register_resources, register_tools

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


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
IMAGE: Result = {"type": "image", "data": PNG, "mimeType": "image/png"}
_FRESH = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
_STATIC: dict[str, Result] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
}
RESOURCES: dict[str, Result] = {
    uri: {"uri": uri, "name": uri, "description": "For the tests.", "mimeType": kept["mimeType"]}
    for uri, kept in _STATIC.items()
}


async def read(_: Any, params: Any) -> Result:
    uri = str(params.uri)
    return {"contents": [{"uri": uri, **_STATIC[uri]}], **_FRESH}


def _embedded(uri: str, words: str, mime_type: str = "text/plain") -> Result:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": words}}


def _fixed(result: Result) -> Answering:
    async def answer(_context: Any, _params: Any) -> Result:
        return result

    return answer


async def _prompt_with_resource(_: Any, params: Any) -> Result:
    uri = params.arguments["resourceUri"]
    words = _embedded(uri, "Embedded resource content for testing.")
    return prompted(words, text("Please process the embedded resource above."))


async def _unchanged(_: Any, params: Any) -> Result:
    return text_result(f"called with {params.arguments}")


_TEXT = {"type": "string"}
_ADDRESS: Result = {"$anchor": "addressDef", "type": "object", "properties": {"street": _TEXT, "city": _TEXT}}
_SCHEMA: Result = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": _ADDRESS},
    "properties": {
        **dict.fromkeys(("name", "phone", "email"), _TEXT),
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {**_TEXT, "enum": ["phone", "email"]},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_BY_HEADER: Result = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

_EMBEDDED = _embedded("test://embedded-resource", "This is an embedded resource content.")
_DATA = _embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
_MEDIA_TOOLS = {
    **tool("test_image_content", _fixed(text_result(IMAGE))),
    **tool("test_audio_content", _fixed(text_result({"type": "audio", "data": WAV, "mimeType": "audio/wav"}))),
    **tool("test_embedded_resource", _fixed(text_result(_EMBEDDED))),
    **tool("test_multiple_content_types", _fixed(text_result("Multiple content types test:", IMAGE, _DATA))),
    **tool("json_schema_2020_12_tool", _unchanged, _SCHEMA),
    **tool("test_custom_headers", _unchanged, _BY_HEADER),
}
_MEDIA_PROMPTS = {
    **prompt("test_prompt_with_embedded_resource", _prompt_with_resource, "resourceUri"),
    **prompt("test_prompt_with_image", _fixed(prompted(IMAGE, text("Please analyze the image above.")))),
}


Requests = dict[str, Result]


def _form(message: str, field: str, kind: str = "string") -> Result:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def _sampling(words: str, max_tokens: int = 100) -> Result:
    messages = [{"role": "user", "content": text(words)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": max_tokens}}


_ROOTS: Result = {"method": "roots/list", "params": {}}


def _asking(requests: Requests, state: str | None = None) -> Result:
    result = {"resultType": "input_required", "inputRequests": requests}
    return result if state is None else {**result, "requestState": state}


def _answers(params: Any, requests: Requests) -> Result | None:
    given = params.input_responses or {}
    return given if given.keys() >= requests.keys() else None


def _once(requests: Requests, state: str | None = None) -> Any:
    async def answer(_: Any, params: Any) -> Result:
        answers = _answers(params, requests)
        if answers is None or params.request_state != state:
            return _asking(requests, state)
        shown = {key: value.model_dump(mode="json", by_alias=True) for key, value in answers.items() if key in requests}
        return text_result(f"state-ok {shown}")

    return answer


_STEPS = [
    {"step1": _form("Step 1: What is your name?", "name")},
    {"step2": _form("Step 2: What is your favorite color?", "color")},
]


async def _rounds(_: Any, params: Any) -> Result:
    """Ask one question after another; the state counts them."""
    done = int(params.request_state or 0)
    if params.request_state is not None and _answers(params, _STEPS[done]) is not None:
        done += 1
    return text_result("all answered") if done == len(_STEPS) else _asking(_STEPS[done], str(done))


async def _what_the_client_can(context: Any, _params: Any) -> Result:
    capabilities = context.session.client_capabilities
    requests: Requests = {}
    if capabilities.sampling is not None:
        requests["sampled"] = _sampling("Say something")
    if capabilities.elicitation is not None:
        requests["asked"] = _form("What is your name?", "name")
    return _asking(requests) if requests else text_result("nothing can be asked")


_CONTEXT = {"user_context": _form("What context should the prompt use?", "context")}


async def _prompt(_: Any, params: Any) -> Result:
    answers = _answers(params, _CONTEXT)
    if answers is None:
        return _asking(_CONTEXT)
    return prompted(text(f"Use this context: {answers['user_context'].content}"))


_NAME = {"user_name": _form("What is your name?", "name")}
_CONFIRM = {"confirm": _form("Please confirm", "ok", "boolean")}
_THREE = {**_NAME, "greeting": _sampling("Generate a greeting", 50), "client_roots": _ROOTS}
_PREFIX = "test_input_required_result_"

_QUESTION_TOOLS = {
    **tool(f"{_PREFIX}elicitation", _once(_NAME)),
    **tool(f"{_PREFIX}sampling", _once({"capital_question": _sampling("What is the capital of France?")})),
    **tool(f"{_PREFIX}list_roots", _once({"client_roots": _ROOTS})),
    **tool(f"{_PREFIX}request_state", _once(_CONFIRM, "waiting")),
    **tool(f"{_PREFIX}tampered_state", _once(_CONFIRM, "waiting")),
    **tool(f"{_PREFIX}multiple_inputs", _once(_THREE, "waiting")),
    **tool(f"{_PREFIX}multi_round", _rounds),
    **tool(f"{_PREFIX}capabilities", _what_the_client_can),
}
_QUESTION_PROMPTS = prompt(f"{_PREFIX}prompt", _prompt)


_PAUSE_SECONDS = 0.05
MISSING_CAPABILITY = -32021


async def _log(context: Any, _params: Any) -> Result:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            await context.session.send_log_message("info", words, related_request_id=context.request_id)
        await asyncio.sleep(_PAUSE_SECONDS)
    return text_result("logged")


async def _progress(context: Any, _params: Any) -> Result:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
        await asyncio.sleep(_PAUSE_SECONDS)
    return text_result("done")


async def _sample(context: Any, params: Any) -> Result:
    content = types.TextContent(text=params.arguments["prompt"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)
        answer = await context.session.create_message(
            [types.SamplingMessage(role="user", content=content)], max_tokens=100, related_request_id=context.request_id
        )
    return text_result(f"LLM response: {answer.content.text}")


async def _elicit(context: Any, params: Any) -> Result:
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    answer = await _ask(context, params.arguments["message"], {**_object(fields), "required": list(fields)})
    return text_result(f"User response: action={answer.action}, content={answer.content}")


def _completing(fields: Result) -> Answering:
    async def answer(context: Any, _params: Any) -> Result:
        reply = await _ask(context, "Please answer", _object(fields))
        return text_result(f"Elicitation completed: action={reply.action}, content={reply.content}")

    return answer


async def _ask(context: Any, message: str, schema: Result) -> Any:
    return await context.session.elicit_form(message, schema, context.request_id)


async def _need_sampling(context: Any, _params: Any) -> Result:
    capabilities = context.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        raise MCPError(MISSING_CAPABILITY, "this tool needs sampling", {"requiredCapabilities": {"sampling": {}}})
    return text_result("sampling is there")


def _object(fields: Result) -> Result:
    return {"type": "object", "properties": fields}


def _choices(*pairs: tuple[str, str]) -> list[Result]:
    return [{"const": value, "title": title} for value, title in pairs]


_PLAIN = ["option1", "option2", "option3"]
_TITLED = _choices(("value1", "First Option"), ("value2", "Second Option"), ("value3", "Third Option"))
_DEFAULTS: Result = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_ENUMS: Result = {
    "untitledSingle": {**_TEXT, "enum": _PLAIN},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _PLAIN}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}
_SPEAKING_TOOLS = {
    **tool("test_tool_with_logging", _log),
    **tool("test_logging_tool", _log),
    **tool("test_tool_with_progress", _progress),
    **tool("test_streaming_elicitation", _progress),
    **tool("test_sampling", _sample, {**_object({"prompt": _TEXT}), "required": ["prompt"]}),
    **tool("test_elicitation", _elicit, {**_object({"message": _TEXT}), "required": ["message"]}),
    **tool("test_elicitation_sep1034_defaults", _completing(_DEFAULTS)),
    **tool("test_elicitation_sep1330_enums", _completing(_ENUMS)),
    **tool("test_missing_capability", _need_sampling),
}


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
    tools = {**_MEDIA_TOOLS, **_SPEAKING_TOOLS, **_QUESTION_TOOLS}
    prompts = {**_MEDIA_PROMPTS, **_QUESTION_PROMPTS}
    server.get_tool_input_schema = _with_schemas(
        {name: tool.listed["inputSchema"] for name, tool in tools.items()}, server
    )
    _add(server, "tools/list", types.PaginatedRequestParams, "tools", [tool.listed for tool in tools.values()])
    _add(server, "prompts/list", types.PaginatedRequestParams, "prompts", [known.listed for known in prompts.values()])
    _add(server, "resources/list", types.PaginatedRequestParams, "resources", RESOURCES.values())
    _choose(
        server, "tools/call", types.CallToolRequestParams, "name", {name: tool.answer for name, tool in tools.items()}
    )
    _choose(
        server, "prompts/get", types.GetPromptRequestParams, "name", {name: p.answer for name, p in prompts.items()}
    )
    _choose(server, "resources/read", types.ReadResourceRequestParams, "uri", dict.fromkeys(RESOURCES, read))
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
