"""What was affirmed."""

from __future__ import annotations

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel


class Affirmation(StoreModel):
    """Someone looked at a thing again and found that it holds; the latest of each thing."""

    entity_id = PositionField(primary_key=True)
    event = models.BigIntegerField(help_text="The position of the event that says so")
    actor = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    affirmed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"#{self.entity_id} affirmed"
