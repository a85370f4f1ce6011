"""The job that makes backups."""

from __future__ import annotations

from memoryhub.backups.making import back_up_hub, back_up_store
from memoryhub.core.jobs import Run


def back_up_target(run: Run) -> str:
    """Back up the run's store, or hub.db."""
    if run.store is None:
        copied = back_up_hub()
        return f"hub.db copied and checked: {copied}" if copied else ""
    backup = back_up_store()
    run.report(backup.events, backup.events)
    return backup.describe()
