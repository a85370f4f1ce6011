"""What a storage backend offers: one protocol a group, which a module of the backend implements (decision 75).

Functions without a ``store`` work on the current one. What runs for every statement is part of Django's connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from memoryhub.core.stores.gathered import Gathered, Row
from memoryhub.core.stores.store_id import Scope, StoreId

# In statements, the schema of the current copy and that of the store beside it (``Scratch.attached``)
HERE, LIVE = "main", "live"

# A store, or what the backend yields for a log that it found in a damaged one
Source = StoreId | Path
Model = type[models.Model]


class Connection(Protocol):
    """What a Django connection to a store has beyond Django's own; its transactions take the store's write lock first.

    Errors are Django's, the vendor's form of a statement is rendered (``stores.dialect``).
    """

    def run(self, sql: str, parameters: Sequence[Any]) -> Any:
        """Run one statement and return the driver's cursor; inserts that wait for its tables come first."""

    def insert(self, table: str, sql: str, row: Row) -> None:
        """Run an INSERT, or keep it inside ``gathering``."""

    def gathering(self) -> AbstractContextManager[Gathered]:
        """Batch inserts inside the block, which must be in a transaction; after an error they are discarded."""

    def has_table(self, name: str) -> bool: ...

    def has_module(self, name: str) -> bool:
        """Return whether the database has what optional SQL needs, such as ``fts5``."""

    def interrupt(self) -> None:
        """Cancel the running statement, if there is one; called by another thread."""


class Stores(Protocol):
    """The life of stores."""

    # What holds a store, for sentences: "file"
    THING: str

    def exists(self, store: StoreId) -> bool: ...

    def names(self, scope: Scope) -> list[str]:
        """Return the names of the scope's stores, sorted."""

    def identity(self, store: StoreId) -> Hashable | None:
        """Return what differs once a store was replaced by another one of its name; None if there is no store.

        Each call returns a new object; equal ones mean the same store.

        Raises:
            Damaged: there is only an empty thing in its place.
        """

    def settings(self, store: StoreId) -> dict[str, Any]:
        """Return the ``DATABASES`` entry of an existing store; connecting must not create one."""

    def create(self, store: StoreId) -> None:
        """Create an empty store of this version; an existing one stays."""

    def recreate(self, store: StoreId) -> str:
        """Create a store in place of one that is gone or empty, and return what was wrong; "" if nothing was."""

    def require_log(self, store: StoreId, connection: BaseDatabaseWrapper) -> None:
        """Raise Damaged unless the store has a log."""

    def upgrading(self, store: StoreId) -> AbstractContextManager[None]:
        """Hold the lock of upgrades, rebuilds and restores; Locked if others hold it for a minute."""

    def back_up(self, store: StoreId, *, reason: str) -> None:
        """Keep a copy of a store in use, before an upgrade."""

    def report_after_failure(self, connection: BaseDatabaseWrapper) -> str:
        """Check a store that failed and is open again; return the result for the log."""

    def remove(self, store: StoreId) -> None:
        """Remove a store and its folder; a crash leaves all or nothing of it."""

    def sizes(self, store: StoreId) -> dict[str, int]:
        """Return the bytes of a store's parts by name."""

    def changed_at(self, store: StoreId) -> float:
        """Return about when a store was written to, in Unix time; 0 if that is unknown."""

    def watched(self, store: StoreId) -> list[Path]:
        """Return files that change with every write; none if there are no such files."""

    def location(self, store: StoreId) -> str:
        """Return where a store is, for people."""

    def engine(self) -> str:
        """Return the version of the database."""


@dataclass(frozen=True, slots=True)
class Anchor:
    position: int
    digest: str


class Anchors(Protocol):
    """Copies of the heads of the logs, kept outside the stores."""

    def exists(self, store: StoreId) -> bool:
        """Return whether the log ever had an event, according to its anchor."""

    def read(self, store: StoreId) -> Anchor | None:
        """Return the anchored head; None if there is none.

        Raises:
            ValueError: what is there is not an anchor.
        """

    def advance(self, store: StoreId, anchor: Anchor, *, holds: Callable[[], bool]) -> None:
        """Move the anchor forward to a committed event, unless it is there or ``holds`` returns False under its lock.

        Raises:
            Locked: another process held the anchor.
        """

    def replace(self, store: StoreId, anchor: Anchor) -> None:
        """Set the anchor to an event before or after the present one, durably.

        Raises:
            Locked: another process held the anchor for a second.
        """

    def remove(self, store: StoreId) -> None: ...


