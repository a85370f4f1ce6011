"""Damaged pages, schemas and files: doctor names them, and a rebuild or a restore repairs them."""

from __future__ import annotations

import re
import shlex
import sqlite3
from contextlib import closing
from io import StringIO
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command

from memories import services
from memories.models import Memory
from memories.schemas import MemoryUpdate, MemoryWrite
from memoryhub.core import log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import ConflictError, Locked
from memoryhub.core.log.erase import is_unwiped, mark_unwiped
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store
from memoryhub.ops.backups.restoring import restore
from memoryhub.ops.backups.service import back_up_store, kept_before_restores
from tests.forks import Fork
from tests.jobs.test_backups import WRITER
from tests.jobs.test_doctor import doctor
from tests.pages import FREE_TRUNK, SCHEMA, damage_page, page_map
from tests.support import HubTestCase, forget_all_stores

ALPHA = project_store("alpha")


class DamageTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            written = [
                services.write_memory(
                    command=MemoryWrite(title=f"m{number}", content=f"text {number} " * 120, tags=["a", f"t{number}"])
                ).id
                for number in range(60)
            ]
            rows.execute("CREATE TABLE junk (content)")
            rows.execute("INSERT INTO junk SELECT zeroblob(5000) FROM raw_events")
            rows.execute("DROP TABLE junk")
            self.backup = back_up_store().path
            for memory_id in written[:5]:
                services.update_memory(command=MemoryUpdate(id=memory_id, content=f"after the backup {memory_id}"))
            self.written = log.head(), log.table_digests()
        self.close()
        self.pages = page_map(path_of(ALPHA))
        self.whole = path_of(ALPHA).read_bytes()

    def close(self) -> None:
        forget_all_stores()
        for end in ("-wal", "-shm"):
            path_of(ALPHA).with_name(f"events.db{end}").unlink(missing_ok=True)

    def put_whole_file_back(self) -> None:
        self.close()
        path_of(ALPHA).write_bytes(self.whole)

    def change(self, statement: str) -> None:
        with closing(sqlite3.connect(path_of(ALPHA))) as connection:
            connection.execute("PRAGMA writable_schema=ON")
            connection.execute(statement)
            connection.commit()

    def doctor(self) -> list[dict[str, Any]]:
        return doctor("--project", "alpha")[1]

    def assert_rebuild_repairs(self, what: str = "") -> None:
        """Doctor has one finding and proposes a rebuild, which repairs the store."""
        (finding,) = self.doctor()
        self.assertIn(what, finding["what"])
        self.assertRegex(finding["repair"], "^`memory-hub (jobs )?rebuild --project alpha`")
        self.run_proposed(finding["repair"])
        self.assert_repaired()

    def run_proposed(self, repair: str) -> None:
        command = re.search(r"`memory-hub ([^`]+)`", repair)
        assert command, repair
        try:
            call_command(*shlex.split(command[1]), stdout=StringIO(), stderr=StringIO())
        except SystemExit as ended:
            self.assertIn(ended.code, (0, 12), repair)  # 12: a table came out different

    def assert_repaired(self) -> None:
        forget_all_stores()
        with self.store("alpha", create=False):
            self.assertEqual((log.head(), log.table_digests()), self.written)
            self.assert_sound()
        self.assertEqual(self.doctor(), [])


# A rebuild that stops under the write lock, right before its commit, says so, and waits there to be killed.
STOPPED = """
import sys
from memoryhub.core.backends.sqlite import files
from memoryhub.ops.backups.restoring import rebuild_store
from memoryhub.core.stores.store import project_store
def stop(*_):
    print("all is built", flush=True)
    sys.stdin.read()
files.keep_beside = stop
rebuild_store(store=project_store("alpha"))
"""


