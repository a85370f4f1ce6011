"""Filling the full-text index anew in a store whose index an earlier version made: other columns, or another form."""

from __future__ import annotations

from django.db import transaction

from memories.search.index import CREATE, FORM, index_event
from memoryhub.core import rows
from memoryhub.core.log.read import read_all
from memoryhub.core.routing import require_current_alias
from memoryhub.core.schema import after_ensuring

_COLUMNS = ["title", "body", "near", "date"]
_IS_OURS = "SELECT 1 FROM store_meta WHERE key = 'search_form' AND value = %s"
_MARK = "INSERT OR REPLACE INTO store_meta (key, value) VALUES ('search_form', %s)"


@after_ensuring
def renew_index() -> None:
    """Make the current store's full-text index anew from the log, in one transaction, where it is not as we make it.

    Where SQLite has no FTS5 there is no index, and nothing is done.
    """
    columns = _columns()
    if not columns or (columns == _COLUMNS and rows.fetch(_IS_OURS, [FORM])):
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
