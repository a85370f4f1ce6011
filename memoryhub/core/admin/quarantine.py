"""What is in quarantine, in lists: hidden until it is asked for."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from memoryhub.core.admin.filters import DefaultFilter
from memoryhub.core.models import Quarantine


class QuarantineFilter(DefaultFilter):
    """Shown where anything is in quarantine; the page says by ``quarantine_field`` which field has the id."""

    title = "quarantine"
    parameter_name = "quarantine"
    options = {"outside": "Not in quarantine", "inside": "In quarantine", "all": "All"}

    _field = "pk"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the options, none where nothing is in quarantine."""
        self._field = model_admin.quarantine_field
        return super().lookups(request, model_admin) if Quarantine.objects.exists() else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep what the choice says."""
        wanted = {f"{self._field}__in": Quarantine.objects.values("id")}
        if self.chosen() == "all":
            return queryset
        return queryset.filter(**wanted) if self.chosen() == "inside" else queryset.exclude(**wanted)
