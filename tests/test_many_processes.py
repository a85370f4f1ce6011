"""Real processes on one store: writers wait their turn, and a kill at any moment loses nothing acknowledged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from django.test import tag

from memories.models import Memory
from memoryhub.core import log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store
from tests.home import UNMEASURED
from tests.support import HubTestCase
from tests.torture.rounds import rounds

PREPARE = """
import django, os, sys
django.setup()
from memoryhub.core.backends.sqlite import base
base.BUSY_TIMEOUT_SECONDS = 60.0  # a slow disk takes a second for what eight write
from memoryhub.core.stores.store import project_store, use_store
from memories.services import write_memory
from memories.schemas import MemoryWrite

def write(name, count):
    for number in range(count):
        with use_store(project_store("alpha"), create=True):
            result = write_memory(command=MemoryWrite(title=f"{name} {number}", content=f"text {name} {number}"))
        say(f"{result.id} {name} {number}")

def say(line):
    os.write(1, f"{line}\\n".encode())  # whole, whoever else writes into the pipe and whenever this is killed
"""
# As many processes at once as there are names, which need not import everything each.
WRITERS_AT_ONCE = f"""{PREPARE}
children = []
for name in sys.argv[2:]:
    children.append(os.fork())
    if children[-1] == 0:
        write(name, int(sys.argv[1]))
        os._exit(0)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""
# Starts a process for each given name, one after the other, and prints its id and how it ended.
WRITERS = f"""{PREPARE}
while name := sys.stdin.readline().strip():
    child = os.fork()
    if child == 0:
        say(f"began {{os.getpid()}}")
        write(name, 100_000)
        os._exit(0)
    say(f"ended {{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}}")
"""
DEADLINE_SECONDS = 300
KILLS = rounds(50, long=1_000)


@tag("attack")
class ManyProcessesTests(HubTestCase):
    def spawn(self, *program: str) -> subprocess.Popen[str]:
        environment = {**os.environ, **UNMEASURED, "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        root = Path(__file__).parents[1]
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", *program]
        return subprocess.Popen(command, env=environment, cwd=root, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def holds(self, acknowledged: dict[int, str]) -> None:
        with self.store("alpha"):
            titles = dict(Memory.objects.values_list("id", "title"))
            lost = {position: title for position, title in acknowledged.items() if titles.get(position) != title}
            self.assertEqual(lost, {})
            self.assertEqual(rows.fetch("PRAGMA integrity_check"), [("ok",)])
            rows.execute("INSERT INTO search_fts (search_fts) VALUES ('integrity-check')")
            found = log.verify()
            self.assertTrue(found.ok, found.describe())

    def test_eight_writers_at_once_lose_nothing_and_none_is_locked_out(self):
        with self.spawn(WRITERS_AT_ONCE, "25", *(f"w{number}" for number in range(8))) as writers:
            output, errors = writers.communicate(timeout=DEADLINE_SECONDS)
        self.assertEqual((writers.returncode, errors), (0, ""))
        acknowledged = parse(output)
        self.assertEqual(len(acknowledged), 200)
        self.holds(acknowledged)
        with self.store("alpha"):
            positions = list(RawEvent.objects.order_by("position").values_list("position", flat=True))
        self.assertEqual(positions, list(range(1, 201)))

    def test_a_kill_at_any_moment_loses_no_acknowledged_write(self):
        chance = random.Random(20261121)
        acknowledged: dict[int, str] = {}
        with self.spawn(WRITERS) as writers:
            for kill in range(KILLS):
                acknowledged |= self.write_until_killed(writers, f"k{kill}", chance.randrange(1, 12))
        self.assertGreaterEqual(len(acknowledged), KILLS)
        self.holds(acknowledged)
        with self.store("alpha"):
            self.assertTrue(log.rebuild().identical)
        self.assertTrue(path_of(project_store("alpha")).with_name("head").exists())

    def write_until_killed(self, writers: subprocess.Popen[str], name: str, count: int) -> dict[int, str]:
        """Kill a writer when it has said so many times that it wrote, and return all that it said."""
        assert writers.stdin
        assert writers.stdout
        print(name, file=writers.stdin, flush=True)
        child = int(writers.stdout.readline().removeprefix("began "))
        said = [writers.stdout.readline() for _ in range(count)]
        os.kill(child, signal.SIGKILL)
        while (line := writers.stdout.readline()) and not line.startswith("ended"):
            said.append(line)
        self.assertEqual(line, f"ended {-signal.SIGKILL:d}\n")
        return parse("".join(said))


def parse(output: str) -> dict[int, str]:
    """Return what was acknowledged. A line is written whole, or not at all where its writer was killed before."""
    return {int(line.split(" ", 1)[0]): line.split(" ", 1)[1] for line in output.splitlines()}
