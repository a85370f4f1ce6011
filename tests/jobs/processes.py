"""Real processes that run jobs: one that has loaded everything, and forks a child for each run that it is asked for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import timedelta
from typing import Any

from memories.schemas import MemoryTouch, MemoryWrite
from memories.services import delete_memory, write_memories
from memories.uses.events import Use
from memories.uses.notes import note_read
from memoryhub.core import clock
from memoryhub.core.origin import use_origin
from sessions_app.schemas import SessionStart, TurnBegin
from sessions_app.services import start_session
from sessions_app.services.turns import begin_turn
from tests.home import UNMEASURED
from tests.support import HubTestCase
from tests.web.server import ROOT, migrated_home

_PROGRAM = """
import django, json, os, sys
django.setup()
from django.db import connections
from memoryhub.ops import jobs
from memoryhub.core.jobs import find_job
from memoryhub.ops.jobs.status import job_statuses

def say(line):
    os.write(1, f"{line}\\n".encode())

def run(name):
    if name == "stand":
        return {each.job.name: [one.last and one.last.result for one in each.stores] for each in job_statuses()}
    return [(each.result, each.message) for each in jobs.run_job(job=find_job(name), asked_by="ada")]

while name := sys.stdin.readline().strip():
    connections.close_all()
    child = os.fork()
    if child == 0:
        say(f"began {os.getpid()}")
        say(json.dumps(run(name)))
        os._exit(0)
    sys.stdin.readline()  # until then the child's number is no other process's
    say(f"ended {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
"""


class Runner:
    def __init__(self) -> None:
        settings = {"DJANGO_SETTINGS_MODULE": "memoryhub.settings", "MEMORY_HUB_LOG": "CRITICAL"}
        environment = {**os.environ, **UNMEASURED, **settings}
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", _PROGRAM]
        self.process = subprocess.Popen(command, env=environment, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def begin(self, name: str) -> int:
        """Have a child run a job (or tell how all stand); return its process number."""
        self._say(name)
        return int(self._line().removeprefix("began "))

    def end(self) -> Any:
        """Wait for the child, and return what it says of the run; None where it was killed before it said anything."""
        self._say("end")
        lines = [self._line()]
        while not lines[-1].startswith("ended "):
            lines.append(self._line())
        return json.loads(lines[0]) if len(lines) > 1 else None

    def run(self, name: str) -> Any:
        self.begin(name)
        return self.end()

    def _say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        assert line, "the process that runs jobs has died"
        return line

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            pipe.close()


class JobProcessesTestCase(HubTestCase):
    """A home whose hub.db and queue are files of its own, and work for every job."""

    def setUp(self) -> None:
        super().setUp()
        for name in ("hub.db", "jobs.db"):
            shutil.copyfile(migrated_home() / name, self.home / name)

    def runner(self) -> Runner:
        runner = Runner()
        self.addCleanup(runner.close)
        return runner

    def make_work(self, project: str, round_: int = 0, *, memories: int = 12) -> None:
        with self.store(project):
            self._make_work(round_, memories)

    def _make_work(self, round_: int, memories: int) -> None:
        named = [f"{round_}-{number}" for number in range(memories)]
        with clock.frozen(clock.now() - timedelta(days=40 - round_ % 5)):
            written = write_memories(commands=[MemoryWrite(title=item, content=f"text {item}") for item in named])
            ids = [item.id for item in written]
            for number in range(2):
                start_session(command=SessionStart(session_id=f"s{round_}-{number}"))
                begin_turn(command=TurnBegin(session_id=f"s{round_}-{number}", turn_id=f"t{round_}"))
            for item in ids[:4]:
                delete_memory(command=MemoryTouch(id=item))
        with use_origin(source="mcp"):
            note_read(Use.FETCHED, ids)
