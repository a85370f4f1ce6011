from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from io import StringIO

from django.core.management import call_command

from memories import services
from memories.models import Memory
from memories.models.search import Vector
from memories.schemas import MemorySearch, MemoryTouch, MemoryUpdate, MemoryWrite
from memories.search.text_index import text_index
from memories.selectors import search
from memoryhub.core import log
from memoryhub.core.backends.base import HERE
from memoryhub.core.backends.selected import differences
from memoryhub.core.errors import Damaged, Invalid
from memoryhub.core.secrets.custom_rules import CustomRule, compile_rules
from memoryhub.core.secrets.sanitize import use_rules
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, project_store, use_store
from sessions_app.events import COMMIT_RECORDED, CommitRecorded, FileChange
from sessions_app.models import Commit
from tests import tampering
from tests.core.test_log import StoreTestCase, write
from tests.web.server import ROOT

# Presses Ctrl-C when the rows of five tables are replaced and not yet committed.
_INTERRUPTED = """
import os, signal, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings_store"
django.setup()
from memoryhub.cli import main
from memoryhub.core.backends.selected import differences

put, calls = differences.apply_recorded, []

def interrupted(model):
    put(model)
    calls.append(model)
    if len(calls) == 5:
        os.kill(os.getpid(), signal.SIGINT)

differences.apply_recorded = interrupted
sys.exit(main(sys.argv))
"""


