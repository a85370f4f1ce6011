"""Amendments that wait for a person."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from django.db.models import Exists, OuterRef

from memories import scopes
from memories.models import Amendment, AmendmentKind, SearchDocument
from memories.present import amendment_line
from memories.references import view_end
from memories.schemas.links import AmendmentList, AmendmentView
from memories.search.weights import successors_of
from memoryhub.core.entities import find_entities
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.paging import newest_first
from memoryhub.core.schemas import Listing
from memoryhub.core.search import retrieval

_ENTRIES = ("memory", "decision")


def open_amendments(*, is_certain: bool = True) -> list[Amendment]:
    """Return the amendments between live entries that nobody has judged.

    Where the older entry is superseded already, there is nothing left to judge.
    """
    amendments = Amendment.objects.filter(_is_live("newer_id"), _is_live("older_id"), is_accepted__isnull=True)
    if is_certain:
        amendments = amendments.filter(is_certain=True)
    amendments = outside_quarantine(outside_quarantine(amendments, "newer_id"), "older_id").order_by("id")
    superseded = successors_of([amendment.older_id for amendment in amendments])
    return [amendment for amendment in amendments if amendment.older_id not in superseded]


# Only live entries have a search document. Each amendment looks up its two: of two lists of all live entries, SQLite
# tries every pair in the index of amendments
def _is_live(field: str) -> Exists:
    return Exists(SearchDocument.objects.filter(id=OuterRef(field), source__in=_ENTRIES))


def list_amendments(*, command: AmendmentList) -> Listing:
    """Return a page of the pairs that wait for a verdict, the last found first."""
    with retrieval("list", command), scopes.reading(command.scope):
        waiting = [amendment.id for amendment in open_amendments(is_certain=not command.all)]
        matching = Amendment.objects.filter(id__in=waiting)
        return newest_first(matching, command, partial(_views, compact=command.compact), amendment_line)


def _views(amendments: Sequence[Amendment], *, compact: bool) -> list[dict[str, Any]]:
    entities = find_entities({key for amendment in amendments for key in (amendment.newer_id, amendment.older_id)})
    views: list[dict[str, Any]] = []
    for amendment in amendments:
        newer, older = entities[amendment.newer_id], entities[amendment.older_id]
        if compact:
            views.append({"id": amendment.id, "title": newer.title})
            continue
        view = AmendmentView(
            id=amendment.id,
            kind=AmendmentKind(amendment.kind),
            certain=amendment.is_certain,
            newer=view_end(newer),
            older=view_end(older),
            scope=scopes.own_scope(),
            created_at=amendment.created_at,
        )
        views.append(view.model_dump(mode="json"))
    return views
