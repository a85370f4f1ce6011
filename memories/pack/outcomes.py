"""What sessions were given in packs, and what became of each line: cited, used or ignored."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Any

from django.db.models import Count

from memories.events import CONTEXT_PACKED
from memories.models import ContextPack
from memories.pack import recall
from memories.pack.notes import note_sources
from memories.pack.sections import all_sections
from memories.pack_sorts import local_id, reference_of
from memories.uses.counting import named_in
from memories.uses.selectors import ids_read_in
from memoryhub.core import log
from memoryhub.core.contributions import define_part
from memoryhub.core.entities import Entity, find_entities
from memoryhub.core.events.event_types import Retention, Speech, names_where
from memoryhub.core.kinds import KINDS
from memoryhub.core.log.read import entity_of_stream
from sessions_app.events import TURN_BEGAN
from sessions_app.models import Session, SessionStatus
from sessions_app.timeline import event_title

# Events of each session that are read for citations
_MOST_WRITTEN = 2_000
# Events with what many sessions read, and events that may cite
_MOST_READ, _MOST_CITING = 5_000, 50_000
# What a session may cite or read again; other lines, such as its last prompts, only say where it stands
JUDGED = ("memory", "decision")
# Sections whose lines are followed without being named: nothing tells whether they were ignored
_FOLLOWED = frozenset(kind.pack.name for kind in KINDS.values() if kind.pack)
# Fields of payloads with the ids of other entities
_LINKS = frozenset({"to", "source_id", "target_id", "memory_id", "decision_id", "decision_ids", "commit_id"})
_MAY_CITE = re.compile(rf'#\d|"(?:{"|".join(sorted(_LINKS))})"')


class LineOutcome(StrEnum):
    CITED = "cited"
    USED = "used"
    # Neither, and the session has ended
    IGNORED = "ignored"
    # Neither yet
    PENDING = "pending"

    @property
    def label(self) -> str:
        return "not used yet" if self is LineOutcome.PENDING else self.value


@dataclass(slots=True)
class SessionActivity:
    """What a session did with the entities of its packs."""

    ended: bool
    read: set[int] = field(default_factory=set)
    # Ids of what it wrote, by the id that they cite
    cited: dict[int, list[int]] = field(default_factory=dict)

    @property
    def touched(self) -> set[int]:
        return self.read | self.cited.keys()

    def outcome_of(self, entity: int) -> LineOutcome:
        citing = self.cited.get(entity)
        if citing and citing != [entity]:
            return LineOutcome.CITED
        if citing or entity in self.read:
            return LineOutcome.USED
        return LineOutcome.IGNORED if self.ended else LineOutcome.PENDING


def judge_packs(packs: Sequence[ContextPack]) -> dict[int, dict[int, LineOutcome]]:
    """Return what became of the memories and decisions in packs: outcomes by entity, by pack.

    A pack without a session, and one with nothing to judge, is not in it; the number of queries is constant.
    """
    names = {pack.session_id for pack in packs}
    sessions = {session.session_id: session for session in Session.objects.filter(session_id__in=names)}
    activity = activity_of(sessions, most_read=_MOST_READ, most_written=_MOST_CITING)
    keys = set(chain.from_iterable(pack.marks for pack in packs))
    ids = dict(zip(keys, map(local_id, keys), strict=True))
    entities = find_entities({*ids.values()} - {0})
    judged = {key: entity for key, entity in ids.items() if entity in entities and entities[entity].type in JUDGED}
    outcomes_by_pack: dict[int, dict[int, LineOutcome]] = {}
    for pack in packs:
        if pack.session_id in sessions:
            outcomes = _outcomes(pack, activity[pack.session_id], judged)
            if outcomes:
                outcomes_by_pack[pack.id] = outcomes
    return outcomes_by_pack


def _outcomes(pack: ContextPack, activity: SessionActivity, judged: Mapping[str, int]) -> dict[int, LineOutcome]:
    touched = activity.touched
    # Most lines are untouched, so that one outcome is that of all of them
    untouched = activity.outcome_of(0)
    outcomes: dict[int, LineOutcome] = {}
    for key in pack.marks:
        if key not in judged:
            continue
        entity = judged[key]
        outcome = outcome_in_section(key, activity.outcome_of(entity) if entity in touched else untouched)
        if outcome:
            outcomes[entity] = outcome
    return outcomes


# None for a line that is followed without being named
def outcome_in_section(key: str, outcome: LineOutcome) -> LineOutcome | None:
    if outcome in (LineOutcome.CITED, LineOutcome.USED) or key.partition(" ")[0] not in _FOLLOWED:
        return outcome
    return None


def activity_of(
    sessions: Mapping[str, Session], *, most_read: int = 500, most_written: int = 0
) -> dict[str, SessionActivity]:
    read = ids_read_in({session.id: name for name, session in sessions.items()}, most=most_read)
    activity: dict[str, SessionActivity] = {}
    for name, session in sessions.items():
        has_ended = session.status in (SessionStatus.COMPLETED, SessionStatus.DISCARDED)
        activity[name] = SessionActivity(has_ended, read.get(session.id, set()))
    most_written = most_written or _MOST_WRITTEN * len(sessions)
    # What sessions wrote themselves: not what their tools printed, nor packs, nor the many beginnings of turns
    types = names_where(lambda type_: type_.retention is not Retention.CAPTURED or type_.speech is Speech.ANSWER)
    types = sorted({*types} - {CONTEXT_PACKED.name, TURN_BEGAN.name})
    events = log.events().of_session(*sessions).of_type(*types).readable().order_by("-position")
    columns = events.values_list("session_id", "stream_id", "position", "payload_json")
    for name, stream, position, payload in columns[:most_written].iterator():
        if not (payload and _MAY_CITE.search(payload)):
            continue
        writer = entity_of_stream(stream, position)
        for entity in _entities_named_in(json.loads(payload)):
            citing = activity[name].cited.setdefault(entity, [])
            if writer not in citing:
                citing.append(writer)
    return activity


def _entities_named_in(value: Any, key: str = "") -> set[int]:
    if isinstance(value, str):
        return named_in(value)
    if isinstance(value, dict):
        return set().union(*(_entities_named_in(inner, name) for name, inner in value.items()))
    if isinstance(value, list):
        return set().union(*(_entities_named_in(inner, key) for inner in value))
    if key in _LINKS and isinstance(value, int) and not isinstance(value, bool):
        return {value}
    return set()


# Packs of a session that its page shows
_MOST_PACKS = 20


@dataclass(frozen=True, slots=True)
class GivenLine:
    # ``#412``, or ``global#12``
    reference: str
    # The entity's now, or that of the event that the line names; "" if it is in another store or erased
    title: str
    # The stream of the entity or event, such as ``memory:412``; "" if there is no page for it here
    stream: str
    # None if there is nothing to judge
    outcome: LineOutcome | None
    # What cites it
    citing: Sequence[Entity] = ()


@dataclass(frozen=True, slots=True)
class GivenSection:
    """One section of a pack."""

    title: str
    lines: list[GivenLine]

    @property
    def is_judged(self) -> bool:
        return any(line.outcome for line in self.lines)


@dataclass(frozen=True, slots=True)
class GivenPack:
    id: int
    topic: str
    tokens: int
    max_tokens: int
    sent_at: datetime
    sections: list[GivenSection]

    @property
    def lines(self) -> list[GivenLine]:
        return [line for section in self.sections for line in section.lines]

    @property
    def counts(self) -> list[tuple[LineOutcome, int]]:
        """Judged lines by outcome; an entity that was given twice counts once."""
        counted = Counter({line.reference: line.outcome for line in self.lines if line.outcome}.values())
        return [(outcome, counted[outcome]) for outcome in LineOutcome if counted[outcome]]


@dataclass(frozen=True, slots=True)
class GivenPacks:
    packs: list[GivenPack]
    # Packs that are not among them
    more: int = 0

    @property
    def tokens(self) -> int:
        return sum(pack.tokens for pack in self.packs)

    # By reference: what was given twice counts once
    @property
    def _outcomes(self) -> dict[str, LineOutcome | None]:
        lines = chain.from_iterable(pack.lines for pack in self.packs)
        return {line.reference: line.outcome for line in lines if line.outcome}

    @property
    def lines(self) -> int:
        return len({line.reference for pack in self.packs for line in pack.lines})

    @property
    def cited(self) -> int:
        return list(self._outcomes.values()).count(LineOutcome.CITED)

    @property
    def used(self) -> int:
        """Lines that were cited or used."""
        return self.cited + list(self._outcomes.values()).count(LineOutcome.USED)


def packs_given_to(ids: Sequence[int]) -> dict[int, GivenPacks]:
    """Return what sessions were given in packs, and what became of each line; the number of queries is constant."""
    sessions = {session.session_id: session for session in Session.objects.filter(id__in=ids)}
    packs = list(ContextPack.objects.filter(session_id__in=sessions).order_by("id")[: _MOST_PACKS * len(sessions)])
    if not packs:
        return {}
    packs_of_session = ContextPack.objects.filter(session_id__in=sessions).order_by().values("session_id")
    counts = dict(packs_of_session.annotate(packs=Count("id")).values_list("session_id", "packs"))
    activity = activity_of(sessions)
    named = set(map(local_id, chain.from_iterable(pack.marks for pack in packs))) - {0}
    citing: set[int] = set()
    for done_in_session in activity.values():
        citing.update(*done_in_session.cited.values())
    entities = find_entities(named | citing)
    # Prompts and conflicts are named by an event
    titles: dict[int, tuple[str, str]] = {}
    for event in log.events().at(named - set(entities)).readable():
        title = event_title(event.event_type, json.loads(event.payload_json or "{}"), "")
        titles[event.position] = (title, event.stream_id)
    given_packs: dict[int, GivenPacks] = {}
    for name, session in sessions.items():
        sent = [pack for pack in packs if pack.session_id == name][:_MOST_PACKS]
        described = [_describe_pack(pack, activity[name], entities, titles) for pack in sent]
        given_packs[session.id] = GivenPacks(described, more=counts.get(name, 0) - len(sent))
    return given_packs


def _describe_pack(
    pack: ContextPack, activity: SessionActivity, entities: Mapping[int, Entity], titles: Mapping[int, tuple[str, str]]
) -> GivenPack:
    by_section: dict[str, list[GivenLine]] = {}
    for key in pack.marks:
        section = key.partition(" ")[0]
        line = _describe_line(reference_of(key), activity, entities, titles)
        if line.outcome:
            line = replace(line, outcome=outcome_in_section(key, line.outcome))
        by_section.setdefault(section, []).append(line)
    order = [*LineOutcome, None]
    sections: list[GivenSection] = []
    titles_of_sections = {section.name: section.title for section in (recall.SECTION, *all_sections())}
    titles_of_sections |= {source.name: source.label for source in note_sources()}
    for name, title in titles_of_sections.items():
        lines = by_section.get(name, [])
        lines.sort(key=lambda line: (order.index(line.outcome), -int(line.reference.rpartition("#")[2])))
        if lines:
            sections.append(GivenSection(title, lines))
    return GivenPack(pack.id, pack.topic, pack.tokens, pack.max_tokens, pack.created_at, sections)


def _describe_line(
    reference: str, activity: SessionActivity, entities: Mapping[int, Entity], titles: Mapping[int, tuple[str, str]]
) -> GivenLine:
    entity = entities.get(local_id(reference))
    if entity is None:
        title, stream = titles.get(local_id(reference), ("", ""))
        return GivenLine(reference, title, stream, None)
    outcome = activity.outcome_of(entity.id) if entity.type in JUDGED else None
    writers = activity.cited.get(entity.id, ())
    citing = [entities[writer] for writer in writers if writer in entities and writer != entity.id]
    return GivenLine(reference, entity.title, f"{entity.type}:{entity.id}", outcome, citing)


define_part("session", "given", packs_given_to)
