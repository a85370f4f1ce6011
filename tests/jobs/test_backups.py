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
from memoryhub.core.backends.sqlite.files import open_database, path_of
from memoryhub.core.errors import ConfirmationRequired, ConflictError, Invalid, NotFound, Unavailable
from memoryhub.core.jobs import find_job
from memoryhub.core.log.anchor import read_anchor
from memoryhub.core.stores.store import project_store
from memoryhub.ops.backups.restoring import Restored, restore
from memoryhub.ops.backups.service import back_up, back_up_store, backups_of, kept_before_restores
from memoryhub.ops.jobs import run_job
from memoryhub.ops.jobs.running import JobTarget
from memoryhub.ops.serving import process
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

    def assert_sound_with(self, *titles: str) -> None:
        """The chain, its anchor and the read models of alpha agree, and its memories have these titles."""
        with self.store("alpha", create=False):
            self.assert_sound()
            anchor = read_anchor(ALPHA)
            assert anchor
            self.assertEqual((anchor.position, anchor.digest), log.head())
        if titles:
            self.assertEqual(self.titles(), list(titles))

    def restore(self, source: Path) -> Restored:
        return restore(store=ALPHA, source=source, replace=True)

    def restored(self, source: Path) -> Path:
        """Restore, and return what was kept beside."""
        kept = self.restore(source).previous_file
        assert kept
        return kept

    def create_database(self, name: str, *statements: str) -> Path:
        path = self.home / name
        with closing(open_database(path, mode="rwc")) as connection:
            for statement in statements:
                connection.execute(statement)
        return path


class BackupTests(BackupTestCase):
    def test_each_of_several_backups_under_a_process_that_writes_restores_verifies_and_rebuilds(self) -> None:
        with Fork(WRITER) as writer:
            backups = []
            for _ in range(4):
                acknowledged = [int(writer.stdout.readline()) for _ in range(10)]
                backups.append((acknowledged[-1], self.back_up()))
            self.assertIsNone(writer.poll())
            writer.kill()
        for acknowledged_id, backup in backups:
            self.assertGreaterEqual(self.restore(backup).events, acknowledged_id)
            self.assert_sound_with()

    def test_a_copy_is_private_in_one_file_and_the_last_few_stay(self) -> None:
        with mock.patch.dict(os.environ, MEMORY_HUB_BACKUPS="2"):
            backups = [self.back_up() for _ in range(4)]
        self.assertEqual(backups_of(ALPHA), backups[2:])
        self.assertEqual(set(backups[3].parent.iterdir()), set(backups[2:]))
        self.assertEqual(backups[3].stat().st_mode & 0o777, 0o600)
        self.enterContext(mock.patch.dict(os.environ, MEMORY_HUB_BACKUPS="none"))
        with self.assertRaisesRegex(Invalid, "must be a number of at least 1"):
            self.back_up()

    def test_what_was_erased_or_redacted_goes_from_the_backups_with_the_next_one(self) -> None:
        older = self.back_up()
        secret = self.write("Never to be seen")
        with_secret = self.back_up()
        with self.store("alpha"):
            services.delete_memory(command=MemoryDelete(id=secret))
            with self.assertRaises(ConfirmationRequired) as asked:
                services.delete_memory(command=MemoryDelete(id=secret, permanent=True))
            token = asked.exception.data["confirm_token"]
            services.delete_memory(command=MemoryDelete(id=secret, permanent=True, confirm_token=token))
        erased = self.back_up()
        self.assertEqual((backups_of(ALPHA), with_secret.exists()), ([older, erased], False))
        self.assertNotIn(b"text of Never to be seen", erased.read_bytes())
        self.write("marmalade and porridge")
        with_both = self.back_up()
        self.redact("marmalade")
        with_one = self.back_up()
        self.assertEqual((with_both.exists(), with_one.exists()), (False, True))
        self.redact("porridge")
        last, again = self.back_up(), self.back_up()
        self.assertEqual(backups_of(ALPHA), [older, erased, last, again])

    def test_a_store_that_is_not_sound_is_not_backed_up_and_no_backup_goes_for_it(self) -> None:
        good = self.back_up()
        anchor_path(ALPHA).write_bytes(b"99 abc".ljust(127) + b"\n")
        with mock.patch.dict(os.environ, MEMORY_HUB_BACKUPS="1"), self.assertRaisesRegex(Unavailable, "tail was cut"):
            self.back_up()
        self.assertEqual([path.name for path in good.parent.iterdir()], [good.name])

    def test_the_job_backs_up_every_store_and_hub_db(self) -> None:
        self.create_database("hub.db", "CREATE TABLE t (a)")
        outcomes = run_job(job=find_job("backup"), asked_by="ada")
        results = [(outcome.target.title, outcome.result) for outcome in outcomes]
        self.assertEqual(results, [("project alpha", "ok"), ("the hub", "ok")])
        self.assertEqual((len(backups_of(ALPHA)), len(backups_of(None))), (1, 1))

    def test_a_hub_that_was_used_over_mcp_alone_is_backed_up_without_hub_db(self) -> None:
        output = StringIO()
        call_command("backup", stdout=output)
        first, *others = output.getvalue().splitlines()
        self.assertRegex(first, r"^project alpha: 1 event copied and verified: .*Z\.db$")
        self.assertEqual(others, ["hub.db: does not exist yet"])
        self.assertFalse((self.home / "backups" / "hub").exists())
        (outcome,) = run_job(job=find_job("backup"), targets=[JobTarget()], asked_by="test")
        self.assertEqual((outcome.result, outcome.message), ("ok", ""))

    def test_a_file_of_ones_own_is_never_overwritten(self) -> None:
        target = self.home / "mine.db"
        with self.store("alpha"):
            back_up(target)
            with self.assertRaises(ConflictError):
                back_up(target)


