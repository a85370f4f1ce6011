"""The page of a store as of a past position in its log."""

from __future__ import annotations

from typing import Any

from memories.schemas import MemoryList, MemorySearch, SearchSourceName, Stats
from memories.selectors import list_memories, search
from memories.timeline import stats
from memoryhub.core import log
from memoryhub.core.log.event_view import as_of
from memoryhub.core.models import RawEvent
from memoryhub.core.paging import SEARCH_MODES
from memoryhub.core.schemas import Listing

_SHOWN = 50
_MAX_QUESTION = 2_000
_COUNTED = ("session", "turn", "commit")


def store_as_of(*, position: int, question: str, cursor: str) -> dict[str, Any]:
    """Return the counts and one page of memories as of an event.

    Args:
        position: of the last event to apply.
        question: search query; empty lists all memories, last changed first.
        cursor: from the previous page; empty for the first page.

    Raises:
        NotFound: the log has no event at the position.
        Invalid: the cursor is not valid for this list.
    """
    head, _ = log.head()
    with as_of(position):
        counts = stats(command=Stats())
        found = _memories(question.strip()[:_MAX_QUESTION], cursor or None)
    return {
        "position": position,
        "head": head,
        "event": RawEvent.objects.filter(position=position).defer("payload_json").first(),
        "memory_count": sum(counts["memories"].values()),
        "counts": [(counts["rows"][noun], noun) for noun in _COUNTED],
        "digest": counts["head_digest"],
        "question": question,
        "memories": found.results,
        "mode": SEARCH_MODES.get(found.meta.mode or "", ""),
        "next_cursor": found.meta.next_cursor,
    }


def _memories(question: str, cursor: str | None) -> Listing:
    if not question:
        return list_memories(command=MemoryList(limit=_SHOWN, cursor=cursor))
    sources = [SearchSourceName.MEMORY]
    return search(command=MemorySearch(query=question, sources=sources, limit=_SHOWN, cursor=cursor))