class PageTests(DamageTestCase):
    def assert_pages_are_repaired(self, *names: str, page: int = 0) -> None:
        for name in names:
            with self.subTest(name=name):
                self.assert_page_is_repaired(self.pages[name][page])

    def assert_page_is_repaired(self, page: int) -> None:
        self.put_whole_file_back()
        damage_page(path_of(ALPHA), page)
        self.assert_rebuild_repairs("the chain holds")

    def test_a_damaged_index_of_the_log_is_repaired_by_a_rebuild(self) -> None:
        names = [name for name in self.pages if name.startswith(("raw_events_", "sqlite_autoindex_raw_events"))]
        self.assertEqual(len(names), 6)
        self.assert_pages_are_repaired(*names)

    def test_a_damaged_page_of_a_read_model_or_its_indexes_is_repaired_by_a_rebuild(self) -> None:
        self.assert_pages_are_repaired(
            "memories_memory", "memories_memoryversion", "memory_content_hash", "decisions_decision", page=-1
        )

    def test_a_damaged_page_of_the_full_text_index_is_repaired_by_a_rebuild(self) -> None:
        self.assert_pages_are_repaired("search_fts_data", "search_fts_idx", "search_fts_docsize", "search_fts_config")

    def test_a_damaged_list_of_free_pages_and_what_belongs_to_no_event_are_repaired_by_a_rebuild(self) -> None:
        self.assert_pages_are_repaired(
            FREE_TRUNK, "projection_offsets", "memories_vector", "store_meta", "django_migrations"
        )

    def test_a_damaged_page_of_the_schema_is_repaired_by_a_rebuild_even_that_of_the_logs_entry(self) -> None:
        self.assertGreater(len(self.pages[SCHEMA]), 4)
        for page in self.pages[SCHEMA]:
            with self.subTest(page=page):
                self.assert_page_is_repaired(page)
        self.assertEqual(path_of(ALPHA).stat().st_mode & 0o777, 0o600)

    def test_a_byte_of_the_header_that_keeps_sqlite_from_reading_or_writing_is_repaired_by_a_rebuild(self) -> None:
        for offset in (0, 16, 18, 19, 21, 28, 47, 59):
            with self.subTest(offset=offset):
                self.put_whole_file_back()
                content = bytearray(self.whole)
                content[offset] ^= 0xFF
                path_of(ALPHA).write_bytes(content)
                self.assert_rebuild_repairs()

    def test_a_damaged_entry_of_the_schema_is_repaired_by_a_rebuild(self) -> None:
        fts = "CREATE VIRTUAL TABLE search_fts USING fts6(a)"
        for statement in (
            "UPDATE sqlite_master SET sql = 'CREATE TABLE (' WHERE name = 'memories_memory'",
            "UPDATE sqlite_master SET rootpage = 999999 WHERE name = 'memories_memory'",
            "DELETE FROM sqlite_master WHERE name = 'memories_memory'",
            "DELETE FROM sqlite_master WHERE name = 'raw_events_type'",
            f"UPDATE sqlite_master SET sql = '{fts}' WHERE name = 'search_fts'",
        ):
            with self.subTest(statement=statement):
                self.put_whole_file_back()
                self.change(statement)
                self.assert_rebuild_repairs()

    def test_a_damaged_page_of_the_log_needs_a_restore_and_doctor_says_how_far_the_log_can_be_read(self) -> None:
        damage_page(path_of(ALPHA), self.pages["raw_events"][-1])
        (finding,) = self.doctor()
        readable = re.search(r"the log can be read up to #(\d+)", finding["what"])
        assert readable, finding["what"]
        self.assertGreater(int(readable[1]), 30)
        self.assertTrue(finding["repair"].startswith(f"`memory-hub restore {self.backup} --project alpha --replace`"))
        before = path_of(ALPHA).read_bytes()
        with self.assertRaisesRegex(CommandError, "cannot be built from its log: the chain is broken at #") as refused:
            call_command("rebuild", "--project", "alpha", stdout=StringIO())
        self.assertEqual(refused.exception.returncode, 8)
        self.assertEqual((path_of(ALPHA).read_bytes(), kept_before_restores(ALPHA)), (before, []))
        self.run_proposed(finding["repair"])
        with self.store("alpha", create=False):
            self.assertEqual((log.verify().ok, log.head()[0]), (True, 60))


