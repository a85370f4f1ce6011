"""Weights of a ranking, and factors on the score of a hit besides its words: what it is, what surrounds it.

docs/internals/retrieval.md has the measurements behind each weight. Decision 49: most entries that share a word with a
question about a change are about the subject, not about the change: of thirty commits that name a library, one replaced
it. Entries with a line that has both rank higher.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from memories.embeddings.vectors import answering_model
from memories.kinds import BETWEEN_HEADINGS, EXPIRED_WEIGHT, PROPOSED_WEIGHT
from memories.search.index import Hits, has_full_text
from memories.search.parsed_query import ParsedQuery
from memories.search.snippets import words_in
from memories.search.text import folded
from memories.substance import is_boilerplate_section
from memories.superseded import SUPERSEDED_WEIGHT, is_superseded, superseded_by
from memories.uses.selectors import points_query, use_weights
from memoryhub.config.current_settings import project_settings
from memoryhub.config.retention_rules import SearchMode
from memoryhub.core import clock
from memoryhub.core.errors import Unavailable
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, LIKE, LINE_END, is_among
from sessions_app.events.client import USER_MESSAGE


def by_index(mode: str) -> bool:
    """Return whether the full-text index is used instead of LIKE.

    Raises:
        Unavailable: the mode is ``fts5``, and there is no index.
    """
    if mode == SearchMode.BASIC:
        return False
    is_indexed = has_full_text()
    if mode == SearchMode.FTS5 and not is_indexed:
        raise Unavailable(
            "search_mode is 'fts5', but this store has no full-text index or this SQLite lacks FTS5; set search_mode "
            "to 'auto' or 'basic', or run rebuild with a SQLite that has FTS5"
        )
    return is_indexed


def mode_name() -> str:
    """Return the mode in which searches of the current store answer while a hub runs."""
    setting = project_settings().search_mode
    if setting is SearchMode.BASIC or not has_full_text():
        return "basic"
    if setting is SearchMode.AUTO and answering_model():
        return "hybrid"
    return "fts5"


def note_on(mode: str, problems: Sequence[str]) -> str | None:
    """Return why a search in a requested mode went by words alone, and what to change; None if it did not."""
    if mode != SearchMode.AUTO:
        return f"by words alone: search_mode is '{mode}'; set it to 'auto' to search by meaning, too"
    return f"by words alone: {problems[0]}" if problems else None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The weights of a ranking; 0 skips a stage (decision 20)."""

    # A word in the title; one in the body counts 1.0
    title: float = 3.0
    # A word in the messages before and after
    near: float = 0.3
    # A word or number of the written-out date
    date: float = 0.5
    # Share of the better neighbour's score that is added to a message's own
    neighbours: float = 0.25
    # How much more messages of the best session count than those of a session without hits
    session: float = 1.0
    # The same, as a limit, if another ranking is blended in, which already favours related messages
    session_beside_others: float = 0.5
    # How much more a message counts whose speaker the question names; "I" and "my" name the user
    speaker: float = 1.0
    # Whether names such as ``a.b_c`` are also searched as a whole
    phrases: bool = True
    # Whether sections that say nothing rank below the others of their chapter
    lowers_empty_sections: bool = True


USUAL = Pipeline()

Notes = Callable[[Sequence[int]], rows.Steps[Mapping[int, str]]]

_MOST_WORDS = 6
_LEAST_SHOWN = 0.05
_notes: dict[str, list[Notes]] = {}


def why(title: str, body: str, words: Sequence[str], factors: Mapping[str, float]) -> str:
    """Return the matching words and the other factors of a score: ``coffee, machine; session ×1.8``."""
    matching = words_in(f"{title}\n{body}", words)
    listed = ", ".join(matching[:_MOST_WORDS]) or "words near it, or its date"
    if len(matching) > _MOST_WORDS:
        listed += f" and {len(matching) - _MOST_WORDS} more"
    telling = [f"{name} ×{factor:.1f}" for name, factor in factors.items() if abs(factor - 1) >= _LEAST_SHOWN]
    return "; ".join([listed, *telling])


