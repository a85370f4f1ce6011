from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePath

from memories.duplicates import current_topic
from memories.importing.files import (
    GONE_FROM_FILE,
    changed_times,
    find_files,
    imported_times,
    is_data,
    left_out,
    path_of_folder,
    read_text,
    times_of,
    without_deleted,
)
from memories.importing.sections import Document, Section, parse_document, split_text
from memories.kinds import BETWEEN_HEADINGS
from memories.models import Memory
from memories.pack.echo import is_echo
from memories.schemas import MAX_CONTENT, ImportedMemory, MemoryTouch, MemoryWrite, WriteStatus
from memories.services import delete_memory, write_memories
from memoryhub.core.errors import Invalid
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.stores.lookups import begins_with
from memoryhub.core.text import flat

_TOPIC = "import:markdown:"
_MAX_TITLE = 200
_MAX_KEY = 200
_MAX_PATH_IN_KEY = 110
_MAX_TAGS = 32
_BATCH = 500
MAX_HEADINGS = 2_000  # of one file: each becomes a memory, and a file with more is a listing, not a text
_EXCLUDED = "excluded"
_DATA = "a list, generated, or a few words: data, not text"
Progress = Callable[[int], None]
# Given paths of files, maps those that the project knows in another form to the reason why they are not imported
KnownFiles = Callable[[Sequence[str]], Mapping[str, str]]
_known_files: list[KnownFiles] = []


def define_known_files(known: KnownFiles) -> None:
    """Register files that are imported in another form, such as decision records."""
    _known_files.append(known)


@dataclass(slots=True)
class MarkdownReport:
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    left_deleted: int = 0
    files: int = 0
    # File or section, and the reason
    skipped: list[tuple[str, str]] = field(default_factory=list)

    @property
    def sections(self) -> int:
        return self.created + self.updated + self.unchanged


def import_markdown(
    *,
    directory: Path,
    tags: Sequence[str] = (),
    max_headings: int = MAX_HEADINGS,
    progress: Progress | None = None,
    within: str = "",
    exclude: Sequence[str] = (),
) -> MarkdownReport:
    """Import every section of the Markdown, reStructuredText and text files below a folder.

    A section is identified by its file and headings. A repeated import revises changed sections and soft-deletes
    vanished ones; sections that a person has deleted stay deleted. In a git worktree, paths are relative to its root,
    so the folder that the import starts from does not matter. Unreadable files, and files with more than
    ``max_headings`` headings, are skipped and keep their memories. Data files, decision records and files whose path
    below ``directory`` matches a pattern of ``exclude``, such as ``tests/*``, are left out, and their earlier memories
    deleted. ``progress`` gets the number of files done.
    ``within`` is put before the paths of another project's files, so that its README.md is not this project's.

    Raises:
        Invalid: there is no such folder, or a tag is too long.
    """
    report = MarkdownReport(skipped=left_out(directory))
    written: set[str] = set()
    read: list[str] = []
    commands = _commands(_Options(directory, tags, max_headings, within, exclude), report, read, progress or _silent)
    while batch := list(islice(commands, _BATCH)):
        present = without_deleted(batch)
        report.left_deleted += len(batch) - len(present)
        wanted = [command for command in present if not _is_echo(command, report)]
        counted = Counter(result.status for result in write_memories(commands=wanted))
        report.created += counted[WriteStatus.CREATED]
        report.updated += counted[WriteStatus.UPDATED]
        report.unchanged += counted[WriteStatus.UNCHANGED]
        written |= {command.topic_key for command in batch if command.topic_key}
    report.deleted = _delete_vanished(read, written)
    return report


def delete_sections(paths: Sequence[str]) -> int:
    """Delete the imported sections of files, because they are now known in another form; return how many."""
    return _delete_vanished([_prefix(path) for path in paths], set())


def _is_echo(command: MemoryWrite, report: MarkdownReport) -> bool:
    echo = is_echo(command.content)
    if echo:
        report.skipped.append((command.title, "a context pack of this hub"))
    return echo


