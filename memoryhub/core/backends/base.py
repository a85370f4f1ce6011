"""What a storage backend offers: one protocol a group, which modules of the backend implement (decision 75).

Functions without a ``store`` work on the current one. What runs for every statement is part of Django's connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from memoryhub.core.stores.rows import Gathered, Query, Row
from memoryhub.core.stores.store_id import Scope, StoreId

# In statements, the schema of the current copy and that of the store beside it (``Scratch.attached``)
HERE, LIVE = "main", "live"

# A store, or what the backend yields for a log that it found in a damaged one
Source = StoreId | Path
Model = type[models.Model]


class StoreConnection(Protocol):
    """What a Django connection to a store has beyond Django's own; its transactions take the store's write lock first.

    Errors are Django's, the vendor's form of a statement is rendered (``stores.dialect``).
    """

    # Inserts that wait for a statement which names their table, or for a cursor; None while they run at once
    gathered: Gathered | None

    def run(self, sql: str, parameters: Sequence[Any]) -> Any:
        """Run one statement and return the driver's cursor; inserts that wait for its tables come first."""

    def fetch_together(self, queries: Sequence[Query]) -> list[list[tuple[Any, ...]]]:
        """Run queries, in one round trip where there is a server, and return the rows of each."""

    def batches(self, sql: str, parameters: Sequence[Any], size: int) -> Iterator[list[tuple[Any, ...]]]:
        """Run a query and yield its rows, ``size`` at a time, of one state of the store; other statements may run."""

    def run_many(self, sql: str, rows: list[Row]) -> None:
        """Insert several rows by the INSERT of one."""

    def has_table(self, name: str) -> bool: ...

    def has_module(self, name: str) -> bool:
        """Return whether the database has what optional SQL needs, such as ``fts5``."""

    def interrupt(self) -> None:
        """Cancel the running statement, if there is one; called by another thread."""


class Stores(Protocol):
    """The life of stores."""

    # What holds a store, for sentences: "file"
    THING: str
    # What holds people and tokens, and what holds the queue, for sentences: "hub.db", "jobs.db"
    HUB_NAME: str
    QUEUE_NAME: str

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

    def has_hub(self) -> bool:
        """Return whether the hub's own tables may exist; asking them must not create a database."""

    def preparing_hub(self, alias: str) -> AbstractContextManager[None]:
        """Make room for the hub's tables of a database alias, and keep other processes from migrating them."""

    def back_up_hub(self, alias: str) -> Path | None:
        """Keep a copy of the hub's tables before they are migrated; None if the database's own backups do that."""


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

    def acknowledged(self, store: StoreId) -> list[Anchor]:
        """Return events that were acknowledged: what ``read`` returns, and what this machine knows apart from it."""

    def advance(self, store: StoreId, anchor: Anchor, *, holds: Callable[[], bool]) -> None:
        """Move the anchor forward to a committed event, unless it is there or ``holds`` returns False under its lock.

        Raises:
            Locked: another process held the anchor.
        """

    def replace(self, store: StoreId, anchor: Anchor) -> None:
        """Set the anchor to an event before or after the present one, durably; Locked if others hold it."""

    def remove(self, store: StoreId) -> None: ...


class Lease(Protocol):
    """A right that one process has among all processes of a hub."""

    # What the holder before had written, if it ended without giving the lease back; "" otherwise
    abandoned: str

    def write(self, text: str) -> None:
        """Show a text to those who look; Locked if the lease was lost, because it was not renewed in time."""


