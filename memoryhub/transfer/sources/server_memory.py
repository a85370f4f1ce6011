"""The knowledge graph of the reference memory server of MCP: entities and relations as lines of JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.transfer.records import LeftOut, MemoryRecord, Record, Source
from memoryhub.transfer.sources.reading import json_lines
from memoryhub.transfer.sources.texts import own_relation

_PACKAGE = "node_modules/@modelcontextprotocol/server-memory/dist/memory.jsonl"


def _find() -> list[Path]:
    # Beside the program, unless the client's settings name a file: where npx and npm -g install it
    places = [Path(os.environ["MEMORY_FILE_PATH"])] if os.environ.get("MEMORY_FILE_PATH") else []
    places += Path.home().glob(f".npm/_npx/*/{_PACKAGE}")
    places += [Path(f"/usr/local/lib/{_PACKAGE}"), Path(f"/usr/lib/{_PACKAGE}")]
    return [place for place in places if place.is_file()]


def _read(path: Path) -> Iterator[Record]:
    entities: dict[str, tuple[int, dict[str, Any]]] = {}
    relations: dict[str, list[tuple[str, str]]] = {}
    for number, line in json_lines(path):
        match line:
            case {"type": "entity", "name": str(name), "entityType": str(), "observations": list()}:
                entities[name] = (number, line)
            case {"type": "relation", "from": str(start), "to": str(end), "relationType": str(relation)}:
                relations.setdefault(start, []).append((relation, end))
            case _:
                raise Invalid(f"line {number} of {flat(str(path))} is no entity and no relation of server-memory")
    for name, (number, entity) in entities.items():
        yield _record(name, entity, relations.pop(name, []), entities.keys(), f"{path}:{number}")
    for start, ends in relations.items():
        yield LeftOut(str(path), f"relations of {start[:80]!r}, which is no entity: {len(ends)}")


def _record(
    name: str, entity: dict[str, Any], relations: list[tuple[str, str]], known: Any, place: str
) -> MemoryRecord:
    lines = [f"- {text}" for text in entity["observations"] if isinstance(text, str) and text.strip()]
    # The names of relations are free there; the text keeps them
    lines += [f"- {relation} {end}" for relation, end in relations]
    return MemoryRecord(
        key=name,
        title=name,
        content="\n".join(lines),
        tags=(entity["entityType"],),
        relations=tuple((own_relation(relation), end) for relation, end in relations if end in known),
        place=place,
    )


SERVER_MEMORY = Source("server-memory", "the knowledge graph of MCP's reference memory server", _find, _read)
