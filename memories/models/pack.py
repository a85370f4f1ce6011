"""Context packs that were sent."""

from __future__ import annotations

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel


class ContextPack(StoreModel):
    """A pack as it was sent first; its text is not kept, but made again from the stores as they stood."""

    id = PositionField(primary_key=True)
    session_id = models.CharField("session", max_length=200, blank=True)
    query = models.TextField(blank=True)
    max_tokens = models.PositiveIntegerField()
    tokens = models.PositiveIntegerField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of what it said")
    marks = models.JSONField(default=dict)
    """``{"facts #412": mark}``: what it told, and by which mark a change of it is known."""
    positions = models.JSONField(default=list)
    """``[["project:alpha", 412]]``: how far the logs had come, the nearest store first."""
    created_at = models.DateTimeField("sent")

    class Meta:
        indexes = [models.Index(fields=["session_id", "id"], name="context_pack_session")]

    def __str__(self) -> str:
        return f"pack #{self.id}"
