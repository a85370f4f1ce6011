from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db import models
from django.db.models.expressions import RawSQL

from memoryhub.core.fields import PositionField
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.kinds.definition import Kind
from memoryhub.core.models import Quarantine, StoreModel
from memoryhub.core.stores.routing import StoreManager


class MemoryKind(models.TextChoices):
    # The members are the declared kinds.
    vars().update({kind.name.upper(): (kind.name, kind.label) for kind in KINDS.values()})


class MemoryScope(models.TextChoices):
    SESSION = "session", "Session"
    PROJECT = "project", "Project"
    ORG = "org", "Organisation"
    GLOBAL = "global", "Global"


class ReviewState(models.TextChoices):
    ACCEPTED = "accepted", "Accepted"
    PROPOSED = "proposed", "Proposed"
    REJECTED = "rejected", "Rejected"


_LIVE = models.Q(deleted_at__isnull=True)
_UNREVIEWED = ~models.Q(review=ReviewState.ACCEPTED)
_OF_SESSION = models.Q(scope=MemoryScope.SESSION)


class MemoryQuerySet(models.QuerySet["Memory"]):
    def live(self) -> MemoryQuerySet:
        """Exclude deleted, rejected and quarantined memories."""
        set_aside = Quarantine.objects.values("id")
        return self.filter(_LIVE).exclude(review=ReviewState.REJECTED).exclude(id__in=set_aside)

    def in_review(self, state: ReviewState) -> MemoryQuerySet:
        """Filter by a review state other than accepted."""
        set_aside = Quarantine.objects.values("id")
        matching = self.filter(deleted_at__isnull=True, review=state).exclude(id__in=set_aside)
        # Written exactly as in the partial index memory_review, so that SQLite uses it
        return matching.filter(RawSQL("NOT (memories_memory.review = 'accepted')", [], models.BooleanField()))

    def of_session(self, session_id: str) -> MemoryQuerySet:
        """Exclude memories of other sessions."""
        return self.filter(~_OF_SESSION | models.Q(session_id=session_id))

    def tagged(self, *tags: str) -> MemoryQuerySet:
        """Filter by having all of the tags."""
        memories = self
        for tag in tags:
            memories = memories.filter(id__in=MemoryTag.objects.filter(tag=tag).values("memory_id"))
        return memories


MemoryManager = StoreManager.from_queryset(MemoryQuerySet)


