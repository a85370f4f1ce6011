"""Recall: the few entries that a prompt is about, given with the prompt and once in a session (decision 45)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import chain

from memories.models import RECALL, ContextPack
from memories.pack.compose import Body, Filled, within
from memories.pack.sections import Item, Request, Section, recallable_sources, reference, without_repeated_texts
from memories.scopes import Level
from memories.search.relevance import relevant_entries
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores.store import use_store

MOST = 3
MAX_TOKENS = 250
# Tokens of header and footer
_FRAME_TOKENS = 60
_SECTION = Section(RECALL, "About this prompt", 0, 1.0, 300, lambda _: (), "memory_search")


def recall_body(request: Request, least: float) -> Body:
    """Return the entries whose share of the prompt is at least ``least``, without those that the session was given."""
    given = _given_to(request.session_id)
    found: list[tuple[float, Item]] = []
    for level in request.chain:
        with use_store(level.store):
            shares = relevant_entries(
                request.query, sources=recallable_sources(), level=level, least=least, without=ids_at(level, given)
            )
        hidden = request.hidden(level, shares)
        with use_store(level.store):
            items = _items(level, [entry for entry in shares if entry not in hidden], request.now)
        found += [(share, items[entry]) for entry, share in shares.items() if entry in items]
    ranked = [item for _, item in sorted(found, key=lambda scored: (-scored[0], _order(scored[1])))]
    best = without_repeated_texts(ranked, _given_texts(request, given) if ranked else ())[:MOST]
    return _body(best, len(best))


def _given_texts(request: Request, given: Collection[str]) -> set[str]:
    texts: set[str] = set()
    for level in request.chain:
        with use_store(level.store):
            texts |= {item.text for item in _items(level, ids_at(level, given), request.now).values()}
    return texts


def recalled_body(request: Request, marks: Collection[str]) -> Body:
    """Return what was given before, by the keys of its marks; what was erased since is left out."""
    references = _references([marks])
    found: list[Item] = []
    for level in request.chain:
        with use_store(level.store):
            found += _items(level, ids_at(level, references), request.now).values()
    return _body(found, len(marks))


# The text of an item depends on how many were given, not on their lengths, so that a replay is the same after one of
# them was erased
def _body(items: Sequence[Item], count: int) -> Body:
    if not items:
        return Body([])
    tokens = (MAX_TOKENS - _FRAME_TOKENS) // count
    cut = [within(item, tokens) for item in sorted(items, key=_order)]
    return Body([Filled(_SECTION, cut, 0, sum(estimate_tokens(item.line) for item in cut))])


# Latest first; the marks of a pack do not keep an order
def _order(item: Item) -> tuple[str, int]:
    scope, _, entry = item.reference.partition("#")
    return scope, -int(entry)


def _items(level: Level, ids: Iterable[int], now: datetime) -> dict[int, Item]:
    wanted = list(ids)
    sources = recallable_sources().values() if wanted else ()
    return dict(chain.from_iterable(items(level, wanted, now).items() for items in sources))


# What any pack of the session contained
def _given_to(session_id: str) -> set[str]:
    packs = ContextPack.objects.filter(session_id=session_id) if session_id else ContextPack.objects.none()
    return _references(packs.values_list("marks", flat=True))


def _references(packs: Iterable[Collection[str]]) -> set[str]:
    return {key.rpartition(" ")[2] for marks in packs for key in marks}


def ids_at(level: Level, references: Collection[str]) -> set[int]:
    """Return the ids of those references that are to entries of a level."""
    scope = reference(level, 0).partition("#")[0]
    parts = (name.partition("#") for name in references)
    return {int(entry) for name, _, entry in parts if name == scope}
