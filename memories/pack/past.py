"""What past sessions tell about a prompt where no memory does: a passage of a message, or a command that failed.

An answer is better than the question before it, so a prompt that is about the same gives the answer that followed it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from operator import attrgetter
from pathlib import PurePath

from django.db.models import Q

from memories.lessons.rules import cured_failures
from memories.models import AmendmentKind
from memories.pack.sections import (
    Edition,
    GatherRequest,
    PackItem,
    SectionDefinition,
    define_recallable,
    define_section,
    reference,
)
from memories.pack_sorts import SAID_SECTION
from memories.schemas import SearchSourceName
from memories.scopes import Level
from memories.search import engine
from memories.search.index import has_full_text
from memories.search.parsed_query import ParsedQuery
from memories.search.relevance import Relevance, is_absent, odds, relevance_of
from memories.search.snippets import command_end, only_asks
from memories.search.text import COMMON_WORDS
from memories.search.weights import PROMPT
from memories.validity.amendments import pairs_among
from memoryhub.core import clock, log
from memoryhub.core.events.event_types import event_type, names_of_speech
from memoryhub.core.events.projection import Event
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from memoryhub.core.text import one_line
from sessions_app.events.client import COMMAND_RUN, FILE_EDITED, CommandRun
from sessions_app.models import Session
from sessions_app.selectors import SessionEvent, read_events

PAST_SOURCES = (SearchSourceName.MESSAGE, SearchSourceName.COMMAND)
# Lines of a recall
MOST_OF_PAST = 2
# How much higher the odds of their relevance are than those of an entry
_STRICTER = 2.0
# Best hits that are rated, and those of them that may be given
_CANDIDATES, _MOST = 15, 5
# Words of a prompt that are not common
_LEAST_WORDS = 2
# An answer without the words of its question, as part of the question's relevance
_BY_QUESTION = 0.9
# Characters of a session's purpose, a command, a passage and the output of a command
_PURPOSE, _COMMAND, _PASSAGE, _OUTPUT = 40, 90, 280, 190
# Messages and failures in a pack about a question
_MOST_SAID = 8
# Events of the log after a failure among which its cure is looked for
_LATER = 500


def past_items(
    request: GatherRequest, level: Level, *, least: float, without: Collection[int]
) -> list[tuple[float, PackItem]]:
    """Return what was said or failed in other sessions that a prompt is about, best first, each with its relevance.

    Call it in the store of ``level``.
    """
    if not has_full_text() or len(set(request.query.terms) - COMMON_WORDS) < _LEAST_WORDS:
        return []
    relevances: dict[int, Relevance] = {}
    for entry, relevance in past_relevances(request.query, level, request.session_id).items():
        if odds(relevance.score) >= _STRICTER * odds(least) and entry not in without and len(relevances) < _MOST:
            relevances[entry] = relevance
    passages = {entry: slice(relevance.start, relevance.end) for entry, relevance in relevances.items()}
    items = _recallable(level, list(passages), request.now, passages)
    return [(relevances[entry].score, items[entry]) for entry in relevances if entry in items]


def past_relevances(query: ParsedQuery, level: Level, session_id: str) -> dict[int, Relevance]:
    """Map messages and failed commands of other sessions to how much they are about a prompt, best first."""
    # By words: a vector is of the beginning of an answer, which may be long
    ranked = engine.rank(query.among(PAST_SOURCES), level=level)
    documents = engine.documents_of([hit for hit, _ in ranked.hits[:_CANDIDATES]])
    candidates: list[int] = []
    for hit, document in documents.items():
        is_question = document["type"] == PROMPT and only_asks(document["title"], query.terms)
        if document["session_id"] != session_id and not is_question:
            candidates.append(hit)
    answers = _answers_to([hit for hit in candidates if documents[hit]["type"] == PROMPT])
    relevances = relevance_of(query, [*{*candidates, *answers.values()}])
    for prompt, answer in answers.items():
        score = _BY_QUESTION * relevances.pop(prompt).score
        if relevances[answer].score < score:
            relevances[answer] = replace(relevances[answer], score=score)
    documents = engine.documents_of(list(relevances))
    for pair in pairs_among(documents, engine.texts_of(documents)):
        if pair.kind is AmendmentKind.AMENDS and pair.older_id in relevances:
            older = relevances[pair.older_id]
            if pair.is_marked:
                del relevances[pair.older_id]
            relevances[pair.newer_id] = max(older, relevances[pair.newer_id], key=attrgetter("score"))
    best = sorted(relevances, key=lambda entry: (-relevances[entry].score, -entry))
    return {entry: relevances[entry] for entry in best}


# In the order of a search: a pack was asked for, so it has more of them than a prompt is given
def _said(request: GatherRequest) -> list[PackItem]:
    if not request.has_question or request.edition <= Edition.WITH_LATEST_PROMPTS:
        return []
    level = request.chain[0]
    ranked = engine.rank(request.query.among(PAST_SOURCES), level=level)
    if is_absent(request.query.text, [(level.store, ranked)]):
        return []
    best = [hit for hit, _ in ranked.hits[: 2 * _MOST_SAID]]
    sessions = {hit: document["session_id"] for hit, document in engine.documents_of(best).items()}
    hits = [hit for hit in best if sessions[hit] != request.session_id][:_MOST_SAID]
    passages = {hit: slice(rated.start, rated.end) for hit, rated in relevance_of(request.query, hits).items()}
    items = _recallable(level, hits, request.now, passages)
    return [items[hit] for hit in hits if hit in items]


_NEXT_MESSAGES = (
    "SELECT d.id, (SELECT min(n.id) FROM memories_searchdocument n WHERE n.source = 'message' "
    "AND n.session_id = d.session_id AND n.id > d.id) "
    f"FROM memories_searchdocument d WHERE d.source = 'message' AND NOT (d.session_id = '') AND d.id IN {IDS}"
)


# The message after each prompt, where it is an answer
def _answers_to(prompts: Collection[int]) -> dict[int, int]:
    answers = {prompt: later for prompt, later in rows.fetch(_NEXT_MESSAGES, [json.dumps(list(prompts))]) if later}
    documents = engine.documents_of(list(answers.values()))
    return {prompt: later for prompt, later in answers.items() if documents[later]["type"] != PROMPT}


def _recallable(level: Level, ids: Sequence[int], _: datetime, passages: Mapping[int, slice]) -> dict[int, PackItem]:
    events = log.events().at(ids).of_type(*names_of_speech(), COMMAND_RUN).readable()
    said = {event.position: event for event in map(log.event_of, outside_quarantine(events, "position"))}
    sessions = {event.session_id for event in said.values()}
    purposes = dict(Session.objects.filter(session_id__in=sessions).values_list("session_id", "purpose"))
    cures = _cures([event for event in said.values() if event.type == COMMAND_RUN.name])
    items: dict[int, PackItem] = {}
    for position, event in said.items():
        part = passages.get(position, slice(0, _PASSAGE))
        if event.type == COMMAND_RUN.name:
            text = f"{event.payload.command}\n{event.payload.output}"
            evidence = f"{_failure_text(event.payload, part)}{cures.get(position, '')}"
        else:
            text = event.payload.content
            evidence = _passage_text(text, part)
        label = reference(level, position)
        about = one_line(purposes.get(event.session_id) or event.session_id, _PURPOSE)
        day = clock.day(event.payload.written_at or event.occurred_at)
        line = f'- {label} {_noun(event.type)} of {day} in session "{about}": {evidence}'
        items[position] = PackItem(label, line, text, f"{part.start}-{part.stop}")
    return items


def _noun(name: str) -> str:
    if name == COMMAND_RUN.name:
        return "failed command"
    defined = event_type(name)
    if defined is None or defined.nouns is None:
        return "message"
    return defined.nouns[0]


# Shorter at its start rather than without the command that it leads to
def _passage_text(text: str, part: slice) -> str:
    stop = command_end(text, part.start, min(part.stop, part.start + _PASSAGE))
    start = max(part.start, stop - _PASSAGE)
    return one_line(f"{'… ' if start else ''}{text[start:stop]}", _PASSAGE + 2)


def _failure_text(run: CommandRun, part: slice) -> str:
    begin = len(run.command) + 1
    output = run.output[max(part.start - begin, 0) : max(part.stop - begin, 0)] or run.output
    return f"`{one_line(run.command, _COMMAND)}` failed with {run.exit_code}: {one_line(output, _OUTPUT)}"


# What made each of some failed commands pass in its session
def _cures(failures: Sequence[Event[CommandRun]]) -> dict[int, str]:
    spans = Q()
    for failure in failures:
        position = failure.position
        spans |= Q(session_id=failure.session_id, position__gte=position, position__lte=position + _LATER)
    if not failures:
        return {}
    later = log.events().filter(spans).of_type(COMMAND_RUN, FILE_EDITED)
    events: dict[str, list[SessionEvent]] = {}
    for event in read_events(later, _LATER * len(failures)):
        if event.type == FILE_EDITED.name:
            event.payload["path"] = PurePath(event.payload["path"]).name
        events.setdefault(event.session_id, []).append(event)
    cures: dict[int, str] = {}
    for cure in chain.from_iterable(map(cured_failures, events.values())):
        cures[cure.failed.position] = f"; it passed later {cure.change}".rstrip() + f" (#{cure.passed.position})"
    return cures


# For both sources
define_recallable(SearchSourceName.MESSAGE, _recallable)
define_section(SectionDefinition(SAID_SECTION, "Said about it", 55, 0.30, 400, _said, "memory_search"))
