"""Cross-reference queries: filter by kind, scope, tags, words and relations, ranked by the sum of six parts.

Each scope is queried with one statement that filters, ranks and counts; the results are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memories.query import results
from memories.query.question import open_question
from memories.query.results import as_items, query_line
from memories.schemas.query import MemoryQuery
from memories.uses.notes import note_found
from memoryhub.config.current_settings import project_settings
from memoryhub.core.paging import fit_page
from memoryhub.core.schemas import Listing
from memoryhub.core.search import retrieval

__all__ = ["query", "query_line"]


def query(
    *, command: MemoryQuery, mode: str | None = None, line: Callable[[dict[str, Any]], str] = query_line
) -> Listing:
    """Return the matches, ranked, each with its evidence, its score and the parts of the score.

    An unchanged entry is on exactly one page, even if others write meanwhile; entries created after the first page are
    on none.

    Args:
        command: the question.
        mode: ``auto``, ``fts5`` or ``basic``; default: the setting ``search_mode``.
        line: formats a result, to count its tokens.

    Raises:
        Invalid: the cursor is of another question, or the scope is not visible here.
        NotFound: there is no entity of the id or name in ``related_to``.
    """
    with retrieval("query", command):
        question = open_question(command)
        answer = results.answer(question, mode=mode or project_settings().search_mode)
        items = as_items(question, answer.hits)
        hits = {(hit.place.scope, hit.id): hit for hit in answer.hits}

        def cursor_after(count: int) -> str:
            last = hits[items[count - 1]["scope"], items[count - 1]["id"]]
            return question.cursor_at(last.key, last.place.rank, last.id)

        listing = fit_page(
            items,
            line,
            total=answer.total,
            more=answer.more,
            max_tokens=command.max_tokens,
            mode=answer.mode,
            absent=answer.absent,
            cursor_after=cursor_after,
        )
        if command.search:
            note_found(listing.results, {place.scope: place.store for place in question.places})
        return listing