class Machines(Protocol):
    """What all machines of a hub share beside its stores. With SQLite, a hub has one machine."""

    # Whether there may be others
    SHARED: bool

    def machine(self) -> str:
        """Return the name of this one, for people; "" if it is the only one."""

    def agreed_secret(self, name: str, proposal: str) -> str:
        """Return the secret that all machines use, or ``proposal`` if there is none yet; Unavailable if unreadable."""

    def holding(self, name: str) -> AbstractContextManager[Lease | None]:
        """Hold a lease inside the block; None if another process holds it. It may outlive its process by seconds."""

    def inspect(self, name: str) -> AbstractContextManager[tuple[str, str]]:
        """Yield the texts of a lease's holder and of one that died, whose text is then cleared; at least one is ""."""

    def texts(self) -> dict[str, str]:
        """Return the texts of all leases that are held, or were left by holders that died."""

    def announce(self, name: str) -> ExitStack:
        """Count this process, and what it forks, as present under a name until it ends or closes the result."""

    def is_present(self, name: str) -> bool: ...

    def server_address(self) -> str:
        """Return where the stores are, for people: without a user and a password."""

    def server_problems(self) -> Iterable[tuple[str, str, str]]:
        """Return where, what is wrong with it, and the repair; nothing if there is no server."""

    def stamp(self, store: StoreId) -> object:
        """Return what differs soon after a write to a store, without waiting; None if ``Stores.watched`` shows it."""


@dataclass(frozen=True, slots=True)
class Departure:
    """Where a store has gone. Its old place keeps this until a move brings the store back, or ``forget_departure``."""

    # Names the move
    epoch: str
    # The new place, as `memory-hub move` takes it, and for people
    name: str
    address: str
    at: str
    # The head of the log that went
    position: int
    digest: str
    # Whether the old place has its copy still; the move is confirmed if not
    kept: bool = True


class Places(Protocol):
    """The two places of a store that moves: it leaves one and arrives in the other (decision 79).

    A store that has left is kept, but neither found nor written to. One that has not arrived yet is a draft, named by
    the move's epoch.
    """

    def departure(self, store: StoreId) -> Departure | None:
        """Return where a store has gone; None if it is here, or never was."""

    def prepare_to_leave(self, store: StoreId) -> None:
        """Make what ``leave`` needs, outside its transaction."""

    def leave(self, store: StoreId, departure: Departure) -> None:
        """Fence the current store, in its transaction and as the last statement: its commit ends all writes here."""

    def mark_left(self, store: StoreId) -> None:
        """Let other processes find out that a store has left; called after ``leave``, and again after a crash.

        Does nothing if it has come back meanwhile.
        """

    def kept_copy(self, store: StoreId) -> AbstractContextManager[None]:
        """Make the kept copy of a store that has left current, for reading."""

    def kept_stores(self) -> list[StoreId]:
        """Return the stores that have left, and are kept."""

    def come_back(self, store: StoreId, epoch: str) -> None:
        """Take the fence of a move away: the kept store takes writes again.

        Raises:
            ConflictError: it is not here, or has come back, or was fenced by another move since.
        """

    def remove_kept(self, store: StoreId, epoch: str) -> None:
        """Remove the kept copy of a store that has left with a move; its departure stays, without the copy.

        Raises:
            ConflictError: as ``come_back``.
        """

    def forget_departure(self, store: StoreId) -> None:
        """Forget the departure of a store that is not kept: one of its name may be created here again."""

    def drafts(self, store: StoreId) -> list[str]:
        """Return the epochs of moves whose draft of a store is here."""

    def create_draft(self, store: StoreId, epoch: str) -> None: ...

    def draft(self, store: StoreId, epoch: str) -> AbstractContextManager[None]:
        """Make a draft current, under the alias of its store."""

    def discard_draft(self, store: StoreId, epoch: str) -> None: ...

    def arrive(self, store: StoreId, epoch: str, anchor: Anchor) -> None:
        """Make a draft the store, in place of a kept copy of it; on the disk when this returns.

        Raises:
            ConflictError: there is such a store already, or the draft is gone.
        """

    def assign(self, store: StoreId, server: str) -> None:
        """Record which of the hub's servers has a store; "" for the one with the hub's own tables."""

    def server(self, store: StoreId) -> str:
        """Return which of the hub's servers has a store."""

    def stay_on_this_server(self) -> None:
        """Look for stores in this process's own database only, whatever was recorded."""


