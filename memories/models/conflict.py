"""Two versions that were written at once."""

from __future__ import annotations

from django.db import models

from memories.models.memory import Memory
from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel


class Resolution(models.TextChoices):
    """How a conflict was settled."""

    KEEP_A = "keep_a", "Keep the earlier version"
    KEEP_B = "keep_b", "Keep the later version"
    MERGE = "merge", "Merge them"
    BOTH = "both", "Keep both, as two memories"


class Conflict(StoreModel):
    """Version b was written by one who had not seen version a; its id is the position of the event that wrote b."""

    id = PositionField(primary_key=True)
    memory = models.ForeignKey(Memory, on_delete=models.DO_NOTHING, related_name="conflicts", db_constraint=False)
    version_a = models.PositiveIntegerField()
    version_b = models.PositiveIntegerField()
    detected_at = models.DateTimeField("detected")
    resolution = models.CharField(max_length=16, choices=Resolution, blank=True)
    reason = models.TextField(blank=True)
    resolved_by = models.CharField(max_length=200, blank=True)
    resolved_at = models.DateTimeField("resolved", null=True)
    resolved_version = models.PositiveIntegerField(null=True, help_text="The version that stands since")
    split_id = models.BigIntegerField(null=True, help_text="The memory that version a became, where both were kept")

    class Meta:
        indexes = [
            models.Index(fields=["memory"], condition=models.Q(resolved_at__isnull=True), name="conflict_open"),
        ]

    def __str__(self) -> str:
        return f"#{self.id} versions {self.version_a} and {self.version_b} of #{self.memory_id}"
