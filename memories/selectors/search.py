"""Searching by a question in words, in every scope that holds here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memories import scopes
from memories.models import MemoryScope
from memories.present import hit_line
from memories.schemas import MemorySearch
from memories.search import engine
from memories.search.blend import TEXT
from memories.search.parsed_query import ParsedQuery, parse_search
from memories.search.pipeline import notes_of, wanted_mode, why
from memories.search.snippets import excerpt
from memories.search.words import words_in
from memories.selectors.conflicts import open_conflicts
from memories.selectors.relations import superseded_by
from memories.uses.notes import note_found
from memoryhub.core.paging import decode_cursor, encode_cursor, fit_page
from memoryhub.core.schemas import Listing
from memoryhub.core.search.retrieval import retrieval
from memoryhub.core.stores.store import current_store, use_store

_BEST = 3
"""Hits of a store by which it is judged how well it answers."""

_LEAST_SHARE = 0.05
"""What was found by its meaning alone still answers something."""

_MODES = ("basic", "fts5", "hybrid")
"""How stores are searched, from the simplest on: by LIKE, by words, by words and meaning."""


_Found = tuple[float, int, int]
"""One hit before it is shown: its score, the place of its store in the chain of those that hold, its id there."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the stores of a chain have found."""

    found: list[_Found]
    """Best first, the nearer store's before the farther's where they are as good."""
    ranked: list[engine.Ranked]
    """A store each, nearest first."""

    @property
    def mode(self) -> str:
        """How they were found: the simplest of what the stores have."""
        return min((ranked.mode for ranked in self.ranked), key=_MODES.index, default="fts5")

    @property
    def problems(self) -> list[str]:
        """Why stores did not go by meaning too."""
        return [problem for ranked in self.ranked for problem in ranked.problems]


def search(
    *, command: MemorySearch, mode: str | None = None, whole_store: bool = False, explained: bool = True
) -> Listing:
    """Return what answers the question best, each hit with its evidence: id, source, scope, date, session.

    Args:
        command: the question and its filters.
        mode: ``auto``, ``fts5`` or ``basic``; default: as the setting ``search_mode`` says.
        whole_store: all of the current store and nothing else, for whatever session it holds.
        explained: say of each hit where its words are and why it ranks there, which its line does not tell.
    """
    with retrieval("search", command):
        chain = _chain(command, whole_store=whole_store)
        query = parse_search(command)
        answer = _ranked(chain, query, mode or wanted_mode())
        parts = decode_cursor(command.cursor, (int,))
        start = parts[0] if parts else 0
        shown = answer.found[start : start + command.limit]
        found = _hits(chain, answer, shown, query, compact=command.compact, explained=explained)
        listing = fit_page(
            found,
            list(map(hit_line, found)),
            total=len(answer.found),
            more=start + command.limit < len(answer.found),
            max_tokens=command.max_tokens,
            mode=answer.mode,
            note=f"by words alone: {answer.problems[0]}" if answer.problems else None,
        )
        if listing.meta.has_more and listing.results:
            listing.meta.next_cursor = encode_cursor(start + len(listing.results))
        note_found(listing.results, {_scope_of(level): level.store for level in chain})
        return listing


def _chain(command: MemorySearch, *, whole_store: bool) -> list[scopes.Level]:
    if whole_store:
        return [scopes.Level(current_store(), ())]
    chain = scopes.levels(command.scope, inherit=command.scope is None, session_id=command.session_id or "")
    # An iteration belongs to one store
    return [level for level in chain if level.store == current_store()] if command.iteration_id else chain


def _ranked(chain: Sequence[scopes.Level], query: ParsedQuery, mode: str) -> _Answer:
    ranked, found = [], []
    for place, level in enumerate(chain):
        with use_store(level.store):
            ranked.append(engine.rank(query, mode, level, others=True))
            scale = _scale(ranked[-1], query.terms) if len(chain) > 1 else 1.0
        found += [(score * scale, place, hit_id) for hit_id, score in ranked[-1].hits]
    if len(chain) > 1:
        found.sort(key=lambda hit: (-hit[0], hit[1]))
    return _Answer(found, ranked)