def define_notes(source: str, notes: Notes) -> None:
    """Register notes on the hits of a source: what replaced one, what supports it."""
    _notes.setdefault(source, []).append(notes)


@rows.InSteps
def notes_of(documents: Mapping[int, Mapping[str, Any]]) -> rows.Steps[dict[int, str]]:
    """Return the notes on hits, by id; one query for each kind of notes."""
    by_source: dict[str, list[int]] = {}
    for hit_id, document in documents.items():
        by_source.setdefault(document["source"], []).append(hit_id)
    steps = [notes(ids) for source, ids in by_source.items() for notes in _notes.get(source, ())]
    notes_by_hit: dict[int, str] = {}
    for notes_of_kind in (yield from rows.side_by_side(*steps)):
        for hit_id, note in notes_of_kind.items():
            notes_by_hit[hit_id] = f"{notes_by_hit[hit_id]}; {note}" if hit_id in notes_by_hit else note
    return notes_by_hit


Successors = Callable[[Sequence[int]], rows.Steps[Mapping[int, Sequence[int]]]]
Reason = tuple[str, Mapping[int, float]]
Scores = dict[int, float]
Lines = Sequence[tuple[Any, ...]]
# Per hit, what changed its score
Factors = dict[int, dict[str, float]]


class _Demotion(NamedTuple):
    why: str
    weight: float
    sql: str


# Commits that only say "bump", "v1.2" or "refs #12", and merges: as short texts they would rank first
_SAYS_LITTLE = (
    "SELECT id FROM sessions_app_commit WHERE length(message) < 20 OR lower(substr(message, 1, 6)) = 'merge ' "
    "OR (length(message) < 60 AND replace(lower(message), 'bump', '') <> lower(message))"
)
# Shown with short commits, and with sections of which other sections have the text
SAYS_LITTLE = "says little"
_demotions = [_Demotion(SAYS_LITTLE, 0.6, _SAYS_LITTLE)]
# Lists of links and statuses that earlier versions imported as memories of their own
_LINKS_ONLY, _BELOW = 0.2, 0.99
_successors: list[Successors] = []

# Top hits that are refined and weighed
REFINED = 200
# How many of them are lowered for being superseded: no page shows more at once
_SHOWN_FIRST = 50

# Written exactly as in the partial index of memories that are not accepted, so that SQLite uses it
PROPOSED = "FROM memories_memory WHERE NOT (review = 'accepted') AND review = 'proposed'"


def define_demotion(sql: str, weight: float, *, why: str) -> None:
    """Register documents, by a SELECT of their ids, whose scores are multiplied; ``why`` is shown with such hits."""
    _demotions.append(_Demotion(why, weight, sql))


def define_successors(successors: Successors) -> None:
    """Register a lookup of replacements; the successor of a good hit ranks as high as the hit."""
    _successors.append(successors)


def successors_of(ids: Sequence[int]) -> dict[int, list[int]]:
    """Map superseded ids to their replacements."""
    replacements: dict[int, list[int]] = {}
    if not ids:
        return replacements
    for successors in rows.together(*(successors(ids) for successors in (superseded_by.steps, *_successors))):
        for replaced, heads in successors.items():
            replacements.setdefault(replaced, []).extend(heads)
    return replacements


def weigh(
    hits: Hits, query: ParsedQuery, facts: HitFacts, factors: Factors, pipeline: Pipeline, *, by_use: bool
) -> Hits:
    if not hits:
        return hits
    best = dict(hits[:REFINED])
    if not best.keys() <= facts.ids:
        facts = hit_facts(list(best), query)
    elif risen := set(list(best)[:_SHOWN_FIRST]) - facts.first:
        (superseded,) = rows.fetch_together([_superseded_query(list(risen))])
        facts = facts._replace(superseded=[*facts.superseded, *superseded])
    weights: dict[int, float] = {}
    for why, reason in _reasons_to_reweigh(best, query, facts, pipeline, by_use=by_use):
        for hit_id, weight in reason.items():
            weights[hit_id] = weights.get(hit_id, 1.0) * weight
            factors.setdefault(hit_id, {})[why] = weight
    if not weights:
        return hits
    weighted = [(hit_id, score * weights.get(hit_id, 1.0)) for hit_id, score in hits]
    return sorted(weighted, key=itemgetter(1), reverse=True)


