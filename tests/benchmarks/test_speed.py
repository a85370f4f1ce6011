"""The benchmarks are run at a tiny size: which figures there are and how they hang together, never how good."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.test import SimpleTestCase, tag

from benchmarks.load.run import PAGE, READ, SEARCH, WRITE
from benchmarks.speed import corpus
from benchmarks.speed.command import Command
from benchmarks.speed.figures import Amount, Figure, Unit, latency
from benchmarks.speed.goals import Verdict, targets_of, verdict_of
from benchmarks.speed.measures import NAMES
from memories.search.text import STOP_WORDS
from memoryhub.management.bench import peak_of
from tests.home import UNMEASURED

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 600
SIZE = 50
DOORS = ("service", "cpu", "stdio", "rest")
LATENCIES = {
    *(f"start.{step}.{kind}.{era}" for step in ("opening", "lists", "call") for kind in ("hub", "alone")
      for era in ("handshake", "modern")),
    *(f"{what}.{door}" for what in ("write", "search") for door in DOORS),
    *(f"query.{what}" for what in ("guidelines", "related", "text", "security")),
    *(f"lineage.{what}" for what in ("heads", "get", "whole", "stdio")),
    "search.hybrid", "pack.stdio", "stores.open", "stores.switch", "stores.create", "hook.running", "hook.stopped",
}  # fmt: skip
AMOUNTS = {
    *(f"tools.{profile}.{what}" for profile in ("core", "full") for what in ("count", "bytes", "tokens")),
    "bulk", "size.store", "size.memory", "memory", "verify", "rebuild",
}  # fmt: skip
WITH_BASELINE = {
    key for key in LATENCIES | AMOUNTS if key.startswith(("start.", "write.", "search.", "size.", "bulk", "hook."))
} | {"stores.open"}


class Outcome:
    """One run of the command, for a user whose home and temporary folders are known."""

    def __init__(self, *options: str, benchmark: str = "speed", **environment: str) -> None:
        self.user = Path(tempfile.mkdtemp(prefix="user-"))
        self.temporary = self.user / "tmp"
        self.temporary.mkdir()
        # Neither measured nor in development mode: other tests cover its many processes.
        unrelated = {name: value for name, value in os.environ.items() if not name.startswith(("MEMORY_HUB", "PYTHON"))}
        unrelated.pop("DJANGO_SETTINGS_MODULE", None)
        own = {"HOME": str(self.user), "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT)}
        self.process = subprocess.run(
            [sys.executable, "-m", "benchmarks", benchmark, *options],
            env={**unrelated, **UNMEASURED, **own, **environment},
            cwd=self.user,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        self.left_behind = sorted(str(path.relative_to(self.user)) for path in self.user.rglob("*"))

    def destroy(self) -> None:
        shutil.rmtree(self.user, ignore_errors=True)


@tag("process")
class WholeRun(SimpleTestCase):
    outcome: Outcome
    data: dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        counts = ("--writes", "5", "--searches", "5", "--starts", "1")
        cls.outcome = Outcome("--sizes", str(SIZE), *counts, "--json")
        cls.addClassCleanup(cls.outcome.destroy)
        cls.data = json.loads(cls.outcome.process.stdout or "{}")

    def figures(self) -> dict[str, dict[str, Any]]:
        return {figure["key"]: figure for figure in self.data["figures"]}

    def test_nothing_fails_and_nothing_is_left_behind(self) -> None:
        self.assertEqual(self.data["failures"], [])
        self.assertEqual(self.outcome.process.returncode, 0, self.outcome.process.stderr)
        self.assertEqual(self.outcome.left_behind, ["tmp"])

    def test_every_figure_is_there_once_positive_and_of_as_many_samples_as_were_asked_for(self) -> None:
        self.assertEqual(sorted(figure["key"] for figure in self.data["figures"]), sorted(LATENCIES | AMOUNTS))
        for key, figure in self.figures().items():
            names = ("best", "p50", "p95", "p99") if key in LATENCIES else ("value",)
            for amounts in filter(None, (figure, figure.get("baseline"))):
                for name in names:
                    self.assertTrue(0 < amounts[name] < math.inf, (key, name, amounts[name]))
            percentiles = [figure[name] for name in names]
            self.assertEqual(percentiles, sorted(percentiles), key)
        samples = {"start.call.hub.modern": 1, "bulk": SIZE}
        samples |= {f"{what}.{door}": 5 for what in ("write", "search") for door in DOORS}
        self.assertEqual({key: self.figures()[key]["samples"] for key in samples}, samples)

    def test_a_ratio_is_the_quotient_of_the_two_amounts_beside_it(self) -> None:
        for key, figure in self.figures().items():
            self.assertEqual("ratio" in figure, key in WITH_BASELINE, key)
            if "ratio" in figure:
                name = "p50" if "p50" in figure else "value"
                mine, baseline = figure[name], figure["baseline"][name]
                quotient = baseline / mine if figure["unit"] == "/s" else mine / baseline
                self.assertAlmostEqual(figure["ratio"], quotient, places=9, msg=key)

    def test_a_figure_with_a_goal_is_judged(self) -> None:
        judged = {key for key, figure in self.figures().items() if figure["targets"]}
        self.assertLessEqual({"write.stdio", "write.service", "bulk", "memory", "tools.core.tokens"}, judged)
        self.assertEqual({key for key, figure in self.figures().items() if "verdict" in figure}, judged)

    def test_the_machine_is_described(self) -> None:
        self.assertLessEqual({"cpus", "python", "sqlite", "sqlite_driver", "date"}, set(self.data["machine"]))


@tag("process")
class PartOfARun(SimpleTestCase):
    def run_bench(self, *options: str, **environment: str) -> Outcome:
        outcome = Outcome(*options, **environment)
        self.addCleanup(outcome.destroy)
        return outcome

    def test_only_the_chosen_measures_are_shown_in_a_table_with_goals_and_a_kept_home_stays(self) -> None:
        outcome = self.run_bench("--sizes", "20,10", "--only", "size,verify", "--keep")
        lines = outcome.process.stdout.splitlines()
        self.assertEqual(len([line for line in lines if "verify, events" in line]), 2, outcome.process)
        self.assertTrue(all("25,000" in line for line in lines if "verify" in line))
        self.assertFalse(any("bulk" in line or "search" in line for line in lines))
        self.assertIn("6 figures", lines[-1])
        home = Path(outcome.process.stderr.strip().rpartition(" ")[2])
        self.assertTrue((home / "projects" / "bench-10" / "events.db").is_file(), outcome.process.stderr)
        self.assertTrue(home.is_relative_to(outcome.temporary))

    def test_a_failing_measure_is_reported_and_the_others_go_on(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "sitecustomize.py").write_text(BROKEN_VERIFY)
            path = os.pathsep.join([folder, str(ROOT)])
            outcome = self.run_bench("--sizes", "10", "--only", "size,verify,rebuild", "--json", PYTHONPATH=path)
        data = json.loads(outcome.process.stdout)
        self.assertEqual([failure["key"] for failure in data["failures"]], ["verify"])
        self.assertIn("the chain is broken at #1", data["failures"][0]["reason"])
        self.assertEqual({figure["key"] for figure in data["figures"]}, {"size.store", "size.memory", "rebuild"})
        self.assertEqual(outcome.process.returncode, 1)

    def test_what_makes_no_sense_is_refused_in_a_sentence(self) -> None:
        parser = Command().create_parser("python -m benchmarks", "speed")
        for options, sentence in (
            (("--sizes", "0"), "'0' is not a whole number"),
            (("--sizes", "ten"), "'ten' is not a whole number"),
            (("--writes", "-1"), "'-1' is not a whole number"),
            (("--only", "speed"), "'speed' is not a measure"),
        ):
            with self.assertRaisesMessage(CommandError, sentence):
                parser.parse_args([f"{options[0]}={options[1]}"])


class Corpus(SimpleTestCase):
    def test_texts_are_the_same_on_every_run_differ_and_have_words_as_often_as_natural_text(self) -> None:
        memories = [corpus.arguments(index) for index in range(300)]
        self.assertEqual(corpus.arguments(7), memories[7])
        self.assertEqual(len({memory["title"] for memory in memories}), 300)
        for memory in memories:
            self.assertTrue(295 <= len(memory["content"]) <= 600, len(memory["content"]))
            self.assertTrue(1 <= len(memory["tags"]) <= 3)
        words = [word for memory in memories for word in memory["content"].lower().split()]
        counts = sorted(Counter(words).values(), reverse=True)
        self.assertGreater(counts[0], 5 * counts[20])
        self.assertGreater(counts.count(1), len(counts) // 3)

    def test_a_question_has_four_telling_terms_of_its_memory(self) -> None:
        for index in range(50):
            words = corpus.question(index).split()
            self.assertEqual(len(words), 4)
            self.assertFalse(STOP_WORDS & set(words))
            self.assertTrue(all(word in corpus.arguments(index)["content"].lower() for word in words))


class Judging(SimpleTestCase):
    def test_a_percentile_is_a_time_that_was_measured(self) -> None:
        amount = latency([number / 1000 for number in range(1, 101)])
        self.assertEqual((amount.value, amount.p95, amount.p99, amount.samples), (50, 95, 99, 100))
        with self.assertRaisesMessage(ValueError, "nothing was measured"):
            latency([])

    def test_the_worse_of_two_targets_a_rate_and_a_ratio_are_judged(self) -> None:
        ten = Amount(10)
        for verdict, key, unit, amount, baseline in (
            (Verdict.GOAL, "search.stdio", Unit.MILLISECONDS, Amount(3, 9, 9, 3), None),
            (Verdict.FLOOR, "search.stdio", Unit.MILLISECONDS, Amount(3, 15, 15, 3), None),
            (Verdict.MISS, "search.stdio", Unit.MILLISECONDS, Amount(9, 9, 9, 9), None),
            (Verdict.GOAL, "bulk", Unit.PER_SECOND, Amount(9000), None),
            (Verdict.FLOOR, "bulk", Unit.PER_SECOND, Amount(2500), None),
            (Verdict.MISS, "bulk", Unit.PER_SECOND, Amount(100), None),
            (Verdict.GOAL, "write.service", Unit.MILLISECONDS, Amount(20), ten),
            (Verdict.FLOOR, "write.service", Unit.MILLISECONDS, Amount(50), ten),
            (Verdict.MISS, "write.service", Unit.MILLISECONDS, Amount(70), ten),
        ):
            with self.subTest(key, amount=amount):
                size = 10_000 if key == "search.stdio" else 10
                self.assertEqual(verdict_of(Figure(key, "", unit, amount, size, baseline)), verdict)


class PeakMemory(SimpleTestCase):
    def test_a_process_that_took_fifty_megabytes_is_measured_while_it_runs(self) -> None:
        program = "x = b'x' * 50_000_000; print(len(x), flush=True); input()"
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:
            assert process.stdout
            process.stdout.readline()
            self.assertTrue(50e6 < peak_of(process.pid) < 150e6)


class Documentation(SimpleTestCase):
    page = (ROOT / "docs/internals/benchmarks.md").read_text()

    def test_every_measure_and_option_is_explained(self) -> None:
        parser = Command().create_parser("python -m benchmarks", "speed")
        inherited = BaseCommand().create_parser("python -m benchmarks", "speed")
        shared = {option for action in inherited._actions for option in action.option_strings}
        own = {option for action in parser._actions for option in action.option_strings} - shared
        for name in sorted({*NAMES, *own}):
            self.assertIn(f"`{name}", self.page)

    def test_every_target_is_named_with_its_amounts(self) -> None:
        tables = [part for part in self.page.split("\n\n") if part.startswith("| key |")]
        rows = [row.split("|") for table in tables for row in table.splitlines() if row.startswith("| ")]
        for key in sorted(LATENCIES | AMOUNTS):
            names = (f"`{key}`", f"`{key.rpartition('.')[0]}.*`")
            for target in targets_of(Figure(key, "", Unit.MILLISECONDS, Amount(1))):
                (row,) = [row for row in rows if any(name in row[1] for name in names)]
                self.assertIn(f"{target.floor:,.10g}", row[-3], key)
                self.assertIn(f"{target.goal:,.10g}", row[-2], key)


BROKEN_VERIFY = """
import sys

