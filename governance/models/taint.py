"""Roll-backs."""

from __future__ import annotations

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel


class RollbackAction(models.TextChoices):
    """What was done about what a source had left."""

    QUARANTINE = "quarantine", "Quarantined"
    UNDO = "undo", "Undone"


class Rollback(StoreModel):
    """What came of a source, set aside or undone at once; its id is the position of the event that says so."""

    id = PositionField(primary_key=True)
    action = models.CharField(max_length=16, choices=RollbackAction)
    selection = models.JSONField(default=dict)
    """Which events: session, actor, source, since, until."""
    steps = models.JSONField(default=list)
    """What was done, one object a thing, so that it can be undone."""
    left = models.JSONField(default=list)
    """What was left as it is, and why."""
    reason = models.TextField(blank=True)
    actor = models.CharField(max_length=200)
    made_at = models.DateTimeField()
    undone_by = models.CharField(max_length=200, blank=True)
    undone_at = models.DateTimeField(null=True)
    undone_left = models.JSONField(default=list)
    """What its undoing left as it is, and why."""

    def __str__(self) -> str:
        return f"roll-back #{self.id} ({self.action})"
