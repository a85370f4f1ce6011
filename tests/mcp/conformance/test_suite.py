from __future__ import annotations

import re

from tests.mcp.client import MODERN
from tests.mcp.conformance.node import PACKAGES, NodeTestCase
from tests.mcp.conformance.node import SUITE as SUITE_SCRIPT
from tests.mcp.http_server import HttpServer

# How many scenarios each revision requires of a server; frozen by the suite.
REQUIRED = {"2025-11-25": 30, MODERN: 37}


class ConformanceTests(NodeTestCase):
    def test_every_scenario_that_a_revision_requires_passes(self) -> None:
        fixtures = "tests.mcp.conformance.fixtures"
        server = HttpServer(self.home, "--no-token", "--profile", "full", MEMORY_HUB_TEST_TOOLS=fixtures)
        self.addCleanup(server.destroy)
        for revision, count in REQUIRED.items():
            with self.subTest(revision=revision):
                required = required_of_servers(revision)
                self.assertEqual(len(required), count)
                passed, failed = self.run_suite(server.url, revision)
                self.assertEqual(required - passed, set())
                # An extension that the hub doesn't support
                self.assertEqual({name for name in failed if not name.startswith("tasks-")}, set())

    def run_suite(self, url: str, revision: str) -> tuple[set[str], set[str]]:
        """Return the scenarios that passed, and those with failures."""
        words = ["server", "--url", url, "--requirements", revision, "--output-dir", str(self.home / "out")]
        done = self.run_node(SUITE_SCRIPT, *words)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-1000:])
        counts = re.findall(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed$", done.stdout, re.MULTILINE)
        passed = {name for name, good, bad in counts if int(good) and not int(bad)}
        return passed, {name for name, _, bad in counts if int(bad)}


def required_of_servers(revision: str) -> set[str]:
    text = (PACKAGES / "conformance" / "requirements" / f"{revision}.yaml").read_text()
    of_servers = re.split(r"^\w+:$", text.partition("\nserver:\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return set(re.findall(r"^  - (\S+)$", of_servers, re.MULTILINE))
