"""What a hub answers about a project: every reading tool, resource and completion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mcp.shared.uri_template import UriTemplate

from memoryhub.core.errors import HubError
from memoryhub.core.paging import answering
from memoryhub.core.tools import Resource, Tool, all_prompts, all_resources, all_tools
from memoryhub.mcp.resources import Resources
from tests.engines.values import PAGE, Values, entity_of, inputs

# What differs: sizes, and the version of the database
_OF_THE_ENGINE = {"memory_stats": ("bytes", "sqlite")}
# Every so many calls are answered as text too, which is made of the same data
_TEXTS = 3
_TYPES = {"limit": int, "offset": int, "max_tokens": int, "include_deleted": bool, "threshold": float}
_PREFIXES = ("", "1", "a", "tide,z", "Ä", "\U0010ffff", "100%")

Answers = dict[str, Any]


def tool_answers(values: Values, *, every: int = 1) -> Answers:
    """Map calls, or every few of them, to answers as JSON, and some to their texts; lists are read to the end."""
    reading = [tool for tool in all_tools() if not tool.writes]
    return {
        call: answer
        for tool in reading
        for number, given in enumerate(inputs(tool.input, values, entity_of(tool.name))[::every])
        for call, answer in _pages(tool, given, with_text=number % _TEXTS == 0)
    }


def _pages(tool: Tool, given: dict[str, Any], *, with_text: bool) -> Iterator[tuple[str, Any]]:
    cursor: Any = True
    while cursor:
        answer = _answer(tool, given, as_json=True)
        yield f"{tool.name} {json.dumps(given, default=str, ensure_ascii=False)}", answer
        if with_text:
            yield f"{tool.name} {json.dumps({**given, 'format': 'text'}, default=str)}", _answer(tool, given)
        cursor = given.get("limit") == PAGE and answer.get("data", {}).get("meta", {}).get("next_cursor")
        given = {**given, "cursor": cursor}


def _answer(tool: Tool, given: dict[str, Any], *, as_json: bool = False) -> dict[str, Any]:
    command, left_out = tool.input.model_validate(given), _OF_THE_ENGINE.get(tool.name, ())
    try:
        with answering(as_json=as_json):
            if not as_json:
                text = tool.in_words(command) if tool.in_words else tool.handler(command).text
                return {"data": [line for line in text.splitlines() if not line.startswith(left_out)]}
            data = tool.handler(command).data
    except HubError as error:
        return {"error": [error.code, error.message, error.data]}
    return {"data": {name: value for name, value in data.items() if name not in left_out}}


def resource_answers(values: Values) -> Answers:
    """Map the addresses of resources to their contents."""
    found: Answers = {}
    resources = Resources()
    for resource in all_resources():
        for uri in _uris(resource, values):
            match = resources.find(uri)
            assert match and match.resource is resource, uri
            try:
                found[uri] = {"data": match.read()}
            except HubError as error:
                found[uri] = {"error": [error.code, error.message]}
    return found


def _uris(resource: Resource, values: Values) -> list[str]:
    template = UriTemplate.parse(resource.uri_template)
    given = {name: [str(value) for value in values.of(name, _TYPES.get(name, str))] for name in template.variable_names}
    base = {name: found[0] for name, found in given.items() if name not in template.query_variable_names}
    changed = [{**base, name: value} for name, found in given.items() for value in found if value]
    return [template.expand(parameters) for parameters in (base, *changed)]


def completions() -> Answers:
    """Map typed beginnings to the completions of arguments of resources and prompts."""
    offering = [(resource.name, resource.suggest) for resource in all_resources()]
    offering += [(prompt.name, prompt.suggest) for prompt in all_prompts()]
    return {
        f"{name} {argument} {typed!r}": suggest(typed)
        for name, suggestions in offering
        for argument, suggest in suggestions.items()
        for typed in _PREFIXES
    }
