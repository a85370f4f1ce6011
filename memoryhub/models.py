"""The registry in hub.db: what the hub knows of its projects and of who may come in."""

from __future__ import annotations

from django.db import models


class StoreCheck(models.Model):
    """The last time a store's chain was walked, and what was found."""

    store = models.CharField(max_length=128, primary_key=True)
    checked_at = models.DateTimeField()
    ok = models.BooleanField()
    events = models.BigIntegerField()
    finding = models.TextField()

    def __str__(self) -> str:
        return f"{self.store}: {self.finding}"


class SignInLink(models.Model):
    """A link that signs its bearer in once; only its hash is kept."""

    token_hash = models.CharField(max_length=64, unique=True)
    username = models.CharField(max_length=150)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"sign-in link of {self.username}"


class JobResult(models.TextChoices):
    """How a run of a job ended."""

    OK = "ok"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class JobRun(models.Model):
    """A run of a job over one store that is over; what runs now is told by the lock that it holds."""

    job = models.CharField(max_length=64)
    store = models.CharField(max_length=128, blank=True, help_text="The store's alias; empty: the hub itself")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    result = models.CharField(max_length=16, choices=JobResult)
    done = models.BigIntegerField(default=0)
    total = models.BigIntegerField(default=0, help_text="0 where nobody knows how much there is")
    message = models.TextField(blank=True)
    pid = models.BigIntegerField()
    asked_by = models.CharField(max_length=150, help_text="schedule, or who asked for it")
    idle = models.BooleanField(default=False, help_text="Found nothing to do; the next such run takes its row's place")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "store"], condition=models.Q(idle=True), name="job_run_one_idle")
        ]
        indexes = [models.Index(fields=["job", "store", "-started_at"], name="job_run_last")]

    def __str__(self) -> str:
        return f"{self.job} of {self.store or 'the hub'} at {self.started_at:%Y-%m-%d %H:%M:%S}: {self.result}"
