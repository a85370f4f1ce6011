"""What became of memories."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel
from memoryhub.core.routing import StoreManager


class MemoryUseQuerySet(models.QuerySet["MemoryUse"]):
    """Filters that more than one caller needs."""

    def ignored(self) -> MemoryUseQuerySet:
        """Keep what packs told, and what nobody came back to."""
        return self.filter(given__gt=0, found=0, fetched=0, cited=0, updated=0)

    def used(self) -> MemoryUseQuerySet:
        """Keep what was found, fetched, cited or updated."""
        return self.exclude(found=0, fetched=0, cited=0, updated=0)


class MemoryUse(StoreModel):
    """How often a memory came to use; one that never did has no row."""

    memory_id = PositionField(primary_key=True)
    given = models.PositiveIntegerField(default=0, help_text="Told by a context pack")
    found = models.PositiveIntegerField(default=0, help_text="Shown by a search")
    fetched = models.PositiveIntegerField(default=0, help_text="Asked for by id or name")
    cited = models.PositiveIntegerField(default=0, help_text="Things that name it")
    updated = models.PositiveIntegerField(default=0, help_text="New versions")
    last_given_at = models.DateTimeField(null=True)
    last_read_at = models.DateTimeField(null=True, help_text="Found, fetched or updated")
    last_cited_at = models.DateTimeField(null=True)

    objects: ClassVar[Any] = StoreManager.from_queryset(MemoryUseQuerySet)()

    def __str__(self) -> str:
        return f"use of #{self.memory_id}"

    @property
    def last_used_at(self) -> datetime | None:
        """When it was last found, fetched, cited or updated; that a pack told it is no use yet."""
        return max(filter(None, (self.last_read_at, self.last_cited_at)), default=None)


class MemoryCitation(StoreModel):
    """Something of the store names a memory; once for each that does."""

    pk = models.CompositePrimaryKey("memory_id", "stream_id")
    memory_id = PositionField()
    stream_id = models.CharField("what names it", max_length=200)
    cited_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["stream_id"], name="memory_citation_stream")]

    def __str__(self) -> str:
        return f"{self.stream_id} cites #{self.memory_id}"
