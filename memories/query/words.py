"""How much of a question's words a memory has: a share that no other memory's coming or going changes.

A word in the title counts full, one in the body half. bm25 would not do: it weighs words by how many others have
them, so while others write, what is ranked would move between two pages.
"""

from __future__ import annotations

from collections.abc import Sequence

from memories.query.sql import LIVE, NOT_LIVE, Sql
from memoryhub.core.dialect import elements, json_list

_INDEXED = (
    f"SELECT search_fts.rowid AS id, count(*) * 0.5 / {{words}} AS share FROM {elements()} AS w CROSS JOIN search_fts "
    "WHERE search_fts MATCH w.value GROUP BY search_fts.rowid"
)
_BODY = "(m.content LIKE {0} OR m.tags LIKE {0} OR m.attributes LIKE {0})"


def shares(words: Sequence[str], *, basic: bool, include_deleted: bool) -> Sql:
    """Return the query of ``id, share`` for all that have any of the words; shares are 0 to 1.

    The full-text index has only what is live; words of what is deleted or rejected are looked for by LIKE.
    """
    if not words:
        return Sql("SELECT 0 AS id, 0.0 AS share WHERE false")
    if basic:
        return _like(words, "" if include_deleted else LIVE)
    expressions = [form for word in words for form in (f'{{title body}} : "{word}"', f'title : "{word}"')]
    found = Sql(_INDEXED.format(words=len(words)), (json_list(expressions),))
    if not include_deleted:
        return found
    deleted = _like(words, NOT_LIVE)
    return Sql(f"{found.text} UNION ALL {deleted.text}", (*found.parameters, *deleted.parameters))


def _like(words: Sequence[str], condition: str) -> Sql:
    """Look for words one by one: as parts of words, and of stored JSON, which is where tags are."""
    has = f"CASE WHEN m.title LIKE w.value THEN 2 WHEN {_BODY.format('w.value')} THEN 1 ELSE 0 END"
    text = (
        f"SELECT id, share FROM (SELECT m.id AS id, (SELECT sum({has}) FROM {elements()} AS w) * 0.5 / {len(words)} "
        f"AS share FROM memories_memory m WHERE {condition or 'true'}) WHERE share > 0"
    )
    return Sql(text, (json_list(f"%{word}%" for word in words),))
