"""Which files of a folder are text to bring in, and their text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from memoryhub.core.errors import Invalid
from sessions_app import git

MARKDOWN = (".md", ".markdown", ".mdx")
ENDINGS = (*MARKDOWN, ".rst", ".txt")
MAX_BYTES = 2_000_000
_SKIPPED_FOLDERS = {"node_modules", "venv", "__pycache__", "site-packages"}


def find_files(directory: Path) -> list[str]:
    """Return the text files below the folder, relative to it, in order; hidden and ignored ones are left out.

    Raises:
        Invalid: there is no such folder.
    """
    if not directory.is_dir():
        raise Invalid(f"{directory} is no folder; name one that holds Markdown or text files")
    names = git.list_files(directory) or _walk(directory)  # a folder that is ignored as a whole was named on purpose
    return sorted(name for name in names if _is_wanted(Path(name)) and _is_own_file(directory / name))


def read_text(path: Path) -> str | None:
    """Return the file's text, or None where it is binary, larger than 2 MB, or cannot be read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        raw = path.read_bytes()
    except OSError:
        return None
    if b"\0" in raw:
        return None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _walk(directory: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not _is_skipped(name)]
        for name in names:
            yield os.path.relpath(Path(folder) / name, directory)


def _is_wanted(path: Path) -> bool:
    in_skipped = any(_is_skipped(part) for part in path.parts)
    return path.suffix.lower() in ENDINGS and not in_skipped


def _is_own_file(path: Path) -> bool:
    """Whether the file is there, and no link to what may lie elsewhere."""
    return path.is_file() and not path.is_symlink()


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED_FOLDERS
