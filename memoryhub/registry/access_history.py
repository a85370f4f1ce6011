"""Append-only history of changes to people, tokens and schedules, written in the transaction of each change."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connections

from memoryhub.core import clock
from memoryhub.core.backends.selected import stores
from memoryhub.core.origin import current_origin
from memoryhub.models import AccessChange, Subject

SHOWN = 20


@dataclass(frozen=True, slots=True)
class History:
    changes: list[AccessChange]
    # Pass it as ``before`` to get the next page; None on the last one.
    earlier: int | None


def note_change(subject: Subject, name: str, what: str, *, by: str | None = None) -> None:
    """Record a change: ``what`` in the past tense, such as ``added as reviewer``; ``by`` is by default the actor."""
    origin = current_origin()
    AccessChange.objects.create(
        at=clock.now(), by=by or origin.actor, door=origin.source, subject=subject, name=name, what=what[:500]
    )


def has_hub() -> bool:
    """Return whether the hub's tables may exist, without creating hub.db: without it there are no people or tokens."""
    is_of_a_test = "mode=memory" in connections["default"].settings_dict["NAME"]
    return is_of_a_test or stores.has_hub()


def history_of(subject: Subject, *, name: str | None = None, before: str = "") -> History:
    """Return a page of changes, newest first, of all or of one ``name``.

    Args:
        subject: what the changes are about.
        name: of the person, token, job or place.
        before: the id of a change; ignored if it isn't a number.
    """
    found = AccessChange.objects.filter(subject=subject).order_by("-id")
    found = found if name is None else found.filter(name=name)
    if before.isdecimal() and len(before) < len(str(2**63)):
        found = found.filter(id__lt=int(before))
    changes = list(found[: SHOWN + 1])
    return History(changes[:SHOWN], changes[SHOWN - 1].id if len(changes) > SHOWN else None)
