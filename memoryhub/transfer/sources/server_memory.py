"""The knowledge graph of the reference memory server of MCP: entities and relations as JSON, usually one a line."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from memories.importing.files import changed_times
from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.transfer.records import ImportSource, LeftOutRecord, MemoryRecord, Record
from memoryhub.transfer.sources.reading import json_values, list_or_empty, text_of, time_of
from memoryhub.transfer.sources.texts import clean_tags, own_relation

_PACKAGE = "node_modules/@modelcontextprotocol/server-memory/dist/memory.jsonl"
# Names of one field in the servers that descend from it
_CREATED, _UPDATED = ("createdAt", "created_at", "timestamp"), ("updatedAt", "updated_at", "lastModified")
_TEXTS = ("content", "text", "observation")
_BROKEN = "lines that are cut off, too long or no JSON"


def _find_graphs(_: Path) -> list[Path]:
    # Beside the program, unless the client's settings name a file: where npx and npm -g install it
    places = [Path(name) for name in [os.environ.get("MEMORY_FILE_PATH")] if name]
    places += Path.home().glob(f".npm/_npx/*/{_PACKAGE}")
    places += [Path(f"/usr/local/lib/{_PACKAGE}"), Path(f"/usr/lib/{_PACKAGE}")]
    return list(filter(Path.is_file, places))


@dataclass
class _Entity:
    name: str
    place: str
    type: str = ""
    # In order, each text once
    texts: dict[str, None] = field(default_factory=dict)
    times: list[datetime] = field(default_factory=list)
    created: datetime | None = None
    updated: datetime | None = None

    def add(self, entity: Mapping[str, Any]) -> int:
        """Add the observations of an entry, and return how many have no text."""
        self.type = self.type or text_of(entity.get("entityType"))
        self.created = self.created or _parsed_moment(entity, _CREATED)
        self.updated = _parsed_moment(entity, _UPDATED) or self.updated
        missing = 0
        for observation in list_or_empty(entity.get("observations")):
            text = observation
            if isinstance(observation, dict):
                text = next(filter(None, map(text_of, map(observation.get, _TEXTS))), "")
                self.times += filter(None, [_parsed_moment(observation, _CREATED)])
            if isinstance(text, str) and text.strip():
                self.texts[text] = None
            else:
                missing += 1
        return missing


@dataclass
class _Graph:
    path: Path
    entities: dict[str, _Entity] = field(default_factory=dict)
    # By the entity that they begin at: (relation, other end)
    relations: dict[str, dict[tuple[str, str], None]] = field(default_factory=dict)
    left_out: list[LeftOutRecord] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)

    def add(self, number: int, value: Any) -> None:
        match value:
            case {"entities": list() as entities, **more}:
                for item in [*entities, *list_or_empty(more.get("relations"))]:
                    self.add(number, item)
            case list():
                for item in value:
                    self.add(number, item)
            case {"from": str(start), "to": str(end), "relationType": str(relation)} if start and end:
                self.relations.setdefault(start, {})[relation, end] = None
            case {"name": str(name)} if name.strip() and _is_entity(value):
                self._add_entity(f"{self.path}:{number}", name, value)
            case {"type": str(other)}:
                self.unknown[other[:80]] += 1
            case _:
                self.unknown[""] += 1

    def _add_entity(self, place: str, name: str, value: Mapping[str, Any]) -> None:
        if name in self.entities:
            self.left_out.append(
                LeftOutRecord(place, "an entry of a name that is there already: its texts are added to that")
            )
        entity = self.entities.setdefault(name, _Entity(name, place))
        if missing := entity.add(value):
            self.left_out.append(LeftOutRecord(place, f"observations without a text: {missing}"))

    def records(self) -> Iterator[Record]:
        relations = dict(self.relations)
        changed = changed_times(self.path.parent, [self.path.name])[self.path.name]
        for name, entity in self.entities.items():
            yield _entity_record(entity, list(relations.pop(name, {})), self.entities, changed)
        for start, ends in relations.items():
            yield LeftOutRecord(str(self.path), f"relations of {start[:80]!r}, which is no entity: {len(ends)}")
        yield from self.left_out
        for kind, count in self.unknown.items():
            what = f"of the unknown type {kind!r}" if kind else "that are no entity and no relation"
            yield LeftOutRecord(str(self.path), f"entries {what}: {count}")


def _read_graphs(path: Path) -> Iterator[Record]:
    graph, broken = _Graph(path), []
    for number, value in json_values(path):
        if value is None:
            broken.append(number)
        else:
            graph.add(number, value)
    if not graph.entities and not graph.relations:
        raise Invalid(f"{flat(str(path))} has no entity and no relation of server-memory")
    yield from graph.records()
    if broken:
        yield LeftOutRecord(f"{path}:{broken[0]}", f"{_BROKEN}: {len(broken)}")


# Older files, and those of other servers, do not say so
def _is_entity(value: Mapping[str, Any]) -> bool:
    if "type" in value:
        return bool(value["type"] == "entity")
    return "entityType" in value or "observations" in value


def _parsed_moment(values: Mapping[str, Any], names: tuple[str, ...]) -> datetime | None:
    return next(filter(None, map(time_of, map(values.get, names))), None)


def _entity_record(
    entity: _Entity, relations: list[tuple[str, str]], entities: Mapping[str, _Entity], changed: datetime
) -> MemoryRecord:
    # The names of relations are free there; the text keeps them
    lines = [*entity.texts, *(f"{relation} {end}" for relation, end in relations)]
    created = entity.created or min(entity.times, default=None)
    return MemoryRecord(
        key=entity.name,
        title=entity.name,
        content="\n".join(f"- {line}" for line in lines),
        tags=clean_tags([entity.type]),
        created=created,
        updated=entity.updated or max(entity.times, default=None if created else changed),
        relations=tuple((own_relation(relation), end) for relation, end in relations if end in entities),
        place=entity.place,
    )


SERVER_MEMORY = ImportSource(
    "server-memory",
    "the knowledge graph of MCP's reference memory server",
    _find_graphs,
    _read_graphs,
    takes="a file of JSON such as memory.jsonl, which MEMORY_FILE_PATH names in the client's settings",
)
