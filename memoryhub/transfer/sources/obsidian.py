"""The notes of an Obsidian vault: a memory for each section, and the links between notes as relations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any
from urllib.parse import unquote

from memories.importing.files import changed_times, split_front_matter, times_of
from memories.kinds import BETWEEN_HEADINGS
from memories.models import RelationType
from memoryhub.config.repository import is_folder, resolved
from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.transfer.records import ImportSource, LeftOutRecord, MemoryRecord, Record
from memoryhub.transfer.sources.reading import dict_or_empty, files_below, read_settings, text_of
from memoryhub.transfer.sources.texts import (
    TextFile,
    WikiLink,
    hash_tags,
    is_visible,
    parsed,
    part_records,
    read_markdown,
    texts,
    wiki_links,
    without_code,
)

_CONFIG = ".obsidian"
# Where the application lists its vaults: Linux, Flatpak, macOS, Windows
_LISTS = (
    ".config/obsidian",
    ".var/app/md.obsidian.Obsidian/config/obsidian",
    "Library/Application Support/obsidian",
    "AppData/Roaming/obsidian",
)
# Settings that name the folder of templates
_TEMPLATES = (("templates.json", "folder"), ("plugins/templater-obsidian/data.json", "templates_folder"))
# Kinds of other files that are named
_MOST_NAMED = 20
_PLACEHOLDER = re.compile(r"\{\{(?:title|date|time)(?::[^{}]*)?\}\}|<%[^%]*\btp\.")
_ATTACHMENT = re.compile(r"\.(?!md$)[A-Za-z]\w{1,5}$")
_MARKDOWN_LINK = re.compile(r"\]\(<?([^()<>\n#]+\.md)(#[^()<>\n]*)?>?\)")


def _find_vaults(_: Path) -> list[Path]:
    vaults: dict[Path, None] = {}
    for place in _LISTS:
        settings = read_settings(Path.home() / place / "obsidian.json")
        for vault in dict_or_empty(settings.get("vaults")).values():
            match vault:
                case {"path": str(path)}:
                    vaults[Path(path)] = None
    return [vault for vault in vaults if is_folder(vault / _CONFIG)]


@dataclass(slots=True)
class _ObsidianNote:
    path: Path
    # The path below the vault, without its extension
    name: str
    # Keys of the sections, by their headings; the first one also under ""
    sections: dict[str, str] = field(default_factory=dict)


def _read_vault(path: Path) -> Iterator[Record]:
    folder = resolved(path)
    if not folder.is_dir():
        raise Invalid(f"{flat(str(path))} is not a folder; name a vault of Obsidian")
    vault = next((top for top in (folder, *folder.parents) if is_folder(top / _CONFIG)), None)
    if vault is None:
        raise Invalid(f"{flat(str(path))} is no vault of Obsidian: it has no folder {_CONFIG}; see `import markdown`")
    return _Vault(vault).read(folder)


class _Vault:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._templates: list[PurePosixPath] = []
        for file, setting in _TEMPLATES:
            name = text_of(read_settings(folder / _CONFIG / file).get(setting))
            if name.strip("/ "):
                self._templates.append(PurePosixPath(name))
        # By the last part of their names
        self._notes: dict[str, list[_ObsidianNote]] = {}
        self._missing = 0

    # Twice: a link may lead to a note that comes later
    def read(self, folder: Path) -> Iterator[Record]:
        notes: list[_ObsidianNote] = []
        other_files: Counter[str] = Counter()
        for file in files_below(folder, includes=is_visible, enters=is_visible):
            if isinstance(file, LeftOutRecord):
                yield file
            elif file.suffix.lower() != ".md":
                other_files[file.suffix.lower() or file.name] += 1
            else:
                notes.append(_ObsidianNote(file, file.relative_to(self._folder).with_suffix("").as_posix()))
        for note in notes:
            why = self._learn(note)
            if why:
                yield LeftOutRecord(str(note.path), why)
        changed = changed_times(self._folder, [f"{note.name}{note.path.suffix}" for note in notes])
        for note in notes:
            if note.sections:
                yield from self._records(note, changed[f"{note.name}{note.path.suffix}"])
        if other_files:
            listed = ", ".join(f"{count} {ending}" for ending, count in sorted(other_files.items())[:_MOST_NAMED])
            yield LeftOutRecord(str(folder), f"files that are no notes: {listed}")
        if self._missing:
            yield LeftOutRecord(str(folder), f"links to notes that do not exist: {self._missing}")

    # Return why the note is left out, or ""
    def _learn(self, note: _ObsidianNote) -> str:
        try:
            text = read_markdown(note.path)
            parents = PurePosixPath(note.name).parents
            if any(folder in parents for folder in self._templates) or _PLACEHOLDER.search(without_code(text)):
                return "it is a template"
            if "excalidraw-plugin" in split_front_matter(text)[0]:
                return "it is a drawing"
            document = parsed(text)
        except Invalid as error:
            return error.message
        for section in document.sections:
            key = self._key(note, section.key)
            for heading in ("", *reversed(section.headings)):
                note.sections.setdefault(_plain_text(heading), key)
        if not note.sections:
            return "it has no text"
        self._notes.setdefault(note.name.rsplit("/", 1)[-1].casefold(), []).append(note)
        return ""

    def _key(self, note: _ObsidianNote, section: str) -> str:
        return "#".join(filter(None, (f"{self._folder.name}/{note.name}.md", section)))

    def _records(self, note: _ObsidianNote, changed: datetime) -> Iterator[MemoryRecord]:
        text = read_markdown(note.path)
        matter, body = split_front_matter(text)
        document = parsed(text)
        file = _file(note, self._key(note, ""), matter, document.tags)
        created, updated = times_of(matter, changed)
        # Links of the front matter count for the first section
        links = _note_links(text[: len(text) - len(body)])
        for section in document.sections:
            # The title of a note is often its first heading too
            headings = section.headings[section.headings[:1] == (PurePosixPath(note.name).name,) :]
            title = BETWEEN_HEADINGS.join((file.title, *headings))
            links += _note_links(section.text)
            tags = hash_tags(section.text)
            for record in part_records(file, section.key, title, section.text, tags):
                relations = self._relations(note, record.key, links)
                yield replace(record, created=created, updated=updated, relations=relations)
                links = []

    def _relations(self, note: _ObsidianNote, key: str, links: list[WikiLink]) -> tuple[tuple[str, str], ...]:
        keys: dict[str, None] = {}
        for link in links:
            target: _ObsidianNote | None = note
            if link.note:
                target = self._target(note, link.note)
            if target is None:
                self._missing += not _ATTACHMENT.search(link.note)
            else:
                keys[target.sections.get(_plain_text(link.heading), target.sections[""])] = None
        return tuple((RelationType.RELATED_TO.value, other) for other in keys if other != key)

    # The nearest to the top, unless the link names folders
    def _target(self, note: _ObsidianNote, link: str) -> _ObsidianNote | None:
        name = link.removesuffix(".md").strip("/").casefold()
        beside = normpath(f"{PurePosixPath(note.name).parent.as_posix()}/{name}").casefold()
        matching = []
        for other in self._notes.get(name.rsplit("/", 1)[-1], []):
            other_name = other.name.casefold()
            if other_name in (name, beside) or other_name.endswith(f"/{name}"):
                matching.append(other)
        # The first of those whose names differ only in case
        return min(
            matching, key=lambda other: (other.name.casefold() != name, other.name.count("/"), other.name), default=None
        )


def _file(note: _ObsidianNote, key: str, matter: dict[str, Any], tags: list[str]) -> TextFile:
    name = PurePosixPath(note.name).name
    aliases = ", ".join(texts(matter.get("aliases") or matter.get("alias")))
    return TextFile(
        path=note.path,
        name=key,
        title=f"{name} ({aliases})" if aliases else name,
        kind="observation",
        type="note",
        tags=tuple(tag for text in (*tags, *texts(matter.get("tag"))) for tag in text.split()),
    )


def _note_links(text: str) -> list[WikiLink]:
    links = wiki_links(text)
    for note, heading in _MARKDOWN_LINK.findall(without_code(text)):
        if "://" not in note:
            links.append(WikiLink(unquote(note), unquote(heading).lstrip("#")))
    return links


def _plain_text(heading: str) -> str:
    return " ".join(re.findall(r"\w+", heading.rsplit("#", 1)[-1].casefold()))


OBSIDIAN = ImportSource("obsidian", "the notes of an Obsidian vault, with their links", _find_vaults, _read_vault)
