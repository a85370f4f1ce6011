"""Read models of memories. Only projectors write them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from django.db import models
from django.db.models.expressions import RawSQL

from memories.pack_sorts import PackSort, sort_of
from memories.validity.models import CheckState, Provenance  # noqa: F401  (Django finds models through this module)
from memoryhub.core.fields import PositionField
from memoryhub.core.kinds import KINDS, Kind
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
    def outside_quarantine(self) -> MemoryQuerySet:
        return self.exclude(id__in=Quarantine.objects.values("id"))

    def live(self, *, include_deleted: bool = False) -> MemoryQuerySet:
        """Exclude quarantined memories, and deleted and rejected ones unless ``include_deleted``."""
        memories = self
        if not include_deleted:
            memories = self.filter(_LIVE).exclude(review=ReviewState.REJECTED)
        return memories.outside_quarantine()

    def in_review(self, state: ReviewState) -> MemoryQuerySet:
        """Filter by a review state other than accepted."""
        matching = self.filter(_LIVE, review=state).outside_quarantine()
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

    from_own_stream: ClassVar[tuple[str, ...]] = tuple(
        (
            "kind type scope title content content_hash author source tags resource_links attributes priority "
            "confidence valid_until session_id version seen_count created_at"
        ).split()
    )

    id = PositionField(primary_key=True)
    # With the labels that the migrations have: pages take theirs from ``KINDS``
    kind = models.CharField(max_length=16, choices=[(name, name.capitalize()) for name in KINDS])
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
            # Sections of documents, by file
            models.Index(fields=["source"], condition=models.Q(type="reference"), name="memory_reference"),
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
    if kind.plural_name:
        meta["verbose_name_plural"] = kind.plural_name
    members = {"__module__": __name__, "objects": _KindManager(kind.name), "Meta": type("Meta", (), meta)}
    return type(kind.name.capitalize(), (Memory,), members)


KIND_MODELS: Mapping[str, type[Memory]] = {name: _proxy(kind) for name, kind in KINDS.items()}


class MemoryVersion(StoreModel):
    """A version of a memory. Its text is the payload of the event at ``id`` (decision 2)."""

    from_own_stream: ClassVar[tuple[str, ...]] = tuple(
        ("memory version base_version reason actor source session_id copied_from created_at").split()
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
    copied_from = models.CharField(max_length=8, null=True, help_text="web, tool or import, if the text is a copy")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["memory", "version"], name="memory_version_number")]

    def __str__(self) -> str:
        return f"version {self.version} of #{self.memory_id}"


class MemoryTag(StoreModel):
    from_own_stream: ClassVar[tuple[str, ...]] = ("tag", "memory")

    pk = models.CompositePrimaryKey("tag", "memory_id")
    tag = models.CharField(max_length=64)
    memory = models.ForeignKey(Memory, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False)

    def __str__(self) -> str:
        return f"{self.tag} on #{self.memory_id}"


# The id of the project as the end of a relation: no event has position 0
PROJECT = 0


class Tag(StoreModel):
    """A described tag; tags that are only used have no row. Its id is the position of its event."""

    id = PositionField(primary_key=True)
    name = models.CharField(max_length=64, unique=True)
    category = models.CharField(max_length=64)
    description = models.TextField(blank=True)
    created_at = models.DateTimeField("created")

    def __str__(self) -> str:
        return f"#{self.id} {self.name}"


class RelationType(models.TextChoices):
    APPLIES_TO = "applies_to", "Applies to"
    DEPENDS_ON = "depends_on", "Depends on"
    CONFLICTS_WITH = "conflicts_with", "Conflicts with"
    RELATED_TO = "related_to", "Related to"
    SUPERSEDES = "supersedes", "Supersedes"
    DERIVED_FROM = "derived_from", "Derived from"


# Symmetric relations
SYMMETRIC = frozenset({RelationType.CONFLICTS_WITH, RelationType.RELATED_TO})
# Relations that must not form cycles
ACYCLIC = frozenset({RelationType.DEPENDS_ON, RelationType.SUPERSEDES, RelationType.DERIVED_FROM})


def statement(relation: str, source: int, target: int) -> tuple[str, int, int]:
    """Return a key that equal relations share; the ends of symmetric ones are ordered."""
    if relation in SYMMETRIC:
        return relation, min(source, target), max(source, target)
    return relation, source, target


class EndType(models.TextChoices):
    MEMORY = "memory", "Memory"
    DECISION = "decision", "Decision"
    COMMIT = "commit", "Commit"
    SESSION = "session", "Session"
    PROJECT = "project", "Project"


class Relation(StoreModel):
    id = PositionField(primary_key=True)
    relation = models.CharField(max_length=16, choices=RelationType)
    source_type = models.CharField(max_length=16, choices=EndType)
    source_id = models.BigIntegerField()
    target_type = models.CharField(max_length=16, choices=EndType)
    target_id = models.BigIntegerField()
    actor = models.CharField("made by", max_length=200)
    session_id = models.CharField("session", max_length=200, blank=True)
    created_at = models.DateTimeField("created")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["source_id", "target_id", "relation"], name="relation_once")]
        indexes = [models.Index(fields=["target_id", "relation"], name="relation_target")]

    def __str__(self) -> str:
        return f"#{self.id} #{self.source_id} {self.relation} #{self.target_id}"


class Resolution(models.TextChoices):
    KEEP_A = "keep_a", "Keep the earlier version"
    KEEP_B = "keep_b", "Keep the later version"
    MERGE = "merge", "Merge them"
    BOTH = "both", "Keep both, as two memories"


class Conflict(StoreModel):
    """Version b was written without knowledge of version a; the id is the position of the event that wrote b."""

    id = PositionField(primary_key=True)
    memory = models.ForeignKey(Memory, on_delete=models.DO_NOTHING, related_name="conflicts", db_constraint=False)
    version_a = models.PositiveIntegerField()
    version_b = models.PositiveIntegerField()
    detected_at = models.DateTimeField("detected")
    resolution = models.CharField(max_length=16, choices=Resolution, blank=True)
    reason = models.TextField(blank=True)
    resolved_by = models.CharField(max_length=200, blank=True)
    resolved_at = models.DateTimeField("resolved", null=True)
    resolved_version = models.PositiveIntegerField(null=True, help_text="The version that stands since")
    split_id = models.BigIntegerField(null=True, help_text="The memory that version a became, where both were kept")

    class Meta:
        indexes = [models.Index(fields=["memory"], condition=models.Q(resolved_at__isnull=True), name="conflict_open")]

    def __str__(self) -> str:
        return f"#{self.id} versions {self.version_a} and {self.version_b} of #{self.memory_id}"


class AnchorSource(models.TextChoices):
    TEXT = "text", "Its text"
    SESSION = "session", "Edits of its session"
    COMMIT = "commit", "Its commits"
    PERSON = "person", "A person"


class CodeAnchor(StoreModel):
    """A part of the code that a memory or decision is about."""

    pk = models.CompositePrimaryKey("entity_id", "number")
    entity_id = PositionField()
    number = models.PositiveSmallIntegerField()
    path = models.TextField()
    symbol = models.TextField(blank=True)
    first = models.PositiveIntegerField(help_text="Number of the first line; 0 for a whole file")
    last = models.PositiveIntegerField()
    digest = models.CharField(max_length=32, blank=True, help_text="Of the lines")
    words = models.JSONField(default=list, help_text="Names and values of the entry that the file had")
    made_from = models.CharField(max_length=16, choices=AnchorSource)

    class Meta:
        indexes = [models.Index(fields=["path"], name="anchor_path")]

    def __str__(self) -> str:
        return f"anchor {self.number} of #{self.entity_id}"


class AmendmentKind(models.TextChoices):
    AMENDS = "amends", "Amends"
    CONTRADICTS = "contradicts", "Contradicts"


class Amendment(StoreModel):
    """The newer of two entries seems to amend or contradict the older one."""

    id = PositionField(primary_key=True)
    newer_id = PositionField()
    older_id = PositionField()
    kind = models.CharField(max_length=16, choices=AmendmentKind)
    is_certain = models.BooleanField()
    is_accepted = models.BooleanField(null=True, help_text="None until a person judges it")
    created_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["newer_id", "older_id"], name="amendment_once")]
        indexes = [models.Index(fields=["older_id"], name="amendment_older")]

    def __str__(self) -> str:
        return f"#{self.newer_id} {self.kind} #{self.older_id}"


# How many packs must have included a memory before it counts as ignored
IGNORED_AFTER = 5


class SearchDocument(StoreModel):
    """A findable entity of any app, with what searches filter by. Its text is stored elsewhere (decision 3)."""

    from_own_stream: ClassVar[tuple[str, ...]] = ("source", "kind", "type", "title")

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
        return self.query or self.sort.topic

    @property
    def sort(self) -> PackSort:
        return sort_of(self.marks)
