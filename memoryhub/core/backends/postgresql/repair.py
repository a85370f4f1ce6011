"""PostgreSQL has no pages to read: a damaged database is restored by its own backups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from memoryhub.core.backends.base import Source
from memoryhub.core.errors import Unavailable
from memoryhub.core.stores.store_id import StoreId

_WHY = "a store in PostgreSQL is repaired by the server's own backups"


@contextmanager
def passing_over_damage() -> Iterator[None]:
    yield


@contextmanager
def salvaged(store: StoreId) -> Iterator[Source | None]:
    yield store


@contextmanager
def fresh(place: Path) -> Iterator[None]:  # noqa: ARG001
    raise Unavailable(_WHY)
    yield


def carry(table: str, columns: Sequence[str] = ()) -> None:  # noqa: ARG001
    raise Unavailable(_WHY)
