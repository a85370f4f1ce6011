"""Readings of stores without Django, for the embedding process; bound to this process's backend as in ``selected``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from memoryhub import env


class Snapshot(Protocol):
    def rows(self, sql: str, *parameters: Any) -> Iterator[tuple[Any, ...]]: ...

    def value(self, sql: str, *parameters: Any) -> Any:
        """Return the first column of the first row; 0 if there is none."""

    def at_one_moment(self) -> AbstractContextManager[None]:
        """Let all statements inside see the store at one moment."""


class Snapshots(Protocol):
    def holds(self, location: str) -> bool:
        """Return whether a ``Stores.location`` can be one of this hub."""

    def folder(self, location: str) -> Path:
        """Return the folder of a store's own files on this machine."""

    def reading(self, location: str) -> AbstractContextManager[Snapshot]:
        """Read the store at a ``Stores.location`` over a connection that cannot write."""


_ENGINE = "postgresql" if env.database_url() else "sqlite"
snapshots: Snapshots = import_module(f"memoryhub.core.backends.{_ENGINE}.snapshots")
