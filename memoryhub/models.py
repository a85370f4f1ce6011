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
