"""Fixtures that send messages during a call: logs, progress, sampling, elicitation."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

from tests.mcp.conformance.offered import Result, text_result, tool

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
            [types.SamplingMessage(role="user", content=content)],
            max_tokens=100,
            related_request_id=context.request_id,
        )
    return text_result(f"LLM response: {answer.content.text}")


async def _elicit(context: Any, params: Any) -> Result:
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    answer = await _ask(context, params.arguments["message"], {**_object(fields), "required": list(fields)})
    return text_result(f"User response: action={answer.action}, content={answer.content}")


async def _elicit_defaults(context: Any, _params: Any) -> Result:
    return await _completed(context, _DEFAULTS)


async def _elicit_enums(context: Any, _params: Any) -> Result:
    return await _completed(context, _ENUMS)


async def _completed(context: Any, fields: Result) -> Result:
    answer = await _ask(context, "Please answer", _object(fields))
    return text_result(f"Elicitation completed: action={answer.action}, content={answer.content}")


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
    "untitledSingle": {"type": "string", "enum": _PLAIN},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _PLAIN}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}
_TEXT = {"type": "string"}

TOOLS = {
    **tool("test_tool_with_logging", _log),
    **tool("test_logging_tool", _log),
    **tool("test_tool_with_progress", _progress),
    **tool("test_streaming_elicitation", _progress),
    **tool("test_sampling", _sample, {**_object({"prompt": _TEXT}), "required": ["prompt"]}),
    **tool("test_elicitation", _elicit, {**_object({"message": _TEXT}), "required": ["message"]}),
    **tool("test_elicitation_sep1034_defaults", _elicit_defaults),
    **tool("test_elicitation_sep1330_enums", _elicit_enums),
    **tool("test_missing_capability", _need_sampling),
}
