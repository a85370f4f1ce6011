"""Export memories and decisions as a folder of Markdown files, one for each, or as an Obsidian vault."""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

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
        memories = Memory.objects.live().tagged(*selection.tag)
        if selection.kind:
            memories = memories.filter(kind__in=[kind for kind in selection.kind if kind != _DECISION])
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
            ends: set[int] = set()
            for relation in chain.from_iterable(relations.values()):
                ends |= {relation["source"]["id"], relation["target"]["id"]}
            names = self._names(ends)
            for memory in memory_views(memories):
                text = self._memory(memory, relations[memory["id"]], names)
                yield f"memories/{file_name(memory['id'], memory['title'])}", text

    def decision_files(self) -> Iterator[tuple[str, str]]:
        for decisions in _batches(self._decisions):
            views = decision_views(decisions, with_heads=False)
            named: set[int] = set()
            for decision in views:
                named.update(decision["superseded_by"], (edge["to"] for edge in decision["edges"]))
            names = self._decisions.filter(id__in=named).values_list("id", "title")
            files = {decision_id: file_name(decision_id, title) for decision_id, title in names}
            for decision in views:
                text = madr_document(decision, files)
                if self._is_vault:
                    for name in files.values():
                        stem = name.removesuffix(".md")
                        text = text.replace(f"[{stem}]({name})", f"[[{stem}]]")
                yield f"decisions/{file_name(decision['id'], decision['title'])}", text

    def _names(self, ids: set[int]) -> dict[int, tuple[str, str]]:
        """Map the ids that are exported to the folder and the title."""
        names = {}
        for folder, entities in (("memories", self._memories), ("decisions", self._decisions)):
            for entity_id, title in entities.filter(id__in=ids).values_list("id", "title"):
                names[entity_id] = (folder, title)
        return names

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
        body = [f"# {flat(memory['title'])}", memory["content"]]
        if relations:
            body.append("\n".join(self._relation(relation, memory["id"], names) for relation in relations))
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
        for target in (folder / name for name in below):
            target.mkdir(parents=True, exist_ok=True)
            if target.is_symlink():
                raise Invalid(f"{target} is a link, which may lead elsewhere; name another folder")
        for name, text in files():
            with replacing(folder / name, mode=_READABLE, synced=False) as file:
                file.write(text.encode())
            count += 1
    except OSError as error:
        raise Invalid(f"can't write {error.filename}: {error.strerror}") from error
    return count


# Whether there is something else at a path than a file with this text
def _differs(path: Path, text: str) -> bool:
    return os.path.lexists(path) and not holds(path, text)


def export_archive(form: FolderForm, selection: ExportSelection) -> Iterator[bytes]:
    """Yield the files of an export as a gzipped tar archive, in pieces."""
    sink = BytesIO()
    with tarfile.open(name=None, mode="w|gz", fileobj=sink) as archive:
        for name, text in export_files(form, selection):
            data = text.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, BytesIO(data))
            archive.members.clear()  # type: ignore[attr-defined]  # it would remember every entry
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()
