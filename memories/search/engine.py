"""Finding: ranked by FTS5's bm25, or by plain LIKE where there is no FTS5."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from memories.schemas import MemorySearch
from memories.scopes import Level
from memories.search import fulltext
from memories.search.blend import Asked, Blended, asking_others, blend_others, reasons
from memories.search.fulltext import RANKED_AT_MOST
from memories.search.mode import by_index
from memories.search.pipeline import USUAL, Pipeline
from memories.search.surroundings import Factors, Hits, refine
from memories.search.text import phrases, terms, terms_as_written
from memoryhub.core import rows
from memoryhub.core.quarantine import OUTSIDE
from memoryhub.core.searchable import askings, demotions, successors_of, text_queries, weights_of
from sessions_app.selectors import find_iteration

_LOOKED_AFTER = 50
"""So many of the best hits are asked what stands instead of them."""
_SHOWN = ("id", "source", "kind", "type", "title", "session_id", "created_at")


@dataclass(frozen=True, slots=True)
class Ranked:
    """The ids of what matches, best first, each with its score (higher is better)."""

    hits: Hits
    mode: str
    factors: Factors = field(default_factory=dict)
    """What beside its words raised or lowered a hit's score, by name, for those hits where something did."""
    why: dict[int, str] = field(default_factory=dict)
    """By what each was found, where anything but the words was asked: ``text; meaning 0.52``, the cosine."""
    problems: list[str] = field(default_factory=list)
    """Why another ranking could not say anything."""


def rank(
    command: MemorySearch,
    mode: str = "auto",
    level: Level | None = None,
    *,
    others: bool = False,
    pipeline: Pipeline = USUAL,
) -> Ranked:
    """Return what matches the question and the filters in the current store.

    Args:
        command: the question and its filters.
        mode: ``auto``; ``fts5`` for words alone, whatever else is there; ``basic`` for LIKE although FTS5 is there.
        level: whom its memories hold for; None for everyone.
        others: whether other rankings, by meaning say, are blended in; without them, the answer follows from the
            store alone and is the same at any time, whichever processes run.
        pipeline: what counts how much.
    """
    factors: Factors = {}
    if by_index(mode):
        blended = _by_index(command, level, pipeline, others=others and mode != "fts5")
        weights = pipeline.beside_others() if blended.scores else pipeline
        found, factors = refine(blended.hits, terms(command.query), weights)
        found = _weighed(_with_successors(found, command, level), command.query, factors)
        return Ranked(found, "hybrid" if blended.scores else "fts5", factors, reasons(blended), blended.problems)
    found = _like(command.query, *_conditions(command, level, "d.id"))
    return Ranked(_weighed(_with_successors(found, command, level), command.query, factors), "basic", factors)


def _with_successors(hits: Hits, command: MemorySearch, level: Level | None) -> Hits:
    """Let what stands instead of one of the best hits be found as well as that one, whatever its own words."""
    best = dict(hits[:_LOOKED_AFTER])
    raised: dict[int, float] = {}
    for each, instead in successors_of(list(best)).items():
        raised |= {head: max(best[each], raised.get(head, best[each])) for head in instead}
    if not raised:
        return hits
    conditions, parameters = _conditions(command, level, "d.id")
    where = " AND ".join([f"d.id IN ({_marks(list(raised))})", *conditions])
    found = rows.fetch(f"SELECT d.id FROM memories_searchdocument d WHERE {where}", [*raised, *parameters])
    scores = dict(hits)
    scores |= {head: max(raised[head], scores.get(head, raised[head])) for (head,) in found}
    return sorted(scores.items(), key=lambda hit: -hit[1])


def _by_index(command: MemorySearch, level: Level | None, pipeline: Pipeline, *, others: bool) -> Blended:
    if not others:
        return Blended(_by_words(command, level, pipeline))
    with asking_others(Asked(command.query, *_conditions(command, level, "d.id"))) as asked:
        return blend_others(_by_words(command, level, pipeline), asked)


def _by_words(command: MemorySearch, level: Level | None, pipeline: Pipeline) -> Hits:
    names = phrases(command.query) if pipeline.phrases else []
    conditions, parameters = _conditions(command, level, "f.rowid")
    return fulltext.rank(terms(command.query), conditions, parameters, names=names, pipeline=pipeline)


