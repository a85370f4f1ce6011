"""A home with something of everything in it, its commands, and the ways to damage its files."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from memoryhub.core.log.digests import GENESIS, HEADER, chain_digest, payload_digest
from tests import forks
from tests.databases import variables_of
from tests.home import run_home

_BUILD = """
import pathlib, time
from memories.embeddings.engine import use_engine
from memories.embeddings.following import embed_current_store
from memories.embeddings.local import LocalEngine
from memories.embeddings.meaning import nearest
from memories.schemas import MemoryDelete, MemoryWrite
from memories.services import delete_memory, write_memory
from memoryhub import env; from memoryhub.ops import jobs
from memoryhub.core.backends.sqlite.files import copy_database
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.ops.backups.service import back_up_hub, back_up_store
from memoryhub.core.stores import rows
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import GLOBAL_STORE, org_store, project_store, use_store
from memoryhub.demo.project import make_demo
from memoryhub.ops.jobs.running import all_stores
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


class Hub:
    """Runs commands over the home at one path, whatever is put there between them."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700)
        self.home = home
        self._variables = {**variables_of(home), "MEMORY_HUB_LOG": "ERROR", "PYTHONDEVMODE": ""}

    def run(self, *arguments: str) -> tuple[int, str]:
        code, printed, errors = forks.run(*arguments, **self._variables)
        return code, printed + errors

    def python(self, program: str) -> tuple[int, str]:
        code, printed, errors = forks.run_program(program, **self._variables)
        return code, printed + errors


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
            code, output = Hub(draft / "home").python(_BUILD)
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
        return {"schema": schema, **{name: _rows(connection, name) for name in tables}, _FULL_TEXT: _words(connection)}


def _rows(connection: sqlite3.Connection, table: str) -> list[Any]:
    columns = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", [table])]
    compared = ", ".join(f'"{name}"' for name in columns if name not in _KEEPS_TIME.get(table, ()))
    return sorted(connection.execute(f'SELECT {compared} FROM "{table}"').fetchall(), key=repr)


def _words(connection: sqlite3.Connection) -> list[Any]:
    connection.execute(f"CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, {_FULL_TEXT}, instance)")
    return sorted(connection.execute("SELECT doc, term, col, offset FROM temp.words").fetchall())


DEMO, BETA, ORG, GLOBAL = "projects/demo", "projects/beta", "orgs/acme", "global"
_PAGE = 4096
_WRITER_THAT_DIES = """
import os, signal
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core.stores.store import project_store, use_store
with use_store(project_store("demo")):
    for number in range(20):
        write_memory(command=MemoryWrite(title=f"late {number}", content="in the WAL alone"))
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Attacked:
    def __init__(self, hub: Hub, older: Path) -> None:
        self.hub, self.older = hub, older
        self.home = hub.home

    def succeed(self, program: str) -> None:
        code, output = self.hub.python(program)
        assert code == 0, output

    def store(self, folder: str = DEMO) -> Path:
        return self.home / folder / "events.db"

    def head(self, folder: str = DEMO) -> Path:
        return self.home / folder / "head"

    def backup(self, folder: str = "project-demo") -> Path:
        return sorted((self.home / "backups" / folder).glob("*.db"))[-1]

    def template(self) -> Path:
        return next((self.home / "templates").glob("*.db"))

    def sql(self, *statements: str, path: Path | None = None) -> None:
        with closing(_connect(path or self.store())) as connection:
            for statement in statements:
                connection.execute(statement)

    def forge(self, *statements: str, triggers: bool = True) -> None:
        """Change the log past its triggers; they are put back unless ``triggers`` is off."""
        with closing(_connect(self.store())) as connection:
            kept = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
            for name, _ in kept:
                connection.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                connection.execute(statement)
            for _, sql in kept if triggers else ():
                connection.execute(sql)

    def write_and_die(self) -> None:
        """Have a process write twenty memories that stay in the WAL, as it is killed right afterwards."""
        self.hub.python(_WRITER_THAT_DIES)
        assert self.wal().stat().st_size, "nothing is in the write-ahead log"

    def wal(self) -> Path:
        return self.home / DEMO / "events.db-wal"

    def garble_page_of(self, name: str, *, deep: bool = False, path: Path | None = None) -> None:
        """Invert every byte of the root page of a table or an index, or of its first leaf."""
        path = path or self.store()
        with closing(_connect(path)) as connection:
            ((page,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [name]).fetchall()
        self.garble(path, (_first_leaf(path, page) if deep else page) - 1)

    def garble_free_page(self) -> None:
        self.sql("CREATE TABLE spare AS SELECT hex(randomblob(3000)) FROM raw_events LIMIT 9", "DROP TABLE spare")
        trunk = int.from_bytes(self.store().read_bytes()[32:36], "big")
        assert trunk, "the file has no free page"
        self.garble(self.store(), trunk - 1)

    def garble(self, path: Path, page: int, *, skip: int = 0) -> None:
        """Invert the bytes of one page, counted from 0, but for the first ``skip``."""
        start = page * _PAGE + skip
        self.put_bytes(path, start, bytes(byte ^ 0xFF for byte in path.read_bytes()[start : (page + 1) * _PAGE]))

    def put_bytes(self, path: Path, at: int, content: bytes) -> None:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(content)

    def replace_with_older(self, *names: str) -> None:
        for name in names:
            shutil.copyfile(self.older / name, self.home / DEMO / name)

    def link(self, path: Path) -> None:
        elsewhere = self.home.parent / f"elsewhere-{path.name}"
        elsewhere.unlink(missing_ok=True)
        path.rename(elsewhere)
        path.symlink_to(elsewhere)

    def forge_with_new_chain(self) -> None:
        """Change an event's text and compute all digests from there on, as who knows the product could."""
        self.forge("UPDATE raw_events SET payload_json = replace(payload_json, 'keeps under', 'forgets under')")
        self.forge(*_chained_anew(self.store()))

    def anchor_head(self) -> None:
        with closing(_connect(self.store())) as connection:
            last = "SELECT position, chain_digest FROM raw_events ORDER BY position DESC LIMIT 1"
            position, digest = connection.execute(last).fetchone()
        self.head().write_text(f"{position} {digest}".ljust(127) + "\n")

    def leave(self, path: str, *, folder: bool = False) -> None:
        target = self.home / path.format(pid=_ended_pid())
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder:
            target.mkdir(mode=0o700)
            target = target / "events.db"
        target.touch(mode=0o600)
        target.write_text("half a copy")


def _ended_pid() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None)


