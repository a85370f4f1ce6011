from __future__ import annotations

import csv
import gzip
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path
from unittest import mock

from django.db import DataError, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.test import tag

from memories import services
from memories.models import Memory
from memories.schemas import MemoryWrite
from memoryhub.core import log
from memoryhub.core.backends import selected
from memoryhub.core.backends.sqlite import files, options, wiping
from memoryhub.core.backends.sqlite import stores as sqlite_stores
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.backends.sqlite.options import SAFE_VERSION
from memoryhub.core.backends.sqlite.structure import template_path
from memoryhub.core.errors import Invalid, Locked, NotFound, Unavailable
from memoryhub.core.stores import rows, schema, store
from memoryhub.core.stores.routing import NoCurrentStore
from memoryhub.core.stores.store import StoreId, org_store, project_store, use_store
from tests import tampering
from tests.databases import on_postgresql, postgresql_only, sqlite_only
from tests.support import HubTestCase, forget_all_stores

ALPHA, BETA = project_store("alpha"), project_store("beta")


def write(title: str) -> int:
    return services.write_memory(command=MemoryWrite(title=title, content=f"text of {title}")).id


def remove_wal() -> None:
    for name in ("events.db-wal", "events.db-shm"):
        path_of(ALPHA).with_name(name).unlink(missing_ok=True)


class StoreTestCase(HubTestCase):
    def create(self, store_id: StoreId = ALPHA, title: str = "first") -> None:
        with use_store(store_id, create=True):
            write(title)

    def assert_first(self) -> None:
        """The store alpha has its one memory."""
        with use_store(ALPHA):
            self.assertEqual([memory.title for memory in Memory.objects.all()], ["first"])

    def assert_unusable(self, error: type[BaseException], reason: str, *, create: bool = False) -> None:
        with self.assertRaisesRegex(error, reason), use_store(ALPHA, create=create):
            write("refused")


class NameTests(HubTestCase):
    def test_only_slugs_are_names(self):
        for name in ["", "..", "../x", "a/b", "A", "a b", "-a", ".a", "a" * 65, "é", "a\n", "a\x00"]:
            with self.subTest(name=name), self.assertRaises(Invalid):
                project_store(name)

    @sqlite_only("the paths of files")
    def test_every_scope_has_its_folder(self):
        self.assertEqual(path_of(store.GLOBAL_STORE), self.home / "global" / "events.db")
        self.assertEqual(path_of(org_store("acme")), self.home / "orgs" / "acme" / "events.db")
        self.assertEqual(path_of(ALPHA), self.home / "projects" / "alpha" / "events.db")


# One thread closes a connection while another collects a cursor of it that an error has left in a cycle.
_CLOSE_WHILE_COLLECTING = """
import faulthandler, gc, threading
import django; django.setup()
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from memoryhub.core.stores.store import project_store, use_store

def leave_cursor_in_cycle(raw):
    cycle = {}
    cycle["itself"] = cycle
    cycle["cursor"] = raw.execute("SELECT 1 UNION SELECT 2")
    next(cycle["cursor"])

def own_connection(runs, may_end):
    def wait():
        runs.set()
        may_end.wait()
        return 1
    with use_store(project_store("alpha"), create=True) as store:
        connection = connections[store.alias]
        connection.ensure_connection()
        connection.connection.create_function("wait", 0, wait)
        leave_cursor_in_cycle(connection.connection)
        connection.connection.execute("SELECT wait()").fetchall()
        connection.close()

faulthandler.dump_traceback_later(100, exit=True)
gc.disable()
gc.collect()
gc.freeze()
for _ in range(100):
    runs, may_end = threading.Event(), threading.Event()
    owner = threading.Thread(target=own_connection, args=(runs, may_end))
    collector = threading.Thread(target=gc.collect)
    owner.start()
    runs.wait()
    collector.start()
    may_end.set()
    owner.join()
    collector.join()
"""


@tag("process")
@sqlite_only("cursors of its driver")
class ClosingTests(HubTestCase):
    def test_a_connection_is_closed_while_another_thread_collects_a_cursor_of_it(self):
        command = [sys.executable, "-c", _CLOSE_WHILE_COLLECTING]
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-3_000:])


