"""What a full-text index offers, and the one of this process (decision 75).

A *word* is a term of ``memories.search.text``: it stands for its further forms too, and a ``*`` makes it a prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from memories.search import fts5, postings
from memoryhub import env

# Id, title, body, texts around it, date in words: as ``index.text_row`` shapes them
TextRow = tuple[int, str, str, str, str]
# Ids with their scores, best first
Hits = list[tuple[int, float]]
# A query of ``id`` or ``id, share``, and its parameters
Query = tuple[str, tuple[Any, ...]]


class TextIndex(Protocol):
    """The full-text index of the current store."""

    # In conditions of ``score``, a document's id in the index
    DOCUMENT_ID: str

    def exists(self) -> bool: ...

    def can_exist(self) -> bool:
        """Return whether this database has full-text indexes at all."""

    def put(self, row: TextRow, *, is_new: bool) -> None:
        """Add a document, or replace it; ``is_new`` skips the replacement, which is faster."""

    def remove(self, document_id: int) -> None: ...

    def optimize(self) -> None:
        """Rewrite the index without the words of removed documents."""

    def lacks_newest(self) -> bool:
        """Return whether the newest document is missing."""

    def has_columns(self) -> bool:
        """Return whether it has the columns of this version."""

    def renew(self) -> None:
        """Replace the index by an empty one of this version."""

    def score(
        self,
        required: Sequence[str],
        words: Sequence[str],
        conditions: Sequence[str],
        parameters: Sequence[Any],
        *,
        weights: tuple[float, float, float],
        most: int,
    ) -> Hits:
        """Return the best documents that have one of ``required``; all of ``words`` count in their scores.

        ``conditions`` are SQL, with ``d`` for the documents and ``DOCUMENT_ID``. ``weights`` are those of a word in the
        title, in the texts around and in the date; one in the body counts 1.
        """

    def count(self, word: str, *, most: int | None) -> int:
        """Return how many documents have a word; stop counting at ``most``."""

    def counts(self, words: Sequence[str], *, most: int) -> list[int]:
        """Return for each word how many documents have it in their title or body, or ``most`` if they are more."""

    def matches(self, words: Sequence[str], ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return pairs of a document and the place of a word that it has in its title or body."""

    def known(self, words: Sequence[str]) -> set[str]:
        """Return those of the words that some document has."""

    def with_any(self, groups: Sequence[Sequence[str]], *, by_score: bool, most: int) -> Query:
        """Return the query of documents that have all words of a group as they are; the newest or the best ones."""

    def shares(self, words: Sequence[str]) -> Query:
        """Return the query of the share of ``words`` that documents have: a whole word in the title, half in the body.

        Words count as they are.
        """

    def differing(self, sample: Sequence[int] | None) -> list[int]:
        """Return documents whose words differ between the current copy and the store attached to it (decision 32)."""


text_index: TextIndex = fts5
if env.database_url():
    postings.register()
    text_index = postings
