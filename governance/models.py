"""Read models, written by projectors only. Ids are positions of events."""

from __future__ import annotations

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel
from memoryhub.core.text import counted


class Redaction(StoreModel):
    id = PositionField(primary_key=True)
    what = models.CharField("found by", max_length=300, help_text="A rule, a pattern's label; never the text")
    reason = models.TextField(blank=True)
    events = models.PositiveIntegerField()
    actor = models.CharField(max_length=200)
    source = models.CharField("door", max_length=32)
    redacted_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"redaction #{self.id} of {counted(self.events, 'event')}"


class Hold(StoreModel):
    id = PositionField(primary_key=True)
    stream_id = models.CharField("what is held", max_length=200, help_text="A stream, or * for the whole store")
    reason = models.TextField()
    placed_by = models.CharField(max_length=200)
    placed_at = models.DateTimeField()
    lifted_by = models.CharField(max_length=200, blank=True)
    lifted_at = models.DateTimeField(null=True)
    lift_reason = models.TextField(blank=True)

    class Meta:
        indexes = [models.Index(fields=["stream_id"], condition=models.Q(lifted_at__isnull=True), name="hold_in_force")]

    def __str__(self) -> str:
        return f"hold #{self.id} on {self.stream_id}"


class RetentionRun(StoreModel):
    id = PositionField(primary_key=True)
    cutoff = models.DateTimeField(help_text="As of when ages were counted")
    digest = models.CharField(max_length=64, help_text="Of exactly what was to go")
    events = models.PositiveIntegerField(help_text="To go; once it ran, that went")
    bytes = models.PositiveBigIntegerField()
    # What is deleted by which rule, what is kept and why; after the run, what was deleted
    report = models.JSONField(default=dict)
    actor = models.CharField(max_length=200)
    source = models.CharField("door", max_length=32)
    began_at = models.DateTimeField("began")
    ran_at = models.DateTimeField("ended", null=True, help_text="Empty until it is at its end")

    class Meta:
        indexes = [models.Index(fields=["id"], condition=models.Q(ran_at__isnull=True), name="retention_unfinished")]

    def __str__(self) -> str:
        return f"retention #{self.id}: {counted(self.events, 'event')}"


class RollbackAction(models.TextChoices):
    QUARANTINE = "quarantine", "Quarantined"
    UNDO = "undo", "Undone"


class Rollback(StoreModel):
    id = PositionField(primary_key=True)
    action = models.CharField(max_length=16, choices=RollbackAction)
    # The filters of events: session_id, actor, source, since, until
    selection = models.JSONField(default=dict)
    # One object per change, so that undo can compute the inverse
    steps = models.JSONField(default=list)
    # What was not changed, and why
    left = models.JSONField(default=list)
    reason = models.TextField(blank=True)
    actor = models.CharField(max_length=200)
    made_at = models.DateTimeField()
    undone_by = models.CharField(max_length=200, blank=True)
    undone_at = models.DateTimeField(null=True)
    # What the undo did not change, and why
    undone_left = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"roll-back #{self.id} ({self.action})"


# The latest affirmation of a memory or decision
class Affirmation(StoreModel):
    entity_id = PositionField(primary_key=True)
    event = models.BigIntegerField(help_text="The position of the event that says so")
    actor = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    affirmed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"#{self.entity_id} affirmed"
