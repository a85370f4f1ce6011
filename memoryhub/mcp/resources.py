"""Resources: finding the template that an address fits, and reading what it names."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from mcp.shared.uri_template import UriTemplate

from memoryhub.core.text import compact_json
from memoryhub.core.tools import Resource, all_resources


@dataclass(frozen=True, slots=True)
class Match:
    """A resource and the parameters that an address gives it."""

    resource: Resource
    parameters: dict[str, str]
    project_id: str | None = None
    """The project that the address names."""

    def read(self) -> str:
        """Return what the address names as text: that of its JSON data, or its own.

        Raises:
            HubError: there is no such thing, or it cannot be read.
        """
        data = self.resource.read(self.parameters)
        if isinstance(data, str):
            return data
        return compact_json(data).encode("utf-8", "replace").decode()


class Resources:
    def __init__(self) -> None:
        self._templates = [(UriTemplate.parse(known.uri_template), known) for known in all_resources()]

    def find(self, uri: str) -> Match | None:
        """Return the first template that ``uri`` fits, with its percent-decoded parameters."""
        for template, resource in self._templates:
            found = template.match(uri)
            if found is not None:
                named = parse_qs(urlsplit(uri).query).get("project_id", [None])
                parameters = {name: value for name, value in found.items() if isinstance(value, str)}
                return Match(resource, parameters, named[0])
        return None