def _weighed(hits: Hits, question: str, factors: Factors) -> Hits:
    """Let what has expired or been replaced count less, and what the question asks for by its kind count more.

    What was done to a hit is added to ``factors``.
    """
    ids = [each for each, _ in hits]
    weights = dict.fromkeys(ids, 1.0)
    picked = [(among(ids), weight, why) for among, weight, why in demotions() if ids]
    picked += [(_of_source(ids, each.source), each.weight, "asked for") for each in askings(question) if ids]
    for some, weight, why in picked:
        weights |= {each: weights[each] * weight for each in some}
        for each in some:
            factors.setdefault(each, {})[why] = weight
    for why, reason in weights_of(ids).items():
        weights |= {each: weights[each] * weight for each, weight in reason.items()}
        for each, weight in reason.items():
            factors.setdefault(each, {})[why] = weight
    if all(weight == 1.0 for weight in weights.values()):
        return hits
    return sorted(((each, score * weights[each]) for each, score in hits), key=lambda hit: -hit[1])


def _of_source(ids: Sequence[int], source: str) -> set[int]:
    found = rows.fetch(
        "SELECT id FROM memories_searchdocument WHERE source = %s AND id IN (SELECT value FROM json_each(%s))",
        [source, json.dumps(list(ids))],
    )
    return {row[0] for row in found}


def _conditions(command: MemorySearch, level: Level | None, document: str) -> tuple[list[str], list[Any]]:
    """Return the SQL conditions and their parameters; ``document`` is the column that has the id."""
    wanted: list[tuple[str, list[Any]]] = [(f"{document} {OUTSIDE}", [])]
    if level:
        wanted.append(level.restrict(document))
    if command.sources:
        wanted.append((f"d.source IN ({_marks(command.sources)})", list(command.sources)))
    exact = {column: getattr(command, column) for column in ("kind", "type", "session_id")}
    wanted += [(f"d.{column} = %s", [value]) for column, value in exact.items() if value]
    if command.since:
        wanted.append(("d.created_at >= %s", [rows.time_value(command.since)]))
    if command.until:
        wanted.append(("d.created_at < %s", [rows.time_value(command.until)]))
    if command.iteration_id:
        wanted.append(_in_iteration(command.iteration_id, document))
    tagged = f"{document} IN (SELECT memory_id FROM memories_memorytag WHERE tag = %s)"
    wanted.extend((tagged, [tag]) for tag in command.tags)
    return [sql for sql, _ in wanted if sql], [value for _, values in wanted for value in values]


def _in_iteration(iteration_id: int, document: str) -> tuple[str, list[Any]]:
    """Return the condition that a document came to be while the iteration was active, or is one of its commits."""
    iteration = find_iteration(iteration_id)
    end = iteration.end_position or 2**62
    sql = (
        f"(({document} BETWEEN %s AND %s AND d.source <> 'commit') OR "
        f"{document} IN (SELECT id FROM sessions_app_commit WHERE iteration_id = %s))"
    )
    return sql, [iteration.id, end, iteration.id]


def _marks(values: Sequence[Any]) -> str:
    return ", ".join(["%s"] * len(values))


def _like(question: str, conditions: list[str], parameters: list[Any]) -> Hits:
    words = terms_as_written(question)
    if not words:
        return []
    texts = " UNION ALL ".join(text_queries().values())
    patterns = [f"%{word}%" for word in words]
    score = " + ".join([f"({USUAL.title} * (t.title LIKE %s) + (t.body LIKE %s))"] * len(words))
    where = "".join(f" AND {condition}" for condition in conditions)
    found = rows.fetch(
        f"WITH t (id, title, body) AS ({texts}), s AS (SELECT t.id, {score} AS score FROM t) "
        f"SELECT s.id, s.score FROM s JOIN memories_searchdocument d ON d.id = s.id WHERE s.score > 0{where} "
        f"ORDER BY s.score DESC, s.id DESC LIMIT {RANKED_AT_MOST}",
        [pattern for pattern in patterns for _ in range(2)] + parameters,
    )
    return [(document_id, float(score)) for document_id, score in found]


def documents_of(ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return what every hit says of itself, by id, in one plain statement: a search waits for nothing else as long."""
    if not ids:
        return {}
    found = rows.fetch(
        f"SELECT {', '.join(_SHOWN)} FROM memories_searchdocument WHERE id IN ({_marks(ids)})", list(ids)
    )
    documents = [dict(zip(_SHOWN, row, strict=True)) for row in found]
    return {each["id"]: {**each, "created_at": rows.time_text(each["created_at"])} for each in documents}


def texts_of(ids: Sequence[int]) -> dict[int, str]:
    """Return the body of each id, from wherever its source keeps it, in one query."""
    if not ids:
        return {}
    texts = " UNION ALL ".join(f"SELECT * FROM ({sql}) WHERE id IN ({_marks(ids)})" for sql in text_queries().values())
    return {row[0]: row[2] for row in rows.fetch(texts, list(ids) * len(text_queries()))}