class BreakTheLog:
    def find_spec(self, name, path, target=None):
        if name == "benchmarks.speed.measures.stores":
            sys.meta_path.remove(self)
            from memoryhub.core import log
            log.verify = lambda: log.Verification(False, 0, "0", 1, "a test says so")

sys.meta_path.insert(0, BreakTheLog())
"""


SMALL = ("--projects", "2", "--clients", "4", "--memories", "20", "--rate", "5", "--seconds", "1")
# What a hub that is killed and started again may answer: no connection, or that the session is gone
_NO_CONNECTION = r"(?:Connect|Read|Write|RemoteProtocol)Error"
_NO_SESSION = "the session is unknown: a new one is opened"
OF_A_KILL = re.compile(
    rf"(?:{WRITE}|{SEARCH}|{READ}): (?:the connection failed: {_NO_CONNECTION}|{_NO_SESSION})"
    rf"|{PAGE}: {_NO_CONNECTION} .*"
)


@tag("process")
class LoadTests(SimpleTestCase):
    def run_load(self, *options: str) -> dict[str, Any]:
        outcome = Outcome(*SMALL, *options, benchmark="load")
        self.addCleanup(outcome.destroy)
        self.assertEqual(outcome.process.returncode, 0, outcome.process.stderr)
        self.assertEqual(outcome.left_behind, ["tmp"])
        found: dict[str, Any] = json.loads(outcome.process.stdout)
        return found

    def test_clients_of_two_projects_and_a_person_share_the_hub(self) -> None:
        found = self.run_load("--baseline", "1")
        hub, baselines = found["hub"], found["mcp_http"]
        self.assertEqual(set(hub["milliseconds"]), {WRITE, SEARCH, READ, PAGE})
        self.assertEqual([set(one["milliseconds"]) for one in baselines], 2 * [{WRITE, SEARCH, READ}])
        self.assertEqual([one["errors"] for one in (hub, *baselines)], 3 * [{}])
        self.assertEqual((hub["kills"], hub["lost_writes"]), (0, 0))
        self.assertGreater(hub["peak_megabytes"], 0)
        self.assertGreater(found["write_p95_ratio"], 0)

    def test_a_killed_hub_loses_no_acknowledged_write(self) -> None:
        hub = self.run_load("--baseline", "0", "--seconds", "4", "--kill-every", "2")["hub"]
        self.assertGreaterEqual(hub["kills"], 1)
        self.assertEqual(hub["lost_writes"], 0)
        # Each client with a handshake has lost its session, so no kill passes unnoticed.
        self.assertTrue(hub["errors"])
        self.assertEqual([error for error in hub["errors"] if not OF_A_KILL.fullmatch(error)], [])
