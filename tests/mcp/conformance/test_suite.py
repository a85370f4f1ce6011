from __future__ import annotations

import os
import re
from unittest import mock

from tests.mcp.client import MODERN
from tests.mcp.conformance.node import PACKAGES, NodeTestCase
from tests.mcp.conformance.node import SUITE as SUITE_SCRIPT
from tests.mcp.http_server import HttpServer
from tests.web.server import serving

# How many scenarios each revision requires of a server; frozen by the suite.
REQUIRED = {"2025-11-25": 30, MODERN: 37}
FIXTURES = "tests.mcp.conformance.fixtures"
# A hub that admits clients without a token, because the suite sends none
OPEN_HUB = """
import os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
django.setup()
from memoryhub.cli import main
from memoryhub.mcp import admission
class Open(admission.Admission):
    def __init__(self, *, needs_token, require):
        super().__init__(needs_token=False, require=require)
admission.Admission = Open
sys.exit(main(sys.argv))
"""


class ConformanceTests(NodeTestCase):
    def test_every_scenario_that_a_revision_requires_passes(self) -> None:
        server = HttpServer(self.home, "--no-token", "--profile", "full", MEMORY_HUB_TEST_TOOLS=FIXTURES)
        self.addCleanup(server.destroy)
        self.check(server.url)

    def test_every_scenario_that_a_revision_requires_passes_in_the_hub_too(self) -> None:
        with (
            mock.patch.dict(os.environ, MEMORY_HUB_TEST_TOOLS=FIXTURES),
            serving("--no-worker", program=OPEN_HUB) as hub,
        ):
            hub.api("POST", "projects", {"project_id": "alpha"})
            self.check(f"{hub.address}/p/alpha/mcp")

    def check(self, url: str) -> None:
        for revision, count in REQUIRED.items():
            with self.subTest(revision=revision):
                required = required_of_servers(revision)
                self.assertEqual(len(required), count)
                passed, failed = self.run_suite(url, revision)
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
