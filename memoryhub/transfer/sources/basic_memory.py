"""The notes of Basic Memory: a memory for each note, with its relations."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from memories.importing.files import changed_times, split_front_matter, times_of
from memories.kinds import BETWEEN_HEADINGS
from memories.models import RelationType
from memories.schemas import MAX_CONTENT
from memoryhub.config.repository import is_folder, resolved
from memoryhub.core.errors import Invalid
from memoryhub.core.kinds import OBSERVATION
from memoryhub.core.text import flat
from memoryhub.transfer.records import ImportSource, LeftOutRecord, Record
from memoryhub.transfer.sources.reading import dict_or_empty, files_below, read_settings, text_of
from memoryhub.transfer.sources.texts import (
    TextFile,
    hash_tags,
    is_visible,
    own_relation,
    parsed,
    part_records,
    read_markdown,
    texts,
    wiki_links,
    without_code,
)

# A list item that begins with one word, or several in quotes; possessive, so that long lines take linear time
_RELATION = re.compile(
    r"""^[ \t]*+[-*+][ \t]++(?:"([^"\n]++)"|'([^'\n]++)'|([^\s\[\]"']++))[ \t]*+"""
    r"""\[\[([^\[\]|#\n]++)[^\[\]\n]*+\]\][ \t]*+(?:\([^()\n]*+\)[ \t]*+)?$""",
    re.MULTILINE,
)


def _projects() -> dict[str, Path]:
    configured = os.environ.get("BASIC_MEMORY_CONFIG_DIR")
    shared = os.environ.get("XDG_CONFIG_HOME")
    folder = Path.home() / ".basic-memory"
    if configured:
        folder = Path(configured)
    elif shared:
        folder = Path(shared) / "basic-memory"
    listed: dict[str, Any] = {"main": os.environ.get("BASIC_MEMORY_HOME") or str(Path.home() / "basic-memory")}
    listed |= dict_or_empty(read_settings(folder / "config.json").get("projects"))
    projects = {}
    for name, project in listed.items():
        # Older versions list the path only
        path = project.get("path") if isinstance(project, dict) else project
        if isinstance(path, str) and is_folder(Path(path)):
            projects[name] = resolved(Path(path))
    return projects


def _find_projects(_: Path) -> list[Path]:
    return list(dict.fromkeys(_projects().values()))


def _read_projects(path: Path) -> Iterator[Record]:
    folder = resolved(path)
    if not is_folder(folder):
        raise Invalid(f"{flat(str(path))} is not a folder; name a project of Basic Memory")
    projects = {top: name for name, top in _projects().items()}
    top = next((above for above in (folder, *folder.parents) if above in projects), folder)
    project = _Project(top, projects.get(top, top.name), other_folders=projects.keys() - {folder})
    records = project.read(folder)
    if top not in projects and not project.has_permalinks:
        raise Invalid(f"{flat(str(path))} has no notes of Basic Memory; see `import obsidian` and `import markdown`")
    yield from records


@dataclass(frozen=True, slots=True)
class _BasicMemoryNote:
    path: Path
    permalink: str
    # From the permalink and the project, as permalinks of older versions do not name it
    key: str
    title: str


