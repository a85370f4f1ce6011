"""Proof by bytes: which files of the home folder hold a text."""

from __future__ import annotations

import json
import mmap
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memoryhub import env

_SHORTEST = 5
"""Bytes; a shorter text is in every file by chance."""


@dataclass(slots=True)
class Proof:
    """What reading every file found."""

    files: int = 0
    bytes: int = 0
    left: list[Path] = field(default_factory=list)
    """Those that hold one of the texts."""


def search_home(texts: Collection[str]) -> Proof:
    """Read every file of the home folder for any of the texts, as they are and as JSON writes them."""
    proof, needles = Proof(), sorted(_needles(texts))
    for path in _files(env.home()):
        try:
            size = path.stat().st_size
            holds = size > 0 and _holds(path, needles)
        except FileNotFoundError:
            continue  # a journal that has just gone
        proof.files, proof.bytes = proof.files + 1, proof.bytes + size
        if holds:
            proof.left.append(path)
    return proof


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())


def _needles(texts: Collection[str]) -> set[bytes]:
    written = {
        form for text in texts for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    }
    return {each.encode() for each in written if len(each.encode()) >= _SHORTEST}


def _holds(path: Path, needles: list[bytes]) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(needle) >= 0 for needle in needles)