def _first_leaf(path: Path, page: int) -> int:
    """Return the number of the first leaf of a tree; interior pages name their children before each cell."""
    content = path.read_bytes()
    while content[(page - 1) * _PAGE] in (0x02, 0x05):
        start = (page - 1) * _PAGE
        cell = start + int.from_bytes(content[start + 12 : start + 14], "big")
        page = int.from_bytes(content[cell : cell + 4], "big")
    return page


def _chained_anew(path: Path) -> list[str]:
    columns = ", ".join((*HEADER, "salt", "payload_json"))
    with closing(_connect(path)) as connection:
        found = connection.execute(f"SELECT {columns} FROM raw_events ORDER BY position").fetchall()
    statements, previous = [], GENESIS
    for *header, salt, payload_json in found:
        digest = payload_digest(salt, payload_json)
        previous = chain_digest(previous, header, digest)
        values = f"payload_digest = '{digest}', chain_digest = '{previous}'"
        statements.append(f"UPDATE raw_events SET {values} WHERE position = {header[0]}")
    return statements


Act = Callable[[Attacked], Any]


@dataclass(frozen=True, slots=True)
class Damage:
    """One kind of silent damage.

    Attributes:
        name: of the test.
        do: does it.
        says: a fragment, as a regular expression, of what `doctor` must say.
        repair: a fragment of what `doctor` must propose for it.
        loses: text that is gone for good, which what `doctor` says must name; "" where nothing may be lost.
        by_hand: what a person does, or the hub while it runs, where the remedy is no command.
        accepted: the remedy adds one event, in which a person accepts what was lost, and changes nothing else.
        forgets: the digests of remembered secrets are gone, which only the damaged file had (decision 53).
        store: the folder of the store that was damaged.
    """

    name: str
    do: Act
    says: str
    repair: str
    loses: str = ""
    by_hand: Act | None = field(default=None)
    accepted: bool = False
    forgets: bool = False
    store: str = DEMO
