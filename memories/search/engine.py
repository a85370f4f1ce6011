"""Rank documents by the full-text index, or by LIKE where there is none, and blend in other rankings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from memories.scopes import Level
from memories.search import fulltext
from memories.search.fulltext import RANKED_AT_MOST
from memories.search.index import text_index
from memories.search.parsed_query import ParsedQuery, with_parts
from memories.search.pipeline import USUAL, Pipeline, by_index
from memories.search.snippets import Factors, Hits, refine
from memories.search.weights import successors_of, weigh
from memoryhub.core.search import text_queries
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, LIKE, number_of

# How many of the best hits are checked for a replacement
_CHECKED_FOR_SUCCESSORS = 50
_SHOWN = ("id", "source", "kind", "type", "title", "session_id", "created_at")
_DOCUMENTS = f"SELECT {', '.join(_SHOWN)} FROM memories_searchdocument WHERE id IN {IDS}"


@dataclass(frozen=True, slots=True)
class Ranked:
    """Ids of matches with scores, best first; higher is better."""

    hits: Hits
    mode: str
    # The search terms, with the forms of them that the store has
    terms: tuple[str, ...]
    # Per hit, the factors other than words that changed its score
    factors: Factors = field(default_factory=dict)
    # Per hit, how it was found, if other rankings were used: ``text; meaning 0.52``
    why: dict[int, str] = field(default_factory=dict)
    # Why other rankings did not answer
    problems: list[str] = field(default_factory=list)
    # Per other ranking, its scores of the hits that it found good
    scores: dict[str, dict[int, float]] = field(default_factory=dict)

    def similarities(self) -> dict[int, float]:
        """Return how near each hit is to the question, 0 to 1.

        This is its cosine in the ranking by meaning, 0 if it is not near there. By words alone it is the hit's score as
        a share of the best one.
        """
        if not self.scores:
            best = self.hits[0][1] if self.hits else 0.0
            return {hit: _share(score / best if best > 0 else 0.0) for hit, score in self.hits}
        near = {hit: score for scores in self.scores.values() for hit, score in scores.items()}
        return {hit: _share(near.get(hit, 0.0)) for hit, _ in self.hits}


def _share(value: float) -> float:
    return round(min(max(value, 0.0), 1.0), 4)


def rank(
    query: ParsedQuery,
    mode: str = "auto",
    level: Level | None = None,
    *,
    others: bool = False,
    pipeline: Pipeline = USUAL,
) -> Ranked:
    """Return the matches for a question and its filters in the current store.

    Args:
        query: the question and its filters.
        mode: ``auto``; ``fts5`` for words only; ``basic`` for LIKE even if there is FTS5.
        level: whose memories are visible; None for all.
        others: blend in other rankings, such as meaning; without them, results depend on the store only.
        pipeline: the weights.
    """
    if by_index(mode):
        query = with_parts(query)
        blended = _by_index(query, level, pipeline, others=others and mode != "fts5")
        weights = pipeline.beside_others() if blended.scores else pipeline
        ranking, factors = refine(blended.hits, query.terms, weights)
        ranking = weigh(_with_successors(ranking, query, level), query, factors, pipeline)
        mode = "hybrid" if blended.scores else "fts5"
        return Ranked(ranking, mode, query.terms, factors, reasons(blended), blended.problems, blended.scores)
    factors = {}
    ranking = weigh(_with_successors(_like(query, level), query, level), query, factors, pipeline)
    return Ranked(ranking, "basic", query.terms, factors)


# The successor of a good hit gets at least its score, whatever words it has itself
def _with_successors(hits: Hits, query: ParsedQuery, level: Level | None) -> Hits:
    best = dict(hits[:_CHECKED_FOR_SUCCESSORS])
    raised: dict[int, float] = {}
    for replaced, heads in successors_of(list(best)).items():
        raised |= {head: max(best[replaced], raised.get(head, best[replaced])) for head in heads}
    if not raised:
        return hits
    conditions, parameters = query.conditions(level, "d.id")
    where = " AND ".join([f"d.id IN ({_marks(list(raised))})", *conditions])
    found = rows.fetch(f"SELECT d.id FROM memories_searchdocument d WHERE {where}", [*raised, *parameters])
    scores = dict(hits)
    scores |= {head: max(raised[head], scores.get(head, raised[head])) for (head,) in found}
    return sorted(scores.items(), key=lambda hit: -hit[1])


def _by_index(query: ParsedQuery, level: Level | None, pipeline: Pipeline, *, others: bool) -> Blended:
    if not others:
        return Blended(_by_words(query, level, pipeline))
    with ask_other_rankings(RankingRequest(query.text, *query.conditions(level, "d.id"))) as rankings:
        return blend_others(_by_words(query, level, pipeline), rankings)


def _by_words(query: ParsedQuery, level: Level | None, pipeline: Pipeline) -> Hits:
    names = query.phrases if pipeline.phrases else ()
    return fulltext.rank(query.terms, *query.conditions(level, text_index.DOCUMENT_ID), names=names, pipeline=pipeline)


def _marks(values: Sequence[Any]) -> str:
    return ", ".join(["%s"] * len(values))


# Without FTS5: a match in the title counts more than one in the body, as in the index
def _like(query: ParsedQuery, level: Level | None) -> Hits:
    words = query.literal_terms
    if not words:
        return []
    conditions, parameters = query.conditions(level, "d.id")
    texts = " UNION ALL ".join(text_queries().values())
    patterns = [f"%{word}%" for word in words]
    title, body = (number_of(f"t.{column} {LIKE} %s") for column in ("title", "body"))
    score = " + ".join([f"({USUAL.title} * {title} + {body})"] * len(words))
    where = "".join(f" AND {condition}" for condition in conditions)
    found = rows.fetch(
        f"WITH t (id, title, body) AS ({texts}), s AS (SELECT t.id, {score} AS score FROM t) "
        f"SELECT s.id, s.score FROM s JOIN memories_searchdocument d ON d.id = s.id WHERE s.score > 0{where} "
        f"ORDER BY s.score DESC, s.id DESC LIMIT {RANKED_AT_MOST}",
        [pattern for pattern in patterns for _ in range(2)] + parameters,
    )
    return [(document_id, float(score)) for document_id, score in found]


# Plain SQL instead of model instances, which took the most time of a search
def documents_of(ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    if not ids:
        return {}
    found = rows.fetch(_DOCUMENTS, [json.dumps(list(ids))])
    documents = [dict(zip(_SHOWN, row, strict=True)) for row in found]
    return {
        document["id"]: {**document, "created_at": rows.time_text(document["created_at"])} for document in documents
    }


def texts_of(documents: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Return the texts of documents by id, in one statement over the tables of their sources."""
    sources = {document["source"] for document in documents.values()}
    queries = [sql for source, sql in text_queries().items() if source in sources]
    if not queries:
        return {}
    texts = " UNION ALL ".join(f"SELECT * FROM ({sql}) AS t WHERE id IN {IDS}" for sql in queries)
    return {row[0]: row[2] for row in rows.fetch(texts, [json.dumps(list(documents))] * len(queries))}


