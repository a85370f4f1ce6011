"""Redactions after the fact."""

from __future__ import annotations

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel
from memoryhub.core.wording import counted


class Redaction(StoreModel):
    """Text that was taken out of events; its id is the position of the event that says so. The text is nowhere."""

    id = PositionField(primary_key=True)
    what = models.CharField("found by", max_length=300, help_text="A rule, a pattern's label; never the text")
    reason = models.TextField(blank=True)
    events = models.PositiveIntegerField()
    actor = models.CharField(max_length=200)
    source = models.CharField("door", max_length=32)
    redacted_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"redaction #{self.id} of {counted(self.events, 'event')}"
