"""Putting values back that events set, by effects with ``values``: settings, the description, a decision's status."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memoryhub.core import rows
from memoryhub.core.dialect import TEXTS
from memoryhub.core.event_types import rollback_groups, types_reversed_by
from memoryhub.core.quarantine import quarantined_among
from memoryhub.core.rollback import Effect, Left, Own, Reach, Step, Treatment, Values

_PAYLOADS = (
    f"SELECT position, actor, payload_json FROM raw_events WHERE event_type IN {TEXTS} {{}} "
    "AND payload_json IS NOT NULL ORDER BY position"
)
_ASIDE = "in quarantine already"


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


def values_told(effect: Effect, ids: Iterable[int] = ()) -> dict[Any, Told]:
    """Return what events set each value of an effect to, by name or by the id of the thing.

    Args:
        effect: one with ``values``.
        ids: of the things; only where the values are those of things.
    """
    values = values_of(effect)
    told: dict[Any, Told] = {}
    types = json.dumps([*values.also, *(known.name for known in types_reversed_by(effect.step))])
    parameters = [types, json.dumps([f"{values.thing}:{each}" for each in sorted(ids)])] if values.thing else [types]
    sql = _PAYLOADS.format(f"AND stream_id IN {TEXTS}" if values.thing else "")
    for position, actor, payload in rows.fetch(sql, parameters):
        for key, value in values.read(position, json.loads(payload)).items():
            told.setdefault(key, Told()).add(position, actor, value)
    return told


def values_of(effect: Effect) -> Values:
    """Return how to read and write the values of an effect that has any."""
    if effect.values is None:
        raise TypeError(f"effect {effect.step!r} has no values")
    return effect.values


def plan_values(effect: Effect, reach: Reach) -> Iterator[Step | Left]:
    """Yield what gives values back that they had before the selection set them."""
    rules, thing = rollback_groups(), values_of(effect).thing
    touched = {
        key for name, ids in reach.things.items() for key in ids if name in rules and rules[name].by == effect.step
    }
    if not thing:
        yield from _taken_back(effect, values_told(effect) if touched else {}, reach)
        return
    created = (name for name, rule in rules.items() if rule.thing == thing and rule.treatment is Treatment.SET_ASIDE)
    touched -= {each for name in created for each in reach.things[name]}
    yield from (Left(id=each, why=_ASIDE) for each in touched & {*reach.aside})
    told = values_told(effect, touched - {*reach.aside})
    yield from _taken_back(effect, told, reach)
    for each in touched - {*reach.aside}:
        if each not in told or not told[each].is_by(reach.tainted):
            yield Left(id=each, why=values_of(effect).unset)


def _taken_back(effect: Effect, told: Mapping[Any, Told], reach: Reach) -> Iterator[Step | Left]:
    """Yield what makes each value what it was, and what is left since others set it again."""
    for key, every in told.items():
        history = every.without(reach.void)
        mine = [position for position, _, _ in history.said if position in reach.tainted]
        if not mine:
            continue
        position, actor, value = history.last()
        thing = {"id": key} if isinstance(key, int) else {"name": key}
        changed = position not in reach.tainted
        if changed and not reach.include_changed:
            yield Left(id=thing.get("id", 0), title=str(key), why=f"changed since by {actor} at #{position}")
            continue
        default = values_of(effect).default(key)
        after = history.clean(reach.tainted, mine[0] if changed else position, default)
        if after != value:
            yield Step(do=effect.step, before=value, after=after, **thing)


def undo_values(effect: Effect, steps: Sequence[Step], own: Own) -> Iterator[Step | Left]:
    """Yield what gives values back that a roll-back has put back, unless others set them since."""
    ids = [step.id for step in steps if step.id]
    aside = quarantined_among(ids)
    told = values_told(effect, ids) if steps else {}
    yield from (Left(id=each, why="in quarantine since") for each in aside)
    for step in steps:
        if step.id in aside:
            continue
        history = told.get(step.id or step.name, Told()).without(own.void)
        if not history.said:
            yield Left(id=step.id, title=step.name, why="erased since")
            continue
        position, actor, _ = history.last()
        if position in own.positions:
            yield Step(do=step.do, id=step.id, name=step.name, before=step.after, after=step.before)
        else:
            yield Left(id=step.id, title=step.name, why=f"changed since by {actor} at #{position}")
