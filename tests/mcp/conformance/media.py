"""Fixtures whose answers are more than text."""

from __future__ import annotations

from typing import Any

from tests.mcp.conformance.offered import Result, prompt, prompted, text, text_result, tool

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


async def _image(_context: Any, _params: Any) -> Result:
    return text_result(IMAGE)


async def _audio(_context: Any, _params: Any) -> Result:
    return text_result({"type": "audio", "data": WAV, "mimeType": "audio/wav"})


async def _resource(_context: Any, _params: Any) -> Result:
    return text_result(_embedded("test://embedded-resource", "This is an embedded resource content."))


async def _mixed(_context: Any, _params: Any) -> Result:
    data = _embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    return text_result("Multiple content types test:", IMAGE, data)


async def _prompt_with_resource(_: Any, params: Any) -> Result:
    uri = params.arguments["resourceUri"]
    words = _embedded(uri, "Embedded resource content for testing.")
    return prompted(words, text("Please process the embedded resource above."))


async def _prompt_with_image(_context: Any, _params: Any) -> Result:
    return prompted(IMAGE, text("Please analyze the image above."))


async def _unchanged(_: Any, params: Any) -> Result:
    return text_result(f"called with {params.arguments}")


_ADDRESS: Result = {
    "$anchor": "addressDef",
    "type": "object",
    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
}
_SCHEMA: Result = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": _ADDRESS},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
_BY_HEADER: Result = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

TOOLS = {
    **tool("test_image_content", _image),
    **tool("test_audio_content", _audio),
    **tool("test_embedded_resource", _resource),
    **tool("test_multiple_content_types", _mixed),
    **tool("json_schema_2020_12_tool", _unchanged, _SCHEMA),
    **tool("test_custom_headers", _unchanged, _BY_HEADER),
}
PROMPTS = {
    **prompt("test_prompt_with_embedded_resource", _prompt_with_resource, "resourceUri"),
    **prompt("test_prompt_with_image", _prompt_with_image),
}
