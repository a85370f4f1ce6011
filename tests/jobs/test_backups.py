"""Backups of stores and of hub.db, and restores, also under processes that write."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from io import StringIO
from pathlib import Path
from unittest import mock

from django.core.management import CommandError, call_command

from governance.redaction.schemas import RedactionRun, RedactionSelect
from governance.redaction.service import preview_redaction, redact
from memories import services
from memories.models import Memory
from memories.schemas import MemoryDelete, MemoryWrite
from memoryhub.core import log
from memoryhub.core.backends.sqlite.anchors import anchor_path
from memoryhub.core.backends.sqlite.copies import connect
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import ConfirmationRequired, Conflict, Invalid, NotFound, Unavailable
from memoryhub.core.jobs import find_job
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.stores.store import project_store
from memoryhub.ops.backups.making import back_up_store, back_up_store_to
from memoryhub.ops.backups.paths import backups_of, kept_before_restores
from memoryhub.ops.backups.restoring import Restored, restore
from memoryhub.ops.jobs import run_job
from memoryhub.ops.jobs.targets import Target
from memoryhub.ops.serving import lock
from tests.forks import Fork
from tests.mcp.client import wait_until
from tests.support import HubTestCase, forget_all_stores

WRITER = """
import os
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core.stores.store import project_store, use_store
for number in range(100_000):
    with use_store(project_store("alpha")):
        result = write_memory(command=MemoryWrite(title=f"w{number}", content=f"text {number}"))
    os.write(1, f"{result.id}\\n".encode())
