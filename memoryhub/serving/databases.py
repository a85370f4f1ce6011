"""hub.db and the queue's file, brought to this version before anything is served."""

from __future__ import annotations

from pathlib import Path

from django.core.management import call_command
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from memoryhub import env
from memoryhub.core import store_files

_FILES = {"default": "hub.db", "jobs": "jobs.db"}


def prepare_databases() -> list[Path]:
    """Migrate what is behind, and return the backups that were made before; nothing to do takes some 50 ms."""
    env.prepare_home()
    return [backup for alias, name in _FILES.items() if (backup := _prepare(alias, name))]


def _prepare(alias: str, name: str) -> Path | None:
    executor = MigrationExecutor(connections[alias])
    behind = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if not behind:
        return None
    used = bool(executor.loader.applied_migrations)
    backup = store_files.back_up(env.home() / name, reason=f"{Path(name).stem}-before-upgrade") if used else None
    call_command("migrate", database=alias, interactive=False, verbosity=0)
    return backup
