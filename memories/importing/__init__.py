"""Import Markdown, reStructuredText and plain text, one memory per section, and how the project is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePath

from memories.duplicates import current_topic
from memories.events import CopiedFrom
from memories.importing.build_commands import build_commands, describe_commands
from memories.importing.files import (
    GONE_FROM_FILE,
    changed_times,
    find_files,
    import_reason,
    imported_times,
    is_data,
    left_out,
    path_of_folder,
    read_text,
    record_reason,
    times_of,
    without_deleted,
)
from memories.importing.sections import TextDocument, parse_document, split_text
from memories.kinds import BETWEEN_HEADINGS
from memories.models import Memory, MemoryQuerySet
from memories.pack.sections import is_echo
from memories.projectors import content_hash
from memories.schemas import MAX_CONTENT, ImportedMemory, MemoryTouch, WriteStatus
from memories.services import delete_memory, write_memories
from memories.substance import BUILD_TOPIC, FOR_AGENTS, REFERENCE
from memoryhub.core.errors import Invalid
from memoryhub.core.secrets.sanitize import sanitize_text
from memoryhub.core.stores.dialect import begins_with
from memoryhub.core.text import flat

_TOPIC = "import:markdown:"
_BUILD_TITLE = "How to build and test"
_MAX_TITLE, _MAX_SOURCE = 200, 1_000
_MAX_KEY = 200
_MAX_PATH_IN_KEY = 110
_MAX_TAGS = 32
_BATCH = 500
MAX_HEADINGS = 2_000  # of one file: each becomes a memory, and a file with more is a listing, not a text
_EXCLUDED = "excluded"
_GUIDELINE = "imported as a guideline"
_DATA = "a list, generated, or a few words: data, not text"
Progress = Callable[[int], None]
# Given paths of files, maps those that the project knows in another form to the reason why they are not imported
KnownFiles = Callable[[Sequence[str]], Mapping[str, str]]
_known_files: list[KnownFiles] = []


def define_known_files(known_files: KnownFiles) -> None:
    """Register files that are imported in another form, such as decision records."""
    _known_files.append(known_files)


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
    is_foreign: bool = False,
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
    Sections of ``is_foreign`` files are imports that no person of the project accepted.

    Raises:
        Invalid: there is no such folder, or a tag is too long.
    """
    report = MarkdownReport(skipped=left_out(directory))
    written: set[str] = set()
    read: list[str] = []
    commands = _commands(_Options(directory, tags, max_headings, within, exclude), report, read, progress)
    while batch := list(islice(commands, _BATCH)):
        batch = _without_guidelines(batch, report)
        present = without_deleted(batch)
        report.left_deleted += len(batch) - len(present)
        echoes = [command for command in present if is_echo(command.content)]
        report.skipped += [(command.title, "a context pack of this hub") for command in echoes]
        imports = [command for command in present if command not in echoes]
        if is_foreign:
            imports = [command.model_copy(update={"copied_from": CopiedFrom.IMPORT}) for command in imports]
        counted = Counter(result.status for result in write_memories(commands=imports))
        report.created += counted[WriteStatus.CREATED]
        report.updated += counted[WriteStatus.UPDATED]
        report.unchanged += counted[WriteStatus.UNCHANGED]
        written |= {command.topic_key for command in batch if command.topic_key}
    report.deleted = _delete_vanished(read, written)
    return report


def preview_new(*, directory: Path, max_headings: int = MAX_HEADINGS, exclude: Sequence[str] = ()) -> MarkdownReport:
    """Return what ``import_markdown`` would do in a project that does not exist yet.

    Raises:
        Invalid: there is no such folder.
    """
    report = MarkdownReport(skipped=left_out(directory))
    options = _Options(directory, (), max_headings, "", exclude, has_store=False)
    report.created = sum(1 for _ in _commands(options, report, [], None))
    return report


# A guideline is given to agents by itself, so that a note of the same text would only repeat it
def _without_guidelines(batch: list[ImportedMemory], report: MarkdownReport) -> list[ImportedMemory]:
    hashes = [content_hash(command.content) for command in batch]
    guidelines = Memory.objects.live().filter(kind="guideline", content_hash__in=hashes)
    repeated = set(guidelines.values_list("content_hash", flat=True))
    report.skipped += [(command.title, _GUIDELINE) for command in batch if content_hash(command.content) in repeated]
    return [command for command in batch if content_hash(command.content) not in repeated]


def _repeated(hashes: Collection[str]) -> MemoryQuerySet:
    imported: MemoryQuerySet = Memory.objects.live().filter(begins_with("topic_key", _TOPIC), content_hash__in=hashes)
    return imported


def count_repeated(hashes: Collection[str]) -> int:
    """Return how many imported sections have one of these texts."""
    return _repeated(hashes).count()


def delete_repeated(hashes: Collection[str]) -> int:
    """Delete the imported sections that have one of these texts, and return how many."""
    return _delete(list(_repeated(hashes).values_list("id", flat=True)))


def delete_sections(paths: Sequence[str]) -> int:
    """Delete the imported sections of files that are now known in another form; return how many."""
    return _delete_vanished([_prefix(path) for path in paths], set())


@dataclass(frozen=True, slots=True)
class _Options:
    directory: Path
    tags: Sequence[str]
    max_headings: int
    within: str
    exclude: Sequence[str]
    has_store: bool = True

    def leaves_out(self, name: str) -> bool:
        return any(fnmatchcase(PurePath(name).as_posix(), pattern) for pattern in self.exclude)