"""
ALPHA = project_store("alpha")


class BackupTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write("first")

    def write(self, title: str, project: str = "alpha") -> int:
        with self.store(project):
            return int(services.write_memory(command=MemoryWrite(title=title, content=f"text of {title}")).id)

    def titles(self) -> list[str]:
        with self.store("alpha", create=False):
            return list(Memory.objects.order_by("id").values_list("title", flat=True))

    def back_up(self) -> Path:
        with self.store("alpha"):
            return back_up_store().path

    def redact(self, text: str) -> None:
        with self.store("alpha"):
            token = preview_redaction(command=RedactionSelect(text=text)).confirm_token
            redact(command=RedactionRun(text=text, confirm_token=token))

    def holds(self) -> None:
        with self.store("alpha", create=False):
            found = log.verify()
            self.assertTrue(found.ok, found.describe())
            anchor = read_anchor(ALPHA)
            assert anchor
            self.assertEqual((anchor.position, anchor.digest), log.head())
            self.assertTrue(log.rebuild().identical)


class BackupTests(BackupTestCase):
    def test_each_of_several_backups_under_a_process_that_writes_restores_verifies_and_rebuilds(self) -> None:
        with Fork(WRITER) as writer:
            backups, acknowledged = [], 0
            for _ in range(4):
                for _ in range(10):
                    acknowledged = int(writer.stdout.readline())
                backups.append((acknowledged, self.back_up()))
            self.assertIsNone(writer.poll())
            writer.kill()
        for known, backup in backups:
            done = restore(store=ALPHA, source=backup, replace=True)
            self.assertGreaterEqual(done.events, known)
            self.holds()

    def test_a_copy_is_private_in_one_file_and_the_last_few_stay(self) -> None:
        with mock.patch.dict(os.environ, MEMORY_HUB_BACKUPS="2"):
            made = [self.back_up() for _ in range(4)]
        self.assertEqual(backups_of(ALPHA), made[2:])
        self.assertEqual([path.name for path in made[3].parent.iterdir() if path not in made], [])
        self.assertEqual(made[3].stat().st_mode & 0o777, 0o600)
        with (
            mock.patch.dict(os.environ, MEMORY_HUB_BACKUPS="none"),
            self.assertRaisesRegex(Invalid, "must be a number of at least 1"),
        ):
            self.back_up()

    def test_what_was_erased_goes_from_the_backups_with_the_next_one(self) -> None:
        older = self.back_up()
        with self.store("alpha"):
            secret = self.write("Never to be seen")
            with_secret = back_up_store().path
            services.delete_memory(command=MemoryDelete(id=secret))
            with self.assertRaises(ConfirmationRequired) as asked:
                services.delete_memory(command=MemoryDelete(id=secret, permanent=True))
            token = asked.exception.data["confirm_token"]
            services.delete_memory(command=MemoryDelete(id=secret, permanent=True, confirm_token=token))
        last = self.back_up()
        self.assertEqual((backups_of(ALPHA), with_secret.exists()), ([older, last], False))
        self.assertNotIn(b"text of Never to be seen", last.read_bytes())

    def test_what_was_redacted_goes_from_the_backups_with_the_next_one_and_what_was_left_of_it_stays(self) -> None:
        older = self.back_up()
        with self.store("alpha"):
            self.write("marmalade and porridge")
            with_both = self.back_up()
            self.redact("marmalade")
            with_one = self.back_up()
            self.assertFalse(with_both.exists())
            self.assertTrue(with_one.exists())
            self.redact("porridge")
        last, again = self.back_up(), self.back_up()
        self.assertEqual(backups_of(ALPHA), [older, last, again])

    def test_a_store_that_is_not_sound_is_not_backed_up_and_no_backup_goes_for_it(self) -> None:
        good = self.back_up()
        anchor_path(ALPHA).write_bytes(b"99 abc".ljust(127) + b"\n")
        with mock.patch.dict(os.environ, MEMORY_HUB_BACKUPS="1"), self.assertRaisesRegex(Unavailable, "tail was cut"):
            self.back_up()
        self.assertEqual([path.name for path in good.parent.iterdir()], [good.name])

    def test_the_job_backs_up_every_store_and_hub_db(self) -> None:
        shutil.copyfile(_hub_database(self.home), self.home / "hub.db")
        outcomes = run_job(job=find_job("backup"), asked_by="ada")
        self.assertEqual(
            [(outcome.target.title, outcome.result) for outcome in outcomes],
            [("project alpha", "ok"), ("the hub", "ok")],
        )
        self.assertEqual((len(backups_of(ALPHA)), len(backups_of(None))), (1, 1))

    def test_a_hub_that_was_used_over_mcp_alone_is_backed_up_without_hub_db(self) -> None:
        output = StringIO()
        call_command("backup", stdout=output)
        said = output.getvalue().splitlines()
        self.assertRegex(said[0], r"^project alpha: 1 event copied and verified: .*Z\.db$")
        self.assertEqual(said[1:], ["hub.db: does not exist yet"])
        self.assertFalse((self.home / "backups" / "hub").exists())
        (outcome,) = run_job(job=find_job("backup"), targets=[Target()], asked_by="test")
        self.assertEqual((outcome.result, outcome.message), ("ok", ""))

    def test_a_file_of_ones_own_is_never_overwritten(self) -> None:
        target = self.home / "mine.db"
        with self.store("alpha"):
            back_up_store_to(target)
            with self.assertRaises(Conflict):
                back_up_store_to(target)


class RestoreTests(BackupTestCase):
    def test_a_store_that_went_on_is_left_alone_unless_told_and_is_kept_beside(self) -> None:
        backup = self.back_up()
        self.write("second")
        with self.assertRaisesRegex(Conflict, "1 event that the file lacks"):
            restore(store=ALPHA, source=backup)
        self.assertEqual(self.titles(), ["first", "second"])
        self.holds()
        done = restore(store=ALPHA, source=backup, replace=True)
        self.assertEqual((done.events, done.undone, self.titles()), (1, 1, ["first"]))
        self.holds()
        assert done.kept
        back = restore(store=ALPHA, source=done.kept)
        self.assertEqual((back.undone, self.titles()), (0, ["first", "second"]))
        self.holds()

    def restored(self, backup: Path) -> Path:
        kept = restore(store=ALPHA, source=backup, replace=True).kept
        assert kept
        return kept

    def test_what_restores_kept_goes_with_the_next_backup_but_for_the_last_two(self) -> None:
        backup = self.back_up()
        first, second, third = (self.restored(backup) for _ in range(3))
        self.assertEqual(kept_before_restores(ALPHA), [first, second, third])
        self.back_up()
        self.assertEqual(kept_before_restores(ALPHA), [second, third])
        self.assertTrue(backup.exists())

    def test_what_restores_kept_goes_where_it_holds_what_was_taken_out_since_and_not_for_anothers_place(self) -> None:
        backup = self.back_up()
        self.write("apricot")
        with_apricot = self.restored(backup)
        with self.store("alpha"):
            self.write("marmalade")  # where apricot was in the log that is kept beside
            with_both = self.restored(self.back_up())
            self.redact("marmalade")
        self.back_up()
        self.assertEqual(kept_before_restores(ALPHA), [with_apricot])
        self.assertIn(b"apricot", with_apricot.read_bytes())
        self.assertFalse(with_both.exists())

    def test_what_restores_kept_and_nobody_can_read_goes_when_text_was_taken_out_after_it(self) -> None:
        backup = self.back_up()
        self.write("marmalade")
        forget_all_stores()
        path_of(ALPHA).write_bytes(b"marmalade, but no database " * 500)
        broken = self.restored(backup)
        self.back_up()
        self.assertTrue(broken.exists())
        self.write("marmalade")
        self.redact("marmalade")
        self.back_up()
        self.assertFalse(broken.exists())

    def test_logs_that_part_are_told_by_how_much(self) -> None:
        first = self.back_up()
        self.write("one way")
        self.write("one way on")
        one_way = self.back_up()
        restore(store=ALPHA, source=first, replace=True)
        self.write("another way")
        with self.assertRaisesRegex(Conflict, "1 event that the file lacks"):
            restore(store=ALPHA, source=one_way)
        self.assertEqual(restore(store=ALPHA, source=one_way, replace=True).undone, 1)
        self.assertEqual(self.titles(), ["first", "one way", "one way on"])
        self.holds()

    def test_a_process_that_has_the_store_open_and_writes_goes_on_with_what_was_restored(self) -> None:
        backup = self.back_up()
        with Fork(WRITER) as writer:
            writer.stdout.readline()
            restored: list[Restored] = [restore(store=ALPHA, source=backup, replace=True) for _ in range(3)]
            wait_until(lambda: len(self.titles()) > 20)
            self.assertIsNone(writer.poll())
            writer.kill()
            acknowledged = writer.stdout.read().splitlines()
        self.assertTrue(restored[0].undone)
        with self.store("alpha"):
            self.assertTrue(Memory.objects.filter(id=acknowledged[-1]).exists())
            self.write("the next")  # who was killed between the commit and the anchor has left it one behind
        self.holds()

    def test_a_lost_store_and_one_that_is_no_database_any_more_come_back(self) -> None:
        backup = self.back_up()
        forget_all_stores()
        path_of(ALPHA).write_bytes(b"not a database!!" * 1000)
        with self.assertRaisesRegex(Conflict, "can't read .* add --replace"):
            restore(store=ALPHA, source=backup)
        done = restore(store=ALPHA, source=backup, replace=True)
        self.holds()
        assert done.kept
        self.assertTrue(done.kept.read_bytes().startswith(b"not a database!!"))
        forget_all_stores()
        shutil.rmtree(path_of(ALPHA).parent)
        self.assertEqual(restore(store=ALPHA, source=backup).kept, None)
        self.holds()

    def test_what_is_no_sound_store_of_this_name_is_refused_and_nothing_is_changed(self) -> None:
        backup = self.back_up()
        other, broken = self.home / "other.db", self.home / "broken.db"
        with closing(connect(other, mode="rwc")) as connection:
            connection.execute("CREATE TABLE t (a)")
        shutil.copyfile(backup, broken)
        with closing(connect(broken, mode="rw")) as connection:
            connection.execute("DROP TRIGGER raw_events_no_change")
            connection.execute("UPDATE raw_events SET actor = 'mallory'")
        strange = self.home / "strange.db"
        with closing(connect(strange, mode="rwc")) as connection:
            connection.execute("CREATE TABLE raw_events (x)")
            connection.execute("INSERT INTO raw_events VALUES (1)")
        alike = self.home / "alike.db"  # a log to look at, and none of the tables that migrations expect
        with closing(connect(alike, mode="rwc")) as connection:
            connection.execute(f"ATTACH '{backup}' AS backup")
            connection.execute("CREATE TABLE raw_events AS SELECT * FROM backup.raw_events")
        cut = self.home / "cut.db"
        cut.write_bytes(backup.read_bytes()[: backup.stat().st_size // 2])
        cases = [
            (
                ALPHA,
                strange,
                Invalid,
                f"{strange} is not a store: its event log lacks the columns chain_digest, event_id",
            ),
            (ALPHA, alike, Invalid, f"{alike} is not a store of this hub: "),
            (ALPHA, cut, Unavailable, f"{cut} is damaged: |can't copy {cut}: "),
            (ALPHA, self.home, Invalid, f"{self.home} is a folder, not a file"),
            (ALPHA, self.home / "nothing.db", NotFound, "there is no file"),
            (ALPHA, self.home / "token", Invalid, "not a database"),
            (ALPHA, other, Invalid, f"{other} is not a store: it has no event log"),
            (ALPHA, broken, Unavailable, f"{broken} is not sound: .*the chain is broken at #1"),
            (project_store("beta"), backup, Invalid, f"{backup} is a backup of 'alpha', not of 'beta'"),
        ]
        (self.home / "token").write_text("no database " * 100)
        for store, source, error, reason in cases:
            with self.subTest(source=source.name), self.assertRaisesRegex(error, reason):
                restore(store=store, source=source, replace=True)
        self.assertEqual((self.titles(), path_of(project_store("beta")).parent.exists()), (["first"], False))
        self.holds()


def _hub_database(home: Path) -> Path:
    path = home / "any.db"
    with closing(connect(path, mode="rwc")) as connection:
        connection.execute("CREATE TABLE t (a)")
    return path


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
        self.write("marzipan")
        self.assertNotIn(b"marzipan", elsewhere.read_bytes())
        self.holds()

    def test_a_log_that_is_not_the_one_of_its_backups_is_not_backed_up(self) -> None:
        older = {name: path_of(ALPHA).with_name(name) for name in ("events.db", "head")}
        forget_all_stores()
        copies = {name: path.read_bytes() for name, path in older.items()}
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
        self.write("second")
        self.back_up()
        restore(store=ALPHA, source=first, replace=True)
        self.back_up()
        self.assertEqual(len(backups_of(ALPHA)), 3)

    def test_a_folder_of_another_project_is_not_backed_up_as_this_one(self) -> None:
        self.write("of beta", "beta")
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
