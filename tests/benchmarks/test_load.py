"""The load runs once, at a tiny size: that every act happened and nothing was refused or lost, never how fast."""

from __future__ import annotations

import json
import re
from typing import Any

from django.test import SimpleTestCase, tag

from benchmarks.load.run import PAGE, READ, SEARCH, WRITE
from tests.benchmarks.test_speed import Outcome

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
        hub = self.run_load("--baseline", "0", "--seconds", "30", "--kill-every", "12")["hub"]
        self.assertGreaterEqual(hub["kills"], 1)
        self.assertEqual(hub["lost_writes"], 0)
        # Each client with a handshake has lost its session, so no kill passes unnoticed.
        self.assertTrue(hub["errors"])
        self.assertEqual([error for error in hub["errors"] if not OF_A_KILL.fullmatch(error)], [])
