"""Read models of what happened. Projectors alone write them."""

from __future__ import annotations

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel


class SessionMode(models.TextChoices):
    """What a session is for: work that stays, or a scratch space."""

    WORKING = "working", "Working period"
    SCRATCH = "scratch", "Scratch space"


class SessionStatus(models.TextChoices):
    """Where a session stands."""

    ACTIVE = "active", "Active"
    COMPLETED = "completed", "Completed"
    DISCARDED = "discarded", "Discarded"


class Session(StoreModel):
    """A period of work of one agent; its id is the position of the event that started it."""

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


class Commit(StoreModel):
    """A commit of the project's repository, as git told it."""

    id = PositionField(primary_key=True)
    sha = models.CharField(max_length=64, unique=True)
    message = models.TextField()
    author = models.CharField(max_length=300)
    committed_at = models.DateTimeField()
    insertions = models.PositiveIntegerField()
    deletions = models.PositiveIntegerField()
    files = models.JSONField(default=list)
    """``[{"path": str, "insertions": int | None, "deletions": int | None}]``; None for a binary file."""

    class Meta:
        indexes = [models.Index(fields=["committed_at"], name="commit_time")]

    def __str__(self) -> str:
        return f"#{self.id} {self.sha[:10]} {self.message.splitlines()[0] if self.message else ''}"[:120]
