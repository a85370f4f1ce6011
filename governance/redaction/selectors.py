from __future__ import annotations

from typing import Any

from governance.models import Redaction
from memoryhub.core import clock
from memoryhub.core.paging import decode_cursor, encode_cursor, page
from memoryhub.core.schemas import Listing, Paging
from memoryhub.core.text import counted


class RedactionList(Paging):
    """List redactions, the latest first."""


def list_redactions(*, command: RedactionList) -> Listing:
    """Return a page of redactions, latest first."""
    found = Redaction.objects.order_by("-id")
    total = found.count()
    cursor = decode_cursor(command.cursor, (int,))
    if cursor:
        found = found.filter(id__lt=cursor[0])
    rows = [view(redaction) for redaction in found[: command.limit + 1]]
    return page(
        rows[: command.limit],
        total=total,
        more=len(rows) > command.limit,
        cursor_of=lambda item: encode_cursor(item["id"]),
        line=redaction_line,
        max_tokens=command.max_tokens,
    )


def view(redaction: Redaction) -> dict[str, Any]:
    """Return a redaction as JSON data."""
    names = ("id", "what", "reason", "events", "actor", "source")
    return {**{name: getattr(redaction, name) for name in names}, "redacted_at": clock.to_text(redaction.redacted_at)}


def redaction_line(item: dict[str, Any]) -> str:
    """Return a redaction as one line."""
    reason = f": {item['reason']}" if item["reason"] else ""
    events = counted(item["events"], "event")
    return f"#{item['id']} {clock.day(item['redacted_at'])} {item['what']}, {events}, by {item['actor']}{reason}"
