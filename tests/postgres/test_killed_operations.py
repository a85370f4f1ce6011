"""Operations on stores in PostgreSQL die at their statements: nothing is lost, and a repeat completes."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import TestCase

from django.test import tag

from tests import forks
from tests.postgres.killed_operation import CHILD_KILLED, MOVES, MOVING, NAME, OLDER, OPERATIONS, PROJECT
from tests.postgres.machines import begin_python, run_python, variables
from tests.postgresql import shared_cluster
from tests.programs import needs
from tests.torture.rounds import is_long

# Each death comes later by this factor, until the operation completes
FIRST, GROWTH = (2, 1.3) if is_long() else (12, 3.0)
# In the short form these die once, at a late step
ONCE = {} if is_long() else {
    "undo_import": 200, "read_past": 30, "erase": 120, "forward": 120, "merge": 30, "move_to_server": 284,
    "undo_move": 80, "move_to_files": 116, "move_back": 206, "confirm_files": 31, "move_on": 270, "confirm_server": 50,
    "upgrade": 40, "organize": 40, "publish": 40, "make_sample": 36, "remove_sample": 9,
    "back_up_all": 40, "prepare_hub": 120,
}  # fmt: skip
FILL = f"""
from io import StringIO
from pathlib import Path
from django.core.management import call_command
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from memories.services import delete_memory, write_memory
from memories.schemas import MemoryTouch
from memoryhub.core.origin import use_origin
folder = Path(FOLDER)
def write(actor, numbers):
    with use_origin(actor=actor, source="mcp"):
        notes = [MemoryWrite(title=f"{{actor}} {{n}}", content=f"{NAME}, note {{n}}") for n in numbers]
        return [write_memory(command=note).id for note in notes]
def bundle(name):
    call_command("bundle", "create", str(folder / name), "--project", "source", stdout=StringIO())
with use_store(project_store("source"), create=True):
    write("eve", range(20))
    call_command("export", "jsonl", "--out", str(folder / "export.jsonl"), "--project", "source", stdout=StringIO())
    bundle("whole.bundle")
    log.erase_streams(["memory:1"], reason="asked")
    write("eve", range(20, 30))
    bundle("longer.bundle")
for name in ("{MOVING}", "{OLDER}"):
    with use_store(project_store(name), create=True):
        write("ada", range(5))
with use_store(project_store("{OLDER}")):
    older = MigrationExecutor(connections[project_store("{OLDER}").alias])
    older.migrate([("governance", None), ("memories", "0001_squashed")])
    rows.execute("UPDATE store_meta SET value = 'older' WHERE key = 'fingerprint'")
with use_store(project_store("{PROJECT}"), create=True):
    ids = write("ada", range(30))
    write("bad", range(10))
    write_memory(command=MemoryWrite(title="To erase", content="The launch word is heliotrope."))
    for number in ids[:5]:
        delete_memory(command=MemoryTouch(id=number))
    print(json.dumps([log.head()[0], ids]))
"""
# Answers questions about stores, a line of JSON each, as a process that has them open while operations die
OBSERVER = f"""
from memories.models import Memory
from memoryhub.core.backends.selected import places
from memoryhub.core.home_database import work_as_guest
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import arrival, list_orgs, list_projects, org_store, project_store, use_store
if not FOLLOWS:
    places.stay_on_this_server()
    work_as_guest()
def check():
    projects = [name for name in list_projects() if name not in ("{MOVING}", "{OLDER}")]
    stores = [*map(project_store, projects), *map(org_store, list_orgs())]
    chains = {{}}
    for store in stores:
        with use_store(store):
            chains[store.text] = log.verify().ok
    with use_store(project_store("{PROJECT}")):
        killed = Memory.objects.filter(title="Killed").count()
        return [chains, log.head()[0], RawEvent.objects.count(), killed]
def read():
    with use_store(project_store("{MOVING}")):
        return [log.verify().ok, sorted(Memory.objects.values_list("title", flat=True)), arrival() is not None]
def write(title):
    with use_store(project_store("{MOVING}")):
        return write_memory(command=MemoryWrite(title=title, content=title)).id
for line in sys.stdin:
    name, *arguments = json.loads(line)
    try:
        print(json.dumps(globals()[name](*arguments)), flush=True)
    except HubError as error:
        print(json.dumps({{"code": error.code, "message": error.message}}), flush=True)
"""
DIGESTS = f"""
from io import StringIO
from django.core.management import call_command
def digests():
    with use_store(project_store("{PROJECT}")):
        return {{name: list(found) for name, found in log.table_digests().items()}}