def _scale(ranked: engine.Ranked, words: Sequence[str]) -> float:
    """Return what makes a store's scores comparable with another's: its best hit then scores as it answers.

    A score by words depends on how rare they are in its store, so that in a store of two memories the right one has
    next to nothing. What it answers is the share of the question's words that one of the best hits has.
    """
    best = [each for each, _ in ranked.hits[:_BEST]]
    if not best or ranked.hits[0][1] <= 0:
        return 1.0
    titles, texts = engine.documents_of(best), engine.texts_of(best)
    answers = max(len(words_in(f"{titles[each]['title']} {texts.get(each, '')}", words)) for each in best)
    return max(answers / max(len(words), 1), _LEAST_SHARE) / ranked.hits[0][1]


def _hits(
    chain: Sequence[scopes.Level],
    answer: _Answer,
    shown: Sequence[_Found],
    query: ParsedQuery,
    *,
    compact: bool,
    explained: bool,
) -> list[dict[str, Any]]:
    by_place: dict[int, dict[int, dict[str, Any]]] = {}
    for place, (level, ranked) in enumerate(zip(chain, answer.ranked, strict=True)):
        mine = [(each, score) for score, there, each in shown if there == place]
        if mine:
            with use_store(level.store):
                found_here = (
                    compact_hits(mine, _scope_of(level))
                    if compact
                    else hits(mine, query.terms, _scope_of(level), ranked, explained=explained)
                )
            by_place[place] = {hit["id"]: hit for hit in found_here}
    return [by_place[place][each] for _, place, each in shown]


def _scope_of(level: scopes.Level) -> MemoryScope:
    return level.scopes[-1] if level.scopes else scopes.own_scope()


def compact_hits(shown: Sequence[tuple[int, float]], scope: MemoryScope) -> list[dict[str, Any]]:
    """Return ranked ids of the current store with their titles alone."""
    documents = engine.documents_of([hit_id for hit_id, _ in shown])
    return [{"id": hit_id, "scope": scope.value, "title": documents[hit_id]["title"]} for hit_id, _ in shown]


def hits(
    shown: Sequence[tuple[int, float]],
    words: Sequence[str],
    scope: MemoryScope,
    ranked: engine.Ranked,
    *,
    explained: bool = True,
) -> list[dict[str, Any]]:
    """Return ranked ids of the current store as hits, each with its evidence.

    Args:
        shown: ids with their scores.
        words: the search terms, to mark where they are.
        scope: that of the store.
        ranked: by what the hits were found, and what changed their scores.
        explained: with ``matches`` and ``why``.
    """
    ids = [document_id for document_id, _ in shown]
    documents, texts, conflicts = engine.documents_of(ids), engine.texts_of(ids), open_conflicts(ids)
    notes, successors = notes_of(documents), superseded_by(ids)
    excerpts = {each: excerpt(texts.get(each, ""), words) for each in ids}
    found = [
        {
            **documents[document_id],
            "scope": scope.value,
            "snippet": excerpts[document_id].text,
            "score": round(score, 6),
            "event": document_id,
            "conflicts": conflicts.get(document_id, []),
            "superseded_by": successors.get(document_id, []),
            "note": notes.get(document_id, ""),
        }
        for document_id, score in shown
    ]
    for hit in found if explained else ():
        by_words = why(hit["title"], texts.get(hit["id"], ""), words, ranked.factors.get(hit["id"], {}))
        hit["matches"] = excerpts[hit["id"]].matches
        hit["why"] = _why(by_words, ranked.why.get(hit["id"], TEXT))
    return found


def _why(by_words: str, found_by: str) -> str:
    """Return why a hit ranks where it does: by its words, by what else it was found, or by that alone."""
    return by_words + found_by.removeprefix(TEXT) if found_by.startswith(TEXT) else found_by
