from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel
from memoryhub.core.stores.routing import StoreManager

# How many packs must have included a memory before it counts as ignored
IGNORED_AFTER = 5


class SearchDocument(StoreModel):
    """A findable entity of any app, with what searches filter by. Its text is stored elsewhere (decision 3)."""

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


class EmbeddingModel(StoreModel):
    """A model that the texts of this store were or are being embedded with; two while one replaces the other."""

    from_log: ClassVar[bool] = False

    name = models.CharField(max_length=300)
    version = models.CharField(max_length=64)
    dimensions = models.PositiveIntegerField()
    revision = models.PositiveBigIntegerField(default=0, help_text="Rises whenever its vectors change")
    complete = models.BooleanField(default=False, help_text="Whether it has been through the whole log once")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["name", "version"], name="embedding_model_name")]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class Vector(StoreModel):
    """One document's vector by one model: a signed byte per dimension, and a scale."""

    from_log: ClassVar[bool] = False

    pk = models.CompositePrimaryKey("document_id", "model_id")
    document_id = PositionField()
    model_id = models.IntegerField()
    content_hash = models.BinaryField(max_length=16)
    scale = models.FloatField()
    numbers = models.BinaryField()

    class Meta:
        indexes = [models.Index(fields=["content_hash"], name="vector_content")]

    def __str__(self) -> str:
        return f"#{self.document_id} by model {self.model_id}"


class MemoryUseQuerySet(models.QuerySet["MemoryUse"]):
    def ignored(self) -> MemoryUseQuerySet:
        """Filter for memories that at least ``IGNORED_AFTER`` packs included and nobody used."""
        return self.filter(given__gte=IGNORED_AFTER, found=0, fetched=0, cited=0, updated=0)

    def used(self) -> MemoryUseQuerySet:
        return self.exclude(found=0, fetched=0, cited=0, updated=0)


class MemoryUse(StoreModel):
    """How often a memory was used; one that never was has no row."""

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
        """When it was last found, fetched, cited or updated; being in a pack does not count."""
        return max(filter(None, (self.last_read_at, self.last_cited_at)), default=None)


class MemoryCitation(StoreModel):
    """A stream that names a memory, counted once."""

    pk = models.CompositePrimaryKey("memory_id", "stream_id")
    memory_id = PositionField()
    stream_id = models.CharField("what names it", max_length=200)
    cited_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["stream_id"], name="memory_citation_stream")]

    def __str__(self) -> str:
        return f"{self.stream_id} cites #{self.memory_id}"


# The section of what is given at a prompt
RECALL = "recall"


class ContextPack(StoreModel):
    """A pack as it was first sent. Its text is composed again from the logs (decision 16)."""

    id = PositionField(primary_key=True)
    session_id = models.CharField("session", max_length=200, blank=True)
    query = models.TextField(blank=True)
    max_tokens = models.PositiveIntegerField()
    tokens = models.PositiveIntegerField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of what it said")
    # ``{"facts #412": mark}``: what it contained; a changed mark means a changed line
    marks = models.JSONField(default=dict)
    # ``[["project:alpha", 412]]``: positions of the logs, nearest store first
    positions = models.JSONField(default=list)
    created_at = models.DateTimeField("sent")

    class Meta:
        indexes = [models.Index(fields=["session_id", "id"], name="context_pack_session")]

    def __str__(self) -> str:
        return f"pack #{self.id}"

    @property
    def topic(self) -> str:
        return "for a prompt" if self.is_recall else self.query or "latest changes"

    @property
    def is_recall(self) -> bool:
        """Whether it was given at a prompt."""
        return bool(self.marks) and all(key.startswith(f"{RECALL} ") for key in self.marks)
