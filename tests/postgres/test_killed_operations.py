"""Operations on stores in PostgreSQL die at their statements: nothing is lost, and a repeat completes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import TestCase, skipIf

from tests.home import UNMEASURED
from tests.postgres.killed_operation import NAME, OPERATIONS, PROJECT
from tests.postgres.machines import run_python, variables
from tests.postgresql import Cluster, why_missing
from tests.torture.rounds import is_long
from tests.web.server import ROOT

# Each death comes later by this factor, until the operation completes
FIRST, GROWTH = (2, 1.3) if is_long() else (12, 3.0)
FILL = f"""
import json, sys
from io import StringIO
from pathlib import Path
from django.core.management import call_command
from memories.schemas import MemoryWrite
from memories.services import delete_memory, write_memory
from memories.schemas import MemoryTouch
from memoryhub.core import log
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
folder = Path(FOLDER)
def write(actor, numbers):
    with use_origin(actor=actor, source="mcp"):
        notes = [MemoryWrite(title=f"{{actor}} {{n}}", content=f"{NAME}, note {{n}}") for n in numbers]
        return [write_memory(command=note).id for note in notes]
with use_store(project_store("source"), create=True):
    write("eve", range(20))
    call_command("export", "jsonl", "--out", str(folder / "export.jsonl"), "--project", "source", stdout=StringIO())
    call_command("bundle", "create", str(folder / "whole.bundle"), "--project", "source", stdout=StringIO())
with use_store(project_store("{PROJECT}"), create=True):
    ids = write("ada", range(30))
    write("bad", range(10))
    for number in ids[:5]:
        delete_memory(command=MemoryTouch(id=number))
    print(json.dumps([log.head()[0], ids]))
"""
# Chain, read models, and what was acknowledged: the events, and each memory with its text or what replaced it
CHECK = f"""
import json
from memories.models import Memory
from memoryhub.core import log
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import list_projects, project_store, use_store
chains = {{}}
for name in ("{PROJECT}", "another", "adopted"):
    if name in list_projects():
        with use_store(project_store(name)):
            chains[name] = log.verify().ok
with use_store(project_store("{PROJECT}")):
    print(json.dumps([chains, log.head()[0], RawEvent.objects.count(), Memory.objects.filter(title="Killed").count()]))
"""
DIGESTS = f"""
import json
from io import StringIO
from django.core.management import call_command
from memoryhub.core import log
from memoryhub.core.stores.store import project_store, use_store
def digests():
    with use_store(project_store("{PROJECT}")):
        return {{name: list(found) for name, found in log.table_digests().items()}}
before = digests()
call_command("rebuild", "--project", "{PROJECT}", stdout=StringIO())
print(json.dumps([before == digests(), sorted(before)]))
"""


@skipIf(why_missing(), why_missing())
class KilledOperationTests(TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.home = self.folder / "home"
        documents = self.folder / "documents"
        documents.mkdir()
        for number in range(20):
            (documents / f"{number}.md").write_text(f"# Gauge {number}\n\nAsk {NAME} for the gauge.\n")

    def test_an_operation_that_is_killed_loses_nothing_and_completes_when_it_is_repeated(self) -> None:
        with Cluster(durable=False) as cluster, cluster.database() as self.url:
            self.head, _ = run_python(FILL.replace("FOLDER", repr(str(self.folder))), self.home, self.url)
            kills = 0
            for name in OPERATIONS:
                with self.subTest(operation=name):
                    for last in _moments():
                        if self.run_operation(name, last) == 0:
                            break
                        kills += 1
                        self.assert_sound()
                    self.assert_sound()
            self.assertGreaterEqual(kills, len(OPERATIONS))
            self.assertEqual(run_python(DIGESTS, self.home, self.url)[0], True)
            print(f"{kills} kills in {len(OPERATIONS)} operations", file=sys.stderr)

    def run_operation(self, name: str, last: int) -> int:
        done = subprocess.run(
            [sys.executable, "-m", "tests.postgres.killed_operation", name, str(last), str(self.folder)],
            cwd=ROOT,
            env={
                **os.environ, **UNMEASURED, **variables(self.home, self.url),
                "DJANGO_SETTINGS_MODULE": "memoryhub.settings", "MEMORY_HUB_LOG": "CRITICAL",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )  # fmt: skip
        self.assertIn(done.returncode, (0, -signal.SIGKILL), f"{name} at statement {last}: {done.stderr[-3000:]}")
        return done.returncode

    def assert_sound(self) -> None:
        chains, head, events, killed = run_python(CHECK, self.home, self.url)
        self.assertNotIn(False, chains.values(), chains)
        self.assertGreaterEqual(head, self.head, "acknowledged events are gone")
        self.assertEqual(events, head, "the log has gaps")
        self.assertLessEqual(killed, 1)
        self.head = head


def _moments() -> Iterator[int]:
    moment = float(FIRST)
    while True:
        yield int(moment)
        moment *= GROWTH
