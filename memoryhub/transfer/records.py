"""What a source contains, in one form for all sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    # The source's own id, or what identifies it there: the same when it is read again
    key: str
    title: str
    content: str
    kind: str = "observation"
    type: str = ""
    tags: tuple[str, ...] = ()
    # The source's name of a project, "" if it has none
    project: str = ""
    # The source's id of the session that it was written in
    session: str = ""
    # When the source wrote it
    created: datetime | None = None
    # As ``MemoryWrite`` has them
    attributes: Mapping[str, Any] = field(default_factory=dict)
    # (relation, key of the other record)
    relations: tuple[tuple[str, str], ...] = ()
    # A file or a row, for a person who looks for it
    place: str = ""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    prompt: str
    answer: str
    at: datetime | None = None
    ended: datetime | None = None


@dataclass(frozen=True, slots=True)
class SessionRecord:
    key: str
    purpose: str
    turns: tuple[TurnRecord, ...] = ()
    summary: str = ""
    agent: str = ""
    project: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What is not imported, and why."""

    place: str
    why: str


Record = MemoryRecord | SessionRecord | LeftOut


@dataclass(frozen=True, slots=True)
class Source:
    """A tool whose data can be imported.

    ``read`` yields records in a stable order and writes nothing, not even beside the files. It raises ``Invalid`` with
    one sentence where the path is no data of this tool.
    """

    name: str
    # One line for ``--help``
    help: str
    # Where the tool keeps its data by itself, those that exist
    find: Callable[[], list[Path]]
    read: Callable[[Path], Iterator[Record]]
