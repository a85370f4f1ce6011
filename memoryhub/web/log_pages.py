"""The pages of the log: replay event by event, and the store as of a position."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from memories.schemas import MemoryList, MemorySearch, SearchSourceName, Stats
from memories.selectors import list_memories, search
from memories.timeline import stats
from memoryhub.core import log
from memoryhub.core.log.chain import check_links
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.log.views import as_of
from memoryhub.core.paging import SEARCH_MODES
from memoryhub.core.schemas import Listing
from memoryhub.web.pages import number_from
from sessions_app.timeline import TimelineItem, entries_of

# How many events to show before and after the current one
AROUND = 4
_MAX_PAYLOAD = 20_000
# Memories on a page of the past
_MEMORIES_PER_PAGE = 50
_MAX_QUESTION = 2_000
_COUNTED = ("session", "turn", "commit")


@dataclass(frozen=True, slots=True)
class ReplayedLink:
    """One event of the window and its link to the previous event."""

    entry: TimelineItem
    # "" if the link is intact
    flaw: str
    is_shown: bool


def replay_at(typed: str) -> dict[str, Any]:
    """Return the page's context at a position, clamped to the log.

    If the log has no event at the position, ``event`` and ``link`` are None.
    """
    last, _ = log.head()
    if not last:
        return {"last": 0}
    position = min(max(number_from(typed, default=1), 1), last)
    window = list(log.events().window(after=position - AROUND - 1, up_to=position + AROUND))
    events = {event.position: event for event in window}
    flaws = {}
    if window:
        flaws = check_links(first=window[0].position, last=window[-1].position)
    links = {
        entry.position: ReplayedLink(entry, flaws.get(entry.position, ""), entry.position == position)
        for entry in entries_of(window)
    }
    context = {
        "last": last,
        "position": position,
        "event": events.get(position),
        "link": links.get(position),
        "links": list(links.values()),
        "flaws": sum(1 for link in links.values() if link.flaw),
        "previous": GENESIS,
        "before": position - 1 or None,
        "after": position + 1 if position < last else None,
    }
    if position - 1 in events:
        context["previous"] = events[position - 1].chain_digest
    if position in events:
        context["payload"] = _payload(events[position])
    return context


def _payload(event: log.StoredEvent) -> str | None:
    if event.payload_json is None:
        return None
    text = json.dumps(json.loads(event.payload_json), indent=2, ensure_ascii=False)
    if len(text) > _MAX_PAYLOAD:
        return f"{text[:_MAX_PAYLOAD]}\n…"
    return text


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
        listing = _memories(question.strip()[:_MAX_QUESTION], cursor or None)
    return {
        "position": position,
        "head": head,
        "event": log.events().at([position]).defer("payload_json").first(),
        "memory_count": sum(counts["memories"].values()),
        "counts": [(counts["rows"][noun], noun) for noun in _COUNTED],
        "digest": counts["head_digest"],
        "question": question,
        "memories": listing.results,
        "mode": SEARCH_MODES.get(listing.meta.mode or "", ""),
        "next_cursor": listing.meta.next_cursor,
    }


def _memories(question: str, cursor: str | None) -> Listing:
    if not question:
        return list_memories(command=MemoryList(limit=_MEMORIES_PER_PAGE, cursor=cursor))
    sources = [SearchSourceName.MEMORY]
    return search(command=MemorySearch(query=question, sources=sources, limit=_MEMORIES_PER_PAGE, cursor=cursor))
