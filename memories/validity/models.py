"""Read models of what is known for or against entries. Only projectors write them."""

from __future__ import annotations

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel


class Provenance(StoreModel):
    """The state of the working tree in which a memory or decision was written, by its id."""

    id = PositionField(primary_key=True)
    commit = models.CharField(max_length=64)
    branch = models.TextField(blank=True)
    has_edits = models.BooleanField(help_text="Its session had edits that were not committed")

    class Meta:
        indexes = [models.Index(fields=["branch"], name="provenance_branch")]

    def __str__(self) -> str:
        return f"provenance of #{self.id}"


class CheckOutcome(models.TextChoices):
    PASSED = "passed", "Passed"
    FAILED = "failed", "Failed"


class CheckState(StoreModel):
    """What is known of a check of a memory or decision: who allowed its command, and its last result."""

    pk = models.CompositePrimaryKey("entity_id", "digest")
    entity_id = PositionField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the check")
    text = models.TextField()
    # Proves that the permission was given in this hub; empty without one
    seal = models.CharField(max_length=64, blank=True)
    allowed_by = models.CharField(max_length=200, blank=True)
    allowed_at = models.DateTimeField(null=True)
    # Empty before the first run
    outcome = models.CharField(max_length=16, choices=CheckOutcome, blank=True)
    file = models.CharField(max_length=300, blank=True, help_text="The file of tests that has it, unless the entry has")
    exit_code = models.IntegerField(null=True)
    seconds = models.FloatField(null=True)
    commit = models.CharField(max_length=64, blank=True)
    output = models.TextField(blank=True)
    ran_by = models.CharField(max_length=200, blank=True)
    ran_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["entity_id"], condition=models.Q(outcome="failed"), name="check_failed")]

    def __str__(self) -> str:
        return f"check of #{self.entity_id}"
