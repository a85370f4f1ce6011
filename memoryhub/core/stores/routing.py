"""Which database a model is in, and which store is current."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from django.db import models

STORE_APPS = ("core", "sessions_app", "memories", "decisions", "governance")
"""Labels of the apps whose tables are in every store."""

JOB_APPS = ("django_q",)
STORE_PREFIX = "store:"

current_alias: ContextVar[str | None] = ContextVar("current_store_alias", default=None)


class NoCurrentStore(RuntimeError):
    """A store's model was used outside ``use_store``: a defect in the code, never a user's fault."""


def require_current_alias() -> str:
    """Return the alias of the current store."""
    alias = current_alias.get()
    if alias is None:
        raise NoCurrentStore("no store is current here; wrap the call in use_store()")
    return alias


class StoreRouter:
    """Send the store's apps to the current store, the queue's to its own file, everything else to ``default``."""

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
        """Return where ``model`` is read."""
        return self._alias_for(model, hints)

    def db_for_write(self, model: type[models.Model], **hints: Any) -> str:
        """Return where ``model`` is written; an instance of another store than the current one is refused."""
        alias = self._alias_for(model, hints)
        if alias.startswith(STORE_PREFIX) and alias != current_alias.get():
            raise NoCurrentStore(f"this row is of {alias}, and the current store is {current_alias.get()}")
        return alias

    def allow_relation(self, first: models.Model, second: models.Model, **hints: Any) -> bool:
        """Relate rows of one database only."""
        return first._state.db == second._state.db

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        """Keep each app's tables in its own database."""
        if db.startswith(STORE_PREFIX):
            return app_label in STORE_APPS
        if db == "jobs":
            return app_label in JOB_APPS
        return app_label not in STORE_APPS and app_label not in JOB_APPS


class StoreManager(models.Manager[Any]):
    """Pins each queryset to the store that is current when it is made, so that a lazy one cannot read another."""

    def get_queryset(self) -> models.QuerySet[Any]:
        """Return a queryset bound to the current store."""
        return super().get_queryset().using(require_current_alias())
