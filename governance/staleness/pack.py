"""The part of a context pack that says what should be looked at again."""

from __future__ import annotations

from governance.staleness.due import queue
from governance.staleness.present import stale_line
from governance.staleness.schemas import Why
from governance.staleness.selectors import views
from memories.pack.sections import Item, Request, Section, define_section

_MOST = 12
_LONGEST = 260


def _stale(request: Request) -> list[Item]:
    """Return what has waited longest, and why; nothing where nothing waits. What has expired is in no pack."""
    found = queue(now=request.now)
    told = [due for due in found.due if any(reason.why is not Why.EXPIRED for reason in due.reasons)]
    return [Item(f"#{each['id']}", f"- {stale_line(each)}") for each in views(found, told[:_MOST])]


define_section(
    Section(
        "stale",
        "To look at again: memory_affirm what holds, else supersede or update it",
        45,
        0.1,
        _LONGEST,
        _stale,
        "memory_stale",
    )
)
