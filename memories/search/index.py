"""The search index: a table of what searches filter by, and a contentless FTS5 index (decision 3).

Without FTS5 there is no index, and searches use LIKE.
"""

from __future__ import annotations

from typing import Any

from django.db import connections, transaction

from memories.embeddings.vectors import forget
from memories.search.shaping import date_words, shaped
from memoryhub.core.events.projection import Event, after_rebuild, define_companions, project_every_event
from memoryhub.core.log.read import read_all
from memoryhub.core.search.searchable import Document, Removal, makers_for
from memoryhub.core.stores import rows
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.schema import after_ensuring, require_optional_sql, require_sql

CREATE = (
    "CREATE VIRTUAL TABLE IF NOT EXISTS search_fts USING fts5(title, body, near, date, "
    "content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2')"
)

# Version of how texts are written into the index; a store with another version gets a new index (decision 20)
FORM = "3"

require_optional_sql("memories.search", CREATE, needs="fts5")
require_sql("memories.search.form", f"DELETE FROM store_meta WHERE key = 'search_form' AND value <> '{FORM}'")
require_sql(
    "memories.search.conversations",
    "CREATE INDEX IF NOT EXISTS search_document_message ON memories_searchdocument (session_id, id) "
    "WHERE source = 'message'",
)
define_companions(
    "memories_searchdocument", "search_fts_data", "search_fts_idx", "search_fts_docsize", "search_fts_config"
)

_PUT = (
    "INSERT INTO memories_searchdocument (id, source, kind, type, title, session_id, created_at) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET "
    "kind = excluded.kind, type = excluded.type, title = excluded.title, created_at = excluded.created_at"
)

_COLUMNS = "search_fts (rowid, title, body, near, date) VALUES (%s, %s, %s, %s, %s)"
_NEW_TEXT = f"INSERT INTO {_COLUMNS}"
# Takes the columns of ``text_row``
PUT_TEXT = f"INSERT OR REPLACE INTO {_COLUMNS}"


def has_full_text() -> bool:
    """Return whether the current store has an FTS5 index that this SQLite can read."""
    connection: Any = connections[require_current_alias()]
    if not hasattr(connection, "hub_has_full_text"):
        connection.hub_has_full_text = _probe()
    answer: bool = connection.hub_has_full_text
    return answer


def _probe() -> bool:
    return _can_have_full_text() and bool(rows.fetch("SELECT 1 FROM sqlite_master WHERE name = 'search_fts'"))


def _can_have_full_text() -> bool:
    return bool(rows.fetch("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'"))


@project_every_event
def index_event(event: Event[Any]) -> None:
    new = event.position
    for make in makers_for(event.type):
        made = make(event)
        if isinstance(made, Removal):
            for document_id in made.ids:
                remove(document_id)
            continue
        for document in (made,) if isinstance(made, Document) else made or ():
            put(document, is_new=document.id == new)
            new = 0 if document.id == new else new  # a second document of the same id replaces the first


def put(document: Document, *, is_new: bool = False) -> None:
    """Index a document as it is now. ``is_new`` skips the replacement of an older row, which is faster."""
    rows.put(
        "memories_searchdocument",
        _PUT,
        [
            document.id,
            document.source,
            document.kind,
            document.type,
            document.title,
            document.session_id,
            rows.time_value(document.created_at),
        ],
    )
    if has_full_text():
        rows.put("search_fts", _NEW_TEXT if is_new else PUT_TEXT, text_row(document))


def text_row(document: Document) -> tuple[int, str, str, str, str]:
    """Return a document's row of the full-text index."""
    # The title of a message repeats its first line. A document without text gets no date, or it would be found first by
    # its date, being so short.
    return (
        document.id,
        "" if document.source == "message" else shaped(document.title),
        shaped(document.body),
        shaped(document.near),
        date_words(document.created_at) if document.body else "",
    )


def remove(document_id: int) -> None:
    rows.execute("DELETE FROM memories_searchdocument WHERE id = %s", [document_id])
    forget(document_id)
    if has_full_text():
        rows.execute("DELETE FROM search_fts WHERE rowid = %s", [document_id])


def forget_removed() -> None:
    # FTS5 only hides deleted rows; 'optimize' rewrites the index without their words
    if has_full_text():
        rows.execute("INSERT INTO search_fts (search_fts) VALUES ('optimize')")


# A rebuild creates the FTS5 index in a store that was created without one
@after_rebuild
def look_again() -> None:
    vars(connections[require_current_alias()]).pop("hub_has_full_text", None)


def index_problem() -> str:
    """Return what is wrong with the index, as a sentence; empty if its newest document is indexed."""
    if rows.fetch(_UNFOUND_MEMORY):
        return "the search index is behind the memories; run rebuild"
    if not has_full_text():
        return "the full-text index is missing; run reindex" if _can_have_full_text() else ""
    return "the full-text index is behind; run rebuild" if rows.fetch(_UNFOUND_DOCUMENT) else ""


_UNFOUND_MEMORY = (
    "SELECT 1 FROM (SELECT max(id) AS newest FROM memories_memory WHERE deleted_at IS NULL AND review <> 'rejected') "
    "WHERE newest IS NOT NULL AND newest NOT IN (SELECT id FROM memories_searchdocument)"
)
_UNFOUND_DOCUMENT = (
    "SELECT 1 FROM (SELECT max(id) AS newest FROM memories_searchdocument) "
    "WHERE newest IS NOT NULL AND newest NOT IN (SELECT id FROM search_fts_docsize)"
)


_INDEX_COLUMNS = ["title", "body", "near", "date"]
_IS_OURS = "SELECT 1 FROM store_meta WHERE key = 'search_form' AND value = %s"
_MARK = "INSERT OR REPLACE INTO store_meta (key, value) VALUES ('search_form', %s)"


# Fills the index from the log in one transaction if its columns or its form are outdated (decision 20)
@after_ensuring
def renew_index() -> None:
    columns = _columns()
    if not columns or (columns == _INDEX_COLUMNS and rows.fetch(_IS_OURS, [FORM])):
        return
    with transaction.atomic(using=require_current_alias()):
        rows.execute("DROP TABLE search_fts")
        rows.execute(CREATE)
        for event in read_all():
            if event.payload is not None:
                index_event(event)
        rows.execute(_MARK, [FORM])


def _columns() -> list[str]:
    return [name for (name,) in rows.fetch("SELECT name FROM pragma_table_info('search_fts') ORDER BY cid")]
