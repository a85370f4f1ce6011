"""What the sources of clients share: a folder of the user's with instructions, and a file for each session."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from memories.importing.files import modified_at
from memoryhub.config.repository import resolved
from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.transfer.records import LeftOutRecord, Record, Transcript
from memoryhub.transfer.sources.reading import Wanted, files_below, read_head
from memoryhub.transfer.sources.texts import TextFile, section_records
from memoryhub.transfer.sources.transcripts import SessionReader, line_records, transcripts_of

_HEAD_BYTES = 8192
# Folders of what a client remembers by itself
_MEMORIES = ("memory", "memories")
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ClientHome:
    """Where a client keeps what it knows of all projects."""

    client: str
    # The name of the folder in the names of memories
    name: str
    # Files and folders that tell that it is one
    parts: tuple[str, ...]

    def find(self, *folders: str | Path | None) -> list[Path]:
        """Return those of the folders, which may be unset, that have data of the client."""
        paths = dict.fromkeys(resolved(Path(folder).expanduser()) for folder in folders if folder)
        return [path for path in paths if self._is_at(path)]

    def check(self, path: Path) -> Path:
        """Return the folder.

        Raises:
            Invalid: it has no data of the client.
        """
        folder = resolved(path)
        if not self._is_at(folder):
            parts = ", ".join(self.parts)
            raise Invalid(f"there is no data of {self.client} in {flat(str(path))}: none of {parts}")
        return folder

    def _is_at(self, folder: Path) -> bool:
        return any((folder / part).exists() for part in self.parts)

    def texts(
        self, folder: Path, *, includes: Wanted, enters: Wanted, project: Callable[[Path], str] = lambda _: ""
    ) -> Iterator[Record]:
        """Yield a guideline for each section of the files, and an observation where they are the client's memory."""
        for file in files_below(folder, includes=includes, enters=enters, reads_ignored=True):
            if isinstance(file, LeftOutRecord):
                yield file
                continue
            name = f"{self.name}/{file.relative_to(folder).as_posix()}"
            kind = "observation" if file.parent.name in _MEMORIES else "guideline"
            text = TextFile(file, name, name, kind=kind, project=project(file), changed=modified_at(file))
            yield from section_records(text)


def head_text(path: Path) -> str:
    """Return the first characters of a file; "" if it can't be read, which its reading tells."""
    return read_head(path, _HEAD_BYTES).decode("utf-8", "replace")


def patched_files(patch: str) -> list[str]:
    """Return the paths in a patch of the format that several clients share; empty if the text is none."""
    if "*** Begin Patch" not in patch:
        return []
    return [path.strip() for path in _PATCHED.findall(patch)]


def exit_code_of(value: object) -> int | None:
    """Return the exit code of a command that ran to its end; None if the value is none."""
    is_code = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31
    return value if is_code else None  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class SessionHead:
    """What the first lines of a session's file say."""

    key: str
    folder: str = ""


def session_transcripts(
    entries: Iterable[Path | LeftOutRecord],
    *,
    head: Callable[[Path], SessionHead | None],
    reader: Callable[[Path], SessionReader],
) -> Iterator[Transcript]:
    """Yield one transcript for each session that a user had.

    Args:
        entries: as ``files_below`` yields them. Of several files of one session the largest counts.
        head: reads the head of a file; None if the session is a sub-agent's or the client's.
        reader: takes the lines of a file.
    """
    heads: dict[Path, SessionHead] = {}
    files: list[Path | LeftOutRecord] = []
    for entry in entries:
        if isinstance(entry, LeftOutRecord):
            files.append(entry)
        elif session := head(entry):
            heads[entry] = session
            files.append(entry)
    listed = transcripts_of(
        files,
        folder=lambda path: heads[path].folder,
        key=lambda path: heads[path].key,
        read=partial(line_records, reader),
    )
    largest: dict[str, Transcript] = {}
    for transcript in listed:
        if transcript.key not in largest or transcript.size > largest[transcript.key].size:
            largest[transcript.key] = transcript
    yield from largest.values()