class Faults(Protocol):
    """What an error of the database means."""

    def is_locked(self, error: BaseException) -> bool:
        """Return whether others held the database longer than the busy timeout."""

    def is_interrupted(self, error: BaseException) -> bool:
        """Return whether the statement was cancelled."""

    def is_full(self, error: BaseException) -> bool: ...

    def may_have_committed(self, error: BaseException) -> bool:
        """Return whether an error of COMMIT leaves open whether the transaction is, or will be, in the store."""

    def is_fenced(self, error: BaseException) -> bool:
        """Return whether a write was refused because the store may have moved."""

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

    def record_differing(self, model: Model) -> bool:
        """Record the keys of differing rows, and from now on of rows that the copy changes; return whether any differ.

        The records belong to the connection: they outlive ``attached``.
        """

    def recorded(self, model: Model, *, limit: int) -> tuple[int, tuple[str, ...]]:
        """Return how many keys are recorded, and the first of them."""

    def apply_recorded(self, model: Model) -> None:
        """Copy the rows with recorded keys to the store, except those that are equal by now."""

    def replace_table(self, table: str) -> None:
        """Replace all rows of a table of the store by those of the copy, if the copy has the table."""

    def table_digest(self, model: Model, database: str) -> tuple[int, str]:
        """Return the number of a table's rows and a digest of their values; ``database`` is ``HERE`` or ``LIVE``."""


class Views(Protocol):
    """Stores at past positions, kept as long as they are used."""

    def view_names(self, store: StoreId, prefix: str = "") -> list[tuple[str, float]]:
        """Return the finished views of a store and when each was last used.

        Args:
            store: whose names begin with ``key_of(store)``.
            prefix: a longer beginning of their names, before a hyphen.
        """

    def make_view(
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
            may_publish: asked last, while no text can be removed, or ``forget_views`` must wait.

        Returns:
            False if ``may_publish`` did, or ``forget_views`` was called meanwhile.
        """

    def touch_view(self, view: StoreId) -> bool:
        """Record that a view is used; return False if it is gone."""

    def remove_views(self, names: Iterable[str]) -> None:
        """Remove views by name; those that are being read may stay."""

    def remove_dead_drafts(self, store: StoreId) -> object:
        """Remove what processes that died have left of copies of a store, or soon after."""

    def forget_views_early(self, store: StoreId) -> None:
        """Remove what can be removed without waiting; called in the transaction that removes text."""

    def forget_views(self, store: StoreId) -> None:
        """Remove all views of a store, finished or not; called after that transaction.

        One that is being built may stay until its builder finds out that it may not publish it.

        Raises:
            Locked: a view was read for longer than a minute.
        """

    def forbid_writes(self) -> None:
        """Refuse writes over the current connection, which is a view's."""


class Repair(Protocol):
    """The log of a damaged store."""

    def passing_over_damage(self) -> AbstractContextManager[None]:
        """Let the current connection read what it can of a store whose schema is damaged."""

    def salvaged(self, store: StoreId) -> AbstractContextManager[Source | None]:
        """Yield a temporary copy in which the log can be read; None if there is no log to be found."""


class Integrity(Protocol):
    """What every store must have, and whether a store is what this version made."""

    def require_structure(self) -> None:
        """Register the SQL of the log's triggers and of the table of marks; called once, for this process's backend."""

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

    def still_in(self, texts: Collection[str], *, wiped: bool) -> list[str]:
        """Return the places of the current store that contain one of the texts, other than files of the home.

        If the store was not ``wiped``, these include places that may contain them and can't be searched.
        """

    def unproven(self) -> list[tuple[str, str]]:
        """Return places that may contain deleted text and cannot be searched, and what to do about each."""

    def keep(self, stop: threading.Event) -> None:
        """Do the hub's upkeep of its stores' files until ``stop`` is set."""


IMMUTABLE = (
    "position event_id project_id session_id turn_id stream_id stream_seq event_type event_version occurred_at "
    "actor source payload_digest chain_digest idempotency_key trace_id"
).split()

# An update may only erase (payload and salt become NULL) or redact (both are replaced). An accidental update of the
# payload has no new salt; that a redaction was intended is proven by its event (decision 28).
ERASES = "NEW.payload_json IS NULL AND NEW.salt IS NULL"
REDACTS = (
    "OLD.payload_json IS NOT NULL AND NEW.payload_json IS NOT NULL AND NEW.salt IS NOT NULL AND NEW.salt <> OLD.salt"
)
