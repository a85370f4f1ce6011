"""Replay: the log one event at a time, with the links of the hash chain verified."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from memoryhub.core import log
from memoryhub.core.log.chain import check_links
from memoryhub.core.log.digests import GENESIS
from memoryhub.core.models import RawEvent
from sessions_app.timeline import Entry, entries_of

# How many events to show before and after the current one
AROUND = 4
_MAX_PAYLOAD = 20_000


@dataclass(frozen=True, slots=True)
class Link:
    """One event of the window and its link to the previous event."""

    entry: Entry
    # "" if the link is intact
    flaw: str
    is_shown: bool


def replay_at(wanted: str) -> dict[str, Any]:
    """Return the page's context at a position, clamped to the log.

    If the log has no event at the position, ``event`` and ``link`` are None.
    """
    last, _ = log.head()
    if not last:
        return {"last": 0}
    position = min(max(_number(wanted), 1), last)
    events = _window(position)
    links = _links(events, position)
    shown = next((event for event in events if event.position == position), None)
    return {
        "last": last,
        "position": position,
        "event": shown,
        "link": next((link for link in links if link.is_shown), None),
        "links": links,
        "flaws": sum(1 for link in links if link.flaw),
        "previous": next((event.chain_digest for event in events if event.position == position - 1), GENESIS),
        "before": position - 1 or None,
        "after": position + 1 if position < last else None,
        "payload": _payload(shown) if shown else None,
    }


def _number(wanted: str) -> int:
    return int(wanted) if wanted.isascii() and wanted.isdecimal() and len(wanted) <= 18 else 1


def _window(position: int) -> list[RawEvent]:
    window = RawEvent.objects.filter(position__gte=position - AROUND, position__lte=position + AROUND)
    return list(window.order_by("position"))


def _links(events: list[RawEvent], position: int) -> list[Link]:
    flaws = check_links(first=events[0].position, last=events[-1].position) if events else {}
    return [Link(entry, flaws.get(entry.position, ""), entry.position == position) for entry in entries_of(events)]


def _payload(event: RawEvent) -> str | None:
    if event.payload_json is None:
        return None
    text = json.dumps(json.loads(event.payload_json), indent=2, ensure_ascii=False)
    return text if len(text) <= _MAX_PAYLOAD else f"{text[:_MAX_PAYLOAD]}\n…"
