"""The load runs once, at a tiny size: that every act happened and nothing was refused or lost, never how fast."""

from __future__ import annotations

import json
from typing import Any

from django.test import SimpleTestCase

from benchmarks.load.run import PAGE, READ, SEARCH, WRITE
from tests.benchmarks.test_speed import Outcome

SMALL = ("--projects", "2", "--clients", "4", "--memories", "20", "--rate", "5", "--seconds", "5")


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
        hub = self.run_load("--baseline", "0", "--kill-every", "3")["hub"]
        self.assertEqual((hub["kills"], hub["lost_writes"]), (1, 0))
