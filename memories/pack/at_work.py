"""Other sessions that are at work in the project now: a line at a start, and one for a file that both edit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from memories.models import ContextPack
from memories.pack.progress import is_prompt, within_folder
from memories.pack.sections import FilledSection, GatherRequest, PackBody, PackItem, SectionDefinition, define_section
from memories.pack_sorts import OVERLAP, OVERLAP_SECTION, local_id
from memoryhub.core import clock
from memoryhub.core.events.event_types import Speech, names_of_speech, quoted
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, json_list, json_text
from memoryhub.core.text import one_line
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED, TOOL_MESSAGE
from sessions_app.selectors import context_begins
from sessions_app.services.capture import path_in_project

MAX_TOKENS = 300
# A session without an event for so long is idle
_IDLE = timedelta(minutes=30)
# Sessions, files of each, edits that are looked at, and characters
_MOST, _FILES, _MOST_EDITS, _ABOUT = 3, 4, 400, 100

_AT_WORK = (
    "SELECT s.session_id, s.directory, s.started_at || '', max(e.position) FROM raw_events e "
    "JOIN sessions_app_session s ON s.session_id = e.session_id "
    f"WHERE e.occurred_at >= %s AND e.event_type IN ({{types}}) AND s.status = 'active' AND s.id {OUTSIDE} "
    "AND s.session_id <> %s AND s.session_id <> %s "
    "GROUP BY s.session_id, s.directory, s.started_at ORDER BY max(e.position) DESC LIMIT %s"
)
_EDITS = (
    f"SELECT position, session_id, occurred_at, {json_text('payload_json', 'path')} FROM raw_events "
    f"WHERE session_id IN {TEXTS} AND event_type = '{FILE_EDITED.name}' AND payload_json IS NOT NULL "
    f"AND position {OUTSIDE} ORDER BY position DESC LIMIT %s"
)
_PROMPTS = (
    f"SELECT position, session_id, {json_text('payload_json', 'content')} FROM raw_events "
    f"WHERE session_id IN {TEXTS} AND event_type IN ({{types}}) AND payload_json IS NOT NULL "
    f"AND position {OUTSIDE} ORDER BY position DESC LIMIT %s"
)
# Edits by position, with the sessions that made them
_SENT_EDITS = (
    f"SELECT e.position, e.session_id, e.occurred_at, {json_text('e.payload_json', 'path')}, s.directory, "
    "s.started_at || '' FROM raw_events e JOIN sessions_app_session s ON s.session_id = e.session_id "
    f"WHERE e.position IN {IDS} AND e.event_type = '{FILE_EDITED.name}' AND e.payload_json IS NOT NULL"
)


class _AtWork(NamedTuple):
    session_id: str
    directory: str
    started_at: str
    # Where its last event is
    position: int


class _Edit(NamedTuple):
    position: int
    session_id: str
    occurred_at: str
    path: str


def _sessions_at_work(session_id: str, now: datetime, continued: str = "") -> list[_AtWork]:
    prompts = names_of_speech(Speech.PROMPT)
    types = quoted([*prompts, COMMAND_RUN.name, FILE_EDITED.name, TOOL_MESSAGE.name])
    since = clock.to_text(now - _IDLE)
    matches = rows.fetch(_AT_WORK.format(types=types), [since, session_id, continued, _MOST])
    return list(map(_AtWork._make, matches))


def _edits_of(session_ids: Sequence[str]) -> list[_Edit]:
    return list(map(_Edit._make, rows.fetch(_EDITS, [json_list(session_ids), _MOST_EDITS])))


def _prompts_of(session_ids: Collection[str]) -> dict[str, list[tuple[int, str]]]:
    """Return the positions and texts of users' prompts by session, the last first."""
    types = quoted(names_of_speech(Speech.PROMPT))
    prompts: dict[str, list[tuple[int, str]]] = {name: [] for name in session_ids}
    for position, name, content in rows.fetch(_PROMPTS.format(types=types), [json_list(session_ids), _MOST_EDITS]):
        if is_prompt(content):
            prompts[name].append((position, content))
    return prompts


# "here", or the folder as it is seen from that of the session that reads the line
def _place(directory: str, reader: str) -> str:
    return "here" if directory == reader else f"in {within_folder(directory, reader)}"