RankedHits = list[tuple[int, float]]

# Reason of a hit that contains the words
TEXT = "text"


@dataclass(frozen=True, slots=True)
class RankingRequest:
    question: str
    # SQL conditions on ``d``, the row of ``memories_searchdocument``
    conditions: list[str]
    parameters: list[Any]


@dataclass(frozen=True, slots=True)
class RankingAnswer:
    # Best first; higher is better
    hits: RankedHits = field(default_factory=list)
    # Why there is no answer
    problem: str = ""
    # False if the ranking is switched off: no answer, and no problem
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Ranker:
    """Another ranking of the documents of the current store."""

    name: str
    # Starts the search; the yielded function waits for the answer
    asking: Callable[[RankingRequest], AbstractContextManager[Callable[[], RankingAnswer]]]
    # Share of the sum, 0 to 1
    weight: float
    # Place of a hit that is about something else; 0 is such a score if there are fewer hits
    ordinary: int
    # How far a clear answer is ahead of an ordinary one; if the best hit is less so, the ranking counts for less
    lead: float
    # Score from which a document without any of the words is included
    alone: float
    # Limit for such documents
    alone_at_most: int


@dataclass(slots=True)
class Blended:
    hits: RankedHits
    # Per ranking, its scores of those hits that it found good
    scores: dict[str, dict[int, float]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    # Hits without any of the words
    alone: set[int] = field(default_factory=set)


# The rankings that were started, each with the function that waits for its answer
Others = Sequence[tuple[Ranker, Callable[[], RankingAnswer]]]

_rankers: list[Ranker] = []


def define_ranker(ranker: Ranker) -> None:
    _rankers.append(ranker)


@contextmanager
def ask_other_rankings(request: RankingRequest) -> Iterator[Others]:
    with ExitStack() as stack:
        yield [(ranker, stack.enter_context(ranker.asking(request))) for ranker in _rankers]


def blend_others(hits: RankedHits, others: Others) -> Blended:
    """Return the hits by words blended with those of the other rankings, best first."""
    blended = Blended(hits)
    by_words = {hit for hit, _ in hits}
    for ranker, answer in others:
        response = answer()
        if response.problem:
            blended.problems.append(response.problem)
        elif response.asked:
            blended.hits = blend(blended.hits, response.hits, ranker) if response.hits else blended.hits
            found = {hit for hit, _ in blended.hits}
            good = {hit: score for hit, score in response.hits if score >= ranker.alone and hit in found}
            blended.scores[ranker.name] = good
            blended.alone = found - by_words
    return blended


def blend(words: RankedHits, others: Sequence[tuple[int, float]], ranker: Ranker) -> RankedHits:
    """Return both lists as one, best first; hits of the other list alone must score at least ``ranker.alone``."""
    scale = (words[0][1] if words else 1.0) or 1.0
    ordinary = max(0.0, others[ranker.ordinary - 1][1]) if len(others) >= ranker.ordinary else 0.0
    lead = max(others[0][1] - ordinary, ranker.lead)
    sums = {hit: (1 - ranker.weight) * score for hit, score in words}
    alone = [hit for hit, score in others if score >= ranker.alone and hit not in sums]
    sums |= dict.fromkeys(alone[: ranker.alone_at_most], 0.0)
    for hit, score in others:
        if hit in sums:
            sums[hit] += ranker.weight * scale * max(0.0, score - ordinary) / lead
    return sorted(sums.items(), key=lambda ranked: -ranked[1])


def reasons(blended: Blended) -> dict[int, str]:
    """Return how each hit that another ranking found good was found: ``text; meaning 0.52``."""
    found_by: dict[int, list[str]] = {}
    for name, scores in blended.scores.items():
        for hit, score in scores.items():
            found_by.setdefault(hit, [] if hit in blended.alone else [TEXT]).append(f"{name} {score:.2f}")
    return {hit: "; ".join(parts) for hit, parts in found_by.items()}
