"""Texts as vectors. They are no part of what the log says: the worker makes them, and any can be made again."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from memoryhub.core.fields import PositionField
from memoryhub.core.models import StoreModel


class EmbeddingModel(StoreModel):
    """A model that this store's texts were, or are being, embedded with. Two are here while one replaces the other."""

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
    """What one model makes of one document's text: whole numbers of one byte each, and what they are multiplied by."""

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
