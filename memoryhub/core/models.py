"""The log's own tables; everything else in a store is built from them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.stores.routing import StoreManager


# Base of every model in a store: its managers are pinned to the current store.
class StoreModel(models.Model):
    objects: ClassVar[StoreManager] = StoreManager()
    # Whether its rows follow from events alone, so that a rebuild creates and compares them.
    from_log: ClassVar[bool] = True
    # Fields that no event of another stream sets or changes; sampled comparisons check only these.
    from_own_stream: ClassVar[tuple[str, ...]] = ()

    class Meta:
        abstract = True
        base_manager_name = "objects"


# An immutable event. Triggers refuse changes other than erasing or redacting its payload.
class RawEvent(StoreModel):
    position = PositionField(primary_key=True)
    event_id = models.CharField(max_length=36, unique=True)
    project_id = models.CharField(max_length=64)
    session_id = models.CharField(max_length=200, blank=True)
    turn_id = models.CharField(max_length=200, blank=True)
    stream_id = models.CharField(max_length=200)
    stream_seq = models.BigIntegerField()
    event_type = models.CharField(max_length=64)
    event_version = models.PositiveSmallIntegerField()
    occurred_at = models.CharField(max_length=24, help_text="UTC, ISO 8601 with milliseconds")
    actor = models.CharField(max_length=200)
    source = models.CharField(max_length=32)
    payload_json = models.TextField(null=True, help_text="Canonical JSON; NULL once erased")
    salt = models.CharField(max_length=32, null=True, help_text="Hexadecimal; goes with the payload")
    payload_digest = models.CharField(max_length=64)
    chain_digest = models.CharField(max_length=64)
    idempotency_key = models.CharField(max_length=200, null=True, unique=True)
    trace_id = models.CharField(max_length=64, blank=True)

    class Meta:
        db_table = "raw_events"
        verbose_name = "event"
        constraints = [models.UniqueConstraint(fields=["stream_id", "stream_seq"], name="raw_events_stream")]
        indexes = [
            models.Index(fields=["event_type", "position"], name="raw_events_type"),
            models.Index(fields=["session_id", "position"], name="raw_events_session"),
            models.Index(fields=["occurred_at"], name="raw_events_time"),
        ]

    def __str__(self) -> str:
        return f"#{self.position} {self.event_type}"


# How far a projector outside the write transaction has come.
class ProjectionOffset(StoreModel):
    projector = models.CharField(max_length=64, primary_key=True)
    position = PositionField()

    class Meta:
        db_table = "projection_offsets"

    def __str__(self) -> str:
        return f"{self.projector} at #{self.position}"


# An entity hidden until it is released (decision 27).
class Quarantine(StoreModel):
    id = PositionField(primary_key=True)
    placed_by = models.BigIntegerField(help_text="The position of the event that set it aside")

    class Meta:
        db_table = "quarantine"

    def __str__(self) -> str:
        return f"#{self.id} in quarantine"
