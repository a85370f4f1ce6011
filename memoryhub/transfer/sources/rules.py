"""Rules for agents in a repository: AGENTS.md, and the rules of Cursor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from memoryhub.config.repository import resolved
from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.transfer.records import LeftOut, Record, Source
from memoryhub.transfer.sources.reading import Wanted, files_below
from memoryhub.transfer.sources.texts import Base, TextFile, base_of, current_repository, rule_records, section_records

_PACKAGES = {"node_modules", "venv", "__pycache__", "site-packages"}


def enters_repository(path: PurePosixPath) -> bool:
    """Return whether a folder is the repository's own: not hidden, and no folder of packages."""
    return path.name not in _PACKAGES and not path.name.startswith(".")


def repository_files(
    path: Path, *, wanted: Wanted, entered: Wanted, named: str
) -> Iterator[tuple[Base, Path] | LeftOut]:
    """Yield the files below a folder of a repository, with the base of their names.

    Raises:
        Invalid: it is no folder, or has no such file; ``named`` says which.
    """
    folder = resolved(path)
    base, is_empty = base_of(folder), True
    for found in files_below(folder, wanted=wanted, entered=entered):
        is_empty = False
        yield found if isinstance(found, LeftOut) else (base, found)
    if is_empty:
        raise Invalid(f"there is no {named} in {flat(str(path))}")


def _read_agents(path: Path) -> Iterator[Record]:
    files = repository_files(
        path, wanted=lambda file: file.name == "AGENTS.md", entered=enters_repository, named="AGENTS.md"
    )
    for found in files:
        if isinstance(found, LeftOut):
            yield found
            continue
        base, file = found
        yield from section_records(TextFile(file, base.name_of(file), base.title_of(file)))


def _read_cursor(path: Path) -> Iterator[Record]:
    files = repository_files(
        path, wanted=_is_cursor_rule, entered=_enters_cursor, named=".cursorrules and no .cursor/rules/*.mdc"
    )
    for found in files:
        if isinstance(found, LeftOut):
            yield found
            continue
        base, file = found
        text = TextFile(file, base.name_of(file), base.title_of(file))
        yield from section_records(text) if file.suffix != ".mdc" else rule_records(text, globs="globs")


def _is_cursor_rule(path: PurePosixPath) -> bool:
    return path.name == ".cursorrules" or (path.suffix == ".mdc" and _is_in_rules(path))


def _is_in_rules(path: PurePosixPath) -> bool:
    return any(pair == (".cursor", "rules") for pair in zip(path.parts, path.parts[1:], strict=False))


def _enters_cursor(path: PurePosixPath) -> bool:
    if ".cursor" in path.parts[:-1]:
        return _is_in_rules(path)
    return path.name == ".cursor" or enters_repository(path)


AGENTS_MD = Source("agents-md", "the AGENTS.md files of a repository, as guidelines", current_repository, _read_agents)
CURSOR_RULES = Source(
    "cursor-rules", "the rules of Cursor in a repository, as guidelines", current_repository, _read_cursor
)