def _silent(done: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Options:
    directory: Path
    tags: Sequence[str]
    max_headings: int
    within: str
    exclude: Sequence[str]

    def leaves_out(self, name: str) -> bool:
        return any(fnmatchcase(PurePath(name).as_posix(), pattern) for pattern in self.exclude)


def _commands(
    options: _Options, report: MarkdownReport, read: list[str], progress: Progress
) -> Iterator[ImportedMemory]:
    above = path_of_folder(options.directory, options.within)
    paths = {flat(above + PurePath(name).as_posix()): name for name in find_files(options.directory)}
    without = {path: why for known in _known_files for path, why in known(list(paths)).items()}
    without |= {path: _EXCLUDED for path, name in paths.items() if options.leaves_out(name)}
    changed = changed_times(options.directory, paths.values())
    used: set[str] = set()
    for done, (path, name) in enumerate(paths.items(), 1):
        try:
            document = None if path in without else _document(options.directory / name, options.max_headings)
        except Invalid as error:
            report.skipped.append((path, error.message))
        else:
            read.append(_prefix(path))
            if document is None:
                report.skipped.append((path, without.get(path, _DATA)))
            else:
                report.files += 1
                yield from _commands_of_file(path, document, options.tags, used, changed[name])
        progress(done)


# None for data. Sanitised before it is split: a private block may span headings
def _document(file: Path, max_headings: int) -> Document | None:
    text = read_text(file)
    if is_data(file.name, text):
        return None
    return parse_document(sanitize_text(text)[0], file.suffix.lower(), max_headings=max_headings)


def _commands_of_file(
    path: str, document: Document, tags: Sequence[str], used: set[str], changed: datetime
) -> Iterator[ImportedMemory]:
    all_tags = _tags(path, document, tags)
    times = imported_times(*times_of(document.matter, changed))
    for section in document.sections:
        parts = split_text(section.text, MAX_CONTENT)
        for number, part in enumerate(parts, 1):
            yield ImportedMemory(
                title=_title(path, section, number, len(parts)),
                content=part,
                type="reference",
                tags=all_tags,
                topic_key=_topic_key(path, section.key if number == 1 else f"{section.key}~{number}", used),
                source=path,
                **times,
            )


def _title(path: str, section: Section, number: int, parts: int) -> str:
    # Cut at the front: the last heading says most
    title = flat(BETWEEN_HEADINGS.join((path, *section.headings)))
    part = f" ({number}/{parts})" if parts > 1 else ""
    room = _MAX_TITLE - len(part)
    return (title if len(title) <= room else "…" + title[len(title) - room + 1 :].lstrip()) + part


def _tags(path: str, document: Document, tags: Sequence[str]) -> list[str]:
    folder = PurePath(path).parent.name
    own = [tag[:64] for tag in (*document.tags, folder) if tag.strip()]
    cleaned = (re.sub(r"\s+", " ", tag.strip().lower()) for tag in (*tags, *own))
    return list(dict.fromkeys(tag for tag in cleaned if tag))[:_MAX_TAGS]


# Prefix of the topic keys of a file. A long path is cut and made unique by its digest; it is sanitised because the log
# sanitises topic keys too.
def _prefix(path: str) -> str:
    escaped = path.replace("%", "%25").replace("#", "%23")
    if len(escaped) > _MAX_PATH_IN_KEY:
        escaped = f"{_digest(path)}…{escaped[-(_MAX_PATH_IN_KEY - 14) :]}"
    return sanitize_text(f"{_TOPIC}{escaped}#")[0]


def _topic_key(path: str, section_key: str, used: set[str]) -> str:
    prefix = _prefix(path)
    room = _MAX_KEY - len(prefix) - 5
    if len(section_key) > room:
        section_key = f"{section_key[: room - 13]}~{_digest(section_key)}"
    key = unique = flat(sanitize_text(prefix + section_key)[0].strip())
    number = 2
    while unique in used:
        unique, number = f"{key}~{number}", number + 1
    used.add(unique)
    return current_topic(unique)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _delete_vanished(prefixes: Sequence[str], written: set[str]) -> int:
    read = set(prefixes)
    imported = Memory.objects.live().filter(begins_with("topic_key", _TOPIC)).values_list("id", "topic_key")
    vanished = [number for number, key in imported if key and key not in written and _prefix_of(key) in read]
    for memory_id in vanished:
        delete_memory(command=MemoryTouch(id=memory_id, reason=GONE_FROM_FILE))
    return len(vanished)


def _prefix_of(key: str) -> str:
    return key[: key.find("#") + 1]
