"""The resources that URIs name, prompts, and completion of the arguments of both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from pydantic import ValidationError

from memoryhub.core.paging import answering
from memoryhub.core.text import compact_json
from memoryhub.core.tools import MAX_SUGGESTIONS, Prompt, Resource, Suggest, all_prompts, all_resources
from memoryhub.core.validation import explain


@dataclass(frozen=True, slots=True)
class Match:
    """A resource and its parameters in a URI."""

    resource: Resource
    parameters: dict[str, str]
    project_id: str | None = None

    def read(self) -> str:
        with answering(as_json=True):
            data = self.resource.read(self.parameters)
        if isinstance(data, str):
            return data
        return compact_json(data).encode("utf-8", "replace").decode()


class Resources:
    def __init__(self) -> None:
        self._templates = [(UriTemplate.parse(resource.uri_template), resource) for resource in all_resources()]

    def find(self, uri: str) -> Match | None:
        for template, resource in self._templates:
            match = template.match(uri)
            if match is not None:
                named = parse_qs(urlsplit(uri).query).get("project_id", [None])
                parameters = {name: value for name, value in match.items() if isinstance(value, str)}
                return Match(resource, parameters, named[0])
        return None


Result = dict[str, Any]


def describe_prompt(prompt: Prompt) -> Result:
    fields = prompt.input.model_fields
    arguments = [
        {"name": name, "description": field.description or name, "required": field.is_required()}
        for name, field in fields.items()
    ]
    return {"name": prompt.name, "description": prompt.description, "arguments": arguments}


def get_prompt(params: types.GetPromptRequestParams) -> Result:
    prompt = _find(params.name)
    try:
        arguments = prompt.input.model_validate(params.arguments or {})
    except ValidationError as error:
        raise MCPError(types.INVALID_PARAMS, f"{prompt.name}: {explain(error)}") from error
    content = {"type": "text", "text": prompt.render(arguments)}
    return {
        "description": prompt.description,
        "messages": [{"role": "user", "content": content}],
        "resultType": "complete",
    }


def find_suggest(params: types.CompleteRequestParams) -> Suggest | None:
    ref = params.ref
    owner = _find(ref.name) if isinstance(ref, types.PromptReference) else _find_resource(ref.uri)
    return owner.suggest.get(params.argument.name)


def completion_of(suggestions: list[str]) -> Result:
    more = len(suggestions) > MAX_SUGGESTIONS
    return {"completion": {"values": suggestions[:MAX_SUGGESTIONS], "hasMore": more}, "resultType": "complete"}


def _find(name: str) -> Prompt:
    match = next((prompt for prompt in all_prompts() if prompt.name == name), None)
    if match is None:
        names = ", ".join(prompt.name for prompt in all_prompts())
        raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name[:80]}; known: {names}")
    return match


def _find_resource(uri: str) -> Resource:
    match = next((resource for resource in all_resources() if resource.uri_template == uri), None)
    if match is None:
        raise MCPError(types.INVALID_PARAMS, f"Unknown resource template: {uri[:200]}; see resources/templates/list")
    return match
