"""What a Markdown file becomes: a memory for each section, or one for the whole file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from memories.importing import MAX_HEADINGS
from memories.importing.files import read_text, split_front_matter
from memories.importing.sections import TextDocument, parse_document, split_text
from memories.kinds import BETWEEN_HEADINGS
from memories.models import RelationType
from memories.schemas import MAX_CONTENT
from memoryhub.config.repository import find_worktree
from memoryhub.core.errors import Invalid
from memoryhub.core.secrets.cleaning import private_spans
from memoryhub.transfer.records import LeftOutRecord, MemoryRecord, Record

_MAX_TAGS = 32
_MAX_TAG = 64
_WIKI_LINK = re.compile(r"\[\[([^\[\]|#\n]*)(#[^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]")
_CODE = re.compile(r"^(`{3,}|~{3,}).*?(?:^\1|\Z)|(?<!`)(`{1,8})(?!`)[^`\n]+\2(?!`)", re.DOTALL | re.MULTILINE)
_HASH_TAG = re.compile(r"(?:(?<=\s)|^)#([\w/-]*[^\W\d][\w/-]*)", re.MULTILINE)
# Between commas, but not those inside braces
_ITEM = re.compile(r"(?:\{[^{}]*\}|[^,])+")


@dataclass(frozen=True, slots=True)
class TextFile:
    path: Path
    # What identifies it: its path from the top of its repository or folder
    name: str
    title: str
    kind: str = "guideline"
    type: str = ""
    tags: tuple[str, ...] = ()
    project: str = ""
    # When its text was last changed
    changed: datetime | None = None


def section_records(file: TextFile) -> Iterator[Record]:
    """Yield a memory for each section of a Markdown file, with the text that ``import markdown`` gives it."""
    try:
        document = parsed(read_markdown(file.path))
    except Invalid as error:
        yield LeftOutRecord(str(file.path), error.message)
        return
    for section in document.sections:
        title = BETWEEN_HEADINGS.join((file.title, *section.headings))
        yield from part_records(file, section.key, title, section.text, document.tags)


def rule_records(file: TextFile, *, globs: str) -> Iterator[Record]:
    """Yield one memory for a file whose front matter names the files that it applies to, under the key ``globs``."""
    try:
        matter, body = split_front_matter(read_markdown(file.path))
    except Invalid as error:
        yield LeftOutRecord(str(file.path), error.message)
        return
    applies = ", ".join(f"`{pattern}`" for pattern in texts(matter.get(globs.lower())))
    content = "\n\n".join(part for part in (applies and f"Applies to {applies}.", body.strip()) if part)
    description = str(matter.get("description") or "")
    if body.strip():
        yield from part_records(file, "", BETWEEN_HEADINGS.join(filter(None, (file.title, description))), content)
    else:
        yield LeftOutRecord(str(file.path), "it has no text")


def part_records(file: TextFile, key: str, title: str, text: str, tags: Sequence[str] = ()) -> Iterator[MemoryRecord]:
    """Yield a text as one memory, or as several if it is longer than a memory may be."""
    parts = split_text(text, MAX_CONTENT)
    key = f"{file.name}#{key}" if key else file.name
    for number, part in enumerate(parts, 1):
        yield MemoryRecord(
            key=f"{key}~{number}" if number > 1 else key,
            title=f"{title} ({number}/{len(parts)})" if len(parts) > 1 else title,
            content=part,
            kind=file.kind,
            type=file.type,
            tags=clean_tags((*file.tags, *tags)),
            project=file.project,
            updated=file.changed,
            place=str(file.path),
        )


def parsed(text: str) -> TextDocument:
    return parse_document(text, ".md", max_headings=MAX_HEADINGS)


# Private blocks are cut before the text is split: they may span headings
def read_markdown(path: Path) -> str:
    text = read_text(path)
    for start, end in reversed(private_spans(text)):
        text = text[:start] + text[end:]
    return text


def texts(value: Any) -> list[str]:
    """Return the texts of a value of front matter: a list, or a text with commas that are not inside braces."""
    if isinstance(value, str):
        value = _ITEM.findall(value)
    elif not isinstance(value, list):
        value = [value or ""]
    return list(filter(None, (str(item).strip() for item in value)))


def clean_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return tags as memories have them, without repetitions."""
    cleaned = (" ".join(tag.split()).lower().lstrip("#")[:_MAX_TAG].strip() for tag in tags)
    return tuple(dict.fromkeys(tag for tag in cleaned if tag))[:_MAX_TAGS]


@dataclass(frozen=True, slots=True)
class Base:
    """Where the names of a folder's files start: at the top of its repository."""

    folder: Path
    name: str

    def name_of(self, path: Path) -> str:
        """Return a name that differs from those of other repositories' files."""
        return f"{self.name}/{self.title_of(path)}"

    def title_of(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


def base_of(folder: Path) -> Base:
    repository = find_worktree(folder)
    return Base(repository.top, repository.folder_name) if repository else Base(folder, folder.name)


def repository_around(folder: Path) -> list[Path]:
    """Return the top of the repository that a folder is in."""
    repository = find_worktree(folder)
    return [repository.top] if repository else []


@dataclass(frozen=True, slots=True)
class WikiLink:
    note: str
    heading: str


def wiki_links(text: str) -> list[WikiLink]:
    """Return the links such as ``[[note#heading|shown]]`` of a text, embeds too, but none in code."""
    return [
        WikiLink(note.strip(), heading.strip().lstrip("#")) for note, heading in _WIKI_LINK.findall(without_code(text))
    ]


def without_code(text: str) -> str:
    return _CODE.sub("", text)


def hash_tags(text: str) -> list[str]:
    """Return the tags such as ``#tag`` of a text, but none in code."""
    return _HASH_TAG.findall(without_code(text))


def is_visible(path: PurePosixPath) -> bool:
    return not path.name.startswith(".")


def own_relation(name: str) -> str:
    """Return a relation of the hub for another tool's name of one: ``related_to`` if the hub has none of that name."""
    name_of_relation = name.strip().lower().replace(" ", "_")
    return name_of_relation if name_of_relation in RelationType.values else RelationType.RELATED_TO.value
