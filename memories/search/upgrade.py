"""Filling the full-text index anew in a store whose index has other columns: an earlier version made it."""

from __future__ import annotations

from django.db import transaction

from memories.search.index import CREATE, index_event
from memoryhub.core import rows
from memoryhub.core.log.read import read_all
from memoryhub.core.routing import require_current_alias
from memoryhub.core.schema import after_ensuring

_COLUMNS = ["title", "body", "near", "date"]


@after_ensuring
def renew_index() -> None:
    """Make the current store's full-text index anew from the log, in one transaction, where its columns are not ours.

    Where SQLite has no FTS5 there is no index, and nothing is done.
    """
    if _columns() in ([], _COLUMNS):
        return
    with transaction.atomic(using=require_current_alias()):
        rows.execute("DROP TABLE search_fts")
        rows.execute(CREATE)
        for event in read_all():
            if event.payload is not None:
                index_event(event)


def _columns() -> list[str]:
    return [name for (name,) in rows.fetch("SELECT name FROM pragma_table_info('search_fts') ORDER BY cid")]