class Faults(Protocol):
    """What an error of the database means."""

    def is_locked(self, error: BaseException) -> bool:
        """Return whether others held the database longer than the busy timeout."""

    def is_interrupted(self, error: BaseException) -> bool:
        """Return whether the statement was cancelled."""

    def is_full(self, error: BaseException) -> bool: ...

    def is_missing_table(self, error: BaseException) -> bool: ...

    def is_damage(self, error: BaseException | None) -> bool:
        """Return whether an error means wrong content, rather than a locked, full or forbidden database."""


class Scratch(Protocol):
    """A second, empty store beside a store, in one connection."""

    def temporary_copy(self, store: StoreId) -> AbstractContextManager[None]:
        """Make an empty store current, for what is derived from ``store``; it disappears with this process."""

    def attached(self, source: Source, *, write: bool = False) -> AbstractContextManager[None]:
        """Let statements of the current copy name the tables of ``source`` as ``LIVE.<table>``.

        With ``write`` a transaction takes the write locks of both.
        """

    def allow_gaps(self) -> None:
        """Let the current copy have events without those before them, and rows without those that they refer to."""


class Differences(Protocol):
    """Rows that differ between the current copy and the store attached to it."""

    def note_differing(self, model: Model) -> bool:
        """Record the keys of differing rows, and from now on of rows that the copy changes; return whether any differ.

        The records belong to the connection: they outlive ``attached``.
        """

    def noted(self, model: Model, *, shown: int) -> tuple[int, tuple[str, ...]]:
        """Return how many keys are recorded, and the first of them."""

    def put_noted(self, model: Model) -> None:
        """Copy the rows with recorded keys to the store, except those that are equal by now."""

    def replace_table(self, table: str) -> None:
        """Replace all rows of a table of the store by those of the copy, if the copy has the table."""

    def table_digest(self, model: Model, database: str) -> tuple[int, str]:
        """Return the number of a table's rows and a digest of their values; ``database`` is ``HERE`` or ``LIVE``."""


class Views(Protocol):
    """Stores at past positions, kept as long as they are used."""

    def names(self, prefix: str) -> list[tuple[str, float]]:
        """Return the finished views whose names begin with ``prefix`` and a hyphen, and when each was last used."""

    def make(
        self,
        view: StoreId,
        store: StoreId,
        *,
        like: str | None,
        fill: Callable[[], object],
        may_publish: Callable[[], bool],
    ) -> bool:
        """Make a view of a store; others see it only when it is complete.

        Args:
            view: its name.
            store: of which it is a view.
            like: the view to start from; None for an empty store.
            fill: called with the unfinished view as the current store.
            may_publish: asked last, while ``forget`` must wait.

        Returns:
            False if ``may_publish`` did, or ``forget`` was called meanwhile.
        """

    def touch(self, view: StoreId) -> None:
        """Record that a view is used."""

    def remove(self, found: Iterable[str]) -> None: ...

    def remove_abandoned(self) -> None:
        """Remove what processes that died have left."""

    def forget(self, store: StoreId) -> None:
        """Remove all views of a store, finished or not."""

    def forbid_writes(self) -> None:
        """Refuse writes over the current connection, which is a view's."""


class Repair(Protocol):
    """The log of a damaged store, and a new store that takes its place."""

    def passing_over_damage(self) -> AbstractContextManager[None]:
        """Let the current connection read what it can of a store whose schema is damaged."""

    def salvaged(self, store: StoreId) -> AbstractContextManager[Source | None]:
        """Yield a temporary copy in which the log can be read; None if there is no log to be found."""

    def fresh(self, place: Path) -> AbstractContextManager[None]:
        """Create an empty store at ``place``, and make it current."""

    def carry(self, table: str, columns: Sequence[str] = ()) -> None:
        """Copy the readable rows of an attached, damaged store's table into the current one; default: all columns.

        Rows that are there stay. Not inside a transaction.
        """


class Integrity(Protocol):
    """Whether a store is what this version made."""

    def damage(self) -> str:
        """Check pages, tables and indexes of the store; return the findings as a sentence, "" if there are none.

        Reads the whole store: about a second per 300 MB.
        """

    def header_problem(self, store: StoreId) -> str:
        """Return why the database would open the store for reading only, "" if it would not."""

    def missing_log_triggers(self) -> list[str]: ...

    def schema_problem(self) -> str:
        """Return how the current store's schema differs from a new store's, "" if it does not.

        The list of applied migrations is included, because upgrades rely on it. Missing log triggers
        (``missing_log_triggers``) and the full-text index are left out.
        """


class Wiping(Protocol):
    """Removal of deleted text from what the database has written to its disk."""

    def rewrite(self) -> bool:
        """Rewrite the current store without what was deleted; False, with a line in the log, if it must be repeated."""

    def keep(self, stop: threading.Event) -> None:
        """Do the hub's upkeep of its stores' files until ``stop`` is set."""
