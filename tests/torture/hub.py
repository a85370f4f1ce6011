"""A home with something of everything in it, and commands that each run in a process of their own."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from tests.databases import variables_of
from tests.home import UNMEASURED, run_home
from tests.web.server import DEADLINE_SECONDS, ROOT

# Importing the product takes a second, forking 20 ms: so every command is a fork of one process that has imported all.
_FORKER = """
import gc, json, os, sys, tempfile
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
import django
django.setup()
from django.db import connections
import memoryhub.ops.doctor, memoryhub.ops.jobs, memoryhub.ops.backups.restoring, memoryhub.ops.hub_databases
import _strptime, jsonschema, django.db.models.sql.compiler  # else each command imports them when it needs them
from memoryhub.cli import main
from memoryhub.management.commands import backup, doctor, jobs, rebuild, restore, verify

def child(task, output):
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    code = 1
    try:
        if "program" in task:
            exec(task["program"], {"__name__": "__main__"})
            code = 0
        else:
            code = main(["memory-hub", *task["arguments"]])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        for name in list(connections):
            connections[name].close()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)

gc.freeze()  # a collection in a child would copy every page of the parent
for line in sys.stdin:
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            child(json.loads(line), output)
        _, status = os.waitpid(pid, 0)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
        print(json.dumps([os.waitstatus_to_exitcode(status), text]), flush=True)
"""

_BUILD = """
import pathlib, time
from memories.embeddings.choice import use_engine
from memories.embeddings.following import embed_current_store
from memories.embeddings.local import LocalEngine
from memories.embeddings.meaning import nearest
from memories.schemas import MemoryDelete, MemoryWrite
from memories.services import delete_memory, write_memory
from memoryhub import env; from memoryhub.ops import jobs
from memoryhub.core.backends.sqlite.copies import copy_database
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.ops.backups.making import back_up_hub, back_up_store
from memoryhub.core.stores import rows
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, org_store, project_store, use_store
from memoryhub.demo.project import make_demo
from memoryhub.ops.jobs.targets import all_stores
from memoryhub.registry.organizations import OrgCreate, create_org
from memoryhub.registry.projects import ProjectCreate, create_project
from memoryhub.ops.hub_databases import prepare_databases
from memoryhub.core.secret_files import read_or_create_secret

prepare_databases()
read_or_create_secret("token")
make_demo()
older = env.home().parent / "older"
older.mkdir()
demo = project_store("demo")
copy_database(path_of(demo), older / "events.db")
(older / "head").write_bytes(path_of(demo).with_name("head").read_bytes())
with use_store(demo):
    back_up_store()
with use_origin(source="cli", actor="ada"), use_engine(LocalEngine()):
    create_org(command=OrgCreate(org_id="acme", name="Acme"))
    create_project(command=ProjectCreate(project_id="beta", org_id="acme"))
    for store in (demo, project_store("beta"), org_store("acme"), GLOBAL_STORE):
        with use_store(store, create=True):
            for number in range(5):
                text = f"What {store.name} keeps under {number}: queues, locks, seasons"
                made = write_memory(command=MemoryWrite(title=f"note {number}", content=text, tags=["kept"]))
            delete_memory(command=MemoryDelete(id=made.id))
    with use_store(demo):
        embed_current_store(until=time.monotonic() + 600)
        assert nearest("locks").hits
for store in all_stores():
    with use_store(store):
        back_up_store()
back_up_hub()
"""

_FULL_TEXT = "search_fts"
_KEEPS_TIME = {"django_migrations": ("applied",), "memories_embeddingmodel": ("revision",)}
_NOT_COMPARED = ("sqlite_", _FULL_TEXT, "projection_offsets")


class ForkedHub:
    """Runs commands over the home at one path, whatever is put there between them."""

    def __init__(self, home: Path) -> None:
        environment = {
            **os.environ,
            **UNMEASURED,
            "PYTHONDEVMODE": "",
            **variables_of(home),
            "MEMORY_HUB_LOG": "ERROR",
        }
        home.mkdir(mode=0o700)
        self.home = home
        self._process = subprocess.Popen(
            [sys.executable, "-c", _FORKER],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        return self._done({"arguments": arguments})

    def python(self, program: str) -> tuple[int, str]:
        return self._done({"program": program})

    def _done(self, task: dict[str, Any]) -> tuple[int, str]:
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(task), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line.startswith("["), f"the process that forks commands has ended: {line}"
        code, output = json.loads(line)
        return code, output

    def close(self) -> None:
        with self._process as process:
            process.communicate(timeout=DEADLINE_SECONDS)


@cache
def built_home() -> Path:
    """Return the home that all others are copies of, made once a test run; an older copy of a store is beside it."""
    folder = run_home() / "torture"
    with (run_home() / "torture.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            draft = run_home() / "torture.draft"
            shutil.rmtree(draft, ignore_errors=True)  # of a class whose attempt failed
            draft.mkdir()
            hub = ForkedHub(draft / "home")
            try:
                code, output = hub.python(_BUILD)
            finally:
                hub.close()
            assert code == 0, output
            draft.rename(folder)
    return folder / "home"


@cache
def whole_models(folder: str) -> dict[str, Any]:
    return read_models(built_home() / folder / "events.db")


def put_home(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(built_home(), home, symlinks=True)


def read_models(path: Path) -> dict[str, Any]:
    """Return what a store's file holds: its schema, every row of every table, every word of the full-text index."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        schema = connection.execute("SELECT type, name, tbl_name FROM sqlite_master ORDER BY 1, 2").fetchall()
        tables = [name for kind, name, _ in schema if kind == "table" and not name.startswith(_NOT_COMPARED)]
        return {
            "schema": schema,
            **{name: _rows(connection, name) for name in tables},
            _FULL_TEXT: _words(connection),
        }


def _rows(connection: sqlite3.Connection, table: str) -> list[Any]:
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", [table])]
    compared = ", ".join(f'"{name}"' for name in columns if name not in _KEEPS_TIME.get(table, ()))
    return sorted(connection.execute(f'SELECT {compared} FROM "{table}"').fetchall(), key=repr)


def _words(connection: sqlite3.Connection) -> list[Any]:
    connection.execute(f"CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, {_FULL_TEXT}, instance)")
    return sorted(connection.execute("SELECT doc, term, col, offset FROM temp.words").fetchall())
