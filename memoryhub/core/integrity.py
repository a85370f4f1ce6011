"""Whether every page of a store's file is what SQLite wrote."""

from __future__ import annotations

from django.db import DatabaseError

from memoryhub.core import rows

_SHOWN = 3


def damage() -> str:
    """Check pages, tables and indexes of the store; return what is wrong as a sentence, "" where all is well.

    Reads the whole file: about a second for 300 MB.
    """
    try:
        found = [str(text) for (text,) in rows.fetch(f"PRAGMA integrity_check({_SHOWN})")]
    except DatabaseError as error:
        found = [str(error)]
    return "" if found == ["ok"] else f"the file is damaged: {'; '.join(found)[:500]}"
