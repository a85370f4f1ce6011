"""Weights of a ranking; docs/internals/retrieval.md has the measurements behind each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memories.embeddings.vectors import answering_model
from memories.search.index import has_full_text
from memories.search.snippets import words_in
from memoryhub.config.current_settings import project_settings
from memoryhub.config.retention_rules import SearchMode
from memoryhub.core.errors import Unavailable


def configured_mode() -> SearchMode:
    return project_settings().search_mode


def by_index(mode: str) -> bool:
    """Return whether the full-text index is used instead of LIKE.

    Raises:
        Unavailable: the mode is ``fts5``, and there is no index.
    """
    if mode == SearchMode.BASIC:
        return False
    if has_full_text():
        return True
    if mode == SearchMode.FTS5:
        raise Unavailable(
            "search_mode is 'fts5', but this store has no full-text index or this SQLite lacks FTS5; set search_mode "
            "to 'auto' or 'basic', or run rebuild with a SQLite that has FTS5"
        )
    return False


def mode_name() -> str:
    """Return the mode in which searches of the current store answer while a hub runs."""
    setting = project_settings().search_mode
    if setting is SearchMode.BASIC or not has_full_text():
        return "basic"
    if setting is SearchMode.AUTO and answering_model():
        return "hybrid"
    return "fts5"


def note_on(mode: str, problems: Sequence[str]) -> str | None:
    """Return why a search went by words alone, and what to change; None if it went by meaning, too.

    Args:
        mode: the requested one: ``auto``, ``fts5`` or ``basic``.
        problems: why other rankings did not answer.
    """
    if mode != SearchMode.AUTO:
        return f"by words alone: search_mode is '{mode}'; set it to 'auto' to search by meaning, too"
    return f"by words alone: {problems[0]}" if problems else None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The weights of a ranking; 0 skips a stage (decision 20)."""

    # A word in the title; one in the body counts 1.0
    title: float = 2.0
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
    # How much more a message counts whose speaker the question names
    speaker: float = 1.0
    # Whether names such as ``a.b_c`` are also searched as a whole
    phrases: bool = True
    # Whether sections that say nothing rank below the others of their chapter
    lowers_empty_sections: bool = True

    @property
    def uses_surroundings(self) -> bool:
        return any((self.neighbours, self.session, self.speaker))

    def beside_others(self) -> Pipeline:
        """Return the weights for use with another ranking."""
        return replace(self, session=min(self.session, self.session_beside_others))


USUAL = Pipeline()


Notes = Callable[[Sequence[int]], Mapping[int, str]]

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


def notes_of(documents: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Return the notes on hits, by id; one query for each kind of notes."""
    by_source: dict[str, list[int]] = {}
    for hit_id, document in documents.items():
        by_source.setdefault(document["source"], []).append(hit_id)
    notes_by_hit: dict[int, list[str]] = {}
    for source, ids in by_source.items():
        for notes in _notes.get(source, ()):
            for hit_id, note in notes(ids).items():
                notes_by_hit.setdefault(hit_id, []).append(note)
    return {hit_id: "; ".join(notes) for hit_id, notes in notes_by_hit.items()}
