"""The kinds of memory, each as a model of its own over the one table."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models

from memories.models.memory import Memory, MemoryKind, MemoryManager


class _KindManager(MemoryManager):
    """Shows the memories of one kind."""

    def __init__(self, kind: MemoryKind = MemoryKind.OBSERVATION) -> None:
        super().__init__()
        self._kind = kind

    def get_queryset(self) -> models.QuerySet[Any]:
        """Return the memories of this kind."""
        return super().get_queryset().filter(kind=self._kind)


class Observation(Memory):
    """Something seen or learnt."""

    objects: ClassVar[Any] = _KindManager(MemoryKind.OBSERVATION)

    class Meta:
        proxy = True


class Guideline(Memory):
    """A rule to follow."""

    objects: ClassVar[Any] = _KindManager(MemoryKind.GUIDELINE)

    class Meta:
        proxy = True


class Tool(Memory):
    """A tool that agents can use, and how."""

    objects: ClassVar[Any] = _KindManager(MemoryKind.TOOL)

    class Meta:
        proxy = True


class Knowledge(Memory):
    """A fact, with how certain it is and for how long it holds."""

    objects: ClassVar[Any] = _KindManager(MemoryKind.KNOWLEDGE)

    class Meta:
        proxy = True
        verbose_name_plural = "knowledge"
