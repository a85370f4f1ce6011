from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO

from django.core.management import call_command
from django.db import connections
from django.test import SimpleTestCase, tag

from governance.redaction.copies import search_folder
from memories import services
from memories.models import Memory, Vector
from memories.schemas import MemorySearch, MemoryTouch, MemoryUpdate, MemoryWrite
from memories.search.index import text_index
from memories.selectors import search
from memoryhub import env
from memoryhub.core import log
from memoryhub.core.backends import selected
from memoryhub.core.backends.base import HERE
from memoryhub.core.backends.selected import differences
from memoryhub.core.errors import Damaged, Invalid
from memoryhub.core.events.projection import read_models
from memoryhub.core.log import rebuilding
from memoryhub.core.log.copy import ErasedMeanwhile, StoreDraft
from memoryhub.core.log.erase import wipe_free_space
from memoryhub.core.secrets.catalogue import CustomRule, compile_rules
from memoryhub.core.secrets.context import use_rules
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, project_store, use_store
from memoryhub.ops.backups.restoring import restore
from memoryhub.ops.backups.service import back_up_store
from sessions_app.events import COMMIT_RECORDED, CommitRecorded, FileChange
from sessions_app.models import Commit
from tests import tampering
from tests.core.test_log import StoreTestCase, write
from tests.core.test_redact import WORD, payloads_without
from tests.databases import sqlite_only
from tests.forks import Fork
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


DEADLINE_SECONDS = 120


