"""Route each model to its database; the current store is a context variable (decision 14)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db import models

from memoryhub import env

T = TypeVar("T")

# Labels of the apps whose tables are in every store.
STORE_APPS = ("core", "sessions_app", "memories", "decisions", "governance")

JOB_APPS = ("django_q",)
STORE_PREFIX = "store:"

# How long a process believes what it has read of a store
_CACHE_SECONDS = 1.0
_MAX_CACHED = 256


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """What all calls inside one ``use_store`` share: the store's database alias, and the home folder."""

    alias: str
    home: str


# For each thread or task, as they serve different stores at the same time
_current: ContextVar[StoreRequest | None] = ContextVar("current_store_request", default=None)


class NoCurrentStore(RuntimeError):
    """A store's model was used outside ``use_store``: a programming error."""


def current_request() -> StoreRequest | None:
    return _current.get()


def require_request() -> StoreRequest:
    request = _current.get()
    if request is None:
        raise NoCurrentStore("no store is current here; wrap the call in use_store()")
    return request


def current_alias() -> str | None:
    request = _current.get()
    return request.alias if request else None


def require_current_alias() -> str:
    return require_request().alias


@contextmanager
def use_alias(alias: str) -> Iterator[None]:
    """Make the database alias of an open store the current one inside the block."""
    token = _current.set(StoreRequest(alias, env.home_text()))
    try:
        yield
    finally:
        _current.reset(token)


class StoreCache(Generic[T]):
    """A value of each store, read again after a second, because other processes may change it.

    ``read`` gets the value before, if there is one. A change by this process calls ``forget``.
    """

    def __init__(self, read: Callable[[T | None], T]) -> None:
        self._read = read
        self._values: dict[StoreRequest, tuple[float, T]] = {}

    def get(self, request: StoreRequest) -> T:
        """Return the value of the request's store, which must be the current one."""
        read_at, value = self._values.get(request, (0.0, None))
        if value is None or time.monotonic() - read_at > _CACHE_SECONDS:
            value = self._read(value)
            if len(self._values) >= _MAX_CACHED:
                self._values.clear()
            self._values[request] = time.monotonic(), value
        return value

    def forget(self) -> None:
        self._values.clear()


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
        if alias.startswith(STORE_PREFIX) and alias != current_alias():
            raise NoCurrentStore(f"this row belongs to {alias}, but the current store is {current_alias()}")
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
