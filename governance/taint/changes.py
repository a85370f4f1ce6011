"""What was set, over time: settings, the project's description, the status of decisions; and what it was before."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from decisions.events import DECISION_MARKED, DECISION_RECORDED
from governance.taint.direct import Direct
from governance.taint.schemas import Left, Step
from memoryhub.core import rows
from memoryhub.core.dialect import TEXTS
from sessions_app.events import PROJECT_CONFIGURED, PROJECT_DESCRIBED, ProjectDescribed

_PAYLOADS = (
    "SELECT position, actor, payload_json FROM raw_events WHERE {} AND payload_json IS NOT NULL ORDER BY position"
)


@dataclass(slots=True)
class Told:
    """What one name was said to be, one after the other."""

    said: list[tuple[int, str, Any]] = field(default_factory=list)
    """Position, actor and value."""

    def add(self, position: int, actor: str, value: Any) -> None:
        """Take in the next."""
        self.said.append((position, actor, value))

    def last(self) -> tuple[int, str, Any]:
        """Return the last."""
        return self.said[-1]

    def is_by(self, positions: Collection[int]) -> bool:
        """Whether one of these events gave it a value."""
        return any(position in positions for position, _, _ in self.said)

    def without(self, void: frozenset[int]) -> Told:
        """Return it without what some positions said."""
        return Told([each for each in self.said if each[0] not in void])

    def clean(self, tainted: frozenset[int], before: int, default: Any) -> Any:
        """Return what was said last by events that are not tainted and stand before a position."""
        kept = [value for position, _, value in self.said if position not in tainted and position < before]
        return kept[-1] if kept else default


def settings_told() -> dict[str, Told]:
    """Return what each setting was set to; None where it was taken back to its default."""
    told: dict[str, Told] = {}
    for position, actor, payload in _payloads("event_type = %s", PROJECT_CONFIGURED.name):
        for name, value in payload.get("settings", {}).items():
            told.setdefault(name, Told()).add(position, actor, value)
    return told


def profile_told() -> dict[str, Told]:
    """Return what each field of the project's description was set to."""
    told: dict[str, Told] = {}
    for position, actor, payload in _payloads("event_type = %s", PROJECT_DESCRIBED.name):
        for name, value in payload.items():
            told.setdefault(name, Told()).add(position, actor, value)
    return told


def statuses_told(decision_ids: Iterable[int]) -> dict[int, Told]:
    """Return which status each decision was given by those who recorded and marked it."""
    told: dict[int, Told] = {}
    streams = [f"decision:{each}" for each in sorted(decision_ids)]
    wanted = f"stream_id IN {TEXTS} AND event_type IN (%s, %s)"
    names = (DECISION_RECORDED.name, DECISION_MARKED.name)
    for position, actor, payload in _payloads(wanted, json.dumps(streams), *names):
        decision_id = payload.get("decision_id", position)
        status = payload.get("status") or ("accepted" if decision_id == position else None)
        if status:
            told.setdefault(decision_id, Told()).add(position, actor, status)
    return told


def _payloads(condition: str, *parameters: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    for position, actor, payload in rows.fetch(_PAYLOADS.format(condition), list(parameters)):
        yield position, actor, json.loads(payload)


def take_back(
    do: str, told: Mapping[Any, Told], tainted: frozenset[int], void: frozenset[int], *, include_changed: bool
) -> Iterator[Step | Left]:
    """Yield what makes each name what it was before tainted events set it, and what is left since others set it again.

    Args:
        do: the step's name.
        told: by name; by id, where it is the status of decisions.
        tainted: the events to take back.
        void: events that took each other back.
        include_changed: take back what others set since, too.
    """
    for name, every in told.items():
        each = every.without(void)
        mine = [position for position, _, _ in each.said if position in tainted]
        if not mine:
            continue
        position, actor, value = each.last()
        thing = {"id": name} if isinstance(name, int) else {"name": name}
        changed = position not in tainted
        if changed and not include_changed:
            yield Left(id=thing.get("id", 0), title=str(name), why=f"changed since by {actor} at #{position}")
            continue
        after = each.clean(tainted, mine[0] if changed else position, _default(do, name))
        if after != value:
            yield Step(do=do, before=value, after=after, **thing)


def _default(do: str, name: Any) -> Any:
    if do == "describe":
        return ProjectDescribed.model_fields[name].get_default(call_default_factory=True)
    return None


def changes_taken_back(
    direct: Direct, marked: Collection[int], tainted: frozenset[int], void: frozenset[int], *, include_changed: bool
) -> Iterator[Step | Left]:
    """Yield what takes back the settings, the description and the status of ``marked`` decisions."""
    if direct["settings"]:
        yield from take_back("configure", settings_told(), tainted, void, include_changed=include_changed)
    if direct["profile"]:
        yield from take_back("describe", profile_told(), tainted, void, include_changed=include_changed)
    if marked:
        statuses = statuses_told(marked)
        yield from take_back("mark", statuses, tainted, void, include_changed=include_changed)
        for each in marked:
            if each not in statuses or not statuses[each].is_by(tainted):
                yield Left(id=each, why="marked as reviewed, which stays")