class _Project:
    def __init__(self, folder: Path, name: str, other_folders: AbstractSet[Path]) -> None:
        self._folder = folder
        self._name = name
        # Projects that may be below this one
        self._other_folders = other_folders
        # By permalink, title and path
        self._notes: dict[str, _BasicMemoryNote] = {}
        self._missing = 0
        self.has_permalinks = False

    # Twice: a relation may lead to a note that comes later
    def read(self, folder: Path) -> Iterator[Record]:
        notes: dict[str, _BasicMemoryNote] = {}
        left_out: list[LeftOutRecord] = []
        other_files = 0

        def is_entered(path: PurePosixPath) -> bool:
            return is_visible(path) and folder / path not in self._other_folders

        for file in files_below(folder, includes=is_visible, enters=is_entered):
            if isinstance(file, LeftOutRecord):
                left_out.append(file)
                continue
            if file.suffix.lower() != ".md":
                other_files += 1
                continue
            note = self._note(file)
            if isinstance(note, LeftOutRecord):
                left_out.append(note)
            elif note.key in notes:
                left_out.append(
                    LeftOutRecord(str(note.path), f"it has the permalink of {flat(notes[note.key].path.name)}")
                )
            else:
                notes[note.key] = note
        if other_files:
            left_out.append(LeftOutRecord(str(folder), f"files that are no notes: {other_files}"))
        self._learn(notes.values())
        return self._all(folder, notes.values(), left_out)

    def _note(self, path: Path) -> _BasicMemoryNote | LeftOutRecord:
        try:
            matter, body = split_front_matter(read_markdown(path))
        except Invalid as error:
            return LeftOutRecord(str(path), error.message)
        if not body.strip():
            return LeftOutRecord(str(path), "it has no text")
        permalink = text_of(matter.get("permalink"))
        self.has_permalinks |= bool(permalink)
        permalink = permalink or self._below(path)
        title = text_of(matter.get("title"))
        title = flat(title) if title.strip() else path.stem
        return _BasicMemoryNote(path, permalink, f"{self._name}:{permalink}", title)

    def _below(self, path: Path) -> str:
        return path.relative_to(self._folder).with_suffix("").as_posix()

    # A permalink goes before a title
    def _learn(self, notes: Collection[_BasicMemoryNote]) -> None:
        for note in notes:
            self._notes[note.permalink.casefold()] = note
        for note in notes:
            short = note.permalink.removeprefix(f"{self._name}/")
            for name in (short, f"{self._name}/{short}", note.title, self._below(note.path), note.path.stem):
                self._notes.setdefault(name.casefold(), note)

    def _all(
        self, folder: Path, notes: Collection[_BasicMemoryNote], left_out: list[LeftOutRecord]
    ) -> Iterator[Record]:
        yield from left_out
        names = {note.path.relative_to(self._folder).as_posix(): note for note in notes}
        changed = changed_times(self._folder, names)
        for name, note in names.items():
            yield from self._records(note, changed[name])
        if self._missing:
            yield LeftOutRecord(str(folder), f"links to notes that are not in this project: {self._missing}")

    def _records(self, note: _BasicMemoryNote, changed: datetime) -> Iterator[Record]:
        try:
            text = read_markdown(note.path)
            matter, body = split_front_matter(text)
            parts = [("", note.title, body.strip())]
            if len(body) > MAX_CONTENT:
                parts = _sections(note, text)
        except Invalid as error:
            yield LeftOutRecord(str(note.path), error.message)
            return
        relations = self._relations(note, without_code(body))
        created, updated = times_of(matter, changed)
        for key, title, part in parts:
            file = self._file(note, title, matter)
            for record in part_records(file, key, title, part, hash_tags(part)):
                yield replace(record, created=created, updated=updated, relations=relations)
                relations = ()

    def _file(self, note: _BasicMemoryNote, title: str, matter: dict[str, Any]) -> TextFile:
        type_name = str(matter.get("type") or "").strip().lower()
        tags = texts(matter.get("tags"))
        if type_name not in OBSERVATION.types:
            tags = [*tags, type_name]
            type_name = OBSERVATION.default_type
        return TextFile(
            path=note.path,
            name=note.key,
            title=title,
            kind=OBSERVATION.name,
            type=type_name,
            tags=tuple(tags),
            project=self._name,
        )

    def _relations(self, note: _BasicMemoryNote, text: str) -> tuple[tuple[str, str], ...]:
        named = [("".join(names), target.strip()) for *names, target in _RELATION.findall(text)]
        explicit = {target for _, target in named}
        linked = [(RelationType.RELATED_TO.value, link.note) for link in wiki_links(text) if link.note not in explicit]
        pairs: dict[tuple[str, str], None] = {}
        for relation, target in (*named, *linked):
            name = target.strip().removeprefix("memory://").replace("::", "/").strip("/")
            other = self._notes.get(name.removesuffix(".md").casefold())
            self._missing += other is None
            if other and other is not note:
                pairs[own_relation(relation), other.key] = None
        return tuple(pairs)


def _sections(note: _BasicMemoryNote, text: str) -> list[tuple[str, str, str]]:
    sections = []
    for number, section in enumerate(parsed(text).sections):
        # The note's own key is the target of relations
        key = section.key if number else ""
        sections.append((key, BETWEEN_HEADINGS.join((note.title, *section.headings)), section.text))
    return sections


BASIC_MEMORY = ImportSource(
    "basic-memory", "the notes of Basic Memory, with their relations", _find_projects, _read_projects
)
