"""Records of other tools, as sources yield them, and the report of an import."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from governance.imports import COUNTED, Batch, counts_text
from memoryhub.core import clock
from memoryhub.core.errors import Invalid
from memoryhub.core.text import first_of, flat
from sessions_app.services.past_sessions import PastTurn


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
    # When the source wrote it, and last changed it
    created: datetime | None = None
    updated: datetime | None = None
    # As ``MemoryWrite`` has them
    attributes: Mapping[str, Any] = field(default_factory=dict)
    # (relation, key of the other record)
    relations: tuple[tuple[str, str], ...] = ()
    # A file or a row, for a person who looks for it
    place: str = ""
    # The sources that read the same text under the same key; each continues the imports of the others
    shared_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionRecord:
    key: str
    purpose: str
    turns: tuple[PastTurn, ...] = ()
    summary: str = ""
    agent: str = ""
    project: str = ""
    started: datetime | None = None
    ended: datetime | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class LeftOutRecord:
    """What is not imported, and why."""

    place: str
    why: str


Record = MemoryRecord | SessionRecord | LeftOutRecord


@dataclass(frozen=True, slots=True)
class Transcript:
    """A session as a client keeps it, with what its file says at a glance."""

    # As its ``SessionRecord`` has it
    key: str
    # Where the client worked, "" if that is not said
    folder: str
    place: Path
    # Bytes
    size: int
    changed: datetime
    # Yields its session, and what is left out
    read: Callable[[], Iterator[Record]]

    def records(self) -> Iterator[Record]:
        """Yield its session and what is left out, or why it cannot be read."""
        try:
            yield from self.read()
        except Invalid as error:
            yield LeftOutRecord(str(self.place), error.message)


@dataclass(frozen=True, slots=True)
class ImportSource:
    """A tool whose data can be imported.

    ``read`` yields records in a stable order and writes nothing, not even beside the files. It raises ``Invalid`` with
    one sentence where the path is no data of this tool. What the tool keeps of its sessions comes from
    ``transcripts``, which takes the same paths and reads at most the head of each file.
    """

    name: str
    # One line for ``--help``
    help: str
    # Where the tool keeps its data by itself, those that exist; takes the folder that the user works in
    find: Callable[[Path], list[Path]]
    read: Callable[[Path], Iterator[Record]]
    # What it reads, and where the tool keeps that, for the message about another path
    takes: str = ""
    transcripts: Callable[[Path], Iterator[Transcript]] | None = None

    def records(self, path: Path) -> Iterator[Record]:
        """Yield the records of a path; the message of ``Invalid`` says what else can be named."""
        try:
            yield from self.read(path)
            if self.transcripts:
                for transcript in self.transcripts(path):
                    yield from transcript.records()
        except Invalid as error:
            hint = f"; `import {self.name}` takes {self.takes}" if self.takes else ""
            raise Invalid(f"{error.message}{hint}") from error


# Texts that are left out, and named in a report
_MOST_NAMED = 100


@dataclass
class ImportReport:
    """What an import does, or would do, in one project."""

    project: str
    created: int = 0
    revised: int = 0
    unchanged: int = 0
    # Exact copies, in the source or in the store
    duplicates: int = 0
    # Changed in the source and here since an earlier import: this store's version stays
    conflicts: int = 0
    # Deleted by a person since an earlier import
    deleted: int = 0
    sessions: int = 0
    # Imported before, with more turns now
    sessions_extended: int = 0
    # Recorded by the hub while they happened, or imported before
    sessions_known: int = 0
    relations: int = 0
    removed: int = 0
    # Notes of `import markdown` with the same texts
    replaced: int = 0
    # Types of the secrets that are masked, with the number of texts
    secrets: Counter[str] = field(default_factory=Counter)
    # The source's names of this project, with the number of records
    names: Counter[str] = field(default_factory=Counter)
    left_out: list[LeftOutRecord] = field(default_factory=list)
    left_out_count: int = 0
    # The batch, None for a preview, or if there was nothing to import
    batch: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        return {name: value for name in COUNTED if (value := getattr(self, name))}

    @property
    def changes(self) -> int:
        return self.created + self.revised + self.sessions + self.sessions_extended

    def leave(self, place: str, why: str) -> None:
        self.left_out_count += 1
        if len(self.left_out) < _MOST_NAMED:
            self.left_out.append(LeftOutRecord(place, why))


# Items of one kind that a line names
_MOST_ITEMS_NAMED = 5


def report_line(report: ImportReport) -> str:
    named = sorted(flat(name) for name in report.names if name not in ("", report.project))
    known_as = f" (there {first_of(named, _MOST_ITEMS_NAMED)})" if named else ""
    secrets = ", ".join(f"{count} {name}" for name, count in report.secrets.items())
    masked = f"; masked: {secrets}" if secrets else ""
    return f"into {report.project}{known_as}: {counts_text(report.counts) or 'nothing'}{masked}"


def reason_lines(records: Iterable[LeftOutRecord], *, most: int) -> Iterator[str]:
    """Yield a line for each reason, with the first ``most`` of its places."""
    places: dict[str, list[str]] = {}
    for record in records:
        places.setdefault(flat(record.why), []).append(flat(record.place))
    for why, alike in places.items():
        yield f"left out, {why}: {first_of(alike, most)}"


def left_out_lines(report: ImportReport) -> Iterator[str]:
    """Yield a line for each reason."""
    yield from reason_lines(report.left_out, most=_MOST_ITEMS_NAMED)
    if report.left_out_count > len(report.left_out):
        yield f"and {report.left_out_count - len(report.left_out)} more that are left out"


def batch_line(batch: Batch) -> str:
    facts = [f"#{batch.id} {batch.tool} {clock.minute(batch.began_at)}", batch.place]
    return flat("  ".join(filter(None, [*facts, counts_text(batch.counts), batch.state])))
