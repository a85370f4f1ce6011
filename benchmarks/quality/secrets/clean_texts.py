"""Texts on this machine without secrets: every finding is a false positive."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PACKAGES = Path(sysconfig.get_paths()["purelib"])
_LIBRARY = Path(sysconfig.get_paths()["stdlib"])
_ROOT = Path(__file__).parents[3]
_EACH = 3_000_000


@dataclass(frozen=True, slots=True)
class CleanTexts:
    label: str
    texts: dict[str, str]

    @property
    def megabytes(self) -> float:
        return sum(len(text.encode()) for text in self.texts.values()) / 1e6


def clean_texts(most: int = _EACH) -> list[CleanTexts]:
    """Return up to ``most`` characters of each kind of text that this machine has."""
    minified = [*_PACKAGES.rglob("*.min.js"), *_PACKAGES.glob("ninja/static/ninja/*.js")]
    kinds = (
        CleanTexts("READMEs of installed packages", _read(_PACKAGES.glob("*.dist-info/METADATA"), most)),
        CleanTexts("lists of files with their hashes, lock files", _read(_locks(), most)),
        CleanTexts("minified JavaScript of installed packages", _read(minified, most)),
        CleanTexts("source of installed packages", _read(_PACKAGES.glob("django/**/*.py"), most)),
        CleanTexts("source of the standard library", _read(_LIBRARY.glob("*.py"), most)),
        CleanTexts("commit log of this checkout", _commits(most)),
    )
    return [kind for kind in kinds if kind.texts]


def _locks() -> Iterator[Path]:
    yield from _ROOT.glob("tests/**/package-lock.json")
    yield from _PACKAGES.glob("*.dist-info/RECORD")


def _read(files: Iterable[Path], most: int) -> dict[str, str]:
    found: dict[str, str] = {}
    size = 0
    for file in sorted(files):
        text = file.read_text(errors="replace")[: most - size]
        size += len(text)
        if text:
            found[str(file)] = text
    return found


def _commits(most: int) -> dict[str, str]:
    command = ["git", "-C", str(_ROOT), "log", "--stat", "-n", "5000"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=60)  # noqa: S603 - nothing is typed in
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"git log --stat": done.stdout.decode(errors="replace")[:most]}
