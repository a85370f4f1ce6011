"""Read models of what we know. Projectors alone write them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel
from memoryhub.core.routing import StoreManager


class MemoryKind(models.TextChoices):
    """What a memory is."""

    OBSERVATION = "observation", "Observation"


class MemoryType(models.TextChoices):
    """What an observation is about."""

    NOTE = "note", "Note"
    DECISION = "decision", "Decision"
    TASK = "task", "Task"
    REFERENCE = "reference", "Reference"
    CONVERSATION = "conversation", "Conversation"


class MemoryQuerySet(models.QuerySet["Memory"]):
    """Filters that more than one caller needs."""

    def live(self) -> MemoryQuerySet:
        """Leave out what was deleted."""
        return self.filter(deleted_at__isnull=True)

    def tagged(self, *tags: str) -> MemoryQuerySet:
        """Keep those that have every one of the tags."""
        found = self
        for tag in tags:
            found = found.filter(id__in=MemoryTag.objects.filter(tag=tag).values("memory_id"))
        return found


MemoryManager = StoreManager.from_queryset(MemoryQuerySet)


class Memory(StoreModel):
    """A titled text that is kept; its id is the position of the event that wrote it first."""

    id = PositionField(primary_key=True)
    kind = models.CharField(max_length=16, choices=MemoryKind)
    type = models.CharField(max_length=16, choices=MemoryType)
    title = models.CharField(max_length=300)
    content = models.TextField()
    topic_key = models.CharField(max_length=300, null=True)
    content_hash = models.CharField(max_length=64)
    author = models.CharField(max_length=200, blank=True)
    source = models.TextField(blank=True)
    tags = models.JSONField(default=list)
    resource_links = models.JSONField(default=list)
    session_id = models.CharField("session", max_length=200, blank=True)
    version = models.PositiveIntegerField()
    ephemeral = models.BooleanField(help_text="Of a scratch session that has not ended yet")
    seen_count = models.PositiveIntegerField("seen")
    created_at = models.DateTimeField("created")
    updated_at = models.DateTimeField("updated")
    deleted_at = models.DateTimeField("deleted", null=True)

    objects: ClassVar[Any] = MemoryManager()

    class Meta:
        verbose_name_plural = "memories"
        constraints = [
            models.UniqueConstraint(
                fields=["topic_key"], condition=models.Q(deleted_at__isnull=True), name="memory_topic_key"
            )
        ]
        indexes = [
            models.Index(fields=["content_hash"], name="memory_content_hash"),
            models.Index(fields=["title"], name="memory_title"),
            models.Index(fields=["updated_at", "id"], name="memory_updated"),
        ]

    def __str__(self) -> str:
        return f"#{self.id} {self.title}"[:120]


class MemoryVersion(StoreModel):
    """One state of a memory. Its text is not copied here: it is the payload of the event at ``id``."""

    id = PositionField(primary_key=True)
    memory = models.ForeignKey(Memory, on_delete=models.DO_NOTHING, related_name="versions", db_constraint=False)
    version = models.PositiveIntegerField()
    base_version = models.PositiveIntegerField(null=True)
    reason = models.TextField(blank=True)
    actor = models.CharField(max_length=200)
    source = models.CharField("door", max_length=32)
    session_id = models.CharField("session", max_length=200, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["memory", "version"], name="memory_version_number")]

    def __str__(self) -> str:
        return f"version {self.version} of #{self.memory_id}"


class MemoryTag(StoreModel):
    """A tag on a memory."""

    pk = models.CompositePrimaryKey("tag", "memory_id")
    tag = models.CharField(max_length=64)
    memory = models.ForeignKey(Memory, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False)

    def __str__(self) -> str:
        return f"{self.tag} on #{self.memory_id}"


class SearchDocument(StoreModel):
    """What can be found: an entity of any app, with what searches filter by. Its text stays where it is."""

    id = PositionField(primary_key=True)
    source = models.CharField(max_length=16)
    kind = models.CharField(max_length=16, blank=True)
    type = models.CharField(max_length=16, blank=True)
    title = models.CharField(max_length=300)
    session_id = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["source", "created_at"], name="search_document_source")]

    def __str__(self) -> str:
        return f"#{self.id} {self.title}"[:120]
