"""Export memories and decisions as a folder of Markdown files, one for each, or as an Obsidian vault."""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import IO, Any, cast

from pydantic import Field

from decisions.exporting import file_name, madr_document, with_front_matter
from decisions.models import Decision
from decisions.selectors import views as decision_views
from memories.models import Memory, MemoryKind, MemoryScope, ReviewState
from memories.selectors.memories import views as memory_views
from memories.selectors.relations import relations_of
from memoryhub.core.disk import replacing
from memoryhub.core.errors import ConflictError, Invalid
from memoryhub.core.foreign_files import holds
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.schemas import Command, Moment, Tag
from memoryhub.core.text import flat

_BATCH = 500
_READABLE = 0o666
_PLAIN = ("id", "title", "kind", "type", "tags", "author", "version", "created_at", "updated_at")
# Left out of the front matter where they say nothing
_OPTIONAL = ("topic_key", "source", "session_id", "resource_links", "attributes", "expired", "superseded_by")
_DECISION = "decision"
Kind = StrEnum("Kind", {**{kind.name: kind.value for kind in MemoryKind}, "DECISION": _DECISION})  # type: ignore[misc]


class FolderForm(StrEnum):
    MARKDOWN = "markdown"
    OBSIDIAN = "obsidian"


class ExportSelection(Command):
    """What an export contains; by default every memory and decision in force."""

    kind: list[Kind] = Field(default_factory=list, description="of memories, or decision; default: all")
    tag: list[Tag] = Field(default_factory=list, max_length=32, description="all of them; leaves decisions out")
    scope: MemoryScope | None = Field(None, description="of memories; leaves decisions out")
    since: Moment | None = Field(None, description="created at or after")
    until: Moment | None = Field(None, description="created before")


def export_files(form: FolderForm, selection: ExportSelection) -> Iterator[tuple[str, str]]:
    """Yield the relative path and the text of each file of the current store: memories, then decisions.

    Deleted, rejected and quarantined memories and decisions are left out; a link to one is a plain number.
    """
    export = _FolderExport(form, selection)
    yield from export.memory_files()
    yield from export.decision_files()


class _FolderExport:
    def __init__(self, form: FolderForm, selection: ExportSelection) -> None:
        self._is_vault = form is FolderForm.OBSIDIAN
        kinds = [kind for kind in selection.kind if kind != _DECISION]
        memories = Memory.objects.live().tagged(*selection.tag)
        if selection.kind:
            memories = memories.filter(kind__in=kinds)
        if selection.scope:
            memories = memories.filter(scope=selection.scope)
        self._memories = memories.filter(**_period("created_at", selection.since, selection.until))
        decisions = outside_quarantine(
            Decision.objects.filter(**_period("decided_at", selection.since, selection.until))
        )
        is_wanted = not (selection.tag or selection.scope) and (not selection.kind or _DECISION in selection.kind)
        self._decisions = decisions if is_wanted else decisions.none()

    def memory_files(self) -> Iterator[tuple[str, str]]:
        for memories in _batches(self._memories):
            relations = relations_of([memory.id for memory in memories])
            ends = {relation[end]["id"] for listed in relations.values() for relation in listed for end in _ENDS}
            names = self._names(ends)
            for memory in memory_views(memories):
                text = self._memory(memory, relations[memory["id"]], names)
                yield f"memories/{file_name(memory['id'], memory['title'])}", text

    def decision_files(self) -> Iterator[tuple[str, str]]:
        for decisions in _batches(self._decisions):
            views = decision_views(decisions, with_heads=False)
            named = {edge["to"] for decision in views for edge in decision["edges"]}
            named |= {successor for decision in views for successor in decision["superseded_by"]}
            names = dict(self._decisions.filter(id__in=named).values_list("id", "title"))
            files = {decision_id: file_name(decision_id, title) for decision_id, title in names.items()}
            for decision in views:
                text = madr_document(decision, files)
                text = _with_wiki_links(text, files.values()) if self._is_vault else text
                yield f"decisions/{file_name(decision['id'], decision['title'])}", text

    def _names(self, ids: Iterable[int]) -> dict[int, tuple[str, str]]:
        """Map the ids that are exported to the folder and the title."""
        unnamed = list(ids)
        memories = self._memories.filter(id__in=unnamed).values_list("id", "title")
        decisions = self._decisions.filter(id__in=unnamed).values_list("id", "title")
        return {
            **{memory_id: ("memories", title) for memory_id, title in memories},
            **{decision_id: ("decisions", title) for decision_id, title in decisions},
        }

    def _memory(
        self, memory: Mapping[str, Any], relations: Sequence[Mapping[str, Any]], names: Mapping[int, tuple[str, str]]
    ) -> str:
        matter = {name: memory[name] for name in _PLAIN}
        matter |= {name: memory[name] for name in _OPTIONAL if memory.get(name)}
        if memory["scope"] != MemoryScope.PROJECT:
            matter["scope"] = memory["scope"]
        if memory["review"] != ReviewState.ACCEPTED:
            matter["review"] = memory["review"]
        if self._is_vault:
            matter |= {"aliases": [memory["title"]], "tags": [vault_tag(tag) for tag in memory["tags"]]}
        links = [self._relation(relation, memory["id"], names) for relation in relations]
        body = [f"# {flat(memory['title'])}", memory["content"], *(["\n".join(links)] if links else [])]
        return with_front_matter(matter, "\n\n".join(body) + "\n")

    def _relation(self, relation: Mapping[str, Any], memory_id: int, names: Mapping[int, tuple[str, str]]) -> str:
        is_source = relation["source"]["id"] == memory_id
        link = self._link(relation["target" if is_source else "source"], names)
        word = relation["relation"].replace("_", " ")
        return f"- {word} {link}" if is_source else f"- {link} {word} this"

    def _link(self, end: Mapping[str, Any], names: Mapping[int, tuple[str, str]]) -> str:
        label = re.sub(r"([\[\]\\|])", " " if self._is_vault else r"\\\1", flat(end.get("title") or f"#{end['id']}"))
        if end["id"] not in names:
            return f"{label} (#{end['id']})" if end.get("title") else label
        folder, title = names[end["id"]]
        name = file_name(end["id"], title)
        return f"[[{name.removesuffix('.md')}|{label}]]" if self._is_vault else f"[{label}](../{folder}/{name})"


