"""Searching all visible scopes by a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain as flattened
from math import inf, nextafter
from operator import itemgetter
from typing import Any

from memories import scopes
from memories.models import MemoryScope
from memories.present import hit_line
from memories.schemas import MemorySearch
from memories.scopes import hidden_among
from memories.search import engine
from memories.search.index import Hits
from memories.search.parsed_query import ParsedQuery, parse_search
from memories.search.relevance import is_absent
from memories.search.snippets import snippet, spans, words_in
from memories.search.weights import note_on, notes_of, why
from memories.selectors.versions import open_conflicts
from memories.substance import split_joined
from memories.superseded import superseded_by
from memories.uses.notes import note_found
from memories.validity.amendments import Pair, amendment_marks, merged_pairs, pairs_among, stored_pairs
from memories.validity.marks import MarkKind
from memories.validity.selectors import joined_marks, marks_apart, marks_of
from memories.validity.trust import SAME_MATTER, accepted_instead
from memoryhub.core.paging import decode_cursor, encode_cursor, fit_page
from memoryhub.core.schemas import Listing
from memoryhub.core.search import retrieval
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS, json_list
from memoryhub.core.stores.store import current_store, use_store

# Top hits of a store by which its answer is judged
_BEST = 3

# What was found by meaning only still answers something
_LEAST_SHARE = 0.05

# From the simplest to the best: LIKE, words, words and meaning
_MODES = ("basic", "fts5", "hybrid")


# Score, index of the store in the chain, id in that store
_Hit = tuple[float, int, int]


def search(
    *, command: MemorySearch, mode: str | None = None, whole_store: bool = False, explained: bool = True
) -> Listing:
    """Return the best answers to a question, each with its evidence: id, source, scope, date, session.

    Args:
        command: the question and its filters.
        mode: ``auto``, ``fts5`` or ``basic``; default: the setting ``search_mode``.
        whole_store: search the current store only, with the memories of all its sessions.
        explained: add ``matches`` and ``why`` to each hit.
    """
    with retrieval("search", command):
        chain, store = rows.together(_chain(command, whole_store=whole_store), engine.store_facts.steps())
        query = parse_search(command)
        mode = mode or store.settings.search_mode
        (start,) = decode_cursor(command.cursor, (int,)) or (0,)
        all_hits, rankings = _ranked(chain, query, mode, store, most=start + command.limit)
        page_hits = all_hits[start : start + command.limit]
        absent = is_absent(
            command.query, ((level.store, ranked) for level, ranked in zip(chain, rankings, strict=True))
        )
        problems: list[str] = []
        for ranked in rankings:
            problems += ranked.problems
        listing = fit_page(
            _hits(chain, rankings, page_hits, compact=command.compact, explained=explained),
            hit_line,
            total=len(all_hits),
            more=start + command.limit < len(all_hits),
            max_tokens=command.max_tokens,
            mode=min((ranked.mode for ranked in rankings), key=_MODES.index, default="fts5"),
            note=note_on(mode, problems),
            absent=absent,
            cursor_after=lambda count: encode_cursor(start + count),
        )
        note_found(listing.results, {scope: level.store for level in chain for scope in _scopes_of(level)})
        return listing


def _chain(command: MemorySearch, *, whole_store: bool) -> rows.Steps[list[scopes.Level]]:
    if whole_store:
        return [scopes.Level(current_store(), ())]
    chain = yield from scopes.levels.steps(
        command.scope, inherit=command.scope is None, session_id=command.session_id or ""
    )
    if command.iteration_id:  # it belongs to one store
        return [level for level in chain if level.store == current_store()]
    return chain


# Hits of all stores, best first, at equal scores the nearer store first; and the ranking of each store
def _ranked(
    chain: Sequence[scopes.Level], query: ParsedQuery, mode: str, store: engine.StoreFacts, *, most: int
) -> tuple[list[_Hit], list[engine.Ranked]]:
    rankings: list[engine.Ranked] = []
    hits: list[_Hit] = []
    for place, level in enumerate(chain):
        is_here = level.store == current_store()
        with use_store(level.store):
            all_ranked = engine.rank(query, mode, level, blended=True, store=store if is_here else None)
        ranked = without_hidden(all_ranked, level, chain)
        if is_here:
            ranked = with_marks(ranked, query, level, most=most)
        rankings.append(ranked)
        scale = 1.0
        if len(chain) > 1:
            with use_store(level.store):
                scale = _scale(ranked)
        hits += [(score * scale, place, hit_id) for hit_id, score in ranked.hits]
    if len(chain) > 1:
        hits.sort(key=lambda hit: (-hit[0], hit[1]))
    return hits, rankings


def without_hidden(ranked: engine.Ranked, level: scopes.Level, chain: Sequence[scopes.Level]) -> engine.Ranked:
    """Return the ranking of a level without memories that a nearer one in the chain hides."""
    hidden = hidden_among([hit_id for hit_id, _ in ranked.hits], level, chain)
    if not hidden:
        return ranked
    return replace(ranked, hits=[hit for hit in ranked.hits if hit[0] not in hidden])


# Best hits that are compared with each other, and at least with the working tree
_COMPARED = 10
# Hits whose texts are read at once, those of a page with those that are compared
_READ_AT_ONCE = 50


def with_marks(ranked: engine.Ranked, query: ParsedQuery, level: scopes.Level, *, most: int) -> engine.Ranked:
    """Return a ranking of the current store with what is known against its best hits, which lowers them.

    An entry that amends one of them ranks before it, whatever words it has itself.

    Args:
        ranked: the hits.
        query: what was asked.
        level: the visible scopes.
        most: how many of the hits may be shown.
    """
    ids = [hit_id for hit_id, _ in ranked.hits[: max(most, _COMPARED)]]
    documents, stored, apart = rows.together(
        engine.documents_of.steps(ids if len(ids) <= _READ_AT_ONCE else ids[:_COMPARED]),
        stored_pairs.steps(ids),
        marks_apart.steps(ids),
    )
    texts = engine.texts_of(documents)
    ranked = replace(ranked, documents=documents, texts=texts)
    compared = {hit_id: documents[hit_id] for hit_id in ids[:_COMPARED] if hit_id in documents}
    pairs = merged_pairs(stored, pairs_among(compared, texts))
    pairs = [pair for pair in pairs if pair.is_marked or _answers_as_well(pair, ranked)]
    if not pairs and not any(apart):
        return ranked
    scores = _with_newer(dict(ranked.hits), pairs, query, level)
    newer = list({pair.newer_id for pair in pairs} & scores.keys() - set(ids))
    marks = joined_marks(apart, amendment_marks(ids, pairs))
    if newer:
        marks |= marks_of(newer, pairs)
    factors = dict(ranked.factors)
    weights = dict.fromkeys(ids, 1.0)
    for hit_id, marks_of_hit in marks.items():
        lowering = {mark.kind.value: mark.weight for mark in marks_of_hit if mark.weight < 1}
        if lowering:
            factors[hit_id] = factors.get(hit_id, {}) | lowering
            weights[hit_id] = min(lowering.values())
    # What was not looked at is no better than the best of what was
    mildest = max((weights[hit_id] for hit_id in ids), default=1.0)
    hits: Hits = [(hit_id, score * weights.get(hit_id, mildest)) for hit_id, score in scores.items()]
    hits.sort(key=itemgetter(1), reverse=True)
    if any(mark.kind is MarkKind.ORIGIN for mark in flattened.from_iterable(marks.values())):
        hits = _accepted_first(hits, ids, ranked.terms)
    return replace(ranked, hits=hits, factors=factors, marks=marks)


# Share of the older hit's words of the question that a newer one has which stands before it without a mark
_AS_WELL = 0.6


def _answers_as_well(pair: Pair, ranked: engine.Ranked) -> bool:
    newer, older = (_count_of_words(hit, ranked.documents, ranked.texts, ranked.terms) for hit in pair[:2])
    return newer >= _AS_WELL * older


# How many words of the question a hit has
def _count_of_words(
    hit: int, documents: Mapping[int, Mapping[str, Any]], texts: Mapping[int, str], terms: Sequence[str]
) -> int:
    return len(words_in(f"{documents[hit]['title']} {texts.get(hit, '')}", terms))


# How well a hit that a person accepted answers beside another, by the share of its words of the question or of its
# score, to stand before it; scores say little in a small store. And the score of the other, as a share of its own
_OF_WORDS, _OF_SCORE, _BEHIND = 0.7, 0.67, 0.99


# What a person accepted stands before what came from a page, a tool or an import on the same matter, if it answers
# about as well
def _accepted_first(hits: Hits, among: Sequence[int], terms: Sequence[str]) -> Hits:
    instead = accepted_instead(among)
    if not instead:
        return hits
    ids = set(instead).union(*instead.values())
    documents = engine.documents_of(list(ids))
    texts = engine.texts_of(documents)
    counts = {hit: _count_of_words(hit, documents, texts, terms) for hit in ids}
    scores = dict(hits)
    for lesser, accepted in instead.items():
        better: list[float] = []
        for hit, share in accepted.items():
            is_good = counts[hit] >= _OF_WORDS * counts[lesser] or scores[hit] >= _OF_SCORE * scores[lesser]
            if counts[hit] >= counts[lesser] or (share >= SAME_MATTER and is_good):
                better.append(scores[hit])
        if better:
            scores[lesser] = min(scores[lesser], _BEHIND * max(better))
    return sorted(scores.items(), key=itemgetter(1), reverse=True)


# The newer of two gets at least the score of the older, if it meets the conditions of the question. The pairs are in
# the order of the older ones, so that the last of a chain gets that of the first
def _with_newer(
    scores: dict[int, float], pairs: Sequence[Pair], query: ParsedQuery, level: scopes.Level
) -> dict[int, float]:
    absent = {pair.newer_id for pair in pairs} - scores.keys()
    visible = scores.keys() | set(engine.meeting(absent, query, level)) if absent else scores.keys()
    for pair in pairs:
        if pair.newer_id in visible and pair.older_id in scores and pair.newer_id != pair.lesser_id:
            scores[pair.newer_id] = max(nextafter(scores[pair.older_id], inf), scores.get(pair.newer_id, -inf))
    return scores


# Makes scores of stores comparable. A word score depends on how rare the words are in a store: in a store of two
# memories the right one scores next to nothing. So a store's best hit is scaled to the share of the question's words
# that one of its best hits has.
def _scale(ranked: engine.Ranked) -> float:
    best = [hit for hit, _ in ranked.hits[:_BEST]]
    if not best or ranked.hits[0][1] <= 0:
        return 1.0
    documents = engine.documents_of(best)
    texts = engine.texts_of(documents)
    answers = max(_count_of_words(hit, documents, texts, ranked.terms) for hit in best)
    return max(answers / max(len(ranked.terms), 1), _LEAST_SHARE) / ranked.hits[0][1]


def _hits(
    chain: Sequence[scopes.Level],
    rankings: Sequence[engine.Ranked],
    page_hits: Sequence[_Hit],
    *,
    compact: bool,
    explained: bool,
) -> list[dict[str, Any]]:
    items: dict[tuple[int, int], dict[str, Any]] = {}
    for place, (level, ranked) in enumerate(zip(chain, rankings, strict=True)):
        local = [(hit_id, score) for score, store_index, hit_id in page_hits if store_index == place]
        if not local:
            continue
        scope = _scopes_of(level)[-1]
        with use_store(level.store):
            if compact:
                ids = [hit_id for hit_id, _ in local]
                documents = engine.documents_of(ids)
                for hit_id, hit_scope in _scopes_by_id(ids, scope).items():
                    item = {"id": hit_id, "scope": hit_scope, "title": documents[hit_id]["title"]}
                    items[place, hit_id] = item
            else:
                items |= {(place, hit["id"]): hit for hit in hits(local, scope, ranked, explained=explained)}
    return [items[place, hit_id] for _, place, hit_id in page_hits]


def _scopes_of(level: scopes.Level) -> tuple[MemoryScope, ...]:
    return level.scopes or (MemoryScope.SESSION, scopes.own_scope())


_OF_SESSIONS = f"SELECT id FROM memories_memory WHERE scope = 'session' AND id IN {IDS}"


# A project's store has the memories of its sessions, too
@rows.InSteps
def _scopes_by_id(ids: Sequence[int], scope: MemoryScope) -> rows.Steps[dict[int, str]]:
    scopes_by_id = dict.fromkeys(ids, scope.value)
    if scope is MemoryScope.PROJECT:
        # Raw: each search asks
        (of_sessions,) = yield [(_OF_SESSIONS, [json_list(ids)])]
        scopes_by_id |= dict.fromkeys((memory_id for (memory_id,) in of_sessions), MemoryScope.SESSION.value)
    return scopes_by_id


def hits(
    ranked_hits: Sequence[tuple[int, float]], scope: MemoryScope, ranked: engine.Ranked, *, explained: bool = True
) -> list[dict[str, Any]]:
    """Return ranked ids of the current store as hits, each with its evidence.

    Args:
        ranked_hits: ids with scores.
        scope: of the store.
        ranked: how the hits were found.
        explained: add ``matches`` and ``why``.
    """
    ids = [document_id for document_id, _ in ranked_hits]
    documents, texts = ranked.documents, ranked.texts
    if not set(ids).issubset(documents):
        documents = engine.documents_of(ids)
        texts = engine.texts_of(documents)
    documents = {document_id: documents[document_id] for document_id in ids}
    notes, conflicts, successors, hit_scopes = rows.together(
        notes_of.steps(documents),
        open_conflicts.steps(ids),
        superseded_by.steps(ids),
        _scopes_by_id.steps(ids, scope),
    )
    similarities = ranked.similarities(ids)
    items = []
    for document_id, score in ranked_hits:
        items.append(
            {
                **documents[document_id],
                "scope": hit_scopes[document_id],
                "snippet": snippet(split_joined(texts.get(document_id, ""))[0], ranked.terms),
                "score": round(score, 6),
                "similarity_score": similarities.get(document_id, 0.0),
                "event": document_id,
                "conflicts": conflicts.get(document_id, []),
                "superseded_by": successors.get(document_id, []),
                "note": notes.get(document_id, ""),
                "marks": [mark.data() for mark in ranked.marks.get(document_id, ())],
            }
        )
    if explained:
        for item in items:
            by_words = why(item["title"], texts.get(item["id"], ""), ranked.terms, ranked.factors.get(item["id"], {}))
            item["matches"] = spans(item["snippet"], ranked.terms)
            item["why"] = ranked.why.get(item["id"], engine.TEXT)
            if item["why"].startswith(engine.TEXT):
                item["why"] = by_words + item["why"].removeprefix(engine.TEXT)
    return items
