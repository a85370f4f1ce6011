from __future__ import annotations

import shutil
from contextlib import closing
from io import StringIO
from pathlib import Path

from django.core.management import CommandError, call_command

from memoryhub.core.backends.sqlite.anchors import anchor_path
from memoryhub.core.backends.sqlite.copies import connect
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import Unavailable
from memoryhub.core.stores.store import project_store
from memoryhub.ops.backups.paths import backups_of
from memoryhub.ops.backups.restoring import restore
from memoryhub.ops.serving import lock
from tests.jobs.test_backups import ALPHA, BackupTestCase
from tests.support import HubTestCase, forget_all_stores


class InPlaceTests(BackupTestCase):
    def test_a_wal_that_outlived_its_store_is_kept_and_not_replayed_over_what_is_restored(self) -> None:
        backup = self.back_up()
        wal = path_of(ALPHA).with_name("events.db-wal")
        with self.store("alpha"):
            self.write("later")
            kept_wal = wal.read_bytes()
        forget_all_stores()
        path_of(ALPHA).unlink()
        wal.write_bytes(kept_wal)
        done = restore(store=ALPHA, source=backup)
        self.assertEqual((self.titles(), done.lost), (["first"], 1))
        assert done.kept
        self.assertEqual(done.kept.with_name(f"{done.kept.name}-wal").read_bytes(), kept_wal)
        self.holds()

    def test_a_link_in_a_stores_place_is_replaced_and_its_file_is_left_alone(self) -> None:
        forget_all_stores()
        elsewhere = self.home / "elsewhere.db"
        path_of(ALPHA).rename(elsewhere)
        path_of(ALPHA).symlink_to(elsewhere)
        restore(store=ALPHA, source=elsewhere)
        self.assertFalse(path_of(ALPHA).is_symlink())
        with self.store("alpha"):
            self.write("marzipan")
        self.assertNotIn(b"marzipan", elsewhere.read_bytes())
        self.holds()

    def test_a_log_that_is_not_the_one_of_its_backups_is_not_backed_up(self) -> None:
        older = {name: path_of(ALPHA).with_name(name) for name in ("events.db", "head")}
        forget_all_stores()
        copies = {name: path.read_bytes() for name, path in older.items()}
        with self.store("alpha"):
            self.write("second")
        backup = self.back_up()
        forget_all_stores()
        for name, path in older.items():
            path.write_bytes(copies[name])
        with self.assertRaisesRegex(Unavailable, r"the log ends at #1, but the backup of .* UTC has #2"):
            self.back_up()
        restore(store=ALPHA, source=backup)
        self.assertEqual(self.titles(), ["first", "second"])
        self.back_up()

    def test_a_store_that_was_restored_to_an_earlier_time_on_purpose_is_backed_up(self) -> None:
        first = self.back_up()
        with self.store("alpha"):
            self.write("second")
        self.back_up()
        restore(store=ALPHA, source=first, replace=True)
        self.back_up()
        self.assertEqual(len(backups_of(ALPHA)), 3)

    def test_a_folder_of_another_project_is_not_backed_up_as_this_one(self) -> None:
        with self.store("beta"):
            self.write("of beta")
        forget_all_stores()
        shutil.copyfile(path_of(project_store("beta")), path_of(ALPHA))
        shutil.copyfile(anchor_path(project_store("beta")), anchor_path(ALPHA))
        with self.assertRaisesRegex(Unavailable, "the log is of 'beta', not of 'alpha'"):
            self.back_up()


class HubDatabaseTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = self.home / "hub.db"
        self.backup = self.home / "20260101T000000000Z.db"
        for path, name in ((self.path, "now"), (self.backup, "then")):
            with closing(connect(path, mode="rwc")) as connection:
                connection.execute("CREATE TABLE memoryhub_jobrun (name)")
                connection.execute("INSERT INTO memoryhub_jobrun VALUES (?)", [name])

    def names(self, path: Path) -> list[str]:
        with closing(connect(path)) as connection:
            return [name for (name,) in connection.execute("SELECT name FROM memoryhub_jobrun")]

    def restore(self, source: Path) -> str:
        output = StringIO()
        call_command("restore", str(source), "--hub", stdout=output)
        return output.getvalue()

    def test_it_is_put_back_and_kept_as_it_was_with_its_wal(self) -> None:
        self.path.with_name("hub.db-wal").write_bytes(b"of the file before")
        said = self.restore(self.backup)
        self.assertEqual(self.names(self.path), ["then"])
        kept = Path(said.partition("previous file: ")[2].strip())
        self.assertEqual(kept.with_name(f"{kept.name}-wal").read_bytes(), b"of the file before")
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)

    def test_it_is_left_alone_while_the_hub_runs(self) -> None:
        with (
            lock.hold(started="by hand") as known,
            self.assertRaisesRegex(CommandError, "the hub is running at http://x"),
        ):
            known("http://x")
            self.restore(self.backup)
        self.assertEqual(self.names(self.path), ["now"])

    def test_what_is_no_backup_of_it_is_refused(self) -> None:
        text, empty = self.home / "text.db", self.home / "empty.db"
        other = self.home / "other.db"
        with closing(connect(other, mode="rwc")) as connection:
            connection.execute("CREATE TABLE t (a)")
        text.write_text("no database " * 100)
        empty.touch()
        for source, reason in (
            (text, "not a database"),
            (empty, "the file is empty"),
            (other, "not the hub's hub.db"),
            (self.home / "nothing.db", "there is no file"),
        ):
            with self.subTest(source=source.name), self.assertRaisesRegex(CommandError, reason):
                self.restore(source)
        self.assertEqual(self.names(self.path), ["now"])
