"""Holds, and the reports of retention."""

from __future__ import annotations

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel
from memoryhub.core.wording import counted


class Hold(StoreModel):
    """Something that no retention takes until it is lifted; its id is the position of the event that placed it."""

    id = PositionField(primary_key=True)
    stream_id = models.CharField("what is held", max_length=200, help_text="A stream, or * for the whole store")
    reason = models.TextField()
    placed_by = models.CharField(max_length=200)
    placed_at = models.DateTimeField()
    lifted_by = models.CharField(max_length=200, blank=True)
    lifted_at = models.DateTimeField(null=True)
    lift_reason = models.TextField(blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["stream_id"], condition=models.Q(lifted_at__isnull=True), name="hold_in_force"),
        ]

    def __str__(self) -> str:
        return f"hold #{self.id} on {self.stream_id}"


class RetentionRun(StoreModel):
    """One run of retention; its id is the position of the event that began it, which lists what may go."""

    id = PositionField(primary_key=True)
    cutoff = models.DateTimeField(help_text="As of when ages were counted")
    digest = models.CharField(max_length=64, help_text="Of exactly what was to go")
    events = models.PositiveIntegerField(help_text="To go; once it ran, that went")
    bytes = models.PositiveBigIntegerField()
    report = models.JSONField(default=dict)
    """Counts by rule and what is to go, and what is kept by what; once it ran, what went."""
    actor = models.CharField(max_length=200)
    source = models.CharField("door", max_length=32)
    began_at = models.DateTimeField("began")
    ran_at = models.DateTimeField("ended", null=True, help_text="Empty until it is at its end")

    class Meta:
        indexes = [models.Index(fields=["id"], condition=models.Q(ran_at__isnull=True), name="retention_unfinished")]

    def __str__(self) -> str:
        return f"retention #{self.id}: {counted(self.events, 'event')}"
