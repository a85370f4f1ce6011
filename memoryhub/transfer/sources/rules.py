"""Rules for agents in a repository: AGENTS.md, CLAUDE.md, and the rules of other clients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from memories.importing.files import MARKDOWN, changed_times, modified_at, read_text, split_front_matter
from memoryhub.config.repository import is_file, resolved
from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.transfer.records import ImportSource, LeftOutRecord, MemoryRecord, Record
from memoryhub.transfer.sources.reading import files_below
from memoryhub.transfer.sources.rule_files import AGENTS_MD, CURSOR, RULE_FILES, RuleFile, RuleTable
from memoryhub.transfer.sources.texts import (
    Base,
    TextFile,
    base_of,
    repository_around,
    rule_records,
    section_records,
    texts,
    without_code,
)

# The sources that read such files, under the same keys; the first reads all of them
READERS = ("rules", "agents-md", "cursor-rules", "claude-code")
# Files that import one another, as deep as clients read them, and those that a reason names
_MAX_IMPORTS, _MOST_NAMED = 5, 5
_IMPORT = re.compile(r"(?:(?<=\s)|^)@[~.\w/-]+\.md\b", re.MULTILINE)
_IMPORTED = RuleFile("", "*", has_imports=True)
_AIDER = ".aider.conf.yml"


@dataclass
class RuleReader:
    """Reads the rules of a folder, with the files of the folder that they import with @, each file once."""

    base: Base
    _read_paths: set[Path] = field(default_factory=set)

    def records(self, file: TextFile, rule: RuleFile, depth: int = 0) -> Iterator[Record]:
        if file.path in self._read_paths:
            return
        self._read_paths.add(file.path)
        records = rule_records(file, globs=rule.globs) if rule.is_whole else section_records(file)
        imports: dict[str, None] = {}
        for record in records:
            if not isinstance(record, MemoryRecord):
                yield record
                continue
            if rule.has_imports:
                imports |= dict.fromkeys(_IMPORT.findall(without_code(record.content)))
                if not _IMPORT.sub("", record.content).strip():
                    continue
            yield replace(record, shared_by=READERS)
        yield from self._imported(file, imports, depth)

    def _imported(self, file: TextFile, imports: Iterable[str], depth: int) -> Iterator[Record]:
        outside = []
        for name in imports:
            place = file.path.parent / name[1:]
            if name.startswith("@~/"):
                place = Path(name[1:]).expanduser()
            target = file_within(self.base.folder, place)
            if target is None or depth == _MAX_IMPORTS:
                outside.append(name)
            else:
                yield from self.records(self.file_at(target), _IMPORTED, depth + 1)
        if outside:
            named = ", ".join(outside[:_MOST_NAMED])
            yield LeftOutRecord(
                str(file.path), f"it imports files that are not in its folder ({len(outside)}): {named}"
            )

    def file_at(self, path: Path) -> TextFile:
        return TextFile(path, self.base.name_of(path), self.base.title_of(path), changed=modified_at(path))


def repository_rules(path: Path, files: Sequence[RuleFile], *, named: str) -> Iterator[Record]:
    """Yield the rules below a folder of a repository.

    Each file is read once; a link to a file of the repository is that file.

    Raises:
        Invalid: it is no folder, or has no such file; ``named`` says which.
    """
    folder = resolved(path)
    base = base_of(folder)
    table = RuleTable(files)
    entries = list(files_below(folder, includes=table.includes, enters=table.enters))
    conventions = _conventions(base) if files is RULE_FILES else []
    if not entries and not conventions:
        raise Invalid(f"there is no {named} in {flat(str(path))}")
    titles = {entry: base.title_of(entry) for entry in entries if isinstance(entry, Path)}
    for entry in entries:
        if isinstance(entry, Path):
            continue
        target = file_within(base.folder, Path(entry.place))
        if target is None:
            yield entry
        elif target in titles:
            yield LeftOutRecord(entry.place, f"a link to {titles[target]}, which is imported itself")
        else:
            titles[target] = base.title_of(target)
    titles |= {target: base.title_of(target) for target in conventions if target not in titles}
    changed = changed_times(base.folder, titles.values())
    reader = RuleReader(base)
    for file, title in titles.items():
        rule = table.file_of(PurePosixPath(title)) or files[0]
        yield from reader.records(TextFile(file, base.name_of(file), title, changed=changed[title]), rule)


def file_within(folder: Path, path: Path) -> Path | None:
    """Return the Markdown file of a folder that a path or a link leads to; None if it leads elsewhere."""
    target = resolved(path)
    if not target.is_relative_to(folder) or ".git" in target.relative_to(folder).parts:
        return None
    if target.suffix.lower() in MARKDOWN and is_file(target):
        return target
    return None


# Aider reads the files that its settings name, such as CONVENTIONS.md
def _conventions(base: Base) -> list[Path]:
    try:
        settings, _ = split_front_matter(f"---\n{read_text(base.folder / _AIDER)}\n---\n")
    except Invalid:
        return []
    targets = (file_within(base.folder, base.folder / name) for name in texts(settings.get("read")))
    return list(filter(None, targets))


def _read_agents(path: Path) -> Iterator[Record]:
    return repository_rules(path, AGENTS_MD, named="AGENTS.md")


def _read_cursor(path: Path) -> Iterator[Record]:
    return repository_rules(path, CURSOR, named=".cursorrules and no .cursor/rules/*.mdc")


def _read_rules(path: Path) -> Iterator[Record]:
    return repository_rules(path, RULE_FILES, named="AGENTS.md, CLAUDE.md or other file with rules of a client")


_AGENTS_MD = ImportSource(
    "agents-md", "the AGENTS.md files of a repository, as guidelines", repository_around, _read_agents
)
_CURSOR_RULES = ImportSource(
    "cursor-rules", "the rules of Cursor in a repository, as guidelines", repository_around, _read_cursor
)
_RULES = ImportSource(
    "rules", "the rules of all clients in a repository, as guidelines", repository_around, _read_rules
)
RULE_SOURCES = (_AGENTS_MD, _CURSOR_RULES, _RULES)