def _commands(
    options: _Options, report: MarkdownReport, read: list[str], progress: Progress | None
) -> Iterator[ImportedMemory]:
    above = path_of_folder(options.directory, options.within)
    paths = {flat(above + PurePath(name).as_posix()): name for name in find_files(options.directory)}
    records = {path: record_reason(path) for path in paths if record_reason(path)}
    skipped = dict(records)
    if options.has_store:
        for find_known in _known_files:
            skipped |= find_known(list(paths))
    skipped |= {path: _EXCLUDED for path, name in paths.items() if options.leaves_out(name)}
    changed = changed_times(options.directory, paths.values())
    if not above:
        read.append(_prefix(""))
        yield from _build_note(options)
    first_files: dict[tuple[str, str], str] = {}
    used: set[str] = set()
    for count, (path, name) in enumerate(paths.items(), 1):
        try:
            document, why = _read_document(options, name, skipped.get(path, ""))
        except Invalid as error:
            report.skipped.append((path, error.message))
        else:
            # Earlier notes of a decision record stay until it is imported as a decision
            if why != records.get(path):
                read.append(_prefix(path))
            if document is None:
                report.skipped.append((path, why))
            else:
                report.files += 1
                document = _without_repeated(path, document, first_files, report)
                yield from _commands_of_file(path, document, options.tags, used, changed[name])
        if progress:
            progress(count)


def _build_note(options: _Options) -> Iterator[ImportedMemory]:
    commands = [command for command in build_commands(options.directory) if not options.leaves_out(command.path)]
    if not commands:
        return
    paths = list(dict.fromkeys(command.path for command in commands))
    times = imported_times(None, max(changed_times(options.directory, paths).values()))
    content = sanitize_text(describe_commands(commands))[0]
    source = ", ".join(paths)[:_MAX_SOURCE]
    yield ImportedMemory(
        title=_BUILD_TITLE,
        content=content,
        type=REFERENCE,
        tags=list(options.tags),
        topic_key=BUILD_TOPIC,
        source=source,
        **times,
    )


# Returns a document, or None and why it is skipped
def _read_document(options: _Options, name: str, why: str) -> tuple[TextDocument | None, str]:
    if why:
        return None, why
    text = read_text(options.directory / name)
    why = _DATA if is_data(name, text) else import_reason(text)
    if why:
        return None, why
    # Sanitised before it is split: a private block may span headings
    clean = sanitize_text(text)[0]
    return parse_document(clean, PurePath(name).suffix.lower(), max_headings=options.max_headings), ""


# Leaves out sections that the files for several clients have in common, such as CLAUDE.md and AGENTS.md of one folder.
# ``first_files`` has the first file of a folder with a text.
def _without_repeated(
    path: str, document: TextDocument, first_files: dict[tuple[str, str], str], report: MarkdownReport
) -> TextDocument:
    folder = PurePath(path).parent.as_posix()
    name = PurePath(path).name
    if name not in FOR_AGENTS:
        return document
    sections = []
    for section in document.sections:
        first = first_files.setdefault((folder, _digest(" ".join(section.text.split()))), name)
        if first == name:
            sections.append(section)
        else:
            title = BETWEEN_HEADINGS.join((path, *section.headings))
            report.skipped.append((title, f"the same text as in {first}"))
    return replace(document, sections=sections)


def _commands_of_file(
    path: str, document: TextDocument, tags: Sequence[str], used: set[str], changed: datetime
) -> Iterator[ImportedMemory]:
    all_tags = _tags(path, document, tags)
    times = imported_times(*times_of(document.matter, changed))
    for section in document.sections:
        parts = split_text(section.text, MAX_CONTENT)
        title = flat(BETWEEN_HEADINGS.join((path, *section.headings)))
        for number, part in enumerate(parts, 1):
            suffix = f" ({number}/{len(parts)})" if len(parts) > 1 else ""
            key = section.key if number == 1 else f"{section.key}~{number}"
            yield ImportedMemory(
                # Cut at the front: the last heading is the most specific one
                title=_cut_front(title, _MAX_TITLE - len(suffix)) + suffix,
                content=part,
                type=REFERENCE,
                tags=all_tags,
                topic_key=_topic_key(path, key, used),
                source=_cut_front(path, _MAX_SOURCE),
                **times,
            )


def _cut_front(text: str, longest: int) -> str:
    return text if len(text) <= longest else "…" + text[len(text) - longest + 1 :].lstrip()


def _tags(path: str, document: TextDocument, tags: Sequence[str]) -> list[str]:
    folder = PurePath(path).parent.name
    file_tags = [tag[:64] for tag in (*document.tags, folder)]
    cleaned = [" ".join(tag.lower().split()) for tag in (*tags, *file_tags)]
    return list(dict.fromkeys(filter(None, cleaned)))[:_MAX_TAGS]


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
    key = flat(sanitize_text(prefix + section_key)[0].strip())
    unique = key
    number = 1
    while unique in used:
        number += 1
        unique = f"{key}~{number}"
    used.add(unique)
    return current_topic(unique)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _delete_vanished(prefixes: Sequence[str], written: set[str]) -> int:
    read = set(prefixes)
    imported = Memory.objects.live().filter(begins_with("topic_key", _TOPIC)).values_list("id", "topic_key")
    vanished = []
    for memory_id, key in imported:
        prefix = f"{(key or '').partition('#')[0]}#"
        if key not in written and prefix in read:
            vanished.append(memory_id)
    return _delete(vanished)


def _delete(ids: Sequence[int]) -> int:
    for memory_id in ids:
        delete_memory(command=MemoryTouch(id=memory_id, reason=GONE_FROM_FILE))
    return len(ids)
