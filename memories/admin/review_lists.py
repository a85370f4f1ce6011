"""Review in the lists of memories: a filter by how they stand, and verdicts on many at once."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from memories.admin.answers import sentence
from memories.admin.section import SectionAdmin
from memories.events import Verdict
from memories.models import Memory, ReviewState
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_many
from memoryhub.core.admin import DefaultFilter, cells
from memoryhub.core.errors import HubError

_AT_ONCE = 200


class ReviewFilter(DefaultFilter):
    """What a person has rejected is hidden until it is asked for."""

    title = "review"
    parameter_name = "review"
    options = {
        "kept": "Not rejected",
        "accepted": "Accepted",
        "proposed": "Proposed",
        "rejected": "Rejected",
        "all": "All",
    }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what the choice says."""
        chosen = self.chosen()
        if chosen == "all":
            return queryset
        return queryset.filter(review=chosen) if chosen != "kept" else queryset.exclude(review=ReviewState.REJECTED)


class ReviewActions(SectionAdmin):
    """Verdicts on the chosen memories."""

    @admin.action(description="Accept", permissions=["change"])
    def accept_chosen(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        """Accept the chosen memories."""
        _review_chosen(request, queryset, Verdict.ACCEPTED)

    @admin.action(description="Reject", permissions=["change"])
    def reject_chosen(self, request: HttpRequest, queryset: QuerySet[Memory]) -> None:
        """Reject the chosen memories."""
        _review_chosen(request, queryset, Verdict.REJECTED)


def _review_chosen(request: HttpRequest, queryset: QuerySet[Memory], verdict: Verdict) -> None:
    ids = list(queryset.values_list("id", flat=True)[: _AT_ONCE + 1])
    if len(ids) > _AT_ONCE:
        messages.error(request, f"Choose at most {_AT_ONCE} memories at a time; nothing was changed.")
        return
    outcomes = review_many(commands=[ReviewVerdict(id=each, verdict=verdict) for each in ids])
    for outcome in outcomes:
        if outcome.refused:
            messages.warning(request, sentence(HubError(outcome.refused)))
    done = sum(not outcome.refused for outcome in outcomes)
    if done:
        messages.success(request, f"{cells.counted(done, 'memory', 'memories')} {verdict}.")
