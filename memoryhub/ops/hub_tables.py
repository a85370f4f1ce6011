"""Copy a hub's own tables to another database: people, groups, tokens, members, saved views, schedules.

``python -m memoryhub.ops.hub_tables dump`` writes them, with the database of its environment, and ``load`` reads them.
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

from memoryhub import env
from memoryhub.core import home_database
from memoryhub.core.autostart import module_command, module_environment
from memoryhub.core.errors import ConflictError, Unavailable

# Sessions and sign-in links are left: people sign in again
_TABLES = ("auth.group", "auth.user", "memoryhub", "admin.logentry")
_LEFT = ("memoryhub.signinlink", "memoryhub.hubaccess")
# Exit codes: somebody else's tables, and the same ones
_TAKEN, _ALREADY = 5, 6


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
    command = module_command("memoryhub.ops.hub_tables", act)
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
    from django.core.management import call_command

    from memoryhub.ops.hub_databases import prepare_databases

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
    from django.core.management import call_command
    from django.db import transaction

    from memoryhub.models import AgentToken, Membership
    from memoryhub.ops.hub_databases import prepare_databases

    prepare_databases()
    rows = json.load(sys.stdin)
    if User.objects.exists() or AgentToken.objects.exists() or Membership.objects.exists():
        # After an interrupted move, all are there
        people = {row["fields"]["username"] for row in rows["default"] if row["model"] == "auth.user"}
        tokens = {row["fields"]["prefix"] for row in rows["default"] if row["model"] == "memoryhub.agenttoken"}
        people.difference_update(User.objects.values_list("username", flat=True))
        tokens.difference_update(AgentToken.objects.values_list("prefix", flat=True))
        return _TAKEN if people or tokens else _ALREADY
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
