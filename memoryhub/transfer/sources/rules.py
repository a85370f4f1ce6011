"""Rules for agents in a repository: AGENTS.md, and the rules of Cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path, PurePosixPath

from memories.importing.files import MARKDOWN, SKIPPED_FOLDERS, changed_times
from memoryhub.config.repository import is_file, resolved
from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.transfer.records import ImportSource, LeftOutRecord, Record
from memoryhub.transfer.sources.reading import Wanted, files_below
from memoryhub.transfer.sources.texts import TextFile, base_of, repository_around, rule_records, section_records

_RULES = (".cursor", "rules")


def enters_repository(path: PurePosixPath) -> bool:
    """Return whether a folder is the repository's own: not hidden, and no folder of packages."""
    return path.name not in SKIPPED_FOLDERS and not path.name.startswith(".")


def repository_records(
    path: Path, read: Callable[[TextFile], Iterator[Record]], *, includes: Wanted, enters: Wanted, named: str
) -> Iterator[Record]:
    """Yield what ``read`` yields for each file below a folder of a repository.

    Each file is read once; a link to a file of the repository is that file.

    Raises:
        Invalid: it is no folder, or has no such file; ``named`` says which.
    """
    folder = resolved(path)
    base = base_of(folder)
    entries = list(files_below(folder, includes=includes, enters=enters))
    if not entries:
        raise Invalid(f"there is no {named} in {flat(str(path))}")
    files = {entry: base.title_of(entry) for entry in entries if isinstance(entry, Path)}
    for entry in entries:
        if isinstance(entry, Path):
            continue
        target = file_within(base.folder, Path(entry.place))
        if target is None:
            yield entry
        elif target in files:
            yield LeftOutRecord(entry.place, f"a link to {files[target]}, which is imported itself")
        else:
            files[target] = base.title_of(target)
    changed = changed_times(base.folder, files.values())
    for file, title in files.items():
        yield from read(TextFile(file, base.name_of(file), title, changed=changed[title]))


def file_within(folder: Path, path: Path) -> Path | None:
    """Return the Markdown file of a folder that a path or a link leads to; None if it leads elsewhere."""
    target = resolved(path)
    if not target.is_relative_to(folder) or ".git" in target.relative_to(folder).parts:
        return None
    if target.suffix.lower() in MARKDOWN and is_file(target):
        return target
    return None


def _read_agents(path: Path) -> Iterator[Record]:
    return repository_records(
        path,
        section_records,
        includes=lambda file: file.name == "AGENTS.md",
        enters=enters_repository,
        named="AGENTS.md",
    )


def _read_cursor(path: Path) -> Iterator[Record]:
    return repository_records(
        path,
        _cursor_records,
        includes=lambda file: file.name == ".cursorrules" or (file.suffix == ".mdc" and _RULES in pairwise(file.parts)),
        enters=_enters_cursor,
        named=".cursorrules and no .cursor/rules/*.mdc",
    )


def _cursor_records(file: TextFile) -> Iterator[Record]:
    if file.path.suffix == ".mdc":
        return rule_records(file, globs="globs")
    return section_records(file)


def _enters_cursor(path: PurePosixPath) -> bool:
    if ".cursor" in path.parts[:-1]:
        return _RULES in pairwise(path.parts)
    return path.name == ".cursor" or enters_repository(path)


AGENTS_MD = ImportSource(
    "agents-md", "the AGENTS.md files of a repository, as guidelines", repository_around, _read_agents
)
CURSOR_RULES = ImportSource(
    "cursor-rules", "the rules of Cursor in a repository, as guidelines", repository_around, _read_cursor
)
