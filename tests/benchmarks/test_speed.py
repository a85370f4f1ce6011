"""The benchmarks are run at a tiny size: which figures there are and how they hang together, never how good."""

from __future__ import annotations

import json
import math
import os
import re
import resource
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
from benchmarks.speed import corpus, processes
from benchmarks.speed.command import Command
from benchmarks.speed.figures import Amount, Figure, Unit, latency
from benchmarks.speed.goals import Verdict, targets_of, verdict_of
from benchmarks.speed.measures import NAMES
from memories.search.text import STOP_WORDS
from tests.home import UNMEASURED

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_SECONDS = 600
SIZE = 50

DOORS = ("service", "cpu", "stdio", "rest")
LATENCIES = {
    *(f"start.{step}.{kind}.{era}" for step in ("opening", "lists", "call") for kind in ("snapshot", "first")
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
        cls.outcome = Outcome("--sizes", str(SIZE), *counts, "--profile", "--json")
        cls.addClassCleanup(cls.outcome.destroy)
        cls.data = json.loads(cls.outcome.process.stdout or "{}")

    def figures(self) -> dict[str, dict[str, Any]]:
        return {figure["key"]: figure for figure in self.data["figures"]}

    def test_nothing_fails_and_the_exit_code_says_so(self) -> None:
        self.assertEqual(self.data["failures"], [])
        self.assertEqual(self.outcome.process.returncode, 0, self.outcome.process.stderr)

    def test_every_figure_is_there_once(self) -> None:
        self.assertEqual(sorted(figure["key"] for figure in self.data["figures"]), sorted(LATENCIES | AMOUNTS))

    def test_every_amount_is_positive_and_finite(self) -> None:
        for figure in self.data["figures"]:
            names = ("best", "p50", "p95", "p99") if figure["key"] in LATENCIES else ("value",)
            for amounts in filter(None, (figure, figure.get("baseline"))):
                for name in names:
                    self.assertTrue(0 < amounts[name] < math.inf, (figure["key"], name, amounts[name]))

    def test_percentiles_of_a_latency_do_not_fall(self) -> None:
        for key in LATENCIES:
            figure = self.figures()[key]
            self.assertLessEqual(figure["best"], figure["p50"], key)
            self.assertLessEqual(figure["p50"], figure["p95"], key)
            self.assertLessEqual(figure["p95"], figure["p99"], key)

    def test_a_ratio_is_the_quotient_of_the_two_amounts_beside_it(self) -> None:
        for key, figure in self.figures().items():
            self.assertEqual("ratio" in figure, key in WITH_BASELINE, key)
            if "ratio" in figure:
                mine, baseline = (
                    amount["p50" if "p50" in amount else "value"] for amount in (figure, figure["baseline"])
                )
                quotient = baseline / mine if figure["unit"] == "/s" else mine / baseline
                self.assertAlmostEqual(figure["ratio"], quotient, places=9, msg=key)

    def test_samples_are_as_many_as_were_asked_for(self) -> None:
        figures = self.figures()
        self.assertEqual({figures[f"{what}.{door}"]["samples"] for what in ("write", "search") for door in DOORS}, {5})
        self.assertEqual(figures["start.call.snapshot.modern"]["samples"], 1)
        self.assertEqual(figures["bulk"]["samples"], SIZE)

    def test_a_figure_with_a_goal_is_judged(self) -> None:
        judged = {key for key, figure in self.figures().items() if figure["targets"]}
        self.assertLessEqual({"write.stdio", "write.service", "bulk", "memory", "tools.core.tokens"}, judged)
        for key, figure in self.figures().items():
            self.assertEqual("verdict" in figure, key in judged, key)

    def test_the_machine_is_described(self) -> None:
        self.assertLessEqual({"cpus", "python", "sqlite", "sqlite_driver", "date"}, set(self.data["machine"]))

    def test_the_profile_names_fifteen_functions_slowest_first(self) -> None:
        own = [row["own_seconds"] for row in self.data["profile"]]
        self.assertEqual(len(own), 15)
        self.assertEqual(own, sorted(own, reverse=True))

    def test_the_users_home_is_not_touched_and_nothing_is_left_behind(self) -> None:
        self.assertEqual(self.outcome.left_behind, ["tmp"])


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
    def test_the_same_number_gives_the_same_text(self) -> None:
        first = corpus.arguments(7)
        corpus.arguments(8)
        self.assertEqual(corpus.arguments(7), first)

    def test_texts_are_as_long_as_they_are_said_to_be_and_titles_differ(self) -> None:
        memories = [corpus.arguments(index) for index in range(300)]
        self.assertEqual(len({memory["title"] for memory in memories}), 300)
        for memory in memories:
            self.assertTrue(295 <= len(memory["content"]) <= 600, len(memory["content"]))
            self.assertTrue(1 <= len(memory["tags"]) <= 3)

    def test_word_frequencies_fall_as_in_natural_text(self) -> None:
        words = [word for index in range(300) for word in corpus.arguments(index)["content"].lower().split()]
        most = sorted(Counter(words).values(), reverse=True)
        self.assertGreater(most[0], 5 * most[20])
        self.assertGreater(len([count for count in most if count == 1]), len(most) // 3)

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

    def test_no_samples_are_no_latency(self) -> None:
        with self.assertRaisesMessage(ValueError, "nothing was measured"):
            latency([])

    def test_of_two_targets_the_worse_verdict_counts(self) -> None:
        def search(p50: float, p95: float) -> Verdict | None:
            amount = Amount(p50, p95, p95, p50)
            return verdict_of(Figure("search.stdio", "", Unit.MILLISECONDS, amount, 10_000))

        self.assertEqual(search(3, 9), Verdict.GOAL)
        self.assertEqual(search(3, 15), Verdict.FLOOR)
        self.assertEqual(search(9, 9), Verdict.MISS)

    def test_more_a_second_is_better(self) -> None:
        def bulk(rate: float) -> Verdict | None:
            return verdict_of(Figure("bulk", "", Unit.PER_SECOND, Amount(rate), 10))

        self.assertEqual([bulk(9000), bulk(2500), bulk(100)], [Verdict.GOAL, Verdict.FLOOR, Verdict.MISS])

    def test_a_write_in_the_service_is_judged_by_its_ratio(self) -> None:
        def write(p50: float) -> Verdict | None:
            baseline = Amount(10)
            return verdict_of(Figure("write.service", "", Unit.MILLISECONDS, Amount(p50), 10, baseline))

        self.assertEqual([write(20), write(50), write(70)], [Verdict.GOAL, Verdict.FLOOR, Verdict.MISS])


class PeakMemory(SimpleTestCase):
    def start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", "x = b'x' * 50_000_000; print(len(x), flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(processes.end, process)
        assert process.stdout
        process.stdout.readline()
        return process

    def test_a_process_that_took_fifty_megabytes_is_said_to_have(self) -> None:
        self.assertTrue(50e6 < processes.peak_resident_bytes(self.start()) < 150e6)

    def test_where_only_an_ended_process_tells_it_is_ended(self) -> None:
        process = self.start()
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts what the child was forked from
        self.assertTrue(50e6 < processes.peak_at_end(process) < 150e6 + own)
        self.assertIsNotNone(process.returncode)


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
        for figure in judged_figures():
            (row,) = [row for row in rows if documents(row[1], figure.key)]
            for target in targets_of(figure):
                self.assertIn(f"{target.floor:,.10g}", row[-3], figure.key)
                self.assertIn(f"{target.goal:,.10g}", row[-2], figure.key)


def judged_figures() -> list[Figure]:
    keys = [Figure(key, "", Unit.MILLISECONDS, Amount(1)) for key in sorted(LATENCIES | AMOUNTS)]
    return [figure for figure in keys if targets_of(figure)]


def documents(cell: str, key: str) -> bool:
    """Whether a row's first cell names the key, by itself or with a star for its last part."""
    return f"`{key}`" in cell or f"`{key.rpartition('.')[0]}.*`" in cell


BROKEN_VERIFY = """
import sys

class BreakTheLog:
    def find_spec(self, name, path, target=None):
        if name == "benchmarks.speed.measures.log":
            sys.meta_path.remove(self)
            from memoryhub.core import log
            log.verify = lambda: log.Verification(False, 0, "0", 1, "a test says so")

sys.meta_path.insert(0, BreakTheLog())
"""


SMALL = ("--projects", "2", "--clients", "4", "--memories", "20", "--rate", "5", "--seconds", "5")
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
        found = self.run_load("--baseline", "3")
        hub, baselines = found["hub"], found["mcp_http"]
        self.assertEqual(set(hub["milliseconds"]), {WRITE, SEARCH, READ, PAGE})
        self.assertEqual([set(one["milliseconds"]) for one in baselines], 2 * [{WRITE, SEARCH, READ}])
        self.assertEqual([one["errors"] for one in (hub, *baselines)], 3 * [{}])
        self.assertEqual((hub["kills"], hub["lost_writes"]), (0, 0))
        self.assertGreater(hub["peak_megabytes"], 0)
        self.assertGreater(found["write_p95_ratio"], 0)

    def test_a_killed_hub_loses_no_acknowledged_write(self) -> None:
        hub = self.run_load("--baseline", "0", "--seconds", "16", "--kill-every", "6")["hub"]
        self.assertGreaterEqual(hub["kills"], 1)
        self.assertEqual(hub["lost_writes"], 0)
        # Each client with a handshake has lost its session, so no kill passes unnoticed.
        self.assertTrue(hub["errors"])
        self.assertEqual([error for error in hub["errors"] if not OF_A_KILL.fullmatch(error)], [])
