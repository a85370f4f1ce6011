"""What upper apps add to what lower ones tell: to a view, to the statistics, to a session's beginning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Part = Callable[[Sequence[int]], Mapping[int, Any]]
Statistics = Callable[[], dict[str, int]]
Lines = Callable[[], list[str]]

_parts: dict[str, dict[str, Part]] = {}
_statistics: dict[str, Statistics] = {}
_lines: dict[str, list[Lines]] = {}


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


def define_lines(section: str, lines: Lines) -> None:
    """Register what a section of a session's summary tells of the current store, the most important first."""
    _lines.setdefault(section, []).append(lines)


def lines_of(section: str) -> list[str]:
    """Return what is registered for a section, in order of registration."""
    return [line for lines in _lines.get(section, ()) for line in lines()]
