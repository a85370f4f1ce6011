"""What became of the lines of a session's packs: cited, used or ignored by that session."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from memories.events import CONTEXT_PACKED
from memories.models import ContextPack
from memories.uses.counting import named_in
from memories.uses.selectors import ids_read_in
from memoryhub.core.entities import find_entities
from memoryhub.core.events.event_types import Retention, Speech, names_where
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.log.event_view import entity_of_stream
from memoryhub.core.models import RawEvent
from sessions_app.events.sessions import TURN_BEGAN
from sessions_app.models import Session, SessionStatus

# Events of each session that are read for citations
_MOST_WRITTEN = 2_000
# Of many sessions: events with what they read, and events that may cite
_MOST_READ, _MOST_CITING = 5_000, 50_000
# What a session may cite or read again; other lines, such as its last prompts, only say where it stands
JUDGED = ("memory", "decision")
# Sections whose lines are followed without being named: nothing tells whether they were ignored
_FOLLOWED = frozenset(kind.pack.name for kind in KINDS.values() if kind.pack)
# Fields of payloads with the ids of other entities
_LINKS = frozenset({"to", "source_id", "target_id", "memory_id", "decision_id", "decision_ids", "commit_id"})
_MAY_CITE = re.compile(rf'#\d|"(?:{"|".join(sorted(_LINKS))})"')


class Outcome(StrEnum):
    CITED = "cited"
    USED = "used"
    # Neither, and the session has ended
    IGNORED = "ignored"
    # Neither yet
    PENDING = "pending"

    @property
    def label(self) -> str:
        return "not used yet" if self is Outcome.PENDING else self.value


@dataclass(slots=True)
class Activity:
    """What a session did with the entities of its packs."""

    ended: bool
    read: set[int] = field(default_factory=set)
    # Ids of what it wrote, by the id that they cite
    cited: dict[int, list[int]] = field(default_factory=dict)

    @property
    def touched(self) -> set[int]:
        return self.read | self.cited.keys()

    def outcome_of(self, entity: int) -> Outcome:
        citing = self.cited.get(entity)
        if citing and citing != [entity]:
            return Outcome.CITED
        if citing or entity in self.read:
            return Outcome.USED
        return Outcome.IGNORED if self.ended else Outcome.PENDING


# 0 for an entity of another store
def id_of(key: str) -> int:
    reference = key.rpartition(" ")[2]
    return int(reference[1:]) if reference[:1] == "#" and reference[1:].isdecimal() else 0


def judge_packs(packs: Sequence[ContextPack]) -> dict[int, dict[int, Outcome]]:
    """Return what became of the memories and decisions in packs: outcomes by entity, by pack.

    A pack without a session, and one with nothing to judge, is not in it; the number of queries is constant.
    """
    names = {pack.session_id for pack in packs}
    sessions = {session.session_id: session for session in Session.objects.filter(session_id__in=names)}
    activity = activity_of(sessions, most_read=_MOST_READ, most_written=_MOST_CITING)
    ids = {key: id_of(key) for key in {key for pack in packs for key in pack.marks}}
    known = find_entities({*ids.values()} - {0})
    judged = {key: entity for key, entity in ids.items() if entity in known and known[entity].type in JUDGED}
    found = {
        pack.id: _outcomes(pack, activity[pack.session_id], judged) for pack in packs if pack.session_id in sessions
    }
    return {pack: outcomes for pack, outcomes in found.items() if outcomes}


def _outcomes(pack: ContextPack, activity: Activity, judged: Mapping[str, int]) -> dict[int, Outcome]:
    # Most lines are untouched, so that one outcome is that of all of them
    touched, other = activity.touched, activity.outcome_of(0)
    found = {judged[key]: key for key in pack.marks if key in judged}
    outcomes = {
        entity: outcome_in_section(key, activity.outcome_of(entity) if entity in touched else other)
        for entity, key in found.items()
    }
    return {entity: outcome for entity, outcome in outcomes.items() if outcome}


# None for a line that is followed without being named
def outcome_in_section(key: str, outcome: Outcome) -> Outcome | None:
    is_followed = key.partition(" ")[0] in _FOLLOWED
    return None if is_followed and outcome not in (Outcome.CITED, Outcome.USED) else outcome


def activity_of(sessions: Mapping[str, Session], *, most_read: int = 500, most_written: int = 0) -> dict[str, Activity]:
    read = ids_read_in({session.id: name for name, session in sessions.items()}, most=most_read)
    found = {
        name: Activity(
            session.status in (SessionStatus.COMPLETED, SessionStatus.DISCARDED), read.get(session.id, set())
        )
        for name, session in sessions.items()
    }
    for session, writer, payload in _written(list(sessions), most_written or _MOST_WRITTEN * len(sessions)):
        for entity in _named(json.loads(payload)):
            citing = found[session].cited.setdefault(entity, [])
            if writer not in citing:
                citing.append(writer)
    return found


# What sessions wrote themselves that may cite: session, id of what was written, and payload. Not what their tools
# printed, nor the packs, nor the beginnings of turns, which are many and have no text.
def _written(names: Sequence[str], most: int) -> Iterator[tuple[str, int, str]]:
    types = names_where(lambda type_: type_.retention is not Retention.CAPTURED or type_.speech is Speech.ANSWER)
    events = RawEvent.objects.filter(session_id__in=names, event_type__in=types, payload_json__isnull=False)
    events = events.exclude(event_type__in=(CONTEXT_PACKED.name, TURN_BEGAN.name)).order_by("-position")
    found = events.values_list("session_id", "stream_id", "position", "payload_json")[:most].iterator()
    for session, stream, position, payload in found:
        if _MAY_CITE.search(payload):
            yield session, entity_of_stream(stream, position), payload


def _named(value: Any, key: str = "") -> set[int]:
    if isinstance(value, str):
        return named_in(value)
    if isinstance(value, dict):
        return {entity for name, inner in value.items() for entity in _named(inner, name)}
    if isinstance(value, list):
        return {entity for inner in value for entity in _named(inner, key)}
    return {value} if key in _LINKS and isinstance(value, int) and not isinstance(value, bool) else set()
