"""What sessions were given in packs, line by line, with what became of each line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Count

from memories.models import RECALL, ContextPack
from memories.pack.outcomes import JUDGED, Activity, Outcome, activity_of, id_of, outcome_in_section
from memories.pack.sections import all_sections
from memoryhub.core.contributions import define_part
from memoryhub.core.entities import Entity, find_entities
from memoryhub.core.models import RawEvent
from sessions_app.event_summaries import about
from sessions_app.models import Session

# Packs of a session that its page shows
_MOST_PACKS = 20


@dataclass(frozen=True, slots=True)
class Line:
    # ``#412``, or ``global#12``
    reference: str
    # Of the entity now, or of the event that the line names; "" if it is in another store or erased
    title: str
    # Of the entity or event, such as ``memory:412``; "" if there is no page for it here
    stream: str
    # None if there is nothing to judge
    outcome: Outcome | None
    # What cites it
    citing: Sequence[Entity] = ()


@dataclass(frozen=True, slots=True)
class GivenSection:
    """One section of a pack."""

    title: str
    lines: list[Line]

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
    def lines(self) -> list[Line]:
        return [line for section in self.sections for line in section.lines]

    @property
    def counts(self) -> list[tuple[Outcome, int]]:
        return _counts(self.lines)


@dataclass(frozen=True, slots=True)
class GivenPacks:
    packs: list[GivenPack]
    # Packs that are not among them
    more: int = 0

    @property
    def tokens(self) -> int:
        return sum(pack.tokens for pack in self.packs)

    @property
    def lines(self) -> int:
        return len({line.reference for pack in self.packs for line in pack.lines})

    @property
    def cited(self) -> int:
        return self.counts.get(Outcome.CITED, 0)

    @property
    def used(self) -> int:
        """Lines that were cited or used."""
        return self.cited + self.counts.get(Outcome.USED, 0)

    @property
    def counts(self) -> dict[str, int]:
        return {str(outcome): count for outcome, count in _counts(line for pack in self.packs for line in pack.lines)}


# Judged lines by outcome; an entity that was given twice counts once
def _counts(lines: Iterable[Line]) -> list[tuple[Outcome, int]]:
    counted = Counter({line.reference: line.outcome for line in lines if line.outcome}.values())
    return [(outcome, counted[outcome]) for outcome in Outcome if counted[outcome]]


def packs_given_to(ids: Sequence[int]) -> dict[int, GivenPacks]:
    """Return what sessions were given in packs, and what became of each line; the number of queries is constant."""
    sessions = {session.session_id: session for session in Session.objects.filter(id__in=ids)}
    packs = list(ContextPack.objects.filter(session_id__in=sessions).order_by("id")[: _MOST_PACKS * len(sessions)])
    if not packs:
        return {}
    counts = _count_packs(list(sessions))
    activity = activity_of(sessions)
    named = {id_of(key) for pack in packs for key in pack.marks} - {0}
    citing = {entity for done in activity.values() for found in done.cited.values() for entity in found}
    known = find_entities(named | citing)
    titles = _titles(named - set(known))
    found = {}
    for name, session in sessions.items():
        own = [pack for pack in packs if pack.session_id == name]
        given = [_given(pack, activity[name], known, titles) for pack in own[:_MOST_PACKS]]
        found[session.id] = GivenPacks(given, more=counts.get(name, 0) - len(given))
    return found


def _count_packs(names: Sequence[str]) -> dict[str, int]:
    packs = ContextPack.objects.filter(session_id__in=names).order_by()
    return dict(packs.values("session_id").annotate(packs=Count("id")).values_list("session_id", "packs"))


def _given(
    pack: ContextPack, activity: Activity, known: Mapping[int, Entity], titles: Mapping[int, tuple[str, str]]
) -> GivenPack:
    by_section: dict[str, list[Line]] = {}
    for key in pack.marks:
        section, _, reference = key.rpartition(" ")
        line = _line(reference, activity, known, titles)
        if line.outcome:
            line = replace(line, outcome=outcome_in_section(key, line.outcome))
        by_section.setdefault(section, []).append(line)
    order = {RECALL: "About this prompt"} | {section.name: section.title for section in all_sections()}
    sections = [
        GivenSection(title, sorted(by_section[name], key=_order)) for name, title in order.items() if name in by_section
    ]
    return GivenPack(pack.id, pack.topic, pack.tokens, pack.max_tokens, pack.created_at, sections)


def _order(line: Line) -> tuple[int, int]:
    ranks = list(Outcome)
    return (ranks.index(line.outcome) if line.outcome else len(ranks), -int(line.reference.rpartition("#")[2]))


def _line(
    reference: str, activity: Activity, known: Mapping[int, Entity], titles: Mapping[int, tuple[str, str]]
) -> Line:
    entity = known.get(id_of(reference))
    if entity is None:
        title, stream = titles.get(id_of(reference), ("", ""))
        return Line(reference, title, stream, None)
    outcome = activity.outcome_of(entity.id) if entity.type in JUDGED else None
    citing = [known[citing] for citing in activity.cited.get(entity.id, ()) if citing != entity.id and citing in known]
    return Line(reference, entity.title, f"{entity.type}:{entity.id}", outcome, citing)


# Prompts and conflicts are named by an event
def _titles(positions: Iterable[int]) -> dict[int, tuple[str, str]]:
    events = RawEvent.objects.filter(position__in=list(positions), payload_json__isnull=False)
    return {
        event.position: (about(event.event_type, json.loads(event.payload_json or "{}"), ""), event.stream_id)
        for event in events
    }


define_part("session", "given", packs_given_to)
