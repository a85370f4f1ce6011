"""Recall: the few entries that a prompt is about, given with the prompt and once in a session (decisions 45 and 91)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain

from memories.models import ContextPack
from memories.pack.past import MOST_OF_PAST, PAST_SOURCES, past_items
from memories.pack.sections import (
    NO_REMARKS,
    FilledSection,
    GatherRequest,
    PackBody,
    PackItem,
    Remarks,
    SectionDefinition,
    ids_at,
    recallable_sources,
    remarks_on,
)
from memories.pack_sorts import RECALL, RECALL_SECTION, passage_of, reference_of
from memories.scopes import Level
from memories.search import engine
from memories.search.index import has_full_text
from memories.search.parsed_query import ParsedQuery
from memories.search.relevance import Relevance, odds, relevance_of
from memories.search.weights import SAYS_LITTLE, successors_of
from memories.validity.amendments import Pair, merged_pairs, pairs_among, stored_pairs
from memories.validity.trust import NOT_ACCEPTED, SAME_MATTER, accepted_instead
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores.store import use_store
from sessions_app.selectors import context_begins

MOST = 3
MAX_TOKENS = 250
# Best hits that are rated
_CANDIDATES = 8
# An entry is left out if the odds that it is about the prompt are so many times below those of the best
_FAR_BEHIND = 5
SECTION = SectionDefinition(RECALL_SECTION, "About this prompt", 0, 1.0, 300, lambda _: (), "memory_search")


def recall_body(request: GatherRequest, least: float) -> PackBody:
    """Return the entries whose relevance is at least ``least``, without those that the session was given."""
    earlier = set(chain.from_iterable(_packs_in_context(request.session_id)))
    scored: list[tuple[float, PackItem]] = []
    remarks = NO_REMARKS
    is_answered = False
    for level in request.chain:
        sent = ids_at(level, map(reference_of, earlier))
        with use_store(level.store):
            relevances, nearest_ids = relevant_entries(request.query, level=level, least=least, sent=sent)
            if level is request.chain[0] and relevances:
                pairs = pairs_about(request.query, level, relevances, nearest_ids)
                relevances = with_newer(relevances, pairs)
                remarks = remarks_on(level, list(relevances), pairs)
        is_answered = is_answered or bool(relevances)
        hidden = sent | request.hidden(level, relevances) | ids_at(level, remarks.rechecks)
        passages: dict[int, slice | None] = {}
        for entry, relevance in relevances.items():
            if entry not in hidden:
                passages[entry] = slice(relevance.start, relevance.end) if relevance.start else None
        with use_store(level.store):
            items = _items_at(level, passages, request.now)
        scored += [(relevances[entry].score, item) for entry, item in items.items()]
    most = MOST
    if not is_answered:
        nearest = request.chain[0]
        without = ids_at(nearest, map(reference_of, earlier))
        with use_store(nearest.store):
            scored, most = past_items(request, nearest, least=least, without=without), MOST_OF_PAST
    if not scored:
        return PackBody([])
    scored.sort(key=lambda pair: (-pair[0], _latest_first(pair[1])))
    texts = {item.text for item in _items_of(request, earlier)} - {""}
    least_odds = odds(scored[0][0]) / _FAR_BEHIND
    best: list[PackItem] = []
    for score, item in scored:
        if item.text not in texts and len(best) < most and odds(score) >= least_odds:
            best.append(item)
            texts |= {item.text} - {""}
    return _recall_pack(best, len(best), remarks)


def _packs_in_context(session_id: str) -> Iterable[Collection[str]]:
    begins = context_begins(session_id)
    return ContextPack.objects.filter(session_id=session_id, id__gt=begins).values_list("marks", flat=True)


def recalled_body(request: GatherRequest, marks: Collection[str], remarks: Remarks) -> PackBody:
    """Return what was given before, by the keys of its marks; what was erased since is left out."""
    return _recall_pack(_items_of(request, marks), len(marks), remarks)


def _items_of(request: GatherRequest, keys: Collection[str]) -> list[PackItem]:
    items: list[PackItem] = []
    for level in request.chain:
        passages: dict[int, slice | None] = {}
        for key in keys:
            passages |= dict.fromkeys(ids_at(level, [reference_of(key)]), passage_of(key))
        with use_store(level.store):
            items += _items_at(level, passages, request.now).values()
    return items


# The text of an item depends on how many were given, not on their lengths, so that a replay is the same after one of
# them was erased
def _recall_pack(items: Sequence[PackItem], count: int, remarks: Remarks) -> PackBody:
    if not items:
        return PackBody([])
    tokens = (MAX_TOKENS - RECALL.frame_tokens) // count
    cut: list[PackItem] = []

    def order(item: PackItem) -> tuple[bool, tuple[str, int]]:
        return NOT_ACCEPTED in remarks.beside.get(item.reference, ""), _latest_first(item)

    for item in sorted(items, key=order):
        remark = remarks.beside.get(item.reference, "")
        cut.append((item.with_remark(remark) if remark else item).within(tokens))
    section = FilledSection(SECTION, cut, 0, sum(estimate_tokens(item.line) for item in cut))
    return PackBody([section], sort=RECALL, remarks=remarks)


# The marks of a pack do not keep an order
def _latest_first(item: PackItem) -> tuple[str, int]:
    scope, _, entry = item.reference.partition("#")
    return scope, -int(entry)


def _items_at(level: Level, passages: Mapping[int, slice | None], now: datetime) -> dict[int, PackItem]:
    items: dict[int, PackItem] = {}
    if passages:
        later = {entry: passage for entry, passage in passages.items() if passage}
        for items_of_source in recallable_sources().values():
            items |= items_of_source(level, list(passages), now, later)
    return items


# Best hits among which entries are looked for that amend what would be given
_NEAR = 20


def pairs_about(prompt: ParsedQuery, level: Level, relevances: Collection[int], nearest: Collection[int]) -> list[Pair]:
    """Return which visible entries and messages of the current store amend or contradict entries about a prompt."""
    ids = list(dict.fromkeys([*relevances, *nearest]))
    documents = engine.documents_of(ids)
    pairs = merged_pairs(stored_pairs(list(relevances)), pairs_among(documents, engine.texts_of(documents)))
    visible = {*ids, *engine.meeting({pair.newer_id for pair in pairs}, prompt, level)}
    return [pair for pair in pairs if pair.newer_id in visible]


def with_newer(relevances: Mapping[int, Relevance], pairs: Iterable[Pair]) -> dict[int, Relevance]:
    """Add what amends entries, as relevant as these; what is not certain to be amended is so, too."""
    complete = dict(relevances)
    for pair in pairs:
        older = complete.get(pair.older_id)
        newer = complete.get(pair.newer_id)
        is_lesser = pair.newer_id == pair.lesser_id
        if older and not is_lesser and (newer is None or newer.score < older.score):
            complete[pair.newer_id] = Relevance(older.score, 0, 0)
        elif older and newer and pair.is_marked and not (pair.is_certain or pair.lesser_id):
            complete[pair.older_id] = replace(older, score=newer.score)
    return complete


def relevant_entries(
    prompt: ParsedQuery, *, level: Level, least: float, sent: Collection[int] = ()
) -> tuple[dict[int, Relevance], list[int]]:
    """Map the ids of the current store's entries that are about a prompt to their relevance, and return the best hits.

    A replacement is as relevant as what it replaces.

    Args:
        prompt: the parsed prompt.
        level: the visible scopes of the store.
        least: relevance of those entries.
        sent: ids of entries beside which others are rated, too.
    """
    if not has_full_text():
        return {}, []
    sources = [source for source in recallable_sources() if source not in PAST_SOURCES]
    ranked = engine.rank(prompt.among(sources), level=level, blended=True)
    empty = {hit for hit, factors in ranked.factors.items() if SAYS_LITTLE in factors}
    best = [hit for hit, _ in ranked.hits if hit not in empty]
    unsent = [hit for hit in best if hit not in sent]
    candidates = list(dict.fromkeys(best[:_CANDIDATES] + unsent[:_CANDIDATES]))
    relevances = relevance_of(prompt, candidates, ranked.cosines, have_titles=True)
    for replaced, heads in successors_of(candidates).items():
        for head in heads:
            if head in relevances and relevances[head].score < relevances[replaced].score:
                relevances[head] = replace(relevances[replaced], start=0)
    # What a person accepted is as relevant as a page on the same matter
    for lesser, accepted in accepted_instead(candidates).items():
        for entry, share in accepted.items():
            if share >= SAME_MATTER and relevances[entry].score < relevances[lesser].score:
                relevances[entry] = replace(relevances[entry], score=relevances[lesser].score)
    relevant = {hit: relevance for hit, relevance in relevances.items() if relevance.score >= least}
    return relevant, best[:_NEAR]
