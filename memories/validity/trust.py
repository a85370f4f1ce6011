"""Where entries come from, and whether a person accepted that very text (decision 97).

Both follow from the log: from who wrote the version that is in effect, through which interface, what that text was
copied from, and the verdicts of people. Nothing of it is stored beside the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from django.db.models import Q

from memories.events import MEMORY_REVIEWED, ResourceLink, Verdict
from memories.models import MemoryVersion
from memories.search.snippets import stem
from memories.search.text import STOP_WORDS, folded
from memories.validity.marks import Mark, MarkKind
from memoryhub.core import clock, log
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.origin import AGENT_PREFIX, PERSONS_DOORS, reader_of
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, is_among, json_list, json_text


class EntrySource(StrEnum):
    PERSON = "person"
    AGENT = "agent"
    # A section of a file of the project, which its people have committed
    FILE = "file"
    # A lesson that a rule has proposed
    RULE = "rule"
    # The data of another tool
    IMPORT = "import"
    TOOL = "tool"
    WEB = "web"


# The end of a mark
NOT_ACCEPTED = "not accepted"
# What reads as less than what a person accepted
_ORIGINS = {
    EntrySource.WEB: "from a web page",
    EntrySource.TOOL: "from a tool's output",
    EntrySource.IMPORT: "imported from {}",
}


@dataclass(frozen=True, slots=True)
class Trust:
    source: EntrySource
    # The name of the person or the client that wrote the version in effect, or of the other tool
    writer: str
    # The person who accepted this very text, and the day; "" if none has
    accepted_by: str = ""
    accepted_on: str = ""

    @property
    def is_lesser(self) -> bool:
        return self.source in _ORIGINS and not self.accepted_by

    @property
    def origin(self) -> str:
        """Where it comes from, as a clause; "" for what people and agents wrote."""
        return _ORIGINS.get(self.source, "").format(self.writer)

    @property
    def text(self) -> str:
        """Where it comes from and who accepted it: ``from a web page, accepted by ada 2026-11-29``."""
        accepted = "not reviewed"
        if self.accepted_by:
            accepted = f"accepted by {self.accepted_by} {self.accepted_on}"
        elif self.is_lesser:
            accepted = NOT_ACCEPTED
        return f"{self.origin}, {accepted}" if self.origin else accepted


# Factor on the score of what is lesser
_LESSER_WEIGHT = 0.9
# Sources of event headers
_REST, _IMPORT, _RULES = "rest", "import", "rules"
# The actor of the hub's own token: its file is only the owner's, who gives verdicts with it in scripts
_HUB_TOKEN = "token"  # noqa: S105 - the name of an actor
# Topics and actors of imports; sections of files, and files of rules for clients, are files of the project
_IMPORTED, _FILE_TOPIC = "import:", "import:markdown:"
_FILE_IMPORTERS = ("import:rules", "import:markdown")
# A person's word that an entry still holds, in the stream of the entry
_AFFIRMED = "thing.affirmed"


# The door of a person who merged the branch on which an entry was learnt
MERGE_DOOR = "merge"
# The doors of clients; others are those of people, importers, rules and jobs
CLIENT_DOORS = ("mcp", "rest", "service")
WEB_ADDRESS = re.compile(r"https?://(?!localhost\b|127\.|0\.0\.0\.0|\[::1\])", re.IGNORECASE)
_WORD = re.compile(r"\w{2,40}")
# A shorter text is compared as if it had so many words
_FEWEST_WORDS = 4
# Type of a link to the files that an entry governs
_GOVERNS = "governs"


class _Version(NamedTuple):
    memory_id: int
    # The event that wrote the version in effect
    position: int
    actor: str
    door: str
    copied_from: str | None
    topic: str
    # These two are empty unless the current version is in effect
    source: str
    links: str
    created_at: Any


_IN_EFFECT = (
    "SELECT m.id, v.id, v.actor, v.source, v.copied_from, coalesce(m.topic_key, ''), "
    "CASE WHEN v.version = m.version THEN m.source ELSE '' END, "
    "CASE WHEN v.version = m.version THEN m.resource_links ELSE '[]' END, v.created_at "
    "FROM memories_memory m JOIN memories_memoryversion v "
    "ON v.memory_id = m.id AND v.version = coalesce(m.accepted_version, m.version) "
    f"WHERE {is_among('m.id')}"
)


def trusts_of(ids: Iterable[int]) -> dict[int, Trust]:
    """Map memories of the current store to where they come from, and to who accepted them."""
    versions = _versions_in_effect(ids)
    trusts = {version.memory_id: _origin_of(version) for version in versions}
    return trusts | _accepted(versions, trusts)


@rows.InSteps
def trust_marks(ids: Iterable[int]) -> rows.Steps[dict[int, Mark]]:
    """Map entries that are of a lesser origin, and that no person accepted, to their marks."""
    listed = [json_list(ids)]
    lines, copies = yield [(f"{_IN_EFFECT}{_MAY_BE_LESSER}", listed), (_COPIED_DECISIONS, listed)]
    versions = [_Version(*columns) for columns in lines]
    trusts = {version.memory_id: _origin_of(version) for version in versions}
    lesser = [version for version in versions if trusts[version.memory_id].is_lesser]
    trusts |= _accepted(lesser, trusts)
    marks = _decision_marks(dict(copies))
    for version in lesser:
        trust = trusts[version.memory_id]
        if trust.is_lesser:
            marks[version.memory_id] = Mark(MarkKind.ORIGIN, trust.text, _LESSER_WEIGHT)
    return marks


_COPIED_DECISIONS = (
    f"SELECT position, {json_text('payload_json', 'copied_from')} FROM raw_events WHERE position IN {IDS} "
    f"AND event_type = 'decision.recorded' AND {json_text('payload_json', 'copied_from')} IS NOT NULL"
)


# Decisions that were copied, and that no person accepted or said to hold; their text never changes
def _decision_marks(copies: dict[int, str]) -> dict[int, Mark]:
    if not copies:
        return {}
    streams = [f"decision:{decision_id}" for decision_id in copies]
    spoken = log.events().of_stream(*streams).of_type("decision.marked", _AFFIRMED).readable()
    columns = ("stream_id", "event_type", "actor", "source", "payload_json")
    for stream, kind, actor, door, payload in outside_quarantine(spoken, "position").values_list(*columns):
        verdict = json.loads(payload)
        is_accepting = kind == _AFFIRMED or verdict.get("status") == "accepted" or verdict.get("review") == ""
        if is_accepting and person_of(actor, door):
            copies.pop(int(stream.rpartition(":")[2]), None)
    marks: dict[int, Mark] = {}
    for decision_id, source in copies.items():
        marks[decision_id] = Mark(MarkKind.ORIGIN, Trust(EntrySource(source), "").text, _LESSER_WEIGHT)
    return marks


def is_of_web(source: str, links: Iterable[ResourceLink]) -> bool:
    """Return whether an entry names a web page as its source; a link to what it governs is none."""
    addresses = [source, *(link.uri for link in links if link.type != _GOVERNS)]
    return any(WEB_ADDRESS.match(address.strip()) for address in addresses)


# Share of the words of the shorter of two texts from which they may be about the same matter, and are
NEAR_MATTER, SAME_MATTER = 0.2, 0.4
# Characters that are compared
_COMPARED = 2_000
_TEXTS = f"SELECT id, title, content FROM memories_memory WHERE id IN {IDS}"


def accepted_instead(ids: Iterable[int]) -> dict[int, dict[int, float]]:
    """Map memories of a lesser origin to those among ``ids`` that may be of the same matter and that a person accepted.

    The latter are given with the share of common words, from ``NEAR_MATTER`` to 1.
    """
    versions = _versions_in_effect(ids)
    trusts = {version.memory_id: _origin_of(version) for version in versions}
    if not any(trust.is_lesser for trust in trusts.values()):
        return {}
    trusts |= _accepted(versions, trusts)
    accepted = [memory_id for memory_id, trust in trusts.items() if trust.accepted_by]
    lesser = [memory_id for memory_id, trust in trusts.items() if trust.is_lesser]
    if not (accepted and lesser):
        return {}
    words: dict[int, frozenset[str]] = {}
    for memory_id, title, content in rows.fetch(_TEXTS, [json_list([*accepted, *lesser])]):
        words[memory_id] = stems_of(f"{title} {content[:_COMPARED]}")
    instead: dict[int, dict[int, float]] = {}
    for memory_id in lesser:
        for other in accepted:
            shorter = max(min(len(words[memory_id]), len(words[other])), _FEWEST_WORDS)
            share = len(words[memory_id] & words[other]) / shorter
            if share >= NEAR_MATTER:
                instead.setdefault(memory_id, {})[other] = share
    return instead


def stems_of(text: str) -> frozenset[str]:
    """Return the stems of the words of a text that say what it is about."""
    words = _WORD.findall(folded(text).lower())
    return frozenset(stem(word) for word in words if word not in STOP_WORDS)


def person_of(actor: str, door: str) -> str:
    """Return the person who spoke, by the header of an event; "" for agents, also those with a person's token."""
    if door == MERGE_DOOR:
        return actor
    if door not in PERSONS_DOORS and door != _REST:
        return ""
    if door == _REST and actor == _HUB_TOKEN:
        return "the hub's token"
    person, _ = reader_of(actor, door)
    is_signed_in = door == _REST and not person and not actor.startswith(AGENT_PREFIX)
    return actor if is_signed_in else person


