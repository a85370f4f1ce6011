"""What was changed of people, tokens and jobs' schedules: who did it, by which door, and when.

It is noted in the transaction of the change, by the services that every door uses, and never changed or removed.
"""

from __future__ import annotations

from dataclasses import dataclass

from memoryhub.core import clock
from memoryhub.core.origin import current_origin
from memoryhub.models import AccessChange, Subject

SHOWN = 20


@dataclass(frozen=True, slots=True)
class History:
    changes: list[AccessChange]
    earlier: int | None
    """The id before which it goes on; None where there are no more."""


def note_change(subject: Subject, name: str, what: str, *, by: str | None = None) -> None:
    """Keep that something was changed.

    Args:
        subject: what kind of thing.
        name: its name.
        what: what was done to it, in the past tense: ``made, as reviewer``.
        by: who did it; default: who acts now.
    """
    origin = current_origin()
    AccessChange.objects.create(
        at=clock.now(), by=by or origin.actor, door=origin.source, subject=subject, name=name, what=what[:500]
    )


def history_of(subject: Subject, *, before: str = "") -> History:
    """Return the latest changes, or those before one of a page that was shown.

    Args:
        subject: what kind of thing.
        before: the id of a change as its page's address says it; anything else begins with the latest.
    """
    found = AccessChange.objects.filter(subject=subject).order_by("-id")
    if before.isdecimal() and len(before) < len(str(2**63)):
        found = found.filter(id__lt=int(before))
    changes = list(found[: SHOWN + 1])
    return History(changes[:SHOWN], changes[SHOWN - 1].id if len(changes) > SHOWN else None)
