"""How much each thing counts in a ranking; what was measured for each is in docs/internals/retrieval.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memories.search.index import has_full_text
from memories.search.words import words_in
from memoryhub.config.project_settings import project_settings
from memoryhub.config.retention_rules import SearchMode
from memoryhub.core.errors import Unavailable


def wanted_mode() -> SearchMode:
    """Return how the current store's project wants to be searched."""
    return project_settings().search_mode


def by_index(mode: str) -> bool:
    """Whether the full-text index of the current store answers; LIKE does where not.

    Raises:
        Unavailable: words alone are wanted, and there is no index of them.
    """
    if mode == SearchMode.BASIC:
        return False
    if has_full_text():
        return True
    if mode == SearchMode.FTS5:
        raise Unavailable(
            "search_mode is 'fts5', and this store has no full-text index, or this SQLite no FTS5 to read it; set "
            "search_mode to 'auto' or 'basic', or run rebuild with a SQLite that has FTS5"
        )
    return False


def mode_name() -> str:
    """Return how the current store is searched by words: ``fts5`` or ``basic``."""
    wanted = wanted_mode()
    return "basic" if wanted is SearchMode.BASIC or not has_full_text() else "fts5"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The weights of a ranking. A weight of 0 leaves its stage out, which is how each is measured by itself."""

    title: float = 2.0
    """Of a word in the title, where one in the body is 1.0."""
    near: float = 0.3
    """Of a word in what was said just before or after a message."""
    date: float = 0.5
    """Of a word or a number of the date, written out."""
    neighbours: float = 0.25
    """Of the better of a message's two neighbours' scores, beside its own."""
    session: float = 1.0
    """Of the session of a message: how much more the best session's messages count than those of one without hits."""
    session_beside_others: float = 0.5
    """The same, at most, where another ranking is blended in: it brings what belongs together by itself."""
    speaker: float = 0.5
    """Of the speaker of a message, where the question names them: how much more such a message counts."""
    phrases: bool = True
    """Whether names such as ``a.b_c`` are also looked for as a whole."""

    @property
    def uses_surroundings(self) -> bool:
        """Whether anything around a message counts."""
        return any((self.neighbours, self.session, self.speaker))

    def beside_others(self) -> Pipeline:
        """Return the weights where another ranking is blended in."""
        return replace(self, session=min(self.session, self.session_beside_others))


USUAL = Pipeline()


Notes = Callable[[Sequence[int]], Mapping[int, str]]

_MOST_WORDS = 6
_LEAST_TOLD = 0.05
_notes: dict[str, Notes] = {}


def why(title: str, body: str, words: Sequence[str], factors: Mapping[str, float]) -> str:
    """Return the words that a hit has, and what else raised or lowered its score: ``coffee, machine; session ×1.8``."""
    own = words_in(f"{title}\n{body}", words)
    said = ", ".join(own[:_MOST_WORDS]) or "words beside it, or its date"
    more = f" and {len(own) - _MOST_WORDS} more" if len(own) > _MOST_WORDS else ""
    told = [f"{name} ×{factor:.1f}" for name, factor in factors.items() if abs(factor - 1) >= _LEAST_TOLD]
    return "; ".join([said + more, *told])


def define_notes(source: str, notes: Notes) -> None:
    """Register the notes, by id, on the hits of a source: what replaced one, what supports it."""
    _notes[source] = notes


def notes_of(documents: Mapping[int, Mapping[str, Any]]) -> dict[int, str]:
    """Return the notes on hits, by id; each source is asked once."""
    by_source: dict[str, list[int]] = {}
    for hit_id, document in documents.items():
        by_source.setdefault(document["source"], []).append(hit_id)
    return {
        hit_id: note
        for source, ids in by_source.items()
        if source in _notes
        for hit_id, note in _notes[source](ids).items()
    }
