"""The search index: a table of what searches filter by, and a full-text index (decisions 3 and 75)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from django.db import connections, transaction

from memories.embeddings.vectors import forget
from memories.search import fts5, postings
from memories.search.text import date_words, shaped
from memoryhub import env
from memoryhub.core.events.projection import Event, after_rebuild, checks, project_every_event
from memoryhub.core.log.read import read_all
from memoryhub.core.search import Document, JointMaker, Removal, joint_makers_for, makers_for
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.schema import after_ensuring, require_sql

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
    ) -> list[tuple[int, float, bool]]:
        """Return the best documents that have one of ``required``; all of ``words`` count in their scores.

        The last value is false for a document that has none of the words itself, but the texts around it.
        ``conditions`` are SQL, with ``d`` for the documents and ``DOCUMENT_ID``. ``weights`` are those of a word in the
        title, in the texts around and in the date; one in the body counts 1.
        """

    def count(self, word: str, *, most: int | None) -> int:
        """Return how many documents have a word; stop counting at ``most``."""

    def counts(self, words: Sequence[str], *, most: int) -> rows.Steps[list[int]]:
        """Return for each word how many documents have it in their title or body, or ``most`` if they are more."""

    def matches(self, words: Sequence[str], ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return pairs of a document and the place of a word that it has in its title or body."""

    def existing(self, words: Sequence[str]) -> set[str]:
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


# The table of documents, and the first word in the names of all tables of the text indexes
_TABLES = frozenset({"memories_searchdocument", "search"})
# Sources whose titles repeat the first line of the text
UNTITLED = ("message", "command")
# Version of how texts are written into the index; a store with another version gets a new index (decision 20)
FORM = "6"

require_sql("memories.search.form", f"DELETE FROM store_meta WHERE key = 'search_form' AND value <> '{FORM}'")
require_sql(
    "memories.search.conversations",
    "CREATE INDEX IF NOT EXISTS search_document_message ON memories_searchdocument (session_id, id) "
    "WHERE source = 'message'",
)
_PUT = (
    "INSERT INTO memories_searchdocument (id, source, kind, type, title, session_id, created_at) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET "
    "kind = excluded.kind, type = excluded.type, title = excluded.title, created_at = excluded.created_at"
)


def has_full_text() -> bool:
    """Return whether the current store has a full-text index that its database can read."""
    connection: Any = connections[require_current_alias()]
    if not hasattr(connection, "hub_has_full_text"):
        connection.hub_has_full_text = text_index.exists()
    return bool(connection.hub_has_full_text)


# Id up to which all documents are counted each time, and the factor by which a larger store grows before they are
# counted again: another process may have removed some
_COUNTED_EACH_TIME, _GROWN = 20_000, 1.01
_COUNT = "SELECT max(id), (SELECT count(*) FROM memories_searchdocument) FROM memories_searchdocument"
_COUNT_SINCE = "SELECT max(id), count(*) FROM memories_searchdocument WHERE id > %s"


def document_count() -> rows.Steps[int]:
    """Return how many documents the current store has; roughly, if it is large and another process removes some."""
    # Counting reads a whole index, which takes longer than most statements of a search
    connection = vars(connections[require_current_alias()])
    if "hub_documents" in connection:
        newest_id, documents = connection["hub_documents"]
        (((latest_id, added),),) = yield [(_COUNT_SINCE, [newest_id])]
        if (latest_id or newest_id) <= _GROWN * newest_id:
            return int(documents + added)
    (((newest_id, documents),),) = yield [(_COUNT, ())]
    if newest_id and newest_id > _COUNTED_EACH_TIME:
        connection["hub_documents"] = newest_id, documents
    return int(documents)


def _count_again() -> None:
    vars(connections[require_current_alias()]).pop("hub_documents", None)


