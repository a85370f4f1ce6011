"""The hub's own databases, hub.db and jobs.db, or their schemas in PostgreSQL: migrate them, and copy their tables.

``python -m memoryhub.ops.hub_databases dump`` writes people, groups, tokens, members, saved views and schedules, with
the database of its environment, and ``load`` reads them.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import django
from django.core.management import call_command
from django.db import connections, transaction
from django.db.migrations.executor import MigrationExecutor

from memoryhub import env
from memoryhub.core import home_database
from memoryhub.core.autostart import module_command, module_environment
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import ConflictError, Unavailable
from memoryhub.core.stores.schema import migrating, refuse_other_versions

# Sessions and sign-in links are left: people sign in again
_TABLES = ("auth.group", "auth.user", "memoryhub", "admin.logentry")
_LEFT = ("memoryhub.signinlink", "memoryhub.hubaccess")
# Exit codes: somebody else's tables, and the same ones
_TAKEN, _ALREADY = 5, 6


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


def copy_hub_tables(source_url: str, target_url: str) -> int:
    """Copy the hub's tables, and return the number of rows; 0 if they were copied before. "" is files in the home.

    Raises:
        ConflictError: there are people or tokens already.
        Unavailable: one of the databases cannot be used.
    """
    _, dumped = _run_process("dump", source_url, b"")
    code, _ = _run_process("load", target_url, dumped)
    return 0 if code == _ALREADY else sum(len(rows) for rows in json.loads(dumped).values())


def _run_process(act: str, url: str, content: bytes) -> tuple[int, bytes]:
    environment = module_environment(**{env.DATABASE_VARIABLE: url or env.FILES})
    command = module_command("memoryhub.ops.hub_databases", act)
    process = subprocess.run(command, env=environment, input=content, capture_output=True, check=False)  # noqa: S603
    if process.returncode == _TAKEN:
        raise ConflictError(
            "the other place has people, members or tokens already, so the hub's own tables were not copied"
        )
    if process.returncode not in (0, _ALREADY):
        reason = (process.stderr.decode(errors="replace").strip().splitlines() or ["no reason was given"])[-1]
        raise Unavailable(f"the hub's own tables could not be copied: {reason}")
    return process.returncode, process.stdout


def _dump() -> None:
    prepare_databases()
    tables_by_database = {}
    for database, tables in (("default", _TABLES), ("jobs", ["django_q.schedule"])):
        out = io.StringIO()
        call_command(
            "dumpdata",
            *tables,
            database=database,
            exclude=_LEFT,
            use_natural_foreign_keys=True,
            stdout=out,
            verbosity=0,
        )
        tables_by_database[database] = json.loads(out.getvalue() or "[]")
    sys.stdout.write(json.dumps(tables_by_database))


def _load() -> int:
    from django.contrib.auth.models import Group, User

    from memoryhub.models import AgentToken, Membership

    prepare_databases()
    rows = json.load(sys.stdin)
    if User.objects.exists() or AgentToken.objects.exists() or Membership.objects.exists():
        # After an interrupted move, all are there
        people = {row["fields"]["username"] for row in rows["default"] if row["model"] == "auth.user"}
        tokens = {row["fields"]["prefix"] for row in rows["default"] if row["model"] == "memoryhub.agenttoken"}
        has_people = people.issubset(User.objects.values_list("username", flat=True))
        has_tokens = tokens.issubset(AgentToken.objects.values_list("prefix", flat=True))
        has_all = has_people and has_tokens
        return _ALREADY if has_all else _TAKEN
    with tempfile.TemporaryDirectory(dir=env.prepare_home()) as folder:
        # People and tokens last, because they show that all was copied
        for database in ("jobs", "default"):
            path = Path(folder) / f"{database}.json"
            path.write_text(json.dumps(rows[database]), "utf-8")
            with transaction.atomic(using=database):
                if database == "default":
                    Group.objects.all().delete()  # each hub makes them with keys of its own
                call_command("loaddata", str(path), database=database, verbosity=0)
    return 0


def main() -> int:
    os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
    django.setup()
    home_database.work_as_guest()
    if sys.argv[1:] == ["load"]:
        return _load()
    _dump()
    return 0


if __name__ == "__main__":
    sys.exit(main())
