"""Amendments that wait for a person."""

from __future__ import annotations

from memories.models import Amendment, SearchDocument
from memories.superseded import superseded_by
from memoryhub.core.log.quarantine import outside_quarantine

_ENTRIES = ("memory", "decision")


def open_amendments() -> list[Amendment]:
    """Return the certain amendments between live entries that nobody has judged, in three queries.

    Where the older entry is superseded already, there is nothing left to judge.
    """
    # Only live entries have a search document
    live = SearchDocument.objects.filter(source__in=_ENTRIES).values("id")
    certain = Amendment.objects.filter(is_certain=True, is_accepted__isnull=True, newer_id__in=live, older_id__in=live)
    amendments = outside_quarantine(outside_quarantine(certain, "newer_id"), "older_id").order_by("id")
    superseded = superseded_by([amendment.older_id for amendment in amendments])
    return [amendment for amendment in amendments if amendment.older_id not in superseded]
