"""Read models of decisions. Only projectors write them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel


class Impact(models.TextChoices):
    LOW = "low", "Low"
    MEDIUM = "medium", "Medium"
    HIGH = "high", "High"
    CRITICAL = "critical", "Critical"


class DecisionStatus(models.TextChoices):
    PROPOSED = "proposed", "Proposed"
    ACCEPTED = "accepted", "Accepted"
    SUPERSEDED = "superseded", "Superseded"
    DEPRECATED = "deprecated", "Deprecated"
    REJECTED = "rejected", "Rejected"


class Decision(StoreModel):
    """A choice; its id is the position of the event that recorded it. Its text never changes."""

    from_own_stream: ClassVar[tuple[str, ...]] = (
        "title",
        "context",
        "chosen",
        "alternatives",
        "rationale",
        "impact",
        "phase",
        "topic",
        "author",
        "source",
        "decided_at",
    )

    id = PositionField(primary_key=True)
    title = models.CharField(max_length=300)
    context = models.TextField(blank=True)
    chosen = models.TextField()
    # A list of objects: {"option": str, "why_not": str}
    alternatives = models.JSONField(default=list)
    rationale = models.TextField(blank=True)
    impact = models.CharField(max_length=16, choices=Impact)
    phase = models.CharField(max_length=64, blank=True)
    topic = models.CharField(max_length=200, blank=True)
    status = models.CharField(max_length=16, choices=DecisionStatus)
    review = models.TextField("to review", blank=True, help_text="Why someone should look at it again")
    iteration_id = models.BigIntegerField(null=True, help_text="The iteration that was active when it was recorded")
    session_id = models.CharField("session", max_length=200, blank=True)
    turn_id = models.CharField("turn", max_length=200, blank=True)
    author = models.CharField(max_length=200, blank=True)
    source = models.CharField("where it comes from", max_length=1_000, blank=True)
    decided_at = models.DateTimeField("decided")

    class Meta:
        indexes = [
            models.Index(fields=["status", "id"], name="decision_status"),
            models.Index(fields=["topic", "id"], condition=~models.Q(topic=""), name="decision_topic"),
            models.Index(fields=["source"], condition=~models.Q(source=""), name="decision_source"),
            models.Index(fields=["iteration_id"], condition=models.Q(iteration_id__isnull=False), name="decision_iter"),
        ]

    def __str__(self) -> str:
        return f"#{self.id} {self.title}"[:120]


class EdgeRelation(models.TextChoices):
    SUPERSEDES = "supersedes", "Supersedes"
    REFINES = "refines", "Refines"
    DEPENDS_ON = "depends_on", "Depends on"
    CONFLICTS_WITH = "conflicts_with", "Conflicts with"
    RELATES_TO = "relates_to", "Relates to"


# These relations form an acyclic graph.
LINEAGE = (EdgeRelation.SUPERSEDES, EdgeRelation.REFINES, EdgeRelation.DEPENDS_ON)
# Decisions of these statuses hold until another supersedes them
IN_FORCE = (DecisionStatus.ACCEPTED, DecisionStatus.PROPOSED)
# Decisions of these statuses supersede no accepted one
NEVER_ACCEPTED = (DecisionStatus.PROPOSED, DecisionStatus.REJECTED)


class DecisionEdge(StoreModel):
    pk = models.CompositePrimaryKey("from_id", "relation", "to_id")
    from_id = models.BigIntegerField()
    relation = models.CharField(max_length=16, choices=EdgeRelation)
    to_id = models.BigIntegerField()
    event = models.BigIntegerField(help_text="The position of the event that made it")

    class Meta:
        indexes = [models.Index(fields=["to_id", "relation", "from_id"], name="decision_edge_to")]

    def __str__(self) -> str:
        return f"#{self.from_id} {self.relation} #{self.to_id}"


class LinkType(models.TextChoices):
    IMPLEMENTS = "implements", "Implements"
    REVERTS = "reverts", "Reverts"
    RELATES = "relates", "Relates to"


class CommitLink(StoreModel):
    pk = models.CompositePrimaryKey("decision_id", "commit_id")
    decision_id = models.BigIntegerField()
    commit_id = models.BigIntegerField()
    link_type = models.CharField(max_length=16, choices=LinkType)
    event = models.BigIntegerField(help_text="The position of the event that made it")

    class Meta:
        indexes = [models.Index(fields=["commit_id"], name="commit_link_commit")]

    def __str__(self) -> str:
        return f"commit #{self.commit_id} {self.link_type} #{self.decision_id}"


class ArtifactKind(models.TextChoices):
    COMMIT = "commit", "Commit that is not recorded yet"
    FILE_PATH = "file_path", "File"
    PR = "pr", "Pull request"
    NOTE = "note", "Note"
    VALIDATION = "validation", "Validation"
    # As in memories.validity.check_runs
    CHECK = "check", "Check"


# By the names of evidence in schemas and files
KIND_OF_FIELD = {
    "files": ArtifactKind.FILE_PATH,
    "prs": ArtifactKind.PR,
    "notes": ArtifactKind.NOTE,
    "validations": ArtifactKind.VALIDATION,
    "checks": ArtifactKind.CHECK,
}


class ArtifactLink(StoreModel):
    pk = models.CompositePrimaryKey("decision_id", "kind", "value")
    decision_id = models.BigIntegerField()
    kind = models.CharField(max_length=16, choices=ArtifactKind)
    value = models.CharField(max_length=2_000)
    event = models.BigIntegerField(help_text="The position of the event that made it")

    class Meta:
        indexes = [models.Index(fields=["kind", "value"], name="artifact_value")]

    def __str__(self) -> str:
        return f"{self.kind} {self.value} of #{self.decision_id}"[:120]


class CommitFile(StoreModel):
    """Index from a file to the commits that touched it, and so to their decisions."""

    pk = models.CompositePrimaryKey("path", "commit_id")
    path = models.CharField(max_length=1_000)
    commit_id = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.path} in #{self.commit_id}"