class SpoiltStoreTestCase(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.first, self.second = (
            write("Use WAL", "Readers never block."),
            write("Tea", "Green, at four.", tags=["kitchen"]),
        )
        services.update_memory(command=MemoryUpdate(id=self.first.id, content="Readers never wait."))

    def spoil(self) -> None:
        rows.execute("UPDATE memories_memory SET title = 'wrong' WHERE id = %s", [self.first.id])
        rows.execute("DELETE FROM memories_memorytag")
        text_index.remove(self.second.id)


class RebuildTests(SpoiltStoreTestCase):
    def report(self, *only: str) -> dict[str, tuple[bool, bool]]:
        tables = log.rebuild(only=only).tables
        return {table.table: (table.identical, table.replaced) for table in tables if table.rows}

    def found(self, question: str) -> list[str]:
        return [hit["title"] for hit in search(command=MemorySearch(query=question)).results]

    def test_counts_of_lines_that_an_older_hub_has_kept_are_read_again(self) -> None:
        files = [FileChange.model_construct(path="a", insertions=9, deletions=7)]
        files.append(FileChange.model_construct(path="b", insertions=-3, deletions=2**31))
        payload = CommitRecorded.model_construct(
            {"sha", "committed_at", "files"}, sha="ab" * 20, committed_at="2026-01-01T00:00:00.000Z", files=files
        )
        with log.transaction():
            log.append(log.prepare(COMMIT_RECORDED, payload), stream="commit:old")
        self.assertTrue(log.rebuild().identical)
        kept = Commit.objects.get()
        self.assertEqual((kept.insertions, kept.deletions), (6, 7 + 2**31))

    def test_all_tables_come_out_the_same(self) -> None:
        report = log.rebuild()
        self.assertTrue(report.identical and all(table.replaced for table in report.tables))
        self.assertEqual(report.events, 3)

    def test_changed_rows_are_named_and_repaired(self) -> None:
        self.spoil()
        self.assertEqual(self.found("green"), [])
        report = self.report()
        self.assertEqual(report["memories_memory"], (False, True))
        self.assertEqual(report["memories_memorytag"], (False, True))
        self.assertEqual(report["memories_memoryversion"], (True, True))
        self.assertEqual(Memory.objects.get(id=self.first.id).title, "Use WAL")
        self.assertEqual((self.found("green"), self.found("wait")), (["Tea"], ["Use WAL"]))
        self.assertTrue(log.rebuild().identical)

    def test_one_table_is_replaced_and_the_others_only_compared(self) -> None:
        self.spoil()
        report = self.report("memories_memorytag")
        self.assertEqual(report["memories_memorytag"], (False, True))
        self.assertEqual(report["memories_memory"], (False, False))
        self.assertEqual(Memory.objects.get(id=self.first.id).title, "wrong")
        self.assertEqual(rows.fetch("SELECT tag FROM memories_memorytag"), [("kitchen",)])

    def test_an_app_names_all_its_tables(self) -> None:
        self.spoil()
        self.assertTrue(all(replaced for _, replaced in self.report("memories").values()))
        self.assertTrue(log.rebuild().identical)

    def test_the_search_index_goes_with_its_table(self) -> None:
        self.spoil()
        log.rebuild(only=["memories_searchdocument"])
        self.assertEqual(self.found("green"), ["Tea"])
        services.write_memory(command=MemoryWrite(title="Coffee", content="Black, at nine."))
        services.delete_memory(command=MemoryTouch(id=self.second.id))
        self.assertEqual((self.found("green"), self.found("nine")), ([], ["Coffee"]))

    def test_an_unknown_name_is_refused_with_the_known_ones(self) -> None:
        with self.assertRaisesMessage(Invalid, "'memory' is not a read model") as refused:
            log.rebuild(only=["memory"])
        self.assertIn("memories_memory", refused.exception.data["choices"])

    def test_an_erased_text_does_not_come_back(self) -> None:
        log.erase_streams([f"memory:{self.second.id}"], reason="asked")
        self.assertTrue(log.rebuild().identical)
        self.assertEqual(list(Memory.objects.values_list("id", flat=True)), [self.first.id])

    def test_rules_for_secrets_that_have_grown_change_nothing(self) -> None:
        with use_rules(compile_rules([CustomRule("kitchens", "kitchen")], [])):
            self.assertTrue(log.rebuild().identical)
        self.assertEqual(rows.fetch("SELECT tag FROM memories_memorytag"), [("kitchen",)])

    def test_a_log_that_lacks_an_event_is_refused_and_nothing_is_replaced(self) -> None:
        tampering.change(current_store(), "DELETE FROM raw_events WHERE position = 2")
        before = list(Memory.objects.order_by("id").values())
        for act in (log.rebuild, log.compare):
            with self.assertRaisesRegex(Damaged, "the log cannot be copied.*`memory-hub doctor`"):
                act()
        self.assertEqual(list(Memory.objects.order_by("id").values()), before)

    def test_a_rebuild_leaves_no_copy_behind(self) -> None:
        log.rebuild()
        self.assertEqual(list((self.home / "cache" / "views").glob(".draft*")), [])

    def test_concurrent_writes_are_included(self) -> None:
        services.write_memories(commands=[MemoryWrite(title=f"n{n}", content=f"text {n}") for n in range(4500)])
        written: list[int] = []

        def write_elsewhere(done: int) -> None:
            thread = threading.Thread(target=self.write_one, args=[done, written])
            thread.start()
            thread.join(60)

        self.assertTrue(log.rebuild(write_elsewhere).identical)
        self.assertGreaterEqual(len(written), 2)
        self.assertEqual(Memory.objects.filter(id__in=written).count(), len(written))
        self.assertEqual(len(self.found("meanwhile")), min(len(written), 20))

    def write_one(self, number: int, written: list[int]) -> None:
        from django.db import connections

        with use_store(project_store("alpha")):
            written.append(write(f"meanwhile {number}", f"written in between, {number}").id)
        connections.close_all()

    def test_an_erasure_during_the_rebuild_restarts_it(self) -> None:
        services.write_memories(commands=[MemoryWrite(title=f"n{n}", content=f"text {n}") for n in range(2500)])
        erased: list[int] = []

        def erase_once(_: int) -> None:
            if not erased:
                erased.append(self.second.id)
                thread = threading.Thread(target=self.erase, args=erased)
                thread.start()
                thread.join(60)

        log.rebuild(erase_once)
        self.assertFalse(Memory.objects.filter(id=self.second.id).exists())
        self.assertTrue(log.rebuild().identical)

    def erase(self, memory_id: int) -> None:
        from django.db import connections

        with use_store(project_store("alpha")):
            log.erase_streams([f"memory:{memory_id}"], reason="asked")
        connections.close_all()


class DigestTests(StoreTestCase):
    def test_a_digest_is_of_texts_that_every_database_and_version_writes_alike(self) -> None:
        row = {"document_id": 7, "model_id": 2, "content_hash": "ß".encode(), "scale": 1 / 3, "numbers": b"x"}
        Vector.objects.create(**row)
        expected = "1:71:22:ß18:0.33333333333333331:x"
        self.assertEqual(differences.table_digest(Vector, HERE), (1, hashlib.sha256(expected.encode()).hexdigest()))


class CommandTests(SpoiltStoreTestCase):
    def run_command(self, *options: str) -> str:
        output = StringIO()
        call_command("rebuild", "--project", "alpha", *options, stdout=output)
        return output.getvalue()

    def test_it_reports_rows_digests_time_and_memory(self) -> None:
        text = self.run_command()
        self.assertRegex(text, r"memories_memory +2 rows  [0-9a-f]{12}  identical\n")
        self.assertRegex(text, r"3 events applied in \d+\.\d\d s \([\d,]+ a second\), peak memory \d+ MB")

    def test_ctrl_c_while_rows_are_replaced_ends_it_in_one_sentence_and_replaces_none(self) -> None:
        self.spoil()
        before = log.table_digests()
        command = [sys.executable, "-c", _INTERRUPTED, "rebuild", "--project", "alpha"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
        sentence = "interrupted; the read models are consistent, and the log is unchanged"
        self.assertEqual((done.returncode, done.stdout, done.stderr), (130, "", f"memory-hub: {sentence}\n"))
        self.assertEqual(log.table_digests(), before)
        self.assertEqual([path.name for path in self.home.rglob("*draft*")], [])
        self.assertTrue(log.verify().ok)
        log.rebuild()
        self.assertTrue(log.rebuild().identical)

    def test_a_difference_has_an_exit_code_of_its_own(self) -> None:
        self.spoil()
        with self.assertRaises(SystemExit) as ended:
            self.run_command("--only", "memories_memorytag, sessions_app")
        self.assertEqual(ended.exception.code, 12)
        log.rebuild()
        self.assertIn("identical, compared only", self.run_command("--only", "sessions_app"))
