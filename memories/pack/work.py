"""The sections of context packs on what happened: the last session, what was asked lately, work and its commits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import partial
from typing import NamedTuple

from memories.pack.answers import MOST_ANSWERS
from memories.pack.sections import (
    Edition,
    GatherRequest,
    PackItem,
    SectionDefinition,
    define_section,
    without_repeats,
)
from memories.schemas import SearchSourceName
from memories.search.snippets import occurrences, stem
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
_NEWEST_FIRST = "ORDER BY committed_at DESC, id DESC"
# Commits with at least this share of the best one's score are answers, both by the score and with their age
_NEAR_BEST = 0.66
# Least score of a commit that answers: its text is short, so that a few words score high
_LEAST = 0.28
# Share of the words of the query that a subject needs, and how many are always enough
_OF_WORDS, _ENOUGH_WORDS = 0.28, 3
# Years after which a commit counts half
_HALF_LIFE = 6
# Changes of documents, tests and dependencies tell less of the code
_SIDE_WORK = re.compile(
    r"(?:docs?|chore|style|ci|tests?|deps)\b[^:]{0,40}:|.*\b(?:typos?|changelog|bump|update dependency)\b",
    re.IGNORECASE,
)
_OF_SIDE_WORK = 0.7
_REVERT = re.compile(r"Revert \"(.+?)…?\"")
_WORD = re.compile(r"\w+")
_MERGE = "Merge "
# What commits of one change, made in several places, differ in: the place, and the number of a pull request
_PLACE = re.compile(r"\s*(?:\[[^\]]*\]|\([^)]*\)|#\d+)")
# Without a question, so many commits are given, of so many days before
_MOST_LATELY, _LATELY = 5, timedelta(days=14)
# Until decision 94: the share of the best score, the newest commits given anyway, and what the most recent match gains
# over the oldest
_NEAR_BEST_BEFORE, _NEWEST, _RECENT = 0.5, 2, 0.5
# A line of a commit is so many times shorter than one of a memory
_SHORTER = 3


# For a session that goes on, only one that began after it
def _last_session(request: GatherRequest) -> list[PackItem]:
    items: list[PackItem] = []
    began = 0
    if request.progress_of:
        began = Session.objects.filter(session_id=request.progress_of).values_list("id", flat=True).first() or 0
    parameters = [request.session_id, request.progress_of or "", began]
    for session, when, agent, summary in rows.fetch(_LAST_SESSION, parameters):
        if not request.concerns(summary):
            continue
        line = f"- #{session} {clock.day(when)} by {agent or 'unknown'}: {one_line(summary, _SUMMARY)}"
        items.append(PackItem(f"#{session}", line))
    return items


def _turns(request: GatherRequest) -> list[PackItem]:
    if request.is_asked and request.edition > Edition.WITH_LATEST_PROMPTS:
        return []  # what was said about the question is in a section of its own
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


# Those that answer the query, and without a question those of the last days
def _commits(request: GatherRequest) -> list[PackItem]:
    scores = request.matching(request.chain[0], SearchSourceName.COMMIT)
    matches = _fetch_commits(f"AND id IN {IDS}", json.dumps(list(scores)))
    if not request.is_by_worth:
        commits = _commits_by_arrival(request, matches, scores)
    else:
        commits = _answering(request, matches, scores)
        if not request.has_question:
            since = str(rows.time_value(request.now - _LATELY))
            newest = _fetch_commits(f"{_NEWEST_FIRST} LIMIT %s", _SHORTER * request.most)
            newest = [commit for commit in newest if not commit.message.startswith(_MERGE)][:_MOST_LATELY]
            commits += [commit for commit in newest if str(commit.committed_at) >= since]
    return without_repeats(map(_commit_item, commits))


# By how well they match, and by age: a recent one tells more of the code as it is now. A line shows the subject only,
# which has to be about the query itself.
def _answering(request: GatherRequest, matches: Sequence[_Commit], scores: Mapping[int, float]) -> list[_Commit]:
    ranked: list[tuple[float, _Commit]] = []
    words = request.query.terms
    least = max(_LEAST, _NEAR_BEST * max(scores.values(), default=0))
    # ``asyncclient``, ``async`` and ``client`` are one word of the query
    wholes = [next(whole for whole in sorted(words, key=len, reverse=True) if word in whole) for word in words]
    count = len(set(wholes))
    least_words = min(_ENOUGH_WORDS, max(min(2, count), _OF_WORDS * count))
    for commit in matches:
        matching = {wholes[place] for _, _, place in occurrences(commit.subject, words)}
        if scores[commit.id] < least or commit.subject.startswith(_MERGE) or len(matching) < least_words:
            continue
        years = (request.now.date() - date.fromisoformat(str(commit.committed_at)[:10])).days / 365
        weight = _OF_SIDE_WORK if _SIDE_WORK.match(commit.subject) else 1.0
        ranked.append((scores[commit.id] * weight / (1 + max(0.0, years) / _HALF_LIFE), commit))
    ranked.sort(key=lambda pair: -pair[0])
    # A change that was made in several places, on several branches, or was reverted, is given once
    given_changes = {match[1] for _, commit in ranked if (match := _REVERT.match(commit.change))}
    best: list[_Commit] = []
    for score, commit in ranked:
        names = {commit.change, " ".join(sorted(map(stem, _WORD.findall(commit.change))))}
        if score >= _NEAR_BEST * ranked[0][0] and given_changes.isdisjoint(names) and len(best) < MOST_ANSWERS:
            best.append(commit)
            given_changes |= names
    return best


# Until decision 94
def _commits_by_arrival(request: GatherRequest, matches: list[_Commit], scores: Mapping[int, float]) -> list[_Commit]:
    newest = _fetch_commits(f"{_NEWEST_FIRST} LIMIT %s", _SHORTER * request.most)
    ranks: dict[int, float] = {}
    for place, commit in enumerate(sorted(matches, key=lambda commit: str(commit.committed_at)), 1):
        ranks[commit.id] = scores[commit.id] * (1 + _RECENT * place / len(matches))
    matches = sorted(matches, key=lambda commit: -ranks[commit.id])
    best = [commit for commit in matches if ranks[commit.id] >= _NEAR_BEST_BEFORE * ranks[matches[0].id]]
    return [*best, *newest[:_NEWEST], *matches, *newest]


class _Commit(NamedTuple):
    id: int
    sha: str
    message: str
    # Text in a format that sorts
    committed_at: str

    @property
    def subject(self) -> str:
        return self.message.split("\n", 1)[0]

    @property
    def change(self) -> str:
        """The subject without what commits of one change differ in."""
        return _PLACE.sub("", self.subject)


def _fetch_commits(condition: str, parameter: int | str) -> list[_Commit]:
    return list(map(_Commit._make, rows.fetch(f"{_COMMITS} {condition}", [parameter])))


def _commit_item(commit: _Commit) -> PackItem:
    return PackItem(f"#{commit.id}", partial(_commit_line, commit), f"commit {commit.change}")


def _commit_line(commit: _Commit) -> str:
    subject = one_line(commit.subject, _SHORT)
    return f"- #{commit.id} commit {commit.sha[:10]} {clock.day(commit.committed_at)} {subject}"


def _count_work(_: GatherRequest) -> int:
    return int(rows.fetch(_COUNT_COMMITS)[0][0]) + len(rows.fetch(_OPEN_ITERATION))


define_section(SectionDefinition("session", "Last session", 10, 0.25, 1_700, _last_session, "session_list"))
define_section(SectionDefinition("turns", "Asked lately", 60, 0.40, 400, _turns, "memory_timeline", _count_turns))
define_section(SectionDefinition("work", "Work", 70, 0.50, 300, _work, "memory_timeline", _count_work))
