"""Read models of sessions, turns, iterations and commits. Only projectors write them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel


class SessionMode(models.TextChoices):
    WORKING = "working", "Working period"
    SCRATCH = "scratch", "Scratch space"


class SessionStatus(models.TextChoices):
    ACTIVE = "active", "Active"
    PAUSED = "paused", "Paused"
    COMPLETED = "completed", "Completed"
    DISCARDED = "discarded", "Discarded"


class Session(StoreModel):
    """A period of work of one agent; its id is the position of the event that started it."""

    from_own_stream: ClassVar[tuple[str, ...]] = (
        "session_id",
        "purpose",
        "mode",
        "directory",
        "agent",
        "started_at",
        "summary",
    )

    id = PositionField(primary_key=True)
    session_id = models.CharField("name", max_length=200, unique=True)
    purpose = models.TextField(blank=True)
    mode = models.CharField(max_length=16, choices=SessionMode)
    status = models.CharField(max_length=16, choices=SessionStatus)
    directory = models.TextField(blank=True)
    agent = models.CharField(max_length=200, blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    summary = models.TextField(blank=True)

    class Meta:
        indexes = [models.Index(fields=["status", "started_at"], name="session_status")]

    def __str__(self) -> str:
        return f"#{self.id} {self.purpose or self.session_id}"[:120]


class TurnStatus(models.TextChoices):
    """A turn begins open and ends closed, or incomplete if its token expires."""

    OPEN = "open", "Open"
    CLOSED = "closed", "Closed"
    INCOMPLETE = "incomplete", "Incomplete"


class Turn(StoreModel):
    """A user request and the work that answers it; its id is the position of the event that began it."""

    from_own_stream: ClassVar[tuple[str, ...]] = ("session_id", "turn_id", "began_at", "actor", "summary")

    id = PositionField(primary_key=True)
    session_id = models.CharField("session", max_length=200)
    turn_id = models.CharField("name", max_length=200)
    status = models.CharField(max_length=16, choices=TurnStatus)
    automatic = models.BooleanField(help_text="Opened by the hub itself; it has no token")
    ack_token_hash = models.CharField(max_length=64, blank=True)
    ack_seconds = models.PositiveIntegerField(help_text="For so long after its last event it stays open")
    expires_at = models.DateTimeField()
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    actor = models.CharField(max_length=200)
    event_count = models.PositiveIntegerField("events")
    summary = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["session_id", "turn_id"], name="turn_name")]
        indexes = [
            models.Index(fields=["status", "expires_at"], name="turn_status"),
            models.Index(fields=["ack_token_hash"], name="turn_token"),
        ]

    def __str__(self) -> str:
        return f"#{self.id} turn {self.turn_id}"


class IterationStatus(models.TextChoices):
    ACTIVE = "active", "Active"
    COMPLETED = "completed", "Completed"
    ABANDONED = "abandoned", "Abandoned"


class Iteration(StoreModel):
    """A piece of work in phases, such as a feature; at most one is active in a project."""

    from_own_stream: ClassVar[tuple[str, ...]] = ("command", "description", "session_id", "started_at")

    id = PositionField(primary_key=True)
    command = models.CharField(max_length=64)
    description = models.TextField(blank=True)
    status = models.CharField(max_length=16, choices=IterationStatus)
    phase = models.CharField(max_length=64, blank=True)
    phases_completed = models.JSONField(default=list)
    artifacts = models.JSONField(default=list)
    session_id = models.CharField("session", max_length=200, blank=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    end_position = models.BigIntegerField(null=True)
    outcome = models.TextField(blank=True)

    class Meta:
        indexes = [models.Index(fields=["status"], name="iteration_status")]

    def __str__(self) -> str:
        return f"#{self.id} {self.command} {self.description}"[:120]


class Setting(StoreModel):
    name = models.CharField(max_length=64, primary_key=True)
    value = models.JSONField()

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


class Profile(StoreModel):
    """Description of the store: at most one row, whose id is the position of the first event that described it."""

    id = PositionField(primary_key=True)
    name = models.CharField(max_length=200, blank=True)
    description = models.TextField(blank=True)
    root_path = models.TextField(blank=True)
    org = models.CharField("organisation", max_length=64, null=True, help_text="The one that the project belongs to")
    metadata = models.JSONField(default=dict)
    tags = models.JSONField(default=list)
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"#{self.id} {self.name}"[:120]


class Commit(StoreModel):
    from_own_stream: ClassVar[tuple[str, ...]] = ("sha", "message", "author", "committed_at", "files")

    id = PositionField(primary_key=True)
    sha = models.CharField(max_length=64, unique=True)
    message = models.TextField()
    author = models.CharField(max_length=300)
    committed_at = models.DateTimeField()
    insertions = models.PositiveIntegerField()
    deletions = models.PositiveIntegerField()
    iteration_id = models.BigIntegerField(null=True, help_text="The iteration that was active when it was recorded")
    # [{"path": str, "insertions": int | None, "deletions": int | None}]; None for a binary file
    files = models.JSONField(default=list)

    class Meta:
        indexes = [models.Index(fields=["committed_at"], name="commit_time")]

    def __str__(self) -> str:
        return f"#{self.id} {self.sha[:10]} {self.message.splitlines()[0] if self.message else ''}"[:120]
