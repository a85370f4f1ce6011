from __future__ import annotations

from django.db import models

from memories.models.memory import Memory
from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel

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
        constraints = [
            models.UniqueConstraint(fields=["source_id", "target_id", "relation"], name="relation_once"),
        ]
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
        indexes = [
            models.Index(fields=["memory"], condition=models.Q(resolved_at__isnull=True), name="conflict_open"),
        ]

    def __str__(self) -> str:
        return f"#{self.id} versions {self.version_a} and {self.version_b} of #{self.memory_id}"
