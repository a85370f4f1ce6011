"""Which items the events of a selection touched, by group."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from governance.rollback.selectors import Header, Selected, listed
from governance.rollback.state import discarded_by
from memoryhub.core.events.event_types import event_type, rollback_groups, types_in_group
from memoryhub.core.events.rollback import Rollback, Treatment
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, int_elements

# Groups that no event type declares: one is worked out from revisions, the other has the events of no group.
_WORKED_OUT = (
    Rollback(Treatment.SET_ASIDE, "conflicts", "Conflicts opened", 60, follows_stream=True),
    Rollback(Treatment.STAYS, "other", "Other events", 1000, can_leave=False),
)


def groups() -> dict[str, Rollback]:
    every = {**rollback_groups(), **{rule.group: rule for rule in _WORKED_OUT}}
    return dict(sorted(every.items(), key=lambda pair: pair[1].order))


@dataclass(slots=True)
class Touched:
    id: int
    events: list[int] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def first(self) -> int:
        return self.events[0]


# By group and id
Direct = Mapping[str, Mapping[int, Touched]]


def touched_by(selected: Selected) -> Direct:
    found: dict[str, dict[int, Touched]] = {name: {} for name in groups()}
    for header in selected.headers:
        known = event_type(header.type)
        if known is None or not known.rollback.group:
            _add(found["other"], header.position, header.position)
        elif known.rollback.group not in _LOOKED_UP:
            changed = known.rollback.treatment is Treatment.REVERSED and header.entity
            _add(found[known.rollback.group], changed or header.position, header.position)
    for group, look_up in _LOOKED_UP.items():
        look_up(found, selected.of(*types_in_group(group)))
    return found


def _add(group: dict[int, Touched], thing: int, position: int) -> None:
    group.setdefault(thing, Touched(thing)).events.append(position)


def _add_revised(found: dict[str, dict[int, Touched]], events: list[Header]) -> None:
    versions = rows.fetch(
        "SELECT id, memory_id, version, conflicts_with IS NOT NULL FROM memories_memoryversion "
        f"WHERE id IN {IDS} ORDER BY id",
        [listed(header.position for header in events)],
    )
    created = found["memories_created"]
    for position, memory_id, version, is_conflict in versions:
        group = created if memory_id in created else found["memories_revised"]
        _add(group, memory_id, position)
        group[memory_id].versions.append(version)
        if is_conflict:
            _add(found["conflicts"], position, position)


# A session's row shows its purpose and summary, which the events that start and end it contain
def _add_sessions(found: dict[str, dict[int, Touched]], events: list[Header]) -> None:
    ids = session_ids({header.stream.partition(":")[2] for header in events})
    for header in events:
        session = ids.get(header.stream.partition(":")[2])
        _add(found["sessions" if session else "other"], session or header.position, header.position)
    for memory_id, position in discarded_by(header.position for header in events):
        _add(found["memories_deleted"], memory_id, position)


# A turn's row shows its summary, which the event that ends it contains
def _add_turns(found: dict[str, dict[int, Touched]], events: list[Header]) -> None:
    turns = rows.fetch(
        f"SELECT e.position, t.id FROM {int_elements()} p JOIN raw_events e ON e.position = p.value "
        "JOIN sessions_app_turn t ON t.session_id = e.session_id AND t.turn_id = e.turn_id ORDER BY e.position",
        [listed(header.position for header in events)],
    )
    for position, turn in turns:
        _add(found["turns"], turn, position)


# Groups whose things have other ids than the events or their streams.
_LOOKED_UP = {"memories_revised": _add_revised, "sessions": _add_sessions, "turns": _add_turns}


def session_ids(names: Iterable[str]) -> dict[str, int]:
    found = rows.fetch(
        f"SELECT session_id, id FROM sessions_app_session WHERE session_id IN {TEXTS}",
        [json.dumps(sorted(names))],
    )
    return dict(found)


def in_groups(direct: Direct, wanted: Callable[[str], bool]) -> list[Touched]:
    return [thing for name, group in direct.items() if wanted(name) for thing in group.values()]