class RestoreTests(BackupTestCase):
    def test_a_store_that_went_on_is_left_alone_unless_replaced_and_is_kept_beside(self) -> None:
        backup = self.back_up()
        self.write("second")
        with self.assertRaisesRegex(ConflictError, "1 event that the file lacks"):
            restore(store=ALPHA, source=backup)
        self.assert_sound_with("first", "second")
        done = self.restore(backup)
        self.assertEqual((done.events, done.undone), (1, 1))
        self.assert_sound_with("first")
        assert done.previous_file
        self.assertEqual(restore(store=ALPHA, source=done.previous_file).undone, 0)
        self.assert_sound_with("first", "second")

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

    def test_logs_that_part_are_counted_from_where_they_part(self) -> None:
        first = self.back_up()
        self.write("one way")
        self.write("one way on")
        one_way = self.back_up()
        self.restore(first)
        self.back_up()  # of an earlier time, which was chosen on purpose
        self.write("another way")
        with self.assertRaisesRegex(ConflictError, "1 event that the file lacks"):
            restore(store=ALPHA, source=one_way)
        self.assertEqual(self.restore(one_way).undone, 1)
        self.assert_sound_with("first", "one way", "one way on")

    def test_a_process_that_has_the_store_open_and_writes_goes_on_with_what_was_restored(self) -> None:
        backup = self.back_up()
        with Fork(WRITER) as writer:
            writer.stdout.readline()
            first, *_ = [self.restore(backup) for _ in range(3)]
            self.assertTrue(first.undone)
            wait_until(lambda: len(self.titles()) > 20)
            self.assertIsNone(writer.poll())
            writer.kill()
            acknowledged = writer.stdout.read().splitlines()
        with self.store("alpha"):
            self.assertTrue(Memory.objects.filter(id=acknowledged[-1]).exists())
        self.write("the next")  # who was killed between the commit and the anchor has left it one behind
        self.assert_sound_with()

    def test_a_lost_store_and_one_that_is_no_database_any_more_come_back(self) -> None:
        backup = self.back_up()
        forget_all_stores()
        path_of(ALPHA).write_bytes(b"not a database!!" * 1000)
        with self.assertRaisesRegex(ConflictError, "can't read .* add --replace"):
            restore(store=ALPHA, source=backup)
        self.assertTrue(self.restored(backup).read_bytes().startswith(b"not a database!!"))
        self.assert_sound_with("first")
        forget_all_stores()
        shutil.rmtree(path_of(ALPHA).parent)
        self.assertEqual(restore(store=ALPHA, source=backup).previous_file, None)
        self.assert_sound_with("first")

    def test_what_is_no_sound_store_of_this_name_is_refused_and_nothing_is_changed(self) -> None:
        backup = self.back_up()
        other = self.create_database("other.db", "CREATE TABLE t (a)")
        strange = self.create_database("strange.db", "CREATE TABLE raw_events (x)", "INSERT INTO raw_events VALUES (1)")
        alike = self.create_database(  # a log to look at, and none of the tables that migrations expect
            "alike.db", f"ATTACH '{backup}' AS backup", "CREATE TABLE raw_events AS SELECT * FROM backup.raw_events"
        )
        shutil.copyfile(backup, self.home / "broken.db")
        broken = self.create_database(
            "broken.db", "DROP TRIGGER raw_events_no_change", "UPDATE raw_events SET actor = 'mallory'"
        )
        cut, text = self.home / "cut.db", self.home / "token"
        cut.write_bytes(backup.read_bytes()[: backup.stat().st_size // 2])
        text.write_text("no database " * 100)
        lacking = f"{strange} is not a store: its event log lacks the columns chain_digest, event_id"
        for source, error, reason in (
            (strange, Invalid, lacking),
            (alike, Invalid, f"{alike} is not a store of this hub: "),
            (cut, Unavailable, f"{cut} is damaged: |can't copy {cut}: "),
            (self.home, Invalid, f"{self.home} is a folder, not a file"),
            (self.home / "nothing.db", NotFound, "there is no file"),
            (text, Invalid, "not a database"),
            (other, Invalid, f"{other} is not a store: it has no event log"),
            (broken, Unavailable, f"{broken} is not sound: .*the chain is broken at #1"),
        ):
            with self.subTest(source=source.name), self.assertRaisesRegex(error, reason):
                self.restore(source)
        with self.assertRaisesRegex(Invalid, f"{backup} is a backup of 'alpha', not of 'beta'"):
            restore(store=project_store("beta"), source=backup, replace=True)
        self.assertFalse(path_of(project_store("beta")).parent.exists())
        self.assert_sound_with("first")


class InPlaceTests(BackupTestCase):
    def test_a_wal_that_outlived_its_store_is_kept_and_not_replayed_over_what_is_restored(self) -> None:
        backup = self.back_up()
        wal = path_of(ALPHA).with_name("events.db-wal")
        with self.store("alpha"):
            self.write("later")
            content = wal.read_bytes()
        forget_all_stores()
        path_of(ALPHA).unlink()
        wal.write_bytes(content)
        done = restore(store=ALPHA, source=backup)
        assert done.previous_file
        wal = done.previous_file.with_name(f"{done.previous_file.name}-wal")
        self.assertEqual((done.lost, wal.read_bytes()), (1, content))
        self.assert_sound_with("first")

    def test_a_link_in_a_stores_place_is_replaced_and_its_file_is_left_alone(self) -> None:
        forget_all_stores()
        elsewhere = self.home / "elsewhere.db"
        path_of(ALPHA).rename(elsewhere)
        path_of(ALPHA).symlink_to(elsewhere)
        restore(store=ALPHA, source=elsewhere)
        self.assertFalse(path_of(ALPHA).is_symlink())
        self.write("marzipan")
        self.assertNotIn(b"marzipan", elsewhere.read_bytes())
        self.assert_sound_with()

    def test_a_log_that_is_not_the_one_of_its_backups_is_not_backed_up(self) -> None:
        forget_all_stores()
        older = {path: path.read_bytes() for path in (path_of(ALPHA), anchor_path(ALPHA))}
        self.write("second")
        backup = self.back_up()
        forget_all_stores()
        for path, content in older.items():
            path.write_bytes(content)
        with self.assertRaisesRegex(Unavailable, r"the log ends at #1, but the backup of .* UTC has #2"):
            self.back_up()
        restore(store=ALPHA, source=backup)
        self.assertEqual(self.titles(), ["first", "second"])
        self.back_up()

    def test_a_folder_of_another_project_is_not_backed_up_as_this_one(self) -> None:
        self.write("of beta", "beta")
        forget_all_stores()
        shutil.copyfile(path_of(project_store("beta")), path_of(ALPHA))
        shutil.copyfile(anchor_path(project_store("beta")), anchor_path(ALPHA))
        with self.assertRaisesRegex(Unavailable, "the log is of 'beta', not of 'alpha'"):
            self.back_up()


class HubDatabaseTests(BackupTestCase):
    def setUp(self) -> None:
        super().setUp()
        table = "CREATE TABLE memoryhub_jobrun (name)"
        self.path = self.create_database("hub.db", table, "INSERT INTO memoryhub_jobrun VALUES ('now')")
        self.backup = self.create_database("then.db", table, "INSERT INTO memoryhub_jobrun VALUES ('then')")

    def assert_name(self, name: str) -> None:
        with closing(open_database(self.path)) as connection:
            self.assertEqual(connection.execute("SELECT name FROM memoryhub_jobrun").fetchall(), [(name,)])

    def restore_hub(self, source: Path) -> str:
        output = StringIO()
        call_command("restore", str(source), "--hub", stdout=output)
        return output.getvalue()

    def test_it_is_put_back_and_kept_as_it_was_with_its_wal(self) -> None:
        self.path.with_name("hub.db-wal").write_bytes(b"of the file before")
        kept = Path(self.restore_hub(self.backup).partition("previous file: ")[2].strip())
        self.assert_name("then")
        self.assertEqual(kept.with_name(f"{kept.name}-wal").read_bytes(), b"of the file before")
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)

    def test_it_is_left_alone_while_the_hub_runs(self) -> None:
        running = self.assertRaisesRegex(CommandError, "the hub is running at http://x")
        with process.hold_home(started="by hand") as publish, publish("http://x"), running:
            self.restore_hub(self.backup)
        self.assert_name("now")

    def test_what_is_no_backup_of_it_is_refused(self) -> None:
        text, empty = self.home / "text.db", self.home / "empty.db"
        text.write_text("no database " * 100)
        empty.touch()
        for source, reason in (
            (text, "not a database"),
            (empty, "the file is empty"),
            (self.create_database("other.db", "CREATE TABLE t (a)"), "not the hub's hub.db"),
            (self.home / "nothing.db", "there is no file"),
        ):
            with self.subTest(source=source.name), self.assertRaisesRegex(CommandError, reason):
                self.restore_hub(source)
        self.assert_name("now")
