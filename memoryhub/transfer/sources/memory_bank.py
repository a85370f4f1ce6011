"""A memory bank: the Markdown files that Cline, Roo Code and others keep about a repository in ``memory-bank``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memories.importing.files import MARKDOWN, modified_at
from memoryhub.transfer.records import LeftOutRecord, Record
from memoryhub.transfer.sources.reading import files_below
from memoryhub.transfer.sources.texts import TextFile, base_of, is_visible, section_records

_FOLDER = "memory-bank"


def has_memory_bank(folder: Path) -> bool:
    return next((folder / _FOLDER).glob("*.md"), None) is not None


def memory_bank_records(folder: Path) -> Iterator[Record]:
    """Yield an observation for each section of the memory bank of a repository."""
    base = base_of(folder)
    files = files_below(
        folder / _FOLDER, includes=lambda path: path.suffix.lower() in MARKDOWN and is_visible(path), enters=is_visible
    )
    for file in files:
        if isinstance(file, LeftOutRecord):
            yield file
        else:
            changed = modified_at(file)
            title = base.title_of(file)
            yield from section_records(
                TextFile(file, base.name_of(file), title, kind="observation", tags=(_FOLDER,), changed=changed)
            )