before = digests()
call_command("rebuild", "--project", "{PROJECT}", stdout=StringIO())
print(json.dumps([before == digests(), sorted(before)]))
"""
# Where the store is after a move: on the first server, on the second, or in files
ARRIVED = {
    "move_to_server": 1, "undo_move": 0, "move_to_files": 2, "move_back": 0, "confirm_files": 0, "move_on": 1,
    "confirm_server": 1,
}  # fmt: skip
# What a place says that does not have the store
ABSENT = ("moved", "not_found", "unavailable")


class Observer:
    """A process of a hub that has its stores open while operations die."""

    def __init__(self, home: Path, url: str, *, follows: bool = False) -> None:
        self._process = begin_python(OBSERVER.replace("FOLLOWS", repr(follows)), home, url)

    def ask(self, *words: str) -> Any:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the process ended with {self._process.wait()}: {self._process.errors[-3000:]}"
        return json.loads(answer)

    def close(self) -> None:
        self._process.communicate()


@needs("postgresql")
@tag("attack")
class KilledOperationTests(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.home = self.folder / "home"
        for name, word in (("documents", "Gauge"), ("vault", "Buoy")):
            (self.folder / name / ".obsidian").mkdir(parents=True)
            for number in range(20):
                text = f"# {word} {number}\n\nAsk {NAME} for the {word}.\n"
                (self.folder / name / f"{word} {number}.md").write_text(text)
        self.cluster = shared_cluster()
        forks.start_parents()
        self.url, self.second, self.empty = (self.enterContext(self.cluster.database()) for _ in range(3))
        self.head, _ = run_python(FILL.replace("FOLDER", repr(str(self.folder))), self.home, self.url)
        (self.home / "config.toml").write_text(f'[servers]\nsecond = "{self.second}"\n')
        self.hub = self.observe(self.url, follows=True)
        self.places = [self.observe(url) for url in (self.url, self.second, "sqlite")]
        self.acknowledged = {f"ada {number}" for number in range(5)}
        self.kills: Counter[str] = Counter()

    def observe(self, url: str, *, follows: bool = False) -> Observer:
        observer = Observer(self.home, url, follows=follows)
        self.addCleanup(observer.close)
        return observer

    def test_an_operation_that_is_killed_loses_nothing_and_completes_when_it_is_repeated(self) -> None:
        for name in OPERATIONS:
            with self.subTest(operation=name):
                for last in _moments(name):
                    if self.run_operation(name, last) == 0:
                        break
                    self.kills[name] += 1
                    self.assert_sound()
                    if name in MOVES:
                        self.assert_one_place(name)
                self.assert_sound()
                if name in MOVES:
                    self.assert_one_place(name, completed=True)
                if name in ("erase", "redact"):
                    self.assert_no_copies()
        self.assertEqual(set(self.kills), set(OPERATIONS))
        self.assertEqual(run_python(DIGESTS, self.home, self.url)[0], True)

    def run_operation(self, name: str, last: int) -> int:
        url = self.empty if name == "prepare_hub" else self.url
        words = ("tests.postgres.killed_operation", name, str(last), str(self.folder))
        code, _, errors = forks.run_module(*words, MEMORY_HUB_LOG="CRITICAL", **variables(self.home, url))
        codes = (0, -signal.SIGKILL, CHILD_KILLED)
        self.assertIn(code, codes, f"{name} at statement {last}: {errors[-3000:]}")
        for database in (self.url, self.second):
            self.cluster.end_leases(database.rpartition("/")[2])
        return code

    def assert_sound(self) -> None:
        answer = self.hub.ask("check")
        self.assertIsInstance(answer, list, answer)
        chains, head, events, killed = answer
        self.assertNotIn(False, chains.values(), chains)
        self.assertGreaterEqual(head, self.head, "acknowledged events are gone")
        self.assertEqual(events, head, "the log has gaps")
        self.assertLessEqual(killed, 1)
        self.head = head

    # A process that was killed leaves its copy of a store with all texts
    def assert_no_copies(self) -> None:
        copies = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'scratch%' OR nspname LIKE 'draft%'"
        self.assertEqual(self.cluster.execute(copies, database=self.url.rpartition("/")[2]), [])

    def assert_one_place(self, name: str, *, completed: bool = False) -> None:
        reads = [observer.ask("read") for observer in (self.hub, *self.places)]
        for answer in reads:
            if isinstance(answer, dict):
                self.assertIn(answer["code"], ABSENT, answer)
            else:
                self.assertEqual(answer[:2], [True, sorted(self.acknowledged)], name)
        if completed:
            places = [number for number, answer in enumerate(reads[1:]) if isinstance(answer, list)]
            self.assertEqual(places, [ARRIVED[name]], reads)
            answer = reads[1 + ARRIVED[name]]
            if name.startswith("confirm"):
                self.assertFalse(answer[2], "the new place still names the old one")
            self.assertIn(reads[0], reads[1:], "the hub is in another place")
        # What is written would make an undo another move
        if name in ("move_to_server", "undo_move"):
            return
        title = f"{name} {self.kills[name]}{' completed' * completed}"
        answers = [observer.ask("write", title) for observer in self.places]
        positions = [answer for answer in answers if isinstance(answer, int)]
        self.assertLessEqual(len(positions), 1, f"several places take writes: {answers}")
        if completed:
            self.assertEqual(len(positions), 1, answers)
        self.acknowledged |= {title for _ in positions}


def _moments(name: str) -> Iterator[int]:
    if name in ONCE:
        yield from (ONCE[name], sys.maxsize)
    moment = float(FIRST)
    while True:
        yield int(moment)
        moment *= GROWTH
