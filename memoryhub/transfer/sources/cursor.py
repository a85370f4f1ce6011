"""Source: the sessions of Cursor, from the database of its editor and from the files of its agent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from memoryhub.config.repository import is_folder, resolved
from memoryhub.core.errors import Invalid
from memoryhub.core.text import flat
from memoryhub.transfer.records import ImportSource, Record, Transcript
from memoryhub.transfer.sources.cursor_agent import agent_transcripts
from memoryhub.transfer.sources.cursor_editor import DATABASE, TOOL, editor_transcripts, session_names, user_rules
from memoryhub.transfer.sources.editors import user_folders


def _find_cursor(_: Path) -> list[Path]:
    agent = Path(os.environ.get("CURSOR_CONFIG_DIR") or Path.home() / ".cursor")
    return [folder for folder in (*user_folders(TOOL), resolved(agent)) if _has_sessions(folder)]


def _has_sessions(folder: Path) -> bool:
    return (folder / DATABASE).is_file() or is_folder(folder / "projects") or is_folder(folder / "chats")


# The user's rules for all projects
def _read(path: Path) -> Iterator[Record]:
    folder = resolved(path)
    if not _has_sessions(folder):
        raise Invalid(f"{flat(str(path))} has no sessions of {TOOL}")
    database_path = folder / DATABASE
    if not database_path.is_file():
        return
    yield from user_rules(database_path)


def _transcripts(path: Path) -> Iterator[Transcript]:
    folder = resolved(path)
    if (folder / DATABASE).is_file():
        yield from editor_transcripts(folder)
    else:
        yield from agent_transcripts(folder, _sessions_of_editors())


# The agent keeps the editor's sessions too, without the results of tools
def _sessions_of_editors() -> set[str]:
    sessions: set[str] = set()
    for user in user_folders(TOOL):
        with suppress(Invalid):
            sessions |= session_names(user / DATABASE)
    return sessions


CURSOR = ImportSource(
    "cursor",
    "the sessions of Cursor's editor and agent, and the user's rules",
    _find_cursor,
    _read,
    takes="the folder User of Cursor's settings, or ~/.cursor",
    transcripts=_transcripts,
)