# Condition that holds for all of a lesser origin
_MAY_BE_LESSER = (
    f" AND (v.source = '{_IMPORT}' OR v.copied_from IS NOT NULL OR NOT (m.source = '') "
    "OR NOT (m.resource_links = '[]'))"
)


def may_be_lesser() -> Q:
    """Return a condition that holds for all memories of a lesser origin."""
    copied = MemoryVersion.objects.filter(Q(source=_IMPORT) | Q(copied_from__isnull=False))
    return Q(id__in=copied.values("memory_id")) | ~Q(source="") | ~Q(resource_links=[])


def _versions_in_effect(ids: Iterable[int]) -> list[_Version]:
    return [_Version(*columns) for columns in rows.fetch(_IN_EFFECT, [json_list(ids)])]


def _origin_of(version: _Version) -> Trust:
    source = _source_of(version)
    if source is EntrySource.PERSON:
        return Trust(source, version.actor, version.actor, clock.day(rows.time_text(version.created_at)))
    if source is EntrySource.IMPORT:
        # The topic has the tool, too, if a client has changed a few words since
        name = version.actor if version.door == _IMPORT else version.topic
        tool = name.removeprefix(_IMPORTED).partition(":")[0]
        if version.topic.startswith(_FILE_TOPIC):
            tool = "outside the project"
        return Trust(source, tool or "another tool")
    return Trust(source, version.actor)


