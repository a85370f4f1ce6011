"""What processes acknowledged, in the order in which they did, and what a hub must therefore still have."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class Ledger:
    """A file to which an attack's clients write each acknowledgement in one call, once they have the answer."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, kind: str, **values: Any) -> None:
        os.write(self._descriptor, json.dumps({"kind": kind, **values}).encode() + b"\n")

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class Kept:
    version: int
    title: str
    content: str
    deleted: bool = False
    secret: str = ""
    """A text with a secret in it, where the content is what became of that."""


@dataclass(slots=True)
class Expected:
    memories: dict[int, Kept] = field(default_factory=dict)
    decisions: dict[int, str] = field(default_factory=dict)
    backups: list[str] = field(default_factory=list)
    token: str = ""
    agent_tokens: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    """Texts that were redacted."""
    going: set[str] = field(default_factory=set)
    """Texts that are being redacted: found or not."""
    restoring: int | None = None
    """A position: a restore is going on, which takes out what came after it."""

    def __bool__(self) -> bool:
        return bool(self.memories or self.decisions)


def expected(lines: Iterable[dict[str, Any]]) -> Expected:
    found = Expected()
    for line in lines:
        values = dict(line)
        _NOTES[values.pop("kind")](found, **values)
    return found


def _memory(found: Expected, *, id: int, **values: Any) -> None:  # noqa: A002 - as the answer calls it
    found.memories[id] = Kept(**values)


def _decision(found: Expected, *, id: int, title: str) -> None:  # noqa: A002
    found.decisions[id] = title


def _restoring(found: Expected, *, position: int) -> None:
    found.restoring = position


def _restored(found: Expected, *, position: int) -> None:
    found.restoring = None
    found.memories = {key: kept for key, kept in found.memories.items() if key <= position}
    found.decisions = {key: title for key, title in found.decisions.items() if key <= position}


def _redacted(found: Expected, *, text: str) -> None:
    found.going.discard(text)
    found.gone.add(text)


_NOTES: dict[str, Callable[..., None]] = {
    "memory": _memory,
    "decision": _decision,
    "backup": lambda found, *, path: found.backups.append(path),
    "token": lambda found, *, text: setattr(found, "token", text),
    "agent token": lambda found, *, name: found.agent_tokens.add(name),
    "redacting": lambda found, *, text: found.going.add(text),
    "redacted": _redacted,
    "restoring": _restoring,
    "restored": _restored,
}
