"""Rank documents by the full-text index, or by LIKE where there is none, and blend in search by meaning.

The scores by words are normalised by the best, those by meaning by how far the best hit is ahead of an ordinary one
(decision 52). They are added by weight; the sum is scaled back to the word scores, so that later stages need not know
about it. Weights and measurements are in docs/internals/retrieval.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from memories.embeddings.meaning import MEANING, Meaning, ask_nearest
from memories.embeddings.vectors import ModelInStore, answering_model
from memories.scopes import Level
from memories.search.index import Hits, text_index
from memories.search.parsed_query import ParsedQuery, with_parts
from memories.search.snippets import only_asks
from memories.search.weights import (
    PROMPT,
    REFINED,
    USUAL,
    Factors,
    Messages,
    Pipeline,
    Scores,
    by_index,
    hit_facts,
    messages_of,
    refine,
    successors_of,
    weigh,
)
from memories.validity.marks import Mark
from memoryhub.config.current_settings import project_settings
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core.search import text_queries
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, LIKE, is_among, number_of

# Matches that are ranked and counted
RANKED_AT_MOST = 1000
# Number of documents from which words are counted first
_LARGE_STORE = 20_000
# Matches of the rarest words that are scored; words with more are common
_TELLING_MATCHES = 5_000
# Hits with which the rare words are enough of an answer
_ENOUGH = 50
# How many of the best hits are checked for a replacement
_CHECKED_FOR_SUCCESSORS = 50
# Reason of a hit that contains the words
TEXT = "text"

_COLUMNS = ("id", "source", "kind", "type", "title", "session_id", "created_at")
# The last column, a time, as text, which the driver reads faster
_DOCUMENTS = f"SELECT {', '.join(_COLUMNS)} || '' FROM memories_searchdocument WHERE {is_among('id')}"


@dataclass(frozen=True, slots=True)
class Ranked:
    """Ids of matches with scores, best first; higher is better."""

    hits: Hits
    mode: str
    # The search terms, with the forms of them that the store has
    terms: tuple[str, ...]
    # Per hit, the factors other than words that changed its score
    factors: Factors = field(default_factory=dict)
    # Per hit, how it was found, if meaning was blended in: ``text; meaning 0.52``
    why: dict[int, str] = field(default_factory=dict)
    # Why search by meaning did not answer
    problems: list[str] = field(default_factory=list)
    # Cosines of the hits that are near in meaning; None if it did not answer
    near: Scores | None = None
    # Cosines of all hits that it ranked, also of those that are not near
    cosines: Scores | None = None
    # Columns and texts of the best hits, where they were read
    documents: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    texts: Mapping[int, str] = field(default_factory=dict)
    # What is known against the best hits
    marks: Mapping[int, Sequence[Mark]] = field(default_factory=dict)

    def similarities(self, ids: Collection[int]) -> dict[int, float]:
        """Return how near some hits are to the question, 0 to 1.

        This is its cosine in the ranking by meaning, 0 if it is not near there. By words alone it is the hit's score as
        a share of the best one.
        """
        near = self.near
        if near is None:
            scores = dict(self.hits)
            best = max(scores.values(), default=0.0)
            near = {hit: scores.get(hit, 0.0) / best for hit in ids} if best > 0 else {}
        return {hit: round(min(max(near.get(hit, 0.0), 0.0), 1.0), 4) for hit in ids}


class StoreFacts(NamedTuple):
    """What a ranking must know about the current store."""

    settings: ProjectSettings
    # The one that answers questions
    model: ModelInStore | None
    # Id of its newest document, or 0
    newest_id: int


@rows.InSteps
def store_facts() -> rows.Steps[StoreFacts]:
    settings, model, newest_id = yield from rows.side_by_side(
        project_settings.steps(), answering_model.steps(), _newest_id()
    )
    return StoreFacts(settings, model, newest_id)


def _newest_id() -> rows.Steps[int]:
    (((newest_id,),),) = yield [("SELECT max(id) FROM memories_searchdocument", ())]
    return newest_id or 0


def rank(
    query: ParsedQuery,
    mode: str = "auto",
    level: Level | None = None,
    *,
    blended: bool = False,
    pipeline: Pipeline = USUAL,
    store: StoreFacts | None = None,
) -> Ranked:
    """Return the matches for a question and its filters in the current store.

    Args:
        query: the question and its filters.
        mode: ``auto``; ``fts5`` for words only; ``basic`` for LIKE even if there is FTS5.
        level: whose memories are visible; None for all.
        blended: blend in search by meaning; without it, results depend on the store only.
        pipeline: the weights.
        store: what is known about the current store; looked up if it is None.
    """
    factors: Factors = {}
    store = store or store_facts()
    is_by_index = by_index(mode)
    if is_by_index:
        query = with_parts(query)
        ranked = _by_index(query, level, pipeline, store, blended=blended and mode != "fts5")
    else:
        ranked = Ranked(_like(query, level), "basic", query.terms)
    hits = ranked.hits
    ids = list(dict(hits[:REFINED]))
    messages, facts = rows.together(messages_of.steps(ids), hit_facts.steps(ids, query))
    if is_by_index:
        surroundings = pipeline
        if ranked.near is not None:
            surroundings = replace(pipeline, session=min(pipeline.session, pipeline.session_beside_others))
        hits, factors = refine(hits, messages, query, surroundings)
    hits = _with_successors(hits, query, level)
    hits = weigh(hits, query, facts, factors, pipeline, by_use=store.settings.rank_by_use)
    if further := dict(hits[:REFINED]).keys() - facts.ids:
        messages |= messages_of(further)
    hits = _without_repeats(hits, messages, query)
    return replace(ranked, hits=hits, factors=factors)


# Without messages that repeat a better one, and prompts that only ask the same, unless they are all there is
def _without_repeats(hits: Hits, messages: Messages, query: ParsedQuery) -> Hits:
    ids = list(dict(hits[:REFINED]))
    spoken = {key: messages[key] for key in ids if key in messages}
    titles = Counter(message.title for message in spoken.values())
    longest = 2 * len(query.text)
    doubtful: dict[int, bool] = {}
    for key, message in spoken.items():
        is_prompt = message.speaker == PROMPT and len(message.title) <= longest
        is_question = is_prompt and only_asks(message.title, query.terms)
        if is_question or titles[message.title] > 1:
            doubtful[key] = is_question
    if not doubtful:
        return hits
    texts = texts_of({key: {"source": "message"} for key in doubtful})
    seen: set[str] = set()
    dropped: set[int] = set()
    for key in filter(doubtful.__contains__, ids):
        text = texts.get(key, "")
        if text in seen or (doubtful[key] and only_asks(text, query.terms)):
            dropped.add(key)
        seen.add(text)
    return [(hit, score) for hit, score in hits if hit not in dropped] or hits[:1]


# The successor of a good hit gets at least its score, whatever words it has itself
def _with_successors(hits: Hits, query: ParsedQuery, level: Level | None) -> Hits:
    best = dict(hits[:_CHECKED_FOR_SUCCESSORS])
    raised: dict[int, float] = {}
    for replaced, heads in successors_of(list(best)).items():
        for head in heads:
            raised[head] = max(best[replaced], raised.get(head, -inf))
    if not raised:
        return hits
    scores = dict(hits)
    for head in meeting(raised, query, level):
        scores[head] = max(raised[head], scores.get(head, -inf))
    return sorted(scores.items(), key=itemgetter(1), reverse=True)


# Those of some documents that meet the conditions of the question
def meeting(documents: Collection[int], query: ParsedQuery, level: Level | None) -> list[int]:
    conditions, parameters = query.conditions(level, "d.id")
    where = " AND ".join([f"d.id IN {IDS}", *conditions])
    sql = f"SELECT d.id FROM memories_searchdocument d WHERE {where}"
    return rows.column(sql, [json.dumps(list(documents)), *parameters])


def _by_index(
    query: ParsedQuery, level: Level | None, pipeline: Pipeline, store: StoreFacts, *, blended: bool
) -> Ranked:
    is_large = store.newest_id > _LARGE_STORE
    if not blended:
        return Ranked(_by_words(query, level, pipeline, is_large=is_large), "fts5", query.terms)
    with ask_nearest(query.text, store.model, store.settings) as answer:
        by_words = _by_words(query, level, pipeline, is_large=is_large)
        meaning: Meaning = answer()
    if meaning.problem or meaning.model is None:
        return Ranked(by_words, "fts5", query.terms, problems=list(filter(None, [meaning.problem])))
    nearest = meaning.hits
    if nearest:
        allowed = set(meeting(dict(nearest), query, level))
        nearest = [hit for hit in nearest if hit[0] in allowed]
    hits = blend(by_words, nearest) if nearest else by_words
    included = dict(hits)
    with_words = dict(by_words)
    near: Scores = {}
    why: dict[int, str] = {}
    for hit, cosine in nearest:
        if cosine >= MEANING_WEIGHTS.alone and hit in included:
            near[hit] = cosine
            why[hit] = f"{MEANING} {cosine:.2f}"
            if hit in with_words:
                why[hit] = f"{TEXT}; {why[hit]}"
    return Ranked(hits, "hybrid", query.terms, why=why, near=near, cosines=dict(nearest))


@dataclass(frozen=True, slots=True)
class BlendWeights:
    # Share of the sum, 0 to 1
    weight: float
    # Place of a hit that is about something else; 0 is such a score if there are fewer hits
    ordinary: int
    # How far a clear answer is ahead of an ordinary one; if the best hit is less so, the ranking counts for less
    lead: float
    # Cosine from which a document without any of the words is included; unrelated texts are near 0
    alone: float
    # Limit for such documents
    alone_at_most: int


# Measured with the bundled model; see docs/internals/retrieval.md
MEANING_WEIGHTS = BlendWeights(weight=0.5, ordinary=100, lead=0.4, alone=0.3, alone_at_most=50)


def blend(by_words: Hits, nearest: Hits, weights: BlendWeights = MEANING_WEIGHTS) -> Hits:
    """Return both lists as one, best first; hits by meaning alone must score at least ``weights.alone``."""
    scale = (by_words[0][1] if by_words else 1.0) or 1.0
    ordinary = 0.0
    if len(nearest) >= weights.ordinary:
        ordinary = max(0.0, nearest[weights.ordinary - 1][1])
    lead = max(nearest[0][1] - ordinary, weights.lead)
    sums = {hit: (1 - weights.weight) * score for hit, score in by_words}
    alone = 0
    for hit, score in nearest:
        if hit not in sums and score >= weights.alone and alone < weights.alone_at_most:
            sums[hit] = 0.0
            alone += 1
        if hit in sums:
            sums[hit] += weights.weight * scale * max(0.0, score - ordinary) / lead
    return sorted(sums.items(), key=itemgetter(1), reverse=True)


# The documents with any of the words; names of several words count more as a whole
def _by_words(query: ParsedQuery, level: Level | None, pipeline: Pipeline, *, is_large: bool) -> Hits:
    words = query.terms
    if not words:
        return []
    conditions, parameters = query.conditions(level, text_index.DOCUMENT_ID)
    scored = [*words, *query.phrases] if pipeline.phrases else list(words)
    weights = (pipeline.title, pipeline.near, pipeline.date)
    # Scoring matches of common words takes most of the time and hardly changes the order: in a large store, documents
    # with only common words are not scored if the rare words find enough. Scores still count all words (decision 11).
    if len(words) > 1 and is_large:
        rare = rarest(words)
        if len(rare) < len(words):
            scores = text_index.score(rare, scored, conditions, parameters, weights=weights, most=RANKED_AT_MOST)
            if len(scores) >= _ENOUGH:
                return _with_words(scores)
    return _with_words(text_index.score(scored, scored, conditions, parameters, weights=weights, most=RANKED_AT_MOST))


_WITH_PREVIOUS = (
    "SELECT d.id, d.type, (SELECT max(p.id) FROM memories_searchdocument p WHERE p.source = 'message' "
    "AND p.session_id = d.session_id AND p.id < d.id) "
    f"FROM memories_searchdocument d WHERE d.source = 'message' AND d.id IN {IDS}"
)


# Messages without any of the words are left out, but for an answer to one that has some
def _with_words(scores: Sequence[tuple[int, float, bool]]) -> Hits:
    telling = {document for document, _, has_words in scores if has_words}
    near_only = [document for document, _, has_words in scores if not has_words]
    dropped: set[int] = set()
    if near_only:
        for message, speaker, previous in rows.fetch(_WITH_PREVIOUS, [json.dumps(near_only)]):
            if speaker == PROMPT or previous not in telling:
                dropped.add(message)
    return [(document, score) for document, score, _ in scores if document not in dropped]


def is_large() -> bool:
    """Return whether the current store has so many documents that common words are not looked up first."""
    return rows.finish(_newest_id()) > _LARGE_STORE


def rarest(words: Sequence[str]) -> list[str]:
    """Return the rarest words that together match a few thousand documents, and at least enough."""
    counts = sorted((text_index.count(word, most=_TELLING_MATCHES + 1), word) for word in words)
    if sum(count for count, _ in counts if count <= _TELLING_MATCHES) < _ENOUGH:
        counts = sorted((text_index.count(word, most=None), word) for word in words)
    rare: list[str] = []
    matches = 0
    for count, word in counts:
        if matches >= _ENOUGH and matches + count > _TELLING_MATCHES:
            break
        rare.append(word)
        matches += count
    return rare


# Without FTS5: a match in the title counts more than one in the body, as in the index
def _like(query: ParsedQuery, level: Level | None) -> Hits:
    words = query.literal_terms
    if not words:
        return []
    conditions, parameters = query.conditions(level, "d.id")
    texts = " UNION ALL ".join(text_queries().values())
    title = number_of(f"t.title {LIKE} %s")
    body = number_of(f"t.body {LIKE} %s")
    score = " + ".join([f"({USUAL.title} * {title} + {body})"] * len(words))
    where = " AND ".join(["s.score > 0", *conditions])
    patterns: list[str] = []
    for word in words:
        patterns += [f"%{word}%"] * 2
    matches = rows.fetch(
        f"WITH t (id, title, body) AS ({texts}), s AS (SELECT t.id, {score} AS score FROM t) "
        f"SELECT s.id, s.score FROM s JOIN memories_searchdocument d ON d.id = s.id WHERE {where} "
        f"ORDER BY s.score DESC, s.id DESC LIMIT {RANKED_AT_MOST}",
        [*patterns, *parameters],
    )
    return [(document, float(score)) for document, score in matches]


# Plain SQL instead of model instances, which took the most time of a search
@rows.InSteps
def documents_of(ids: Sequence[int]) -> rows.Steps[dict[int, dict[str, Any]]]:
    documents: dict[int, dict[str, Any]] = {}
    if not ids:
        return documents
    (lines,) = yield [(_DOCUMENTS, [json.dumps(list(ids))])]
    for columns in lines:
        document = dict(zip(_COLUMNS, columns, strict=True))
        document["created_at"] = rows.time_text(document["created_at"])
        documents[document["id"]] = document
    return documents


def texts_of(documents: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Return the texts of documents by id, in one statement over the tables of their sources."""
    sources = {document["source"] for document in documents.values()}
    selects: list[str] = []
    for source, sql in text_queries().items():
        if source in sources:
            selects.append(f"SELECT * FROM ({sql}) AS t WHERE id IN {IDS}")
    if not selects:
        return {}
    texts = rows.fetch(" UNION ALL ".join(selects), [json.dumps(list(documents))] * len(selects))
    return {document: body for document, _, body in texts}