# As in a review, people accept by writing: in the admin, and at a terminal
def _source_of(version: _Version) -> EntrySource:
    is_section = version.topic.startswith(_FILE_TOPIC) and version.door not in CLIENT_DOORS
    links = [ResourceLink.model_validate(link) for link in json.loads(version.links)]
    source = EntrySource.AGENT
    if version.copied_from:
        source = EntrySource(version.copied_from)
    elif is_section or version.actor in _FILE_IMPORTERS:
        source = EntrySource.FILE
    elif version.door in PERSONS_DOORS:
        source = EntrySource.PERSON
    elif version.door == _IMPORT:
        source = EntrySource.IMPORT
    elif version.door == _RULES:
        source = EntrySource.RULE
    elif is_of_web(version.source, links):
        source = EntrySource.WEB
    return source


# Who accepted a version, and the day, by the position of its event
_Acceptances = dict[int, tuple[str, str]]


# Those of the trusts to which a person's acceptance of the text in effect is added
def _accepted(versions: Iterable[_Version], trusts: Mapping[int, Trust]) -> dict[int, Trust]:
    positions: dict[int, int] = {}
    for version in versions:
        if not trusts[version.memory_id].accepted_by:
            positions[version.memory_id] = version.position
    acceptances = _acceptances(positions)
    if not acceptances:
        return {}
    texts = _texts_at({*acceptances, *positions.values()})
    accepted: dict[int, Trust] = {}
    owners = dict(MemoryVersion.objects.filter(id__in=list(acceptances)).values_list("id", "memory_id"))
    for position, (person, day) in acceptances.items():
        memory_id = owners[position]
        if position in texts and texts[position] == texts.get(positions[memory_id]):
            accepted[memory_id] = replace(trusts[memory_id], accepted_by=person, accepted_on=day)
    return accepted


# What people wrote, accepted in a review, or said to hold; the last word counts
def _acceptances(ids: Collection[int]) -> _Acceptances:
    streams = [f"memory:{memory_id}" for memory_id in ids]
    if not streams:
        return {}
    verdicts = log.events().of_stream(*streams).of_type(MEMORY_REVIEWED, _AFFIRMED).readable()
    columns = ("position", "stream_id", "event_type", "actor", "source", "occurred_at", "payload_json")
    spoken = list(outside_quarantine(verdicts, "position").values_list(*columns))
    versions = MemoryVersion.objects.filter(memory_id__in=list(ids)).order_by("id")
    numbers: dict[tuple[int, int], int] = {}
    acceptances: _Acceptances = {}
    for position, memory_id, number, actor, door, created_at in versions.values_list(*_OF_VERSION):
        numbers[memory_id, number] = position
        if door in PERSONS_DOORS:
            acceptances[position] = actor, clock.day(created_at)
    for position, stream, kind, actor, door, moment, payload in spoken:
        memory_id = int(stream.rpartition(":")[2])
        person = person_of(actor, door)
        if kind == _AFFIRMED:
            earlier = [written for (owner, _), written in numbers.items() if owner == memory_id and written < position]
            if person and earlier:
                acceptances[max(earlier)] = person, clock.day(moment)
            continue
        verdict = json.loads(payload)
        reviewed = numbers.get((memory_id, verdict["stands"]))
        if reviewed and verdict["verdict"] == Verdict.ACCEPTED and person:
            acceptances[reviewed] = person, clock.day(moment)
        elif verdict["verdict"] == Verdict.WITHDRAWN:
            acceptances.pop(numbers.get((memory_id, verdict["version"]), 0), None)
    return acceptances


_OF_VERSION = ("id", "memory_id", "version", "actor", "source", "created_at")


# Titles and contents; of what is erased, none is equal to another
def _texts_at(positions: Collection[int]) -> dict[int, tuple[str, str]]:
    payloads = log.events().at(positions).payloads()
    return {position: (state["title"], state["content"]) for position, state in payloads.items()}
