"""A proxy model for each kind of memory: the admin registers its lists by model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import models

from memories.models.memory import Memory, MemoryManager
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.kinds.definition import Kind


class _KindManager(MemoryManager):
    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self._kind = kind

    def get_queryset(self) -> models.QuerySet[Any]:
        """Return the memories of the kind."""
        return super().get_queryset().filter(kind=self._kind)


def _proxy(kind: Kind) -> type[Memory]:
    meta: dict[str, Any] = {"proxy": True, "app_label": "memories"}
    if kind.plural.lower() != f"{kind.name}s":
        meta["verbose_name_plural"] = kind.plural.lower()
    members = {"__module__": __name__, "objects": _KindManager(kind.name), "Meta": type("Meta", (), meta)}
    return type(kind.name.capitalize(), (Memory,), members)


KIND_MODELS: Mapping[str, type[Memory]] = {name: _proxy(kind) for name, kind in KINDS.items()}
