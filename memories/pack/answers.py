"""Which entries of a store answer the question of a pack, by their passages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from memories.schemas import SearchSourceName
from memories.scopes import Level
from memories.search import engine
from memories.search.index import Hits
from memories.search.parsed_query import ParsedQuery
from memories.search.relevance import Relevance, relevance_of
from memories.validity.trust import SAME_MATTER, accepted_instead
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS


class RatedEntry(NamedTuple):
    # The relevance times the score in the ranking, as a share of the best one's
    score: float
    relevance: Relevance


class StoreAnswers(NamedTuple):
    by_source: dict[str, dict[int, RatedEntry]]
    # How much the best passage is about the question
    best: float


_SOURCES = (SearchSourceName.MEMORY, SearchSourceName.DECISION, SearchSourceName.COMMIT)
_SOURCES_OF = f"SELECT id, source FROM memories_searchdocument WHERE id IN {IDS}"
# Hits whose sources are looked up; best hits of a source whose passages are rated; and the rating of a text that lacks
# the words: another version of it has them
_LOOKED_UP, _RATED, _UNREAD = 300, 8, 0.3
MOST_ANSWERS = 4


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    """Which memories answer the question of a pack."""

    # Share of the best hit's score from which a hit is rated
    rated_share: float = 0.25
    # What a hit is rated at least: words alone tell little of a prompt that says the matter in other words
    least_rating: float = 0.5
    # Least score of an answer, in itself and as a share of the best one's
    least_score: float = 0.1
    near_best: float = 0.3
    most: int = 6


WIDE_CHOICE = AnswerChoice()
# For decisions, and until decision 114 for all
STRICT_CHOICE = AnswerChoice(0.5, 0.0, 0.16, 0.8, MOST_ANSWERS)
# Relevance that no entry has if nothing is about the question
BEYOND_DOUBT = 0.93


# Without a full-text index there are no ratings
def answers_in(level: Level, query: ParsedQuery, choice: AnswerChoice) -> StoreAnswers:
    hits = engine.rank(query.among(_SOURCES), level=level).hits[:_LOOKED_UP]
    sources = dict(rows.fetch(_SOURCES_OF, [json.dumps([hit for hit, _ in hits])]))
    ranked: dict[str, Hits] = {}
    for hit, score in hits:
        ranked.setdefault(sources[hit], []).append((hit, score))
    rated: list[int] = []
    for hits_of_source in ranked.values():
        least = choice.rated_share * hits_of_source[0][1]
        rated += [hit for hit, score in hits_of_source[:_RATED] if score >= least]
    ratings = relevance_of(query, rated)
    answers = StoreAnswers({}, max((rating.score for rating in ratings.values()), default=0.0))
    for source, hits_of_source in ranked.items():
        best = hits_of_source[0][1]
        least_rating = choice.least_rating if source == SearchSourceName.MEMORY else 0.0
        scored: list[tuple[int, RatedEntry]] = []
        for hit, score in hits_of_source:
            rating = ratings.get(hit)
            if rating:
                rated_score = max(rating.score or _UNREAD, least_rating)
                scored.append((hit, RatedEntry(rated_score * score / best, rating)))
            elif not ratings:
                scored.append((hit, RatedEntry(score / best, Relevance(1.0, 0, 0))))
        by_hit = _with_accepted(dict(scored), [hit for hit, _ in hits_of_source[:_RATED]])
        answers.by_source[source] = dict(sorted(by_hit.items(), key=lambda answer: -answer[1].score))
    return answers


# What a person accepted answers as well as a page or an import on the same matter
def _with_accepted(scored: dict[int, RatedEntry], hits: Sequence[int]) -> dict[int, RatedEntry]:
    for lesser, accepted in accepted_instead(hits).items():
        for hit, share in accepted.items():
            if share < SAME_MATTER or lesser not in scored:
                continue
            score, relevance = scored[lesser]
            if hit not in scored or scored[hit].score < score:
                scored[hit] = RatedEntry(score, Relevance(relevance.score, 0, 0))
    return scored
