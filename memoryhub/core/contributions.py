"""What upper apps add to what lower ones tell: to a view, to the statistics, to a session's beginning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Part = Callable[[Sequence[int]], Mapping[int, Any]]
Statistics = Callable[[], dict[str, int]]
Opening = Callable[[str], str]

_parts: dict[str, dict[str, Part]] = {}
_statistics: dict[str, Statistics] = {}
_openings: list[Opening] = []


def define_part(view: str, name: str, part: Part) -> None:
    """Register a field of a view, such as ``commit``: ``part`` returns it as JSON data, by id, for all ids at once."""
    _parts.setdefault(view, {})[name] = part


def parts_of(view: str, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the registered fields of a view, by id and name; what has nothing to tell is left out."""
    told: dict[int, dict[str, Any]] = {each: {} for each in ids}
    for name, part in _parts.get(view, {}).items() if ids else ():
        for each, value in part(ids).items():
            told[each][name] = value
    return told


def define_statistics(name: str, count: Statistics) -> None:
    """Register counts of the current store under a name."""
    _statistics[name] = count


def statistics() -> dict[str, dict[str, int]]:
    """Return all registered counts of the current store."""
    return {name: count() for name, count in _statistics.items()}


def define_opening(opening: Opening) -> None:
    """Register what a session that begins is told beside itself: its text, from its name."""
    _openings.append(opening)


def opening_of(session_id: str) -> str:
    """Return what a session that begins is told; empty where nothing is known yet."""
    return "\n".join(filter(None, (opening(session_id) for opening in _openings)))
