"""Readings of stores without Django, for the embedding process; bound to this process's backend as in ``selected``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from memoryhub.core.backends.sqlite import snapshots as _snapshots


class Snapshot(Protocol):
    def rows(self, sql: str, *parameters: Any) -> Iterator[tuple[Any, ...]]: ...

    def value(self, sql: str, *parameters: Any) -> Any:
        """Return the first column of the first row; 0 if there is none."""

    def at_one_moment(self) -> AbstractContextManager[None]:
        """Let all statements inside see the store at one moment."""


class Snapshots(Protocol):
    def folder(self, location: str) -> Path:
        """Return the folder of a store's own files on this machine."""

    def reading(self, location: str) -> AbstractContextManager[Snapshot]:
        """Read the store at a ``Stores.location`` over a connection that cannot write."""


snapshots: Snapshots = _snapshots
