"""Counts are true across processes, and nothing is lost or doubled when those that have ended are folded into one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

from memoryhub.core import counter_files, counters
from memoryhub.core.counter_files import fold_ended, metrics_folder, read_sums
from tests.support import HubTestCase
from tests.web.server import poll

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
        """Return a process that has counted ``times`` times, and ends when its input does."""
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
        process.wait(20)

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
        poll(lambda: self.total("test_seconds|near|sum"), seconds=5, what="the flush of a single time")
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

    def test_a_read_costs_microseconds_more(self) -> None:
        started = time.perf_counter()
        for _ in range(2000):
            with TIMES.time("near"):
                pass
        self.assertLess((time.perf_counter() - started) / 2000, 100e-6)


class FoldTests(CounterTestCase):
    def files(self) -> list[str]:
        return sorted(path.name for path in metrics_folder().glob("*.json"))

    def test_those_that_ended_become_one_and_those_that_live_stay(self) -> None:
        ended, killed, living = self.start(3), self.start(4), self.start(5)
        self.end(ended)
        killed.send_signal(signal.SIGKILL)
        killed.wait(20)
        self.assertEqual(fold_ended(), 2)
        self.assertEqual((len(self.files()), self.total()), (2, 12))
        self.assertIn("ended.json", self.files())
        self.end(living)
        self.assertEqual((fold_ended(), fold_ended(), self.files(), self.total()), (1, 0, ["ended.json"], 12))

    def test_folding_that_was_cut_short_doubles_nothing(self) -> None:
        self.end(self.start(3))
        with mock.patch.object(counter_files, "_remove"):  # as if killed before the files were removed
            fold_ended()
        self.assertEqual((len(self.files()), self.total()), (2, 3))
        self.end(self.start(4))
        fold_ended()
        self.assertEqual((self.files(), self.total()), (["ended.json"], 7))

    def test_a_file_that_cannot_be_read_counts_nothing(self) -> None:
        self.end(self.start(3))
        (metrics_folder() / "1-broken.json").write_text("{")
        self.assertEqual(self.total(), 3)
        fold_ended()
        self.assertEqual((self.files(), self.total()), (["ended.json"], 3))

    def test_the_sums_stay_readable_while_they_are_folded(self) -> None:
        for times in (1, 2, 3):
            self.end(self.start(times))
        seen: list[dict[str, dict[str, float]]] = []
        with mock.patch.object(counter_files, "_replace", side_effect=self.replace_and_note(seen)):
            fold_ended()
        self.assertEqual(self.total(), 6)
        self.assertEqual(sum(seen[0]["none"][key] for key in seen[0]["none"] if key == "test_calls|far"), 6)

    def replace_and_note(self, seen: list[dict[str, dict[str, float]]]):
        original = counter_files._replace

        def replace(path: Path, content: dict[str, dict[str, float]]) -> None:
            seen.append(json.loads(json.dumps(content)))
            original(path, content)

        return replace
