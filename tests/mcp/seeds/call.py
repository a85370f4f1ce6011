"""A call in the seed documents, and patterns of its answer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tests.mcp.client import Server

Values = dict[str, str | int]
ID = r"#(\d+)"


@dataclass(frozen=True)
class Call:
    # The document; "" for preparations
    document: str
    # A tool, or the URI of a resource
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    # Patterns that the answer must match
    says: tuple[str, ...] = ()
    # Patterns that it must not match
    never: tuple[str, ...] = ()
    # Patterns whose first group is stored, by name
    keeps: dict[str, str] = field(default_factory=dict)
    error: bool = False

    def make(self, server: Server, known: Values) -> str:
        """Make the call, check and return its text, and store values for later calls."""
        text, failed = self._answer(server, known)
        assert failed == self.error, f"{self.name} answered: {text}"
        for pattern in self.says:
            assert re.search(str(filled(pattern, known)), text), f"{self.name} did not say {pattern!r}: {text}"
        for pattern in self.never:
            assert not re.search(str(filled(pattern, known)), text), f"{self.name} said {pattern!r}: {text}"
        for name, pattern in self.keeps.items():
            found = re.search(pattern, text)
            assert found, f"{self.name} did not say {pattern!r}: {text}"
            known[name] = int(found[1]) if pattern == ID else found[1]
        return text

    def _answer(self, server: Server, known: Values) -> tuple[str, bool]:
        if "://" in self.name:
            answer = server.ask("resources/read", {"uri": filled(self.name, known)})
            contents = answer.get("result", {}).get("contents")
            return (contents[0]["text"], False) if contents else (str(answer), True)
        result = server.call(self.name, **filled(self.arguments, known))
        return result["content"][0]["text"], bool(result.get("isError"))


def filled(value: Any, known: Values) -> Any:
    if isinstance(value, str) and value.startswith("$") and value[1:] in known:
        return known[value[1:]]
    if isinstance(value, str):
        return re.sub(r"\$([a-z_]+)", lambda found: str(known.get(found[1], found[0])), value)
    if isinstance(value, list):
        return [filled(part, known) for part in value]
    if isinstance(value, dict):
        return {name: filled(part, known) for name, part in value.items()}
    return value
