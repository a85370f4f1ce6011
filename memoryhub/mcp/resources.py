"""The resources that URIs name."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from mcp.shared.uri_template import UriTemplate

from memoryhub.core.paging import answering
from memoryhub.core.text import compact_json
from memoryhub.core.tools import Resource, all_resources


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
            found = template.match(uri)
            if found is not None:
                named = parse_qs(urlsplit(uri).query).get("project_id", [None])
                parameters = {name: value for name, value in found.items() if isinstance(value, str)}
                return Match(resource, parameters, named[0])
        return None