class HitFacts(NamedTuple):
    """What makes hits count more or less: rows that begin with an id."""

    ids: frozenset[int]
    # The best of them
    first: frozenset[int]
    expired: Lines
    proposed: Lines
    # Among the best
    superseded: Lines
    # With the number of the demotion
    demotions: Lines
    sections: Lines
    used: Lines
    # For each hint of the question, those of its source
    of_sources: Sequence[Lines]


@rows.InSteps
def hit_facts(ids: Sequence[int], query: ParsedQuery) -> rows.Steps[HitFacts]:
    if not ids:
        return HitFacts(frozenset(), frozenset(), (), (), (), (), (), (), [()] * len(query.hints))
    listed = json.dumps(ids)
    first = ids[:_SHOWN_FIRST]
    select = "SELECT id, {} FROM ({}) AS picked WHERE id IN " + IDS
    selects = [select.format(number, demotion.sql) for number, demotion in enumerate(_demotions)]
    expired, proposed, superseded, demotions, sections, used, *of_sources = yield [
        # All expired and all proposed ids: few memories are, and their partial indexes have only those
        ("SELECT id FROM memories_memory WHERE valid_until <= %s", [rows.time_value(clock.now())]),
        (f"SELECT id {PROPOSED}", ()),
        _superseded_query(first),
        (" UNION ALL ".join(selects), [listed] * len(selects)),
        (_SECTIONS, [f"%{BETWEEN_HEADINGS}%", listed]),
        points_query(ids),
        *((_OF_SOURCE, [hint.source, listed]) for hint in query.hints),
    ]
    among = frozenset(ids), frozenset(first)
    return HitFacts(*among, expired, proposed, superseded, demotions, sections, used, of_sources)


# Reads the row of each memory, which takes long in a large store
def _superseded_query(ids: Sequence[int]) -> rows.Query:
    return f"SELECT m.id FROM memories_memory m WHERE {is_superseded()} AND m.id IN {IDS}", [json.dumps(list(ids))]


def _reasons_to_reweigh(
    scores: Scores, query: ParsedQuery, facts: HitFacts, pipeline: Pipeline, *, by_use: bool
) -> Iterator[Reason]:
    ids = list(scores)
    yield "expired", _weighted(facts.expired, scores, EXPIRED_WEIGHT)
    yield "proposed", _weighted(facts.proposed, scores, PROPOSED_WEIGHT)
    yield "superseded", _weighted(facts.superseded, ids[:_SHOWN_FIRST], SUPERSEDED_WEIGHT)
    for number, demotion in enumerate(_demotions):
        lines = [line for line in facts.demotions if line[1] == number]
        yield demotion.why, _weighted(lines, scores, demotion.weight)
    if pipeline.lowers_empty_sections:
        yield SAYS_LITTLE, _weights_of_empty_sections(facts.sections, scores)
    for hint, documents in zip(query.hints, facts.of_sources, strict=True):
        yield "asked for", _weighted(documents, scores, hint.weight)
    yield "change", change_weights(query, ids)
    if by_use:
        yield "use", use_weights([line for line in facts.used if line[0] in scores])


def _weighted(lines: Lines, among: Collection[int], weight: float) -> dict[int, float]:
    return {line[0]: weight for line in lines if line[0] in among}