def _directory_of(session_id: str) -> str:
    directories = rows.column("SELECT directory FROM sessions_app_session WHERE session_id = %s", [session_id])
    return directories[0] if directories else ""


def _at_work(request: GatherRequest) -> list[PackItem]:
    if request.progress_of is None:
        return []
    sessions = _sessions_at_work(request.session_id, request.now, request.progress_of)
    if not sessions:
        return []
    names = [session.session_id for session in sessions]
    prompts, edits = _prompts_of(names), _edits_of(names)
    reader = _directory_of(request.session_id)
    items: list[PackItem] = []
    for session in sessions:
        position, about = next(iter(prompts[session.session_id]), (session.position, ""))
        folder = session.directory.rpartition(":")[2]
        paths = [within_folder(edit.path, folder) for edit in edits if edit.session_id == session.session_id]
        files = ", ".join(list(dict.fromkeys(paths))[:_FILES])
        parts = [one_line(about, _ABOUT), f"edited {files}" if files else ""]
        since = f"since {clock.minute(session.started_at)} {_place(session.directory, reader)}"
        label = f"#{position}"
        items.append(PackItem(label, f"- {label} {since}: {'; '.join(filter(None, parts))}"))
    return items


define_section(SectionDefinition("at_work", "Another session is at work", 6, 0.1, 400, _at_work, "", most_tokens=200))

# Other packs have none
SECTION = SectionDefinition(OVERLAP_SECTION, "Another session edits a file of this one", 7, 1.0, 400, lambda _: (), "")
define_section(SECTION)


def overlap_body(request: GatherRequest, path: str = "") -> PackBody:
    """Return the files that this session and another one at work both edit, each once in the session's context.

    Args:
        request: the session, its stores and the time.
        path: only this file, from the top of the project, which the session is about to edit.
    """
    sessions = _sessions_at_work(request.session_id, request.now)
    if not sessions:
        return PackBody([])
    directories = {session.session_id: session.directory for session in sessions}
    reader = _directory_of(request.session_id)
    ours = {path} if path else {path_in_project(edit.path, reader) for edit in _edits_of([request.session_id])}
    theirs = _edits_of(list(directories))
    sent = _sent_overlaps(request.session_id)
    overlaps: dict[tuple[str, str], int] = {}
    for edit in theirs:
        file = path_in_project(edit.path, directories[edit.session_id])
        if file in ours and (edit.session_id, file) not in sent:
            overlaps.setdefault((edit.session_id, file), edit.position)
    return sent_overlap_body(request, sorted(overlaps.values())[-_MOST:])


# Sessions and files of the notices that the session got since its last compaction
def _sent_overlaps(session_id: str) -> set[tuple[str, str]]:
    packs = ContextPack.objects.filter(session_id=session_id, id__gt=context_begins(session_id))
    keys = chain.from_iterable(packs.values_list("marks", flat=True))
    positions = [local_id(key) for key in keys if key.startswith(f"{OVERLAP_SECTION} ")]
    if not positions:
        return set()
    sent = rows.fetch(_SENT_EDITS, [json_list(positions)])
    return {(name, path_in_project(path, directory)) for _, name, _, path, directory, _ in sent}


def sent_overlap_body(request: GatherRequest, positions: Sequence[int]) -> PackBody:
    """Return the lines of other sessions' edits, given their positions."""
    edits = rows.fetch(_SENT_EDITS, [json_list(positions)]) if positions else []
    if not edits:
        return PackBody([])
    prompts = _prompts_of({name for _, name, *_ in edits})
    reader = _directory_of(request.session_id)
    items: list[PackItem] = []
    for position, name, at, path, directory, started_at in sorted(edits):
        before = [content for prompted, content in prompts[name] if prompted < position]
        about = f": {one_line(before[0], _ABOUT)}" if before else ""
        file = within_folder(path, directory.rpartition(":")[2])
        line = f"- #{position} {file} at {clock.minute(at)}, by a session since {clock.minute(started_at)}"
        items.append(PackItem(f"#{position}", f"{line} {_place(directory, reader)}{about}"))
    tokens = sum(estimate_tokens(item.line) for item in items)
    return PackBody([FilledSection(SECTION, items, 0, tokens)], sort=OVERLAP)
