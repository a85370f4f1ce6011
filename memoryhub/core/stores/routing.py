"""Route each model to its database; the current store is a context variable (decision 14)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.db import models

# Labels of the apps whose tables are in every store.
STORE_APPS = ("core", "sessions_app", "memories", "decisions", "governance")

JOB_APPS = ("django_q",)
STORE_PREFIX = "store:"

current_alias: ContextVar[str | None] = ContextVar("current_store_alias", default=None)


class NoCurrentStore(RuntimeError):
    """A store's model was used outside ``use_store``: a programming error."""


def require_current_alias() -> str:
    alias = current_alias.get()
    if alias is None:
        raise NoCurrentStore("no store is current here; wrap the call in use_store()")
    return alias


@contextmanager
def use_alias(alias: str) -> Iterator[None]:
    """Make the database alias of an open store the current one inside the block."""
    token = current_alias.set(alias)
    try:
        yield
    finally:
        current_alias.reset(token)


class StoreRouter:
    def _alias_for(self, model: type[models.Model], hints: dict[str, Any]) -> str:
        label = model._meta.app_label
        if label in JOB_APPS:
            return "jobs"
        if label not in STORE_APPS:
            return "default"
        instance = hints.get("instance")
        pinned: str | None = instance._state.db if instance is not None else None
        return pinned or require_current_alias()

    def db_for_read(self, model: type[models.Model], **hints: Any) -> str:
        return self._alias_for(model, hints)

    def db_for_write(self, model: type[models.Model], **hints: Any) -> str:
        alias = self._alias_for(model, hints)
        if alias.startswith(STORE_PREFIX) and alias != current_alias.get():
            raise NoCurrentStore(f"this row belongs to {alias}, but the current store is {current_alias.get()}")
        return alias

    def allow_relation(self, first: models.Model, second: models.Model, **hints: Any) -> bool:
        return first._state.db == second._state.db

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        if db.startswith(STORE_PREFIX):
            return app_label in STORE_APPS
        if db == "jobs":
            return app_label in JOB_APPS
        return app_label not in STORE_APPS and app_label not in JOB_APPS


# Pins each queryset to the store that was current when it was created, so that lazy evaluation cannot read another.
class StoreManager(models.Manager[Any]):
    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().using(require_current_alias())
