"""Cross-reference queries: kinds, scopes, tags, words and relations at once, ranked by the sum of six parts.

Each scope is asked by itself, in one statement that filters, ranks and counts; what the scopes answer is merged. All
that a page needs to go on from the one before is in its cursor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memories.query import results
from memories.query.cursor import asked
from memories.query.results import query_line, shown
from memories.schemas.query import MemoryQuery
from memories.search.pipeline import wanted_mode
from memories.uses.notes import note_found
from memoryhub.core.paging import fit_page
from memoryhub.core.schemas import Listing
from memoryhub.core.search.retrieval import retrieval

__all__ = ["query", "query_line"]


def query(
    *, command: MemoryQuery, mode: str | None = None, line: Callable[[dict[str, Any]], str] = query_line
) -> Listing:
    """Return what matches, ranked, each with its evidence, its score and the parts of it.

    Entries that do not change are on exactly one page, whatever others write meanwhile; what is created after the
    first page is on none.

    Args:
        command: the question.
        mode: ``auto``, ``fts5`` or ``basic``; default: as the setting ``search_mode`` says.
        line: a result as the text that it will be, by which its tokens are counted.

    Raises:
        Invalid: the cursor is not one of this question's, or the scope is not one that holds here.
        NotFound: there is nothing of the id or name that results are to be related to.
    """
    with retrieval("query", command):
        question = asked(command)
        found = results.answer(question, mode=mode or wanted_mode())
        items = shown(question, found.hits)
        listing = fit_page(
            items,
            [line(item) for item in items],
            total=found.total,
            more=found.more,
            max_tokens=command.max_tokens,
            mode=found.mode,
        )
        if listing.meta.has_more and listing.results:
            end = listing.results[-1]
            last = next(hit for hit in found.hits if (hit.place.scope, hit.scored.id) == (end["scope"], end["id"]))
            listing.meta.next_cursor = question.cursor_at(last.scored.key, last.place.rank, last.scored.id)
        if command.search:
            note_found(listing.results, {place.scope: place.store for place in question.places})
        return listing
