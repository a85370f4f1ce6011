"""The sections of context packs on what happened: the last session, what was asked lately, work and its commits."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from memories.pack.sections import (
    MOST_ANSWERS,
    GatherRequest,
    PackItem,
    SectionDefinition,
    define_section,
    without_repeats,
)
from memories.schemas import SearchSourceName
from memoryhub.core import clock
from memoryhub.core.events.event_types import Speech, names_of_speech, quoted
from memoryhub.core.log.quarantine import OUTSIDE
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_text
from memoryhub.core.text import one_line
from sessions_app.models import Session

# Characters of each text
_SUMMARY, _TURN, _SHORT = 1_600, 300, 160
_LAST_SESSION = (
    "SELECT id, coalesce(ended_at, started_at) || '', agent, summary FROM sessions_app_session "
    f"WHERE session_id <> %s AND session_id <> %s AND summary <> '' AND status <> 'discarded' AND id {OUTSIDE} "
    "AND id > %s "
    "ORDER BY ended_at DESC NULLS LAST, id DESC LIMIT 1"
)
# Imported prompts are old, whatever their position
_SAID_HERE = f"source <> 'import' AND payload_json IS NOT NULL AND position {OUTSIDE}"
_PROMPTS = (
    f"SELECT position, occurred_at, {json_text('payload_json', 'content')} FROM raw_events "
    f"WHERE event_type IN ({{prompts}}) AND {_SAID_HERE} "
    "ORDER BY position DESC LIMIT %s"
)
_COUNT_PROMPTS = f"SELECT count(*) FROM raw_events WHERE event_type IN ({{prompts}}) AND {_SAID_HERE}"
_OPEN_ITERATION = (
    "SELECT id, command, description, phase FROM sessions_app_iteration "
    f"WHERE status = 'active' AND id {OUTSIDE} ORDER BY id DESC LIMIT 1"
)
_COMMITS = f"SELECT id, sha, message, committed_at || '' FROM sessions_app_commit WHERE id {OUTSIDE}"
_COUNT_COMMITS = f"SELECT count(*) FROM sessions_app_commit WHERE id {OUTSIDE}"
# Commits with at least this share of the best one's score come first, in earlier editions then so many of the newest
_NEAR_BEST, _NEAR_BEST_BEFORE, _NEWEST = 0.6, 0.5, 2
# Least score of a commit that answers: its text is short, so that a few words score high
_LEAST = 0.28
_MERGE = "Merge "
# What commits of one change, made in several places, differ in: the place, and the number of a pull request
_PLACE = re.compile(r"\s*(?:\[[^\]]*\]|\([^)]*\)|#\d+)")
# Without a question, so many commits are given, of so many days before
_MOST_LATELY, _LATELY = 5, timedelta(days=14)
# What the most recent match gains over the oldest
_RECENT = 0.5
# A line of a commit is so many times shorter than one of a memory
_SHORTER = 3


# For a session that goes on, only one that began after it
def _last_session(request: GatherRequest) -> list[PackItem]:
    items: list[PackItem] = []
    began = Session.objects.filter(session_id=request.progress_of).values_list("id", flat=True).first() or 0
    parameters = [request.session_id, request.progress_of or "", began]
    for session, when, agent, summary in rows.fetch(_LAST_SESSION, parameters):
        if not request.concerns(summary):
            continue
        line = f"- #{session} {clock.day(when)} by {agent or 'unknown'}: {one_line(summary, _SUMMARY)}"
        items.append(PackItem(f"#{session}", line))
    return items


def _turns(request: GatherRequest) -> list[PackItem]:
    prompts = rows.fetch(_PROMPTS.format(prompts=quoted(names_of_speech(Speech.PROMPT))), [request.most])
    items: list[PackItem] = []
    for position, occurred_at, content in prompts:
        if request.concerns(content):
            label = f"#{position}"
            items.append(PackItem(label, f"- {label} {clock.minute(occurred_at)} {one_line(content, _TURN)}", label))
    return items


def _count_turns(_: GatherRequest) -> int:
    return int(rows.fetch(_COUNT_PROMPTS.format(prompts=quoted(names_of_speech(Speech.PROMPT))))[0][0])


def _work(request: GatherRequest) -> list[PackItem]:
    items: list[PackItem] = []
    for iteration, command, description, phase in rows.fetch(_OPEN_ITERATION):
        reached = f", now in phase {one_line(phase, 64)}" if phase else ""
        about = f"{one_line(command, 64)}: {one_line(description, _SHORT)}"
        items.append(PackItem(f"#{iteration}", f"- #{iteration} open iteration {about}{reached}"))
    return items + _commits(request)


# Those that match the query best, the other matches, and without a question those of the last days
def _commits(request: GatherRequest) -> list[PackItem]:
    newest = _fetch_commits("ORDER BY committed_at DESC, id DESC LIMIT %s", _SHORTER * request.most)
    if not newest:
        return []
    scores = request.matching(request.chain[0], SearchSourceName.COMMIT)
    matches = _fetch_commits(f"AND id IN {IDS}", json.dumps(list(scores)))
    if request.is_by_worth:
        newest = [commit for commit in newest if not commit.message.startswith(_MERGE)]
        matches = [
            commit for commit in matches if scores[commit.id] >= _LEAST and not commit.message.startswith(_MERGE)
        ]
    # A recent one of equal matches tells more of the code as it is now
    for place, commit in enumerate(sorted(matches, key=lambda commit: str(commit.committed_at)), 1):
        scores[commit.id] *= 1 + _RECENT * place / len(matches)
    matches.sort(key=lambda commit: -scores[commit.id])
    share = _NEAR_BEST if request.is_by_worth else _NEAR_BEST_BEFORE
    best = [commit for commit in matches if scores[commit.id] >= share * scores[matches[0].id]]
    if request.is_by_worth:
        changes = {_change_in(commit): commit for commit in reversed(best)}
        commits = list(reversed(changes.values()))[:MOST_ANSWERS]
        if not request.has_question:
            since = str(rows.time_value(request.now - _LATELY))
            commits += [commit for commit in newest[:_MOST_LATELY] if str(commit.committed_at) >= since]
    else:
        commits = [*best, *newest[:_NEWEST], *matches, *newest]
    return without_repeats(map(_commit_item, commits))


class _Commit(NamedTuple):
    id: int
    sha: str
    message: str
    # Text in a format that sorts
    committed_at: str


def _fetch_commits(condition: str, parameter: int | str) -> list[_Commit]:
    return list(map(_Commit._make, rows.fetch(f"{_COMMITS} {condition}", [parameter])))


# A change that was made in several places, or on several branches, is given once
def _change_in(commit: _Commit) -> str:
    return _PLACE.sub("", commit.message.split("\n", 1)[0])


def _commit_item(commit: _Commit) -> PackItem:
    return PackItem(f"#{commit.id}", partial(_commit_line, commit), f"commit {_change_in(commit)}")


def _commit_line(commit: _Commit) -> str:
    subject = one_line(commit.message.split("\n", 1)[0], _SHORT)
    return f"- #{commit.id} commit {commit.sha[:10]} {clock.day(commit.committed_at)} {subject}"


def _count_work(_: GatherRequest) -> int:
    return int(rows.fetch(_COUNT_COMMITS)[0][0]) + len(rows.fetch(_OPEN_ITERATION))


define_section(SectionDefinition("session", "Last session", 10, 0.25, 1_700, _last_session, "session_list"))
define_section(SectionDefinition("turns", "Asked lately", 60, 0.40, 400, _turns, "memory_timeline", _count_turns))
define_section(SectionDefinition("work", "Work", 70, 0.50, 300, _work, "memory_timeline", _count_work))