class SpoiltStoreTestCase(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.first = write("Use WAL", "Readers never block.")
        self.second = write("Tea", "Green, at four.", tags=["kitchen"])
        services.update_memory(command=MemoryUpdate(id=self.first.id, content="Readers never wait."))

    def spoil(self) -> None:
        rows.execute("UPDATE memories_memory SET title = 'wrong' WHERE id = %s", [self.first.id])
        rows.execute("DELETE FROM memories_memorytag")
        text_index.remove(self.second.id)

    def elsewhere(self, action: Callable[[], object]) -> None:
        """Do it in a thread with a connection of its own."""

        def act() -> None:
            with use_store(project_store("alpha")):
                action()
            connections.close_all()

        thread = threading.Thread(target=act)
        thread.start()
        thread.join(DEADLINE_SECONDS)


class RebuildTests(SpoiltStoreTestCase):
    def report(self, *only: str) -> dict[str, tuple[bool, bool]]:
        tables = log.rebuild(only=only).tables
        return {table.table: (table.identical, table.replaced) for table in tables if table.rows}

    def titles(self, query: str) -> list[str]:
        return [hit["title"] for hit in search(command=MemorySearch(query=query)).results]

    @tag("backend")
    def test_counts_of_lines_that_an_older_hub_has_kept_are_read_again(self) -> None:
        files = [FileChange.model_construct(path="a", insertions=9, deletions=7)]
        files.append(FileChange.model_construct(path="b", insertions=-3, deletions=2**31))
        payload = CommitRecorded.model_construct(
            {"sha", "committed_at", "files"}, sha="ab" * 20, committed_at="2026-01-01T00:00:00.000Z", files=files
        )
        with log.transaction():
            log.append(log.prepare(COMMIT_RECORDED, payload), stream="commit:old")
        self.assert_rebuilds()
        commit = Commit.objects.get()
        self.assertEqual((commit.insertions, commit.deletions), (6, 7 + 2**31))

    def test_all_tables_come_out_the_same_and_no_copy_is_left(self) -> None:
        report = log.rebuild()
        self.assertTrue(report.identical and all(table.replaced for table in report.tables))
        self.assertEqual(report.events, 3)
        self.assertEqual(list((self.home / "cache" / "views").glob(".draft*")), [])

    @tag("backend")
    def test_changed_rows_are_named_and_repaired(self) -> None:
        self.spoil()
        self.assertEqual(self.titles("green"), [])
        report = self.report()
        self.assertEqual(report["memories_memory"], (False, True))
        self.assertEqual(report["memories_memorytag"], (False, True))
        self.assertEqual(report["memories_memoryversion"], (True, True))
        self.assertEqual(Memory.objects.get(id=self.first.id).title, "Use WAL")
        self.assertEqual((self.titles("green"), self.titles("wait")), (["Tea"], ["Use WAL"]))
        self.assertTrue(log.rebuild().identical)

    @tag("backend")
    def test_one_table_is_replaced_and_the_others_only_compared_or_all_of_an_app(self) -> None:
        self.spoil()
        report = self.report("memories_memorytag")
        self.assertEqual(report["memories_memorytag"], (False, True))
        self.assertEqual(report["memories_memory"], (False, False))
        self.assertEqual(Memory.objects.get(id=self.first.id).title, "wrong")
        self.assertEqual(rows.fetch("SELECT tag FROM memories_memorytag"), [("kitchen",)])
        self.assertTrue(all(replaced for _, replaced in self.report("memories").values()))
        self.assert_rebuilds()

    @tag("backend")
    def test_the_search_index_goes_with_its_table(self) -> None:
        self.spoil()
        log.rebuild(only=["memories_searchdocument"])
        self.assertEqual(self.titles("green"), ["Tea"])
        services.write_memory(command=MemoryWrite(title="Coffee", content="Black, at nine."))
        services.delete_memory(command=MemoryTouch(id=self.second.id))
        self.assertEqual((self.titles("green"), self.titles("nine")), ([], ["Coffee"]))

    def test_an_unknown_name_is_refused_with_the_known_ones(self) -> None:
        with self.assertRaisesMessage(Invalid, "'memory' is not a read model") as refused:
            log.rebuild(only=["memory"])
        self.assertIn("memories_memory", refused.exception.data["choices"])

    def test_rules_for_secrets_that_have_grown_change_nothing(self) -> None:
        with use_rules(compile_rules([CustomRule("kitchens", "kitchen")], [])):
            self.assertTrue(log.rebuild().identical)
        self.assertEqual(rows.fetch("SELECT tag FROM memories_memorytag"), [("kitchen",)])

    @tag("backend")
    def test_a_log_that_lacks_an_event_is_refused_and_nothing_is_replaced(self) -> None:
        tampering.change(current_store(), "DELETE FROM raw_events WHERE position = 2")
        before = list(Memory.objects.order_by("id").values())
        for act in (log.rebuild, log.compare):
            with self.assertRaisesRegex(Damaged, "the log cannot be copied.*`memory-hub doctor`"):
                act()
        self.assertEqual(list(Memory.objects.order_by("id").values()), before)

    @tag("backend")
    def test_concurrent_writes_are_included(self) -> None:
        services.write_memories(commands=[MemoryWrite(title=f"n{n}", content=f"text {n}") for n in range(900)])
        written: list[int] = []

        def write_elsewhere(done: int) -> None:
            self.elsewhere(lambda: written.append(write(f"meanwhile {done}", f"written in between, {done}").id))

        self.assertTrue(log.rebuild(write_elsewhere).identical)
        self.assertGreaterEqual(len(written), 2)
        self.assertEqual(Memory.objects.filter(id__in=written).count(), len(written))
        self.assertEqual(len(self.titles("meanwhile")), min(len(written), 20))

    @tag("backend")
    def test_an_erasure_during_the_rebuild_restarts_it(self) -> None:
        services.write_memories(commands=[MemoryWrite(title=f"n{n}", content=f"text {n}") for n in range(500)])
        streams = [f"memory:{self.second.id}"]

        def erase_once(_: int) -> None:
            if streams:
                self.elsewhere(lambda: log.erase_streams([streams.pop()], reason="asked"))

        log.rebuild(erase_once)
        self.assertFalse(Memory.objects.filter(id=self.second.id).exists())
        self.assert_rebuilds()


@tag("backend")
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
        log.rebuild()
        self.assert_sound()

    def test_a_difference_has_an_exit_code_of_its_own(self) -> None:
        self.spoil()
        with self.assertRaises(SystemExit) as ended:
            self.run_command("--only", "memories_memorytag, sessions_app")
        self.assertEqual(ended.exception.code, 12)
        log.rebuild()
        self.assertIn("identical, compared only", self.run_command("--only", "sessions_app"))


PREPARE = """
import os, sys
from importlib import import_module
from memoryhub.core.backends.selected import ENGINE
base = import_module(f"memoryhub.core.backends.{ENGINE}.base")
base.BUSY_TIMEOUT_SECONDS = 60.0  # a slow disk takes a second for what four write
from memoryhub.core.stores.store import project_store, use_store
"""
# Four that write until their standard input ends; a line for each write that was acknowledged.
WRITERS = f"""{PREPARE}
import select
from memories.schemas import MemoryUpdate, MemoryWrite
from memories.services import update_memory, write_memory

def write(name):
    number = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        number += 1
        title = f"{{name}} {{number}}"
        with use_store(project_store("alpha")):
            written = write_memory(command=MemoryWrite(title=title, content=f"text {{title}}", tags=[name])).id
            update_memory(command=MemoryUpdate(id=written, content=f"better text {{title}}"))
        os.write(1, f"{{written}} {{title}}\\n".encode())

children = []
for name in ("wa", "wb", "wc", "wd"):
    children.append(os.fork())
    if children[-1] == 0:
        write(name)
        os._exit(0)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""
# A redaction that stops right before its commit, says so, and waits there to be killed.
STOPPED = f"""{PREPARE}
import json
from memoryhub.core import log
from memoryhub.core.log import erase
def stop(*_):
    print("all is written", flush=True)
    sys.stdin.read()
erase.forget_views_early = stop
with use_store(project_store("alpha")):
    log.redact_payloads({{int(key): value for key, value in json.loads(sys.argv[1]).items()}}, what="a word")
"""


@tag("backend")
class DraftTests(SpoiltStoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        rows.execute("UPDATE memories_memory SET title = 'wrong' WHERE id = %s", [self.first.id])

    @contextmanager
    def drafted(self) -> Iterator[StoreDraft]:
        draft = StoreDraft(current_store(), list(read_models()))
        with selected.scratch.temporary_copy(current_store()):
            draft.fill()
            yield draft

    def title(self, memory_id: int) -> str:
        return str(Memory.objects.get(id=memory_id).title)

    def test_differing_rows_of_one_snapshot_are_replaced_together_with_late_events(self) -> None:
        with self.drafted() as draft:
            with draft.compared() as differing:
                before = rows.fetch("SELECT count(*) FROM live.memories_memory")
                self.elsewhere(lambda: write("Coffee", "Black, at nine."))
                self.assertEqual(rows.fetch("SELECT count(*) FROM live.memories_memory"), before)
            self.assertEqual(differing, {Memory})
            with draft.locked():
                pass
        self.assertEqual((self.title(self.first.id), Memory.objects.count()), ("Use WAL", 3))
        self.assertEqual([hit["title"] for hit in search(command=MemorySearch(query="nine")).results], ["Coffee"])
        self.assert_rebuilds()

    def test_a_row_that_a_late_event_changes_only_in_the_store_is_repaired(self) -> None:
        def change() -> None:
            write("Coffee", "Black, at nine.")
            rows.execute("UPDATE memories_memory SET title = 'wrong too' WHERE id = %s", [self.second.id])

        titles: list[str] = []
        with self.drafted() as draft:
            with draft.compared():
                self.elsewhere(change)
            with draft.locked():
                pass
            self.elsewhere(lambda: titles.append(self.title(self.second.id)))
            draft.settle()
        self.assertEqual((titles, self.title(self.second.id)), (["wrong too"], "Tea"))
        self.assert_rebuilds()

    def test_nothing_is_replaced_if_something_was_erased_meanwhile(self) -> None:
        with self.drafted() as draft:
            with draft.compared():
                self.elsewhere(lambda: log.erase_streams([f"memory:{self.second.id}"], reason="asked"))
            with self.assertRaises(ErasedMeanwhile), draft.locked():
                self.fail("the lock was given")
        self.assertEqual(list(Memory.objects.values_list("title", flat=True)), ["wrong"])

    @sqlite_only("backups are copies of files")
    def test_nothing_is_replaced_if_a_backup_was_restored_meanwhile(self) -> None:
        backup = back_up_store().path
        write("Coffee", "Black, at nine.")

        def put_back() -> None:
            restore(store=project_store("alpha"), source=backup, replace=True)
            write("Milk", "A drop of it.")

        with self.drafted() as draft:
            with draft.compared():
                pass
            self.elsewhere(put_back)
            with self.assertRaises(ErasedMeanwhile):
                draft.catch_up()
            with self.assertRaises(ErasedMeanwhile), draft.locked():
                self.fail("the lock was given")
        self.assertEqual(set(Memory.objects.values_list("title", flat=True)), {"wrong", "Tea", "Milk"})
        self.assertTrue(log.verify().ok)


@tag("attack")
class WithOthersTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(tampering.busy_timeout(60))  # as the writers have it
        texts = [f"text {number} of a {WORD} tank" for number in range(300)]
        services.write_memories(commands=[MemoryWrite(title=text[:9], content=text) for text in texts])

    def spawn(self, program: str, *arguments: str) -> Fork:
        return Fork(program, *arguments, environment={"DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"})

    def test_a_redaction_loses_nothing_of_what_four_others_write_meanwhile(self) -> None:
        with self.spawn(WRITERS) as writers:
            first = [writers.stdout.readline()]
            log.redact_payloads(payloads_without(WORD), what="a word")
            output, errors = writers.communicate()
        self.assertEqual((writers.returncode, errors), (0, ""))
        written = dict(line.split(" ", 1) for line in [*first, *output.splitlines(keepends=True)])
        titles = dict(Memory.objects.values_list("id", "title"))
        self.assertEqual({key: f"{titles.get(int(key))}\n" for key in written}, written)
        self.assert_sound()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not wipe_free_space():  # of PostgreSQL, while a test beside this one has an older transaction open
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(search_folder(env.home(), {WORD}).paths, [])

    def test_a_redaction_that_is_killed_right_before_its_commit_has_changed_nothing(self) -> None:
        before, digests = log.head(), log.table_digests()
        with self.spawn(STOPPED, json.dumps(payloads_without(WORD))) as redaction:
            self.assertEqual(redaction.stdout.readline(), "all is written\n")
            redaction.kill()
        self.assertEqual((log.head(), log.table_digests()), (before, digests))
        self.assertEqual(len(payloads_without(WORD)), 300)
        write("Coffee", "Black, at nine.")
        self.assert_sound()


class SampleTests(SimpleTestCase):
    def test_a_sample_has_the_newest_events_and_others_of_the_log(self) -> None:
        for last in (1, 7, 5_000):
            positions = rebuilding._sampled_positions(last)
            self.assertEqual({*positions} - {*range(1, last + 1)}, set())
            self.assertEqual({*range(last, max(0, last - 50), -1)} - {*positions}, set())
        self.assertGreater(len(positions), 200)
        self.assertLess(positions[0], 2_500)
