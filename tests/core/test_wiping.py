from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from memoryhub.core.backends.sqlite import wiping
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.stores.store import project_store
from tests.databases import sqlite_only
from tests.support import HubTestCase, forget_all_stores


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

    def test_a_log_over_the_limit_is_cut_and_nothing_is_lost(self) -> None:
        self.assertGreater(self.log.stat().st_size, 1_000_000)
        self.assertEqual(wiping.shorten_all(limit=500_000), [self.path])
        self.assertEqual(self.log.stat().st_size, 0)
        self.assertEqual(self.writer.execute("SELECT length(text) FROM filler").fetchall(), [(1_000_000,)])

    def test_a_log_within_the_limit_is_left_alone(self) -> None:
        before = self.log.stat().st_size
        self.assertEqual(wiping.shorten_all(limit=before), [])
        self.assertEqual(self.log.stat().st_size, before)

    def test_a_long_reader_is_awaited_and_then_left_alone(self) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM filler").fetchall()
            self.writer.execute("INSERT INTO filler VALUES ('later')")
            self.assertEqual(wiping.shorten_all(limit=500_000), [])
            self.assertEqual(reader.execute("SELECT count(*) FROM filler").fetchone(), (1,))
        self.assertEqual(wiping.shorten_all(limit=500_000), [self.path])

    def test_a_file_that_is_no_database_stops_nothing(self) -> None:
        broken = Path(self.home / "projects/beta/events.db")
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