class CreationTests(StoreTestCase):
    def test_a_store_is_created_only_on_request(self):
        with self.assertRaisesRegex(NotFound, "there is no project 'alpha'"), use_store(ALPHA):
            pass
        self.assertFalse(selected.stores.exists(ALPHA))

    def test_files_and_folders_are_private_whatever_the_umask(self):
        script = (
            "import os, django; os.umask(0); django.setup()\n"
            "from memoryhub.core.stores.store import *\n"
            "from memories.services import *\n"
            "from memories.schemas import *\n"
            "with use_store(project_store('alpha'), create=True):\n"
            "    write_memory(command=MemoryWrite(title='a', content='b'))\n"
            "    os.system('cp -r --preserve=mode $MEMORY_HUB_HOME $MEMORY_HUB_HOME.copy')"
        )
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=300)
        copy = Path(f"{self.home}.copy")
        self.addCleanup(shutil.rmtree, copy)
        names = {path.name for path in copy.rglob("*")}
        if not on_postgresql():
            self.assertLessEqual({"events.db", "events.db-wal", "events.db-shm", "head"}, names)
        for path in [copy, *copy.rglob("*")]:
            mode = 0o700 if path.is_dir() else 0o600
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), mode, path)

    @sqlite_only("a template is a database")
    def test_a_damaged_template_is_rebuilt_and_not_copied(self):
        for name, content in (("empty", b""), ("text", b"no database " * 999)):
            template_path().unlink()
            template_path().write_bytes(content)
            with self.subTest(name), self.assertLogs("memoryhub.core.backends.sqlite.structure", "WARNING"):
                sqlite_stores.create(project_store(name))
            with use_store(project_store(name)):
                self.assertTrue(log.verify().ok)
                write("first")

    @tag("backend")
    def test_several_creators_at_once_make_one_store(self):
        def create(number: int) -> None:
            self.create(title=f"memory {number}")
            connections[ALPHA.alias].close()

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(create, range(6)))  # raises their errors
        with use_store(ALPHA):
            self.assertEqual(Memory.objects.count(), 6)

    @tag("backend")
    def test_a_store_that_another_thread_creates_in_between_is_opened(self):
        is_anchored = selected.anchors.exists

        def create_in_between(store_id: StoreId) -> bool:
            patched.stop()
            with ThreadPoolExecutor(1) as other:
                other.submit(self.create).result()
            return is_anchored(store_id)

        patched = mock.patch.object(selected.anchors, "exists", create_in_between)
        patched.start()
        with use_store(ALPHA, create=True):
            self.assertEqual(Memory.objects.count(), 1)

    @sqlite_only("its pragmas")
    def test_the_measured_pragmas_are_set(self):
        with use_store(ALPHA, create=True):
            for pragma, value in (
                ("journal_mode", "wal"),
                ("synchronous", 2),
                ("foreign_keys", 1),
                ("recursive_triggers", 1),
                ("journal_size_limit", options.JOURNAL_SIZE_LIMIT),
            ):
                self.assertEqual(rows.fetch(f"PRAGMA {pragma}"), [(value,)], pragma)

    def test_sqlite_is_one_that_keeps_its_wal_whole(self):
        self.assertGreaterEqual(sys.modules["sqlite3"].sqlite_version_info, SAFE_VERSION)


@tag("backend")
class IsolationTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.create()
        with use_store(BETA, create=True):
            pass

    def test_querysets_and_rows_stay_with_their_store(self):
        with use_store(ALPHA):
            lazy, memory = Memory.objects.all(), Memory.objects.get()
        with use_store(BETA):
            self.assertEqual([memory.title for memory in lazy], ["first"])
            self.assertFalse(Memory.objects.exists())
            with self.assertRaises(NoCurrentStore):
                memory.save()
        with self.assertRaises(NoCurrentStore):
            Memory.objects.count()

    def test_rows_in_batches_are_of_one_moment_while_others_are_written(self):
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) "
        counted = f"{numbers}SELECT i, (SELECT count(*) FROM memories_memory WHERE kind <> %s) FROM n ORDER BY i"
        with use_store(ALPHA):
            for inside in (nullcontext(), transaction.atomic(using=ALPHA.alias)):
                with self.subTest(inside=inside), inside:
                    before = Memory.objects.count()
                    batches = rows.iterate(counted, ["tool"])
                    first = next(batches)
                    write("written meanwhile")
                    self.assertEqual([first, *batches], [(number, before) for number in range(1, 2501)])
            self.assertEqual(list(rows.iterate(f"{numbers}SELECT i FROM n WHERE i > 2500")), [])
            next(rows.iterate(counted, ["tool"]))  # a reader that stops is in nobody's way
            write("written after it")

    @postgresql_only("SQLite computes each row when it is asked for")
    def test_rows_that_were_not_asked_for_are_not_computed(self):
        with use_store(ALPHA):
            quotients = rows.iterate("SELECT 1 / (2000 - i) FROM generate_series(1, 2500) AS n(i)")
            self.assertEqual(next(quotients), (0,))
            with self.assertRaises(DataError):
                list(quotients)

    def test_many_stores_leave_few_open(self):
        with mock.patch.object(store, "MAX_OPEN_STORES", 8):
            for number in range(12):
                self.create(project_store(f"p{number}"))
        self.assertLessEqual(len([alias for alias in connections.settings if alias.startswith("store:")]), 8)
        with use_store(project_store("p0")):
            self.assertEqual(Memory.objects.count(), 1)


class UpgradeTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.create()
        connections[ALPHA.alias].close()
        store.forget(ALPHA)

    @tag("backend")
    def test_an_older_store_alone_is_upgraded_after_a_backup(self):
        self.assert_first()
        self.assertFalse((self.home / "backups").exists())
        store.forget(ALPHA)
        tampering.change(ALPHA, "UPDATE store_meta SET value = 'older'")
        self.assert_first()
        with use_store(ALPHA):
            self.assertEqual(selected.integrity.missing_log_triggers(), [])
        (backup,) = (self.home / "backups" / "projects" / "alpha").iterdir()
        self.assertEqual(self.events_of(backup), 1)

    @tag("backend")
    def test_an_upgrade_that_dies_before_a_migration_is_recorded_is_repeated(self):
        with use_store(ALPHA):
            MigrationExecutor(connections[ALPHA.alias]).migrate([("governance", None)])
        store.forget(ALPHA)
        tampering.change(ALPHA, "UPDATE store_meta SET value = 'older' WHERE key = 'fingerprint'")
        with mock.patch.object(MigrationExecutor, "record_migration", side_effect=SystemExit):
            self.assert_unusable(SystemExit, "")
        self.assert_first()
        with use_store(ALPHA):
            self.assertEqual(selected.integrity.schema_problem(), "")

    def events_of(self, backup: Path) -> int:
        if on_postgresql():
            with gzip.open(backup, "rt", newline="") as file:
                return len(list(csv.DictReader(file)))
        with closing(sqlite3.connect(backup)) as raw:
            return int(raw.execute("SELECT count(*) FROM raw_events").fetchone()[0])

    @tag("backend")
    def test_a_newer_store_is_refused_and_left_alone(self):
        tampering.change(
            ALPHA,
            "UPDATE store_meta SET value = 'newer'",
            "INSERT INTO django_migrations (app, name, applied) VALUES ('memories', '0999_future', '2030-01-01')",
        )
        for _ in range(2):
            self.assert_unusable(Unavailable, "newer Memory Hub .memories.0999_future")
        self.assertFalse((self.home / "backups").exists(), "each attempt to open it left a backup")

    @tag("backend")
    def test_a_store_with_the_replaced_migrations_opens_and_one_that_stopped_among_them_is_refused(self):
        unlist = "DELETE FROM django_migrations WHERE app = 'memories' AND name = '{}'"
        older = "UPDATE store_meta SET value = 'older' WHERE key = 'fingerprint'"
        added_since = map(unlist.format, ("0011_updated_when_written", "0012_failure", "0013_validity"))
        tables = ("amendment", "checkstate", "codeanchor", "provenance")
        dropped = [f"DROP TABLE memories_{table}" for table in tables]
        dropped += ["DROP INDEX memory_reference", "ALTER TABLE memories_memoryversion DROP COLUMN copied_from"]
        tampering.change(ALPHA, unlist.format("0001_squashed"), *added_since, *dropped, older)
        self.assert_first()
        with use_store(ALPHA):
            self.assertEqual(selected.integrity.schema_problem(), "")
        store.forget(ALPHA)
        tampering.change(ALPHA, unlist.format("0001_squashed"), unlist.format("0010_facets_index"), older)
        self.assert_unusable(Unavailable, r"too old \(it lacks memories.0010_facets_index\)")

    @sqlite_only("each folder is a store")
    def test_a_folder_whose_name_no_store_can_have_does_not_hide_the_others(self):
        shutil.copytree(path_of(ALPHA).parent, path_of(ALPHA).parent.with_name("Alpha (copy)"))
        self.assertEqual(store.list_projects(), ["alpha"])

    def test_the_fingerprint_follows_the_required_sql(self):
        before = schema.fingerprint()
        schema.fingerprint.cache_clear()
        schema.require_sql("test", "SELECT 1")
        self.addCleanup(schema.fingerprint.cache_clear)
        self.addCleanup(schema._required.pop, "test")
        self.assertNotEqual(schema.fingerprint(), before)


class FailureTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.create()

    @tag("backend")
    def test_a_store_locked_by_another_process_says_so_and_writes_nothing(self):
        with tampering.locked(ALPHA), tampering.busy_timeout(0.2):
            self.assert_unusable(Locked, "memory database is locked by another process")
        self.assert_first()

    @sqlite_only("the header of a file")
    def test_a_corrupted_header_says_so_and_a_restored_file_works_again(self):
        connections[ALPHA.alias].close()
        content = path_of(ALPHA).read_bytes()
        store.forget(ALPHA)
        remove_wal()
        path_of(ALPHA).write_bytes(b"this is no database" * 100)
        self.assert_unusable(Unavailable, "memory database unavailable: file is not a database")
        path_of(ALPHA).write_bytes(content)
        with self.assertLogs("memoryhub.core.stores.store", "WARNING") as logs:
            self.assert_first()
        self.assertIn("integrity check: ok", logs.output[0])

    @sqlite_only("a folder is there without its file")
    def test_a_lost_folder_is_not_silently_recreated(self):
        shutil.rmtree(path_of(ALPHA).parent)
        self.assert_unusable(Unavailable, "memory database unavailable: the file of 'alpha' is gone", create=True)

    @sqlite_only("its limit of a file's size")
    def test_a_full_disk_writes_nothing_and_leaves_the_log_readable(self):
        with use_store(ALPHA):
            rows.execute("PRAGMA max_page_count = 1")
            with self.assertRaisesRegex(Unavailable, "disk is full"), use_store(ALPHA):
                services.write_memory(command=MemoryWrite(title="big", content="x" * 90_000 + " y"))
        self.assert_first()
        with use_store(ALPHA):
            self.assertTrue(log.verify().ok)

    @sqlite_only("a file takes the place of another")
    def test_a_replaced_file_is_reopened(self):
        with use_store(BETA, create=True):
            write("beta's own")
            rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connections[ALPHA.alias].close()
        copy = files.back_up(path_of(BETA), reason="test")
        remove_wal()
        copy.replace(path_of(ALPHA))
        with use_store(ALPHA):
            self.assertEqual(Memory.objects.get().title, "beta's own")


@sqlite_only("its write-ahead log")
class KeeperTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            pass
        forget_all_stores()
        self.path = path_of(project_store("alpha"))
        self.log = self.path.with_name("events.db-wal")
        self.writer = self.enterContext(closing(sqlite3.connect(self.path, isolation_level=None)))
        self.writer.execute("PRAGMA wal_autocheckpoint=0")
        self.writer.execute("CREATE TABLE filler (text)")
        self.writer.execute("INSERT INTO filler VALUES (?)", ["x" * 1_000_000])

    def test_a_log_over_the_limit_alone_is_cut_and_nothing_is_lost(self) -> None:
        before = self.log.stat().st_size
        self.assertGreater(before, 1_000_000)
        self.assertEqual(wiping.shorten_all(limit=before), [])
        self.assertEqual(self.log.stat().st_size, before)
        self.assertEqual(wiping.shorten_all(limit=500_000), [self.path])
        self.assertEqual(self.log.stat().st_size, 0)
        self.assertEqual(self.writer.execute("SELECT length(text) FROM filler").fetchall(), [(1_000_000,)])

    def test_a_long_reader_is_awaited_and_then_left_alone(self) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM filler").fetchall()
            self.writer.execute("INSERT INTO filler VALUES ('later')")
            self.assertEqual(wiping.shorten_all(limit=500_000), [])
            self.assertEqual(reader.execute("SELECT count(*) FROM filler").fetchone(), (1,))
        self.assertEqual(wiping.shorten_all(limit=500_000), [self.path])

    def test_a_file_that_is_no_database_stops_nothing(self) -> None:
        broken = self.home / "projects/beta/events.db"
        broken.parent.mkdir()
        broken.write_bytes(b"not a database!!" * 1000)
        broken.with_name("events.db-wal").write_bytes(b"x" * 600_000)
        with self.assertLogs("memoryhub.core.backends.sqlite.wiping", "WARNING"):
            self.assertEqual(wiping.shorten_all(limit=500_000), [self.path])

    def test_the_keeper_runs_until_it_is_stopped(self) -> None:
        stop = threading.Event()
        keeper = threading.Thread(target=wiping.keep, args=[stop], kwargs={"every": 0.01})
        keeper.start()
        stop.set()
        keeper.join(60)
        self.assertFalse(keeper.is_alive())