_OF_SOURCE = f"SELECT id FROM memories_searchdocument WHERE source = %s AND id IN {IDS}"
# Documents have short rows and are read first: most hits are no sections. In a CROSS JOIN, SQLite leaves that order as
# it is
_SECTIONS = (
    "SELECT m.id, m.title, m.content FROM memories_searchdocument d CROSS JOIN memories_memory m "
    f"WHERE m.id = d.id AND d.title {LIKE} %s AND {is_among('d.id')}"
)


# Such a section also ranks below the best section of the same chapter
def _weights_of_empty_sections(sections: Sequence[tuple[int, str, str]], scores: Scores) -> dict[int, float]:
    empty: dict[int, str] = {}
    best: dict[str, float] = {}
    for memory, title, content in sections:
        if memory not in scores:
            continue
        chapter = title.rpartition(BETWEEN_HEADINGS)[0]
        if is_boilerplate_section(title, content):
            empty[memory] = chapter
        else:
            best[chapter] = max(scores[memory], best.get(chapter, 0.0))
    weights: dict[int, float] = {}
    for memory, chapter in empty.items():
        score = scores[memory]
        if score > 0:
            weights[memory] = min(_LINKS_ONLY, _BELOW * best.get(chapter, score) / score)
    return weights


_CHANGE = re.compile(
    r"""\b(?:
    (?:replac|remov|renam|migrat|deprecat|abandon|disabl|retir|convert|revert|introduc|eliminat)(?:e[sd]?|ing|ion|ed|s)?
    | (?:drop|swap)(?:s|ped|ping)? | switch(?:e[sd]|ing)? | mov(?:e[sd]?|ing) | port(?:s|ed|ing)?
    | stop(?:s|ped|ping)? | chang(?:e[sd]?|ing) | instead | longer | favou?r | rid | away | reworks?
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_ASKS = re.compile(r"\b(?:why|when|what|which|who|how|since)\b", re.IGNORECASE)
# Best hits that are looked at, lines of each, and characters of a line
_LOOKED_AT, _LINES, _LINE = 200, 200, 300
# What a line with all words of the subject adds to the factor: the title, and any other line
_IN_TITLE, _IN_TEXT = 1.0, 0.5

_TEXTS_OF_CHANGES = (
    f"SELECT id, message FROM sessions_app_commit WHERE id IN {IDS} "
    f"UNION ALL SELECT id, title || {LINE_END} || content FROM memories_memory WHERE id IN {IDS}"
)


def change_weights(query: ParsedQuery, ids: Sequence[int]) -> dict[int, float]:
    """Return factors above 1 for commits and memories that tell of the change that a question is about."""
    subject = [word for word in query.terms if not _CHANGE.fullmatch(word)]
    if not subject or not (_ASKS.search(query.text) and _CHANGE.search(query.text)):
        return {}
    among = json.dumps(list(ids[:_LOOKED_AT]))
    weights: dict[int, float] = {}
    for entry, text in rows.fetch(_TEXTS_OF_CHANGES, [among, among]):
        title, *lines = text.split("\n", _LINES)[:_LINES]
        in_text = max((_share_of_subject(line, subject) for line in lines), default=0.0)
        more = max(_IN_TITLE * _share_of_subject(title, subject), _IN_TEXT * in_text)
        if more > 0:
            weights[entry] = 1 + more
    return weights


def _share_of_subject(line: str, subject: Sequence[str]) -> float:
    line = line[:_LINE]
    return len(words_in(line, subject)) / len(subject) if _CHANGE.search(line) else 0.0


# Number of top messages that decide which session is meant
_TELLING_HITS = 20

_MESSAGES = f"""
SELECT d.id, d.session_id, d.title, d.type, (
    SELECT max(p.id) FROM memories_searchdocument p
    WHERE p.source = 'message' AND p.session_id = d.session_id AND p.id < d.id
) FROM memories_searchdocument d WHERE d.source = 'message' AND d.id IN {IDS}
"""
# Type of the documents of prompts
PROMPT = USER_MESSAGE.name.rpartition(".")[2]
# How transcripts mark the speaker: ``Ada: …``, ``**Ada Lovelace**: …``
_SPEAKER = re.compile(r"\W{0,3}([^\W\d_][\w .'-]{0,40}?)\W{0,3}:\s")
_WORD = re.compile(r"[^\W_]+")
_FIRST_PERSON = re.compile(r"\b(?:i(?!\.)|my|mine)\b", re.IGNORECASE)


class MessageHit(NamedTuple):
    """A message among hits."""

    session: str
    title: str
    speaker: str
    # The message before it
    previous: int | None


Messages = Mapping[int, MessageHit]


@rows.InSteps
def messages_of(ids: Collection[int]) -> rows.Steps[dict[int, MessageHit]]:
    """Return the messages among hits."""
    (messages,) = yield [(_MESSAGES, [json.dumps(list(ids))])]
    return {message: MessageHit(*columns) for message, *columns in messages}


def refine(hits: Hits, messages: Messages, query: ParsedQuery, pipeline: Pipeline) -> tuple[Hits, Factors]:
    """Re-rank messages by their surroundings (decision 20); return the hits, and what raised each message.

    The best message keeps the score of the best one before, so messages as a whole gain nothing over other documents.
    """
    if not (pipeline.neighbours or pipeline.session or pipeline.speaker):
        return hits, {}
    scores = dict(hits[:REFINED])
    places = {key: message for key, message in messages.items() if message.session}
    plain = {message: score for message, score in scores.items() if message in places}
    if len(places) < 2 or max(plain.values()) <= 0:
        return hits, {}
    near = _with_neighbours(plain, places, pipeline.neighbours)
    by_session = _with_sessions(near, places, pipeline.session)
    by_speaker = _with_speakers(by_session, places, query, pipeline.speaker)
    steps = (("neighbours", plain, near), ("session", near, by_session), ("speaker", by_session, by_speaker))
    factors: Factors = {message: {} for message in places}
    for name, before, after in steps:
        for message, raised in factors.items():
            if before[message] and after[message] / before[message] > 1:
                raised[name] = after[message] / before[message]
    return _in_order(hits, plain, by_speaker), factors


# Hits after the refined ones stay behind them
def _in_order(hits: Hits, before: Scores, after: Scores) -> Hits:
    scale = max(before.values()) / max(after.values())
    head = [(hit, after[hit] * scale if hit in after else score) for hit, score in hits[:REFINED]]
    head.sort(key=itemgetter(1), reverse=True)
    lowest = head[-1][1]
    return head + [(hit, min(score, lowest)) for hit, score in hits[REFINED:]]


def _with_neighbours(scores: Scores, places: Messages, weight: float) -> Scores:
    best: dict[int, float] = defaultdict(float)
    for message, place in places.items():
        if place.previous in scores:
            best[message] = max(best[message], scores[place.previous])
            best[place.previous] = max(best[place.previous], scores[message])
    return {message: score + weight * best[message] for message, score in scores.items()}


# The more of the best hits are in a session, the more its messages count
def _with_sessions(scores: Scores, places: Messages, weight: float) -> Scores:
    shares: dict[str, float] = defaultdict(float)
    for message in sorted(scores, key=lambda message: -scores[message])[:_TELLING_HITS]:
        shares[places[message].session] += scores[message] ** 2
    most = max(shares.values())
    return {message: score * (1 + weight * shares[places[message].session] / most) for message, score in scores.items()}


def _with_speakers(scores: Scores, places: Messages, query: ParsedQuery, weight: float) -> Scores:
    named = set(query.terms)
    names_user = bool(_FIRST_PERSON.search(query.text))
    raised = dict(scores)
    for message in scores:
        place = places[message]
        if label := _SPEAKER.match(folded(place.title)):
            is_named = not named.isdisjoint(_WORD.findall(label[1].lower()))
        else:
            is_named = names_user and place.speaker == PROMPT
        if is_named:
            raised[message] *= 1 + weight
    return raised
