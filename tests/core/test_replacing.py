"""Replacing rows while others write: no write is lost, and nothing is left half done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connections

from governance.redaction.copies import search_home
from memories import services
from memories.models import Memory
from memories.schemas import MemorySearch, MemoryWrite
from memories.selectors import search
from memoryhub.core import log
from memoryhub.core.backends import selected
from memoryhub.core.events.projection import read_models
from memoryhub.core.log.copy import follow
from memoryhub.core.log.replacing import ErasedMeanwhile, Replacing
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store, project_store, use_store
from memoryhub.core.stores.wiping import wipe_free_space
from memoryhub.ops.backups.making import back_up_store
from memoryhub.ops.backups.restoring import restore
from tests import tampering
from tests.core.test_log import StoreTestCase, write
from tests.databases import sqlite_only
from tests.home import UNMEASURED

WORD = "quicksilverish"
DEADLINE_SECONDS = 120
PREPARE = """
import django, os, sys
django.setup()
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
from memoryhub.core.log import redact
def stop(*_):
    print("all is written", flush=True)
    sys.stdin.read()
redact.forget_views_early = stop
with use_store(project_store("alpha")):
    log.redact_payloads({{int(key): value for key, value in json.loads(sys.argv[1]).items()}}, what="a word")
"""


class ReplacingTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.first, self.second = write("Use WAL", "Readers never block."), write("Tea", "Green, at four.")
        rows.execute("UPDATE memories_memory SET title = 'wrong' WHERE id = %s", [self.first.id])

    @contextmanager
    def copied(self) -> Iterator[Replacing]:
        store, last = current_store(), log.head()[0]
        with selected.scratch.temporary_copy(store):
            follow(store, up_to=last)
            yield Replacing(store, 0, list(read_models()))

    def elsewhere(self, action: Callable[[], object]) -> None:
        def act() -> None:
            with use_store(project_store("alpha")):
                action()
            connections.close_all()

        thread = threading.Thread(target=act)
        thread.start()
        thread.join(DEADLINE_SECONDS)

    def title(self, memory_id: int) -> str:
        return str(Memory.objects.get(id=memory_id).title)

    def test_differing_rows_are_replaced_together_with_late_events(self) -> None:
        with self.copied() as replacing:
            with replacing.compared() as differing:
                self.elsewhere(lambda: write("Coffee", "Black, at nine."))
            self.assertEqual(differing, {Memory})
            with replacing.locked():
                pass
        self.assertEqual((self.title(self.first.id), Memory.objects.count()), ("Use WAL", 3))
        self.assertEqual([hit["title"] for hit in search(command=MemorySearch(query="nine")).results], ["Coffee"])
        self.assertTrue(log.rebuild().identical)

    def test_the_comparison_reads_one_snapshot(self) -> None:
        with self.copied() as replacing, replacing.compared():
            before = rows.fetch("SELECT count(*) FROM live.memories_memory")
            self.elsewhere(lambda: write("Coffee", "Black, at nine."))
            self.assertEqual(rows.fetch("SELECT count(*) FROM live.memories_memory"), before)

    def test_a_row_that_a_late_event_changes_only_in_the_store_is_repaired(self) -> None:
        def change() -> None:
            write("Coffee", "Black, at nine.")
            rows.execute("UPDATE memories_memory SET title = 'wrong too' WHERE id = %s", [self.second.id])

        with self.copied() as replacing:
            with replacing.compared():
                self.elsewhere(change)
            with replacing.locked():
                pass
            found: list[str] = []
            self.elsewhere(lambda: found.append(self.title(self.second.id)))
            replacing.settle()
        self.assertEqual((found, self.title(self.second.id)), (["wrong too"], "Tea"))
        self.assertTrue(log.rebuild().identical)

    def test_nothing_is_replaced_if_something_was_erased_meanwhile(self) -> None:
        with self.copied() as replacing:
            with replacing.compared():
                self.elsewhere(lambda: log.erase_streams([f"memory:{self.second.id}"], reason="asked"))
            with self.assertRaises(ErasedMeanwhile), replacing.locked():
                self.fail("the lock was given")
        self.assertEqual(list(Memory.objects.values_list("title", flat=True)), ["wrong"])

    @sqlite_only("backups are copies of files")
    def test_nothing_is_replaced_if_a_backup_was_restored_meanwhile(self) -> None:
        backup = back_up_store().path
        write("Coffee", "Black, at nine.")

        def put_back() -> None:
            restore(store=project_store("alpha"), source=backup, replace=True)
            write("Milk", "A drop of it.")

        with self.copied() as replacing:
            with replacing.compared():
                pass
            self.elsewhere(put_back)
            with self.assertRaises(ErasedMeanwhile):
                replacing.catch_up()
            with self.assertRaises(ErasedMeanwhile), replacing.locked():
                self.fail("the lock was given")
        self.assertEqual(set(Memory.objects.values_list("title", flat=True)), {"wrong", "Tea", "Milk"})
        self.assertTrue(log.verify().ok)


class WithOthersTests(StoreTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(tampering.busy_timeout(60))  # as the writers have it
        texts = [f"text {number} of a {WORD} tank" for number in range(300)]
        services.write_memories(commands=[MemoryWrite(title=text[:9], content=text) for text in texts])

    def payloads(self) -> dict[int, dict[str, Any]]:
        found = RawEvent.objects.filter(payload_json__contains=WORD).values_list("position", "payload_json")
        return {position: json.loads(text.replace(WORD, "[REDACTED:word]")) for position, text in found}

    def spawn(self, *program: str) -> subprocess.Popen[str]:
        environment = {**os.environ, **UNMEASURED, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        pipe, root = subprocess.PIPE, Path(__file__).parents[2]
        command = [sys.executable, "-c", *program]
        return subprocess.Popen(command, env=environment, cwd=root, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def test_a_redaction_loses_nothing_of_what_four_others_write_meanwhile(self) -> None:
        with self.spawn(WRITERS) as writers:
            assert writers.stdout
            first = [writers.stdout.readline()]
            log.redact_payloads(self.payloads(), what="a word")
            output, errors = writers.communicate("", timeout=DEADLINE_SECONDS)
        self.assertEqual((writers.returncode, errors), (0, ""))
        written = dict(line.split(" ", 1) for line in [*first, *output.splitlines(keepends=True)])
        titles = dict(Memory.objects.values_list("id", "title"))
        self.assertEqual({key: f"{titles.get(int(key))}\n" for key in written}, written)
        self.assertTrue(log.verify().ok, log.verify().reason)
        self.assertTrue(log.rebuild().identical)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not wipe_free_space():  # of PostgreSQL, while a test beside this one has an older transaction open
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(search_home({WORD}).left, [])

    def test_a_redaction_that_is_killed_right_before_its_commit_has_changed_nothing(self) -> None:
        before, digests = log.head(), log.table_digests()
        with self.spawn(STOPPED, json.dumps(self.payloads())) as redaction:
            assert redaction.stdout
            self.assertEqual(redaction.stdout.readline(), "all is written\n")
            os.kill(redaction.pid, signal.SIGKILL)
        self.assertEqual((log.head(), log.table_digests()), (before, digests))
        self.assertEqual(len(self.payloads()), 300)
        write("Coffee", "Black, at nine.")
        self.assertTrue(log.verify().ok)
        self.assertTrue(log.rebuild().identical)