_ENDS = ("source", "target")


def _period(column: str, since: datetime | None, until: datetime | None) -> dict[str, datetime]:
    bounds = {f"{column}__gte": since, f"{column}__lt": until}
    return {name: moment for name, moment in bounds.items() if moment}


# By ids, not with one cursor: each batch is a short read, and the store can change between them.
def _batches(rows: Any) -> Iterator[list[Any]]:
    last = 0
    while batch := list(rows.filter(id__gt=last).order_by("id")[:_BATCH]):
        yield batch
        last = batch[-1].id


# Obsidian's tags have no spaces.
def vault_tag(tag: str) -> str:
    return re.sub(r"[^\w/-]+", "-", tag).strip("-")


def _with_wiki_links(text: str, files: Iterable[str]) -> str:
    for name in files:
        stem = name.removesuffix(".md")
        text = text.replace(f"[{stem}]({name})", f"[[{stem}]]")
    return text


def write_folder(folder: Path, form: FolderForm, selection: ExportSelection, *, force: bool = False) -> int:
    """Write the files of an export below a folder and return their number; files of other names are left alone.

    Raises:
        ConflictError: a file exists and differs, and ``force`` is off; nothing was written.
        Invalid: the folder cannot be written, or leads elsewhere through a link.
    """
    return write_files(folder, lambda: export_files(form, selection), below=("memories", "decisions"), force=force)


def write_files(
    folder: Path, files: Callable[[], Iterable[tuple[str, str]]], *, below: Sequence[str] = ("",), force: bool
) -> int:
    """Write files by their names into the folders ``below`` a folder, which may be a repository of someone else.

    Raises: as ``write_folder``.
    """
    count = 0
    try:
        if not force and folder.exists():
            for name, text in files():
                if _differs(folder / name, text):
                    raise ConflictError(f"{folder / name} exists and differs; use --force to overwrite")
        for name in below:
            _make(folder / name)
        for name, text in files():
            with replacing(folder / name, mode=_READABLE, synced=False) as file:
                file.write(text.encode())
            count += 1
    except OSError as error:
        raise Invalid(f"can't write {error.filename}: {error.strerror}") from error
    return count


def _differs(path: Path, text: str) -> bool:
    """Return whether there is something else at a path than a file with this text."""
    return os.path.lexists(path) and not holds(path, text)


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise Invalid(f"{folder} is a link, which may lead elsewhere; name another folder")


def export_archive(form: FolderForm, selection: ExportSelection) -> Iterator[bytes]:
    """Yield the files of an export as a gzipped tar archive, in pieces."""
    sink = _Sink()
    with tarfile.open(name=None, mode="w|gz", fileobj=cast("IO[bytes]", sink)) as archive:
        for name, text in export_files(form, selection):
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, BytesIO(data))
            archive.members.clear()  # type: ignore[attr-defined]  # it would remember every entry
            yield sink.take_all()
    yield sink.take_all()


class _Sink:
    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: bytes) -> int:
        self._pieces.append(piece)
        return len(piece)

    def take_all(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
