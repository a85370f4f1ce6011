"""Factors on the score of a hit besides its words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from memories.kinds import BETWEEN_HEADINGS, EXPIRED_WEIGHT, PROPOSED_WEIGHT
from memories.search.parsed_query import ParsedQuery
from memories.search.pipeline import Pipeline
from memories.search.snippets import Factors, Hits
from memories.search.words import words_in
from memories.substance import is_boilerplate_section
from memories.superseded import SUPERSEDED_WEIGHT, is_superseded, superseded_by
from memories.uses.selectors import use_weights
from memoryhub.core import clock
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, LIKE, LINE_END

Successors = Callable[[Sequence[int]], Mapping[int, Sequence[int]]]
Reason = tuple[str, Mapping[int, float]]


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

# Top hits that are weighed
_WEIGHED = 200
# Of them, those that are checked for being superseded: no page shows more at once
_SHOWN_FIRST = 50

# Written exactly as in the partial index of memories that are not accepted, so that SQLite uses it
PROPOSED = "FROM memories_memory WHERE NOT (review = 'accepted') AND review = 'proposed'"


def define_demotion(sql: str, weight: float, *, why: str) -> None:
    """Register documents with a lower score.

    Args:
        sql: a SELECT of their ids.
        weight: factor on the score, below 1.
        why: one word that is shown with such hits.
    """
    _demotions.append(_Demotion(why, weight, sql))


def define_successors(successors: Successors) -> None:
    """Register a lookup of replacements; the successor of a good hit ranks as high as the hit."""
    _successors.append(successors)


def successors_of(ids: Sequence[int]) -> dict[int, list[int]]:
    """Map superseded ids to their replacements."""
    found: dict[int, list[int]] = {}
    for successors in (superseded_by, *_successors) if ids else ():
        for replaced, heads in successors(ids).items():
            found.setdefault(replaced, []).extend(heads)
    return found


def weigh(hits: Hits, query: ParsedQuery, factors: Factors, pipeline: Pipeline) -> Hits:
    weights: dict[int, float] = {}
    for why, reason in _reasons(hits[:_WEIGHED], query, pipeline) if hits else ():
        for hit_id, weight in reason.items():
            weights[hit_id] = weights.get(hit_id, 1.0) * weight
            factors.setdefault(hit_id, {})[why] = weight
    if not weights:
        return hits
    return sorted(((hit_id, score * weights.get(hit_id, 1.0)) for hit_id, score in hits), key=lambda hit: -hit[1])


def _reasons(hits: Hits, query: ParsedQuery, pipeline: Pipeline) -> Iterator[Reason]:
    ids = [hit_id for hit_id, _ in hits]
    yield "expired", dict.fromkeys(_expired().intersection(ids), EXPIRED_WEIGHT)
    yield "proposed", dict.fromkeys(_proposed().intersection(ids), PROPOSED_WEIGHT)
    superseded = _among(ids[:_SHOWN_FIRST], f"SELECT m.id FROM memories_memory m WHERE {is_superseded()}")
    yield "superseded", dict.fromkeys(superseded, SUPERSEDED_WEIGHT)
    yield from _demoted(ids)
    if pipeline.lowers_empty_sections:
        yield SAYS_LITTLE, _weights_of_empty_sections(hits)
    for hint in query.hints:
        of_source = "SELECT id FROM memories_searchdocument WHERE source = %s"
        yield "asked for", dict.fromkeys(_among(ids, of_source, hint.source), hint.weight)
    yield "change", change_weights(query, ids)
    yield "use", use_weights(ids)


# One statement for all demotions
def _demoted(ids: list[int]) -> Iterator[Reason]:
    selects = [
        f"SELECT {number}, id FROM ({demotion.sql}) AS picked WHERE id IN {IDS}"
        for number, demotion in enumerate(_demotions)
    ]
    found: dict[int, list[int]] = {}
    for number, entry in rows.fetch(" UNION ALL ".join(selects), [json.dumps(ids)] * len(selects)):
        found.setdefault(number, []).append(entry)
    for number, entries in found.items():
        yield _demotions[number].why, dict.fromkeys(entries, _demotions[number].weight)


# Such a section also ranks below the best section of the same chapter
def _weights_of_empty_sections(hits: Hits) -> dict[int, float]:
    scores = dict(hits)
    sections = rows.fetch(
        f"SELECT id, title, content FROM memories_memory WHERE title {LIKE} %s AND id IN {IDS}",
        [f"%{BETWEEN_HEADINGS}%", json.dumps(list(scores))],
    )
    empty = {memory: _chapter(title) for memory, title, content in sections if is_boilerplate_section(title, content)}
    best: dict[str, float] = {}
    for memory, title, _ in sections:
        if memory not in empty:
            best[_chapter(title)] = max(scores[memory], best.get(_chapter(title), 0.0))
    least = {memory: best.get(chapter, scores[memory]) for memory, chapter in empty.items()}
    return {
        memory: min(_LINKS_ONLY, _BELOW * score / scores[memory])
        for memory, score in least.items()
        if scores[memory] > 0
    }


def _chapter(title: str) -> str:
    return title.rpartition(BETWEEN_HEADINGS)[0]


# Fetches all expired ids: few memories expire, and the partial index has only those
def _expired() -> set[int]:
    found = rows.fetch("SELECT id FROM memories_memory WHERE valid_until <= %s", [rows.time_value(clock.now())])
    return {memory_id for (memory_id,) in found}


def _proposed() -> set[int]:
    return {memory_id for (memory_id,) in rows.fetch(f"SELECT id {PROPOSED}")}


def _among(ids: list[int], sql: str, *parameters: str) -> set[int]:
    found = rows.fetch(
        f"SELECT id FROM ({sql}) AS picked WHERE id IN {IDS}",
        [*parameters, json.dumps(ids)],
    )
    return {picked for (picked,) in found}


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
    if not (_ASKS.search(query.text) and _CHANGE.search(query.text)):
        return {}
    subject = [word for word in query.terms if not _CHANGE.fullmatch(word)]
    wanted = json.dumps(list(ids[:_LOOKED_AT])) if subject else "[]"
    found = rows.fetch(_TEXTS_OF_CHANGES, [wanted, wanted])
    return {entry: weight for entry, text in found if (weight := _weight_of_change(text, subject)) > 1}


def _weight_of_change(text: str, subject: Sequence[str]) -> float:
    title, *lines = text.split("\n", _LINES)[:_LINES]
    in_text = max((_share_of_subject(line, subject) for line in lines), default=0.0)
    return 1 + max(_IN_TITLE * _share_of_subject(title, subject), _IN_TEXT * in_text)


def _share_of_subject(line: str, subject: Sequence[str]) -> float:
    line = line[:_LINE]
    return len(words_in(line, subject)) / len(subject) if _CHANGE.search(line) else 0.0