@project_every_event
def index_event(event: Event[Any]) -> None:
    ahead = _indexed_ahead()
    indexed = event.position in ahead
    for make in makers_for(event.type):
        change = make(event)
        if isinstance(change, Removal):
            for document_id in change.ids:
                remove(document_id)
            continue
        documents = (change,) if isinstance(change, Document) else change or ()
        for document in documents:
            is_own = document.id == event.position
            put(document, is_new=is_own and not indexed)
            if document.id > event.position:
                ahead.add(document.id)
            indexed |= is_own  # a second document of the same id replaces the first
    for make_all in joint_makers_for(event.type):
        rows.defer(_index_together(make_all), event.position, before=_TABLES)


@cache
def _index_together(make_all: JointMaker) -> Callable[[Sequence[int]], None]:
    def index_events(positions: Sequence[int]) -> None:
        ahead = _indexed_ahead()
        new = set(positions) - ahead
        for document in make_all(positions):
            put(document, is_new=document.id in new)
            if document.id > positions[-1]:
                ahead.add(document.id)

    return index_events


# In a copy that has later events already, a message is indexed with those around it, so before its own event
def _indexed_ahead() -> set[int]:
    ahead: set[int] = vars(connections[require_current_alias()]).setdefault("hub_indexed_ahead", set())
    return ahead


def put(document: Document, *, is_new: bool = False) -> None:
    """Index a document as it is now; one without text is removed.

    ``is_new`` skips the replacement of an older row, which is faster.
    """
    if not has_text(document):
        remove(document.id)
        return
    named = [document.id, document.source, document.kind, document.type, document.title, document.session_id]
    rows.put("memories_searchdocument", _PUT, [*named, rows.time_value(document.created_at)])
    if not is_new:
        _count_again()
    if has_full_text():
        text_index.put(text_row(document), is_new=is_new)


def has_text(document: Document) -> bool:
    """Return whether a document is indexed at all."""
    return bool(document.title.strip() or document.body.strip())


def text_row(document: Document) -> TextRow:
    """Return a document's row of the full-text index."""
    # A document without text gets no date, or it would be found first by its date, being so short
    return (
        document.id,
        "" if document.source in UNTITLED else shaped(document.title),
        shaped(document.body),
        shaped(document.near),
        date_words(document.created_at) if document.body else "",
    )


def remove(document_id: int) -> None:
    rows.execute("DELETE FROM memories_searchdocument WHERE id = %s", [document_id])
    _count_again()
    forget(document_id)
    if has_full_text():
        text_index.remove(document_id)


def forget_removed() -> None:
    """Rewrite the full-text index without the words of removed documents, in a transaction of its own."""
    if has_full_text():
        with transaction.atomic(using=require_current_alias()):
            text_index.optimize()


# A rebuild creates the full-text index in a store that was created without one
@after_rebuild
def look_again() -> None:
    vars(connections[require_current_alias()]).pop("hub_has_full_text", None)
    _count_again()


def index_problem() -> str:
    """Return what is wrong with the index, as a sentence; empty if its newest document is indexed."""
    newest = "SELECT max(id) AS newest FROM memories_memory WHERE deleted_at IS NULL AND review <> 'rejected'"
    indexed = "SELECT id FROM memories_searchdocument"
    if rows.fetch(f"SELECT 1 FROM ({newest}) AS t WHERE newest IS NOT NULL AND newest NOT IN ({indexed})"):
        return "the search index is behind the memories; run rebuild"
    if not has_full_text():
        return "the full-text index is missing; run reindex" if text_index.can_exist() else ""
    return "the full-text index is behind; run rebuild" if text_index.lacks_newest() else ""


# Fills the index from the log in one transaction if its columns or its form are outdated (decision 20)
@after_ensuring
def renew_index() -> None:
    is_ours = "SELECT 1 FROM store_meta WHERE key = 'search_form' AND value = %s"
    if not text_index.exists() or (text_index.has_columns() and rows.fetch(is_ours, [FORM])):
        return
    with transaction.atomic(using=require_current_alias()):
        text_index.renew()
        with rows.gathering():
            for event in read_all():
                if event.payload is not None:
                    index_event(event)
        rows.put_meta("search_form", FORM)


checks["the full-text index"] = text_index.differing
