"""The hub's own databases: hub.db and jobs.db, or their schemas in PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from django.core.management import call_command
from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from memoryhub import env
from memoryhub.core.backends.selected import stores
from memoryhub.core.stores.schema import migrating, refuse_other_versions


# Migrates hub.db and jobs.db if needed; returns the backups made before. About 50 ms if there is nothing to do
def prepare_databases() -> list[Path]:
    env.prepare_home()
    return [backup for alias in ("default", "jobs") if (backup := _prepare(alias))]


def _prepare(alias: str) -> Path | None:
    with stores.preparing_hub(alias):
        refuse_other_versions(connections[alias], ["memoryhub"])
        executor = MigrationExecutor(connections[alias])
        behind = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if not behind:
            return None
        backup = stores.back_up_hub(alias) if executor.loader.applied_migrations else None
        with migrating(connections[alias]):  # with the groups and schedules that follow, which a later start leaves out
            call_command("migrate", database=alias, interactive=False, verbosity=0)
        return backup
