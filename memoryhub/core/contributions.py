"""Registries through which upper apps add fields to views, statistics, entries to sessions, and text to hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Part = Callable[[Sequence[int]], Mapping[int, Any]]


class Closing(Protocol):
    def __call__(self, session_id: str, *, asks: bool) -> str: ...


_parts: dict[str, dict[str, Part]] = {}
_statistics: dict[str, Callable[[], dict[str, int]]] = {}
# Lines for the first session of a project that has no store yet, given its folder and the project
first_offers: list[Callable[[Path, str], str]] = []
# Texts that a starting session receives, given its id and that of the session that it continues, or ""
openings: list[Callable[[str, str], str]] = []
# Texts that a session receives at a prompt, given the session's id and the prompt
recalls: list[Callable[[str, str], str]] = []


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """A command that a client is about to run, or a file that it is about to edit."""

    session_id: str
    command: str = ""
    # From the top of the project, if the file is in it
    path: str = ""
    # The new text, and the replaced one, as far as the client tells
    change: str = ""


# Lines that a session receives before an action
notes: list[Callable[[PlannedAction], str]] = []
# Words of a client's status line for a session
status_parts: list[Callable[[str], str]] = []
# What is done when a session ends or is compacted, or its turn ends and its agent can be asked; returns the question
closings: list[Closing] = []
# Live entries that a scratch session wrote, as titles by id; and the function that moves entries to the project
scratch: list[tuple[Callable[[str], dict[int, str]], Callable[[Sequence[int]], None]]] = []


def define_part(view: str, name: str, part: Part) -> None:
    """Register a field of a view, such as ``commit``: ``part`` returns its JSON data by id, for all ids at once."""
    _parts.setdefault(view, {})[name] = part


def parts_of(view: str, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    if not ids:
        return {}
    fields: dict[int, dict[str, Any]] = {entity: {} for entity in ids}
    for name, part in _parts.get(view, {}).items():
        for entity, value in part(ids).items():
            fields[entity][name] = value
    return fields


def define_statistics(name: str, count: Callable[[], dict[str, int]]) -> None:
    _statistics[name] = count


def statistics() -> dict[str, dict[str, int]]:
    return {name: count() for name, count in _statistics.items()}


def first_offer(folder: Path, project: str) -> str:
    return "\n".join(filter(None, (offer(folder, project) for offer in first_offers)))


def opening_of(session_id: str, continued: str = "") -> str:
    return "\n".join(filter(None, (opening(session_id, continued) for opening in openings)))


def recall_of(session_id: str, prompt: str) -> str:
    return "\n".join(filter(None, (recall(session_id, prompt) for recall in recalls)))


def note_of(action: PlannedAction) -> str:
    return "\n".join(filter(None, (note(action) for note in notes)))


def status_of(session_id: str) -> str:
    return ", ".join(filter(None, (part(session_id) for part in status_parts)))


def close_session(session_id: str, *, asks: bool) -> str:
    return "\n".join(filter(None, (closing(session_id, asks=asks) for closing in closings)))


def scratch_entries(session_id: str) -> dict[int, str]:
    titles: dict[int, str] = {}
    for entries, _ in scratch:
        titles |= entries(session_id)
    return titles


def promote_entries(ids: Sequence[int]) -> None:
    for _, promote in scratch:
        promote(ids)
