from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from memoryhub.core import counters
from memoryhub.core.counters import metrics_folder, read_sums
from tests.support import HubTestCase
from tests.web.server import DEADLINE_SECONDS, poll

ROOT = Path(__file__).parents[2]
CALLS = counters.define("test_calls", "Calls of a test", "kind")
TIMES = counters.define_timer("test_seconds", "Seconds of a test", "kind")

COUNT = """
import os, sys
sys.path.insert(0, {root!r})
from memoryhub.core.counters import define, define_timer
calls, times = define("test_calls", "", "kind"), define_timer("test_seconds", "", "kind")
for _ in range({times}):
    calls.count("far")
with times.time("far"):
    pass
print("counted", flush=True)
sys.stdin.read()
"""


class CounterTestCase(HubTestCase):
    def start(self, times: int) -> subprocess.Popen[str]:
        """Start a process that counts ``times`` times and ends with its input."""
        process = subprocess.Popen(
            [sys.executable, "-c", COUNT.format(root=str(ROOT), times=times)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MEMORY_HUB_HOME": str(self.home)},
        )
        assert process.stdout and process.stdin
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), "counted\n")
        return process

    def end(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin
        process.stdin.close()
        process.wait(DEADLINE_SECONDS)

    def total(self, key: str = "test_calls|far") -> float:
        return read_sums().get("none", {}).get(key, 0)


class CountersTests(CounterTestCase):
    def test_all_processes_count_together(self) -> None:
        CALLS.count("near")
        self.start(3)
        self.start(4)
        found = counters.sums()["none"]
        self.assertEqual((found["test_calls|far"], found["test_calls|near"]), (7, 1))

    def test_a_time_is_in_the_file_soon_without_another_call(self) -> None:
        with TIMES.time("near"):
            pass
        poll(lambda: self.total("test_seconds|near|sum"), what="the flush of a single time")
        values = read_sums()["none"]
        self.assertEqual(sum(v for k, v in values.items() if k.startswith("test_seconds|near|") and "sum" not in k), 1)

    def test_a_child_that_was_forked_counts_its_own_alone(self) -> None:
        CALLS.count("near")
        child = os.fork()
        if child == 0:
            CALLS.count("near")
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(counters.sums()["none"]["test_calls|near"], 2)

    def test_another_home_begins_with_nothing(self) -> None:
        CALLS.count("near")
        other = self.home / "other"
        other.mkdir()
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(other)):
            CALLS.count("near")
            self.assertEqual(counters.sums()["none"], {"test_calls|near": 1})

    def test_files_are_private(self) -> None:
        CALLS.count("near")
        self.assertEqual({path.stat().st_mode & 0o077 for path in metrics_folder().iterdir()}, {0})
