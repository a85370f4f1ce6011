"""What can be found, and what searches filter by."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel


class SearchDocument(StoreModel):
    """What can be found: an entity of any app, with what searches filter by. Its text stays where it is."""

    from_own_stream: ClassVar[tuple[str, ...]] = (
        "source",
        "kind",
        "type",
        "title",
    )

    id = PositionField(primary_key=True)
    source = models.CharField(max_length=16)
    kind = models.CharField(max_length=16, blank=True)
    type = models.CharField(max_length=64, blank=True)
    title = models.CharField(max_length=300)
    session_id = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["source", "created_at"], name="search_document_source")]

    def __str__(self) -> str:
        return f"#{self.id} {self.title}"[:120]