class RebuildTests(DamageTestCase):
    def damage(self) -> None:
        damage_page(path_of(ALPHA), self.pages["decisions_decision"][0])

    def rebuild(self) -> str:
        output = StringIO()
        call_command("rebuild", "--project", "alpha", stdout=output, stderr=StringIO())
        return output.getvalue()

    def test_it_says_what_was_wrong_and_keeps_the_damaged_file(self) -> None:
        self.damage()
        text = self.rebuild()
        (kept,) = kept_before_restores(ALPHA)
        self.assertIn("the file is damaged: ", text)
        self.assertIn(f"the file was rebuilt from its log; previous file: {kept}", text)
        self.assertRegex(text, r"decisions_decision +0 rows  unreadable → [0-9a-f]{12}  DIFFERENT")
        self.assertEqual((kept.stat().st_mode & 0o777, len(kept.read_bytes())), (0o600, len(self.whole)))

    def test_the_job_repairs_a_store_that_cannot_be_opened(self) -> None:
        self.change("UPDATE sqlite_master SET sql = 'CREATE TABLE (' WHERE name = 'memories_memory'")
        output = StringIO()
        call_command("jobs", "rebuild", "--project", "alpha", stdout=output, stderr=StringIO())
        self.assertIn("rebuilt as a new file", output.getvalue())
        self.assert_repaired()

    def test_what_no_event_tells_of_is_carried_over(self) -> None:
        with self.store("alpha", create=False):
            rows.execute(
                "INSERT INTO memories_embeddingmodel (id, name, version, dimensions, revision, complete) "
                "VALUES (3, 'm', '1', 4, 7, 1)"
            )
            rows.execute("INSERT INTO memories_vector VALUES (1, 3, %s, 0.5, %s)", [b"d" * 16, b"1234"])
            rows.execute("INSERT INTO projection_offsets VALUES ('embeddings-3', 60)")
            mark_unwiped(60)
        forget_all_stores()
        self.pages = page_map(path_of(ALPHA))
        self.close()
        self.damage()
        self.rebuild()
        with self.store("alpha", create=False):
            vectors = rows.fetch("SELECT document_id, model_id, numbers FROM memories_vector")
            self.assertEqual(vectors, [(1, 3, b"1234")])
            self.assertEqual(rows.fetch("SELECT id, revision FROM memories_embeddingmodel"), [(3, 7)])
            self.assertEqual(rows.fetch("SELECT projector FROM projection_offsets"), [("embeddings-3",)])
            self.assertTrue(is_unwiped())

    def test_a_log_whose_tail_was_cut_is_not_made_the_truth_by_a_rebuild(self) -> None:
        anchored = path_of(ALPHA).with_name("head").read_bytes()
        path_of(ALPHA).write_bytes(self.backup.read_bytes())
        damage_page(path_of(ALPHA), page_map(path_of(ALPHA))["decisions_decision"][0])
        with self.assertRaisesRegex(CommandError, "the log ends at #60, but #65 is anchored outside the store"):
            self.rebuild()
        self.assertEqual(path_of(ALPHA).with_name("head").read_bytes(), anchored)
        self.assertIn("memory-hub restore", self.doctor()[0]["repair"])

    def test_what_another_process_writes_meanwhile_is_kept_and_it_goes_on_in_the_same_file(self) -> None:
        self.damage()
        inode = path_of(ALPHA).stat().st_ino
        with Fork(WRITER) as writer:
            written = [int(writer.stdout.readline())]
            self.rebuild()
            with self.store("alpha", create=False):
                rebuilt_at = log.head()[0]
            while written[-1] < rebuilt_at + 20:
                written.append(int(writer.stdout.readline()))
            writer.kill()
            written += [int(line) for line in writer.stdout.read().splitlines()]
        self.assertEqual(path_of(ALPHA).stat().st_ino, inode)
        forget_all_stores()
        with self.store("alpha", create=False):
            self.assertEqual(Memory.objects.filter(id__in=written).count(), len(written))
            self.assert_sound()
        self.assertEqual(self.doctor(), [])

    def test_one_that_is_killed_right_before_its_commit_has_changed_nothing(self) -> None:
        self.damage()
        with Fork(STOPPED) as rebuild:
            self.assertEqual(rebuild.stdout.readline(), "all is built\n")
            rebuild.kill()
        self.assert_rebuild_repairs()


class RestoreTests(DamageTestCase):
    def test_a_store_whose_schema_is_malformed_comes_back_in_the_same_file(self) -> None:
        self.change("UPDATE sqlite_master SET sql = 'CREATE TABLE (' WHERE name = 'raw_events'")
        inode = path_of(ALPHA).stat().st_ino
        with self.assertRaisesRegex(ConflictError, "can't read the store .malformed database schema"):
            restore(store=ALPHA, source=self.backup)
        done = restore(store=ALPHA, source=self.backup, replace=True)
        self.assertEqual((done.events, path_of(ALPHA).stat().st_ino), (60, inode))
        self.assertTrue(done.previous_file and done.previous_file.is_file())
        self.assertEqual(self.doctor(), [])

    def test_a_store_that_another_process_keeps_locked_is_not_restored(self) -> None:
        self.enterContext(mock.patch("memoryhub.core.backends.sqlite.files.BUSY_TIMEOUT_SECONDS", 0.1))
        with closing(sqlite3.connect(path_of(ALPHA), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with self.assertRaisesRegex(Locked, "locked by another process"):
                restore(store=ALPHA, source=self.backup, replace=True)
        self.assertEqual(kept_before_restores(ALPHA), [])
        self.assert_repaired()
