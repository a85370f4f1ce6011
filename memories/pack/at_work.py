"""Other sessions that are at work in the project now: a line at a start, and one for a file that both edit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from memories.models import ContextPack
from memories.pack.progress import LEAST_CHARS, is_prompt, within_folder
from memories.pack.sections import FilledSection, GatherRequest, PackBody, PackItem, SectionDefinition, define_section
from memories.pack_sorts import OVERLAP, OVERLAP_SECTION, local_id
from memoryhub.core import clock
from memoryhub.core.events.event_types import Speech, names_of_speech, quoted
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, TEXTS, json_list, json_text
from memoryhub.core.text import one_line
from sessions_app.events.client import FILE_EDITED
from sessions_app.selectors import context_begins
from sessions_app.services.capture import path_in_project

MAX_TOKENS = 300
# A session without an event for so long is idle
_IDLE = timedelta(minutes=30)
# Sessions, files of each, edits that are looked at, and characters
_MOST, _FILES, _MOST_EDITS, _ABOUT = 3, 4, 200, 100

# The last event of each session is one look into an index
_AT_WORK = (
    "SELECT s.id, s.session_id, s.directory FROM sessions_app_session s JOIN raw_events e "
    "ON e.position = (SELECT max(position) FROM raw_events WHERE session_id = s.session_id) "
    f"WHERE s.status = 'active' AND s.id {OUTSIDE} AND s.session_id <> %s AND s.session_id <> %s "
    "AND e.occurred_at >= %s ORDER BY e.position DESC LIMIT %s"
)
# Prompts or paths only: a change can be long, and this is read before each edit
_FIELDS = (
    "SELECT position, session_id, {field} FROM raw_events "
    f"WHERE session_id IN {TEXTS} AND event_type IN ({{types}}) AND payload_json IS NOT NULL "
    f"AND position {OUTSIDE} ORDER BY position DESC LIMIT %s"
)
_EDITS = _FIELDS.format(field=json_text("payload_json", "path"), types=quoted([FILE_EDITED.name]))
# What a line needs of an event that starts a session, is a prompt or an edit
_LINES = (
    "SELECT e.position, s.id, s.session_id, s.directory, s.started_at || '', e.event_type, e.occurred_at, "
    f"coalesce({json_text('e.payload_json', 'content')}, {json_text('e.payload_json', 'path')}) "
    "FROM raw_events e JOIN sessions_app_session s ON s.session_id = e.session_id OR s.id = e.position "
    f"WHERE e.position IN {IDS} AND e.payload_json IS NOT NULL ORDER BY s.id, e.position"
)


class _AtWork(NamedTuple):
    id: int
    session_id: str
    directory: str


class _Edit(NamedTuple):
    position: int
    session_id: str
    path: str


def _sessions_at_work(session_id: str, now: datetime, continued: str = "") -> list[_AtWork]:
    since = clock.to_text(now - _IDLE)
    matches = rows.fetch(_AT_WORK, [session_id, continued, since, _MOST])
    return list(map(_AtWork._make, matches))


def _edits_of(session_ids: Sequence[str]) -> list[_Edit]:
    return list(map(_Edit._make, rows.fetch(_EDITS, [json_list(session_ids), _MOST_EDITS])))


def _prompts_of(session_ids: Collection[str]) -> dict[str, list[int]]:
    """Return the positions of users' prompts by session, the last first."""
    types = quoted(names_of_speech(Speech.PROMPT))
    statement = _FIELDS.format(field=json_text("payload_json", "content"), types=types)
    prompts: dict[str, list[int]] = {name: [] for name in session_ids}
    for position, name, content in rows.fetch(statement, [json_list(session_ids), _MOST_EDITS]):
        if is_prompt(content) and len(content) >= LEAST_CHARS:
            prompts[name].append(position)
    return prompts


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
    positions: list[int] = []
    for session in sessions:
        files: dict[str, int] = {}
        for edit in edits:
            if edit.session_id == session.session_id:
                files.setdefault(edit.path, edit.position)
        work = [*prompts[session.session_id][:1], *list(files.values())[:_FILES]]
        if work:
            positions += [session.id, *work]
    return _lines(request, positions) if positions else []


# A line for each event, so that what is erased or redacted is in no other line
def _lines(request: GatherRequest, positions: Sequence[int]) -> list[PackItem]:
    reader = _directory_of(request.session_id)
    items: list[PackItem] = []
    for position, session, _, directory, started_at, event_type, at, text in rows.fetch(_LINES, [json_list(positions)]):
        if position == session:
            place = "here" if directory == reader else f"in {within_folder(directory, reader)}"
            line = f"at work since {clock.minute(started_at)} {place}"
        elif event_type == FILE_EDITED.name:
            line = f"edited {within_folder(text, directory.rpartition(':')[2])} at {clock.minute(at)}"
        else:
            line = f"asked: {one_line(text, _ABOUT)}"
        label = f"#{position}"
        items.append(PackItem(label, f"- {label} {line}", label))
    return items


define_section(SectionDefinition("at_work", "Another session", 6, 0.15, 300, _at_work, "", most_tokens=200))
# Other packs have none
SECTION = SectionDefinition(OVERLAP_SECTION, "Another session edits a file of this one", 7, 1.0, 300, lambda _: (), "")
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
    sent = _sent_overlaps(request.session_id)
    overlaps: dict[tuple[str, str], _Edit] = {}
    for edit in _edits_of(list(directories)):
        file = path_in_project(edit.path, directories[edit.session_id])
        if file in ours and (edit.session_id, file) not in sent:
            overlaps.setdefault((edit.session_id, file), edit)
    prompts = _prompts_of(list(directories)) if overlaps else {}
    ids = {session.session_id: session.id for session in sessions}
    positions: set[int] = set()
    for edit in list(overlaps.values())[:_MOST]:
        asked = [prompt for prompt in prompts[edit.session_id] if prompt < edit.position]
        positions.update([ids[edit.session_id], *asked[:1], edit.position])
    return sent_overlap_body(request, positions)


# Sessions and files of the notices that the session got since its last compaction
def _sent_overlaps(session_id: str) -> set[tuple[str, str]]:
    packs = ContextPack.objects.filter(session_id=session_id, id__gt=context_begins(session_id))
    keys = chain.from_iterable(packs.values_list("marks", flat=True))
    positions = [local_id(key) for key in keys if key.startswith(f"{OVERLAP_SECTION} ")]
    if not positions:
        return set()
    files: set[tuple[str, str]] = set()
    for _, _, name, directory, _, event_type, _, text in rows.fetch(_LINES, [json_list(positions)]):
        if event_type == FILE_EDITED.name:
            files.add((name, path_in_project(text, directory)))
    return files


def sent_overlap_body(request: GatherRequest, positions: Collection[int]) -> PackBody:
    """Return the lines of another session's events, given their positions."""
    items = _lines(request, sorted(positions)) if positions else []
    if not items:
        return PackBody([])
    return PackBody([FilledSection(SECTION, items, 0, sum(estimate_tokens(item.line) for item in items))], sort=OVERLAP)