class Memory(StoreModel):
    """A titled text; its id is the position of the event that created it."""

    from_own_stream: ClassVar[tuple[str, ...]] = (
        "kind",
        "type",
        "scope",
        "title",
        "content",
        "content_hash",
        "author",
        "source",
        "tags",
        "resource_links",
        "attributes",
        "priority",
        "confidence",
        "valid_until",
        "session_id",
        "version",
        "seen_count",
        "created_at",
    )

    id = PositionField(primary_key=True)
    kind = models.CharField(max_length=16, choices=MemoryKind)
    type = models.CharField(max_length=64)
    scope = models.CharField(max_length=16, choices=MemoryScope, default=MemoryScope.PROJECT)
    title = models.CharField(max_length=300)
    content = models.TextField()
    topic_key = models.CharField(max_length=300, null=True)
    content_hash = models.CharField(max_length=64)
    author = models.CharField(max_length=200, blank=True)
    source = models.TextField(blank=True)
    tags = models.JSONField(default=list)
    resource_links = models.JSONField(default=list)
    attributes = models.JSONField(default=dict)
    # The next three are copies of attributes, to filter and order by
    priority = models.PositiveSmallIntegerField(null=True, help_text="Of a guideline, 0 to 100")
    confidence = models.FloatField(null=True, help_text="Of knowledge, 0 to 1")
    valid_until = models.DateTimeField(null=True, help_text="Of knowledge")
    session_id = models.CharField("session", max_length=200, blank=True)
    version = models.PositiveIntegerField()
    ephemeral = models.BooleanField(help_text="Of a scratch session that has not ended yet")
    seen_count = models.PositiveIntegerField("seen")
    created_at = models.DateTimeField("created")
    updated_at = models.DateTimeField("updated")
    deleted_at = models.DateTimeField("deleted", null=True)
    review = models.CharField(max_length=16, choices=ReviewState, default=ReviewState.ACCEPTED)
    review_reason = models.TextField(blank=True, default="", help_text="Why it waits for a person, or was rejected")
    accepted_version = models.PositiveIntegerField(null=True, help_text="The one that holds while a later one waits")

    objects: ClassVar[Any] = MemoryManager()

    class Meta:
        verbose_name_plural = "memories"
        constraints = [
            models.UniqueConstraint(fields=["topic_key"], condition=_LIVE & ~_OF_SESSION, name="memory_topic_key"),
            models.UniqueConstraint(
                fields=["session_id", "topic_key"], condition=_LIVE & _OF_SESSION, name="memory_session_topic_key"
            ),
        ]
        indexes = [
            models.Index(fields=["content_hash"], name="memory_content_hash"),
            models.Index(fields=["title"], name="memory_title"),
            models.Index(fields=["updated_at", "id"], name="memory_updated"),
            # The other columns: lists count their facets in this index alone, without reading the texts
            models.Index(
                fields=["kind", "updated_at", "type", "review", "deleted_at", "scope", "author", "session_id"],
                name="memory_facets",
            ),
            models.Index(fields=["session_id"], condition=_OF_SESSION, name="memory_of_session"),
            models.Index(fields=["valid_until"], condition=models.Q(valid_until__isnull=False), name="memory_expiry"),
            models.Index(fields=["deleted_at"], condition=models.Q(deleted_at__isnull=False), name="memory_deleted"),
            models.Index(fields=["review", "updated_at", "id"], condition=_UNREVIEWED, name="memory_review"),
            models.Index(fields=["id"], condition=~models.Q(resource_links=[]), name="memory_links"),
        ]

    def __str__(self) -> str:
        return f"#{self.id} {self.title}"[:120]


# A proxy model for each kind, because the admin registers its lists by model
class _KindManager(MemoryManager):
    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self._kind = kind

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().filter(kind=self._kind)


def _proxy(kind: Kind) -> type[Memory]:
    meta: dict[str, Any] = {"proxy": True, "app_label": "memories"}
    if kind.plural.lower() != f"{kind.name}s":
        meta["verbose_name_plural"] = kind.plural.lower()
    members = {"__module__": __name__, "objects": _KindManager(kind.name), "Meta": type("Meta", (), meta)}
    return type(kind.name.capitalize(), (Memory,), members)


KIND_MODELS: Mapping[str, type[Memory]] = {name: _proxy(kind) for name, kind in KINDS.items()}


class MemoryVersion(StoreModel):
    """A version of a memory. Its text is the payload of the event at ``id`` (decision 2)."""

    from_own_stream: ClassVar[tuple[str, ...]] = (
        "memory",
        "version",
        "base_version",
        "reason",
        "actor",
        "source",
        "session_id",
        "created_at",
    )

    id = PositionField(primary_key=True)
    memory = models.ForeignKey(Memory, on_delete=models.DO_NOTHING, related_name="versions", db_constraint=False)
    version = models.PositiveIntegerField()
    base_version = models.PositiveIntegerField(null=True)
    conflicts_with = models.PositiveIntegerField(null=True, help_text="The version that its writer had not seen")
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
    from_own_stream: ClassVar[tuple[str, ...]] = (
        "tag",
        "memory",
    )

    pk = models.CompositePrimaryKey("tag", "memory_id")
    tag = models.CharField(max_length=64)
    memory = models.ForeignKey(Memory, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False)

    def __str__(self) -> str:
        return f"{self.tag} on #{self.memory_id}"
