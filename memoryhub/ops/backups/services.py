"""Back up in the form that fits where the stores are: copies of SQLite files, or bundles of stores in a server."""

from __future__ import annotations

from pathlib import Path

from memoryhub.core import log
from memoryhub.core.backends.selected import machines, stores
from memoryhub.core.errors import Invalid
from memoryhub.core.jobs import Run
from memoryhub.ops.backups.exporting import export_store, export_store_to
from memoryhub.ops.backups.making import Backup, back_up_hub, back_up_store, back_up_store_to


def has_nothing_to_back_up() -> bool:
    """Return whether the current store is one without events that is backed up as a bundle, which has one at least."""
    return machines.SHARED and not log.head()[0]


def back_up(to: Path | None = None) -> Backup:
    """Back up the current store to the backups folder, or to a file.

    Raises:
        Conflict: the file exists.
        Unavailable: the store or its log is not sound, or the file cannot be written; no backup is made or removed.
    """
    if machines.SHARED:
        return export_store_to(to) if to else export_store()
    return back_up_store_to(to) if to else back_up_store()


def back_up_hub_tables() -> str:
    """Back up people, tokens and schedules where they are in a file; return a line on what was done."""
    if machines.SHARED:
        return "people, tokens, schedules: only in the database; back it up by its server's means"
    return f"{stores.HUB_NAME}: {back_up_hub() or 'does not exist yet'}"


def back_up_target(run: Run) -> str:
    """Do the work of the job for a store, or for the hub's own tables."""
    if run.store is None:
        copied = None if machines.SHARED else back_up_hub()
        return f"hub.db copied and verified: {copied}" if copied else ""
    if has_nothing_to_back_up():
        return ""
    backup = back_up()
    run.report(backup.events, backup.events)
    return backup.describe()


def require_restorable() -> None:
    """Raise Invalid where the stores are in a database server, which has backups of its own."""
    if machines.SHARED:
        raise Invalid(
            "the stores are in PostgreSQL: `memory-hub bundle apply FILE` brings back a bundle of the backups "
            "folder, and the server's own backups bring back the whole database"
        )
