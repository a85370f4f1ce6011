"""The protocol's own test tools, on the Node that ``.ci/node`` installs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import tag

from tests.mcp.case import McpTestCase
from tests.mcp.client import MODERN, command
from tests.mcp.http_server import HttpServer
from tests.programs import NODE_MODULES, needs, path_of
from tests.web.server import serving

PACKAGES = NODE_MODULES / "@modelcontextprotocol"
SUITE = PACKAGES / "conformance" / "dist" / "index.js"
INSPECTOR = PACKAGES / "inspector" / "clients" / "launcher" / "build" / "index.js"


@needs("node tools")
@tag("conformance")
class NodeTestCase(McpTestCase):
    def run_node(self, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a tool in the home folder of the class."""
        return subprocess.run(
            [path_of("node"), str(script), *words],
            cwd=self.home,
            env={**os.environ, "HOME": str(self.home)},
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )


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
        done = self.run_node(SUITE, *words)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-1000:])
        counts = re.findall(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed$", done.stdout, re.MULTILINE)
        passed = {name for name, good, bad in counts if int(good) and not int(bad)}
        return passed, {name for name, _, bad in counts if int(bad)}


def required_of_servers(revision: str) -> set[str]:
    text = (PACKAGES / "conformance" / "requirements" / f"{revision}.yaml").read_text()
    of_servers = re.split(r"^\w+:$", text.partition("\nserver:\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return set(re.findall(r"^  - (\S+)$", of_servers, re.MULTILINE))


class InspectorTests(NodeTestCase):
    def inspect(self, method: str, *words: str) -> dict[str, Any]:
        settings = (
            f"MEMORY_HUB_HOME={self.home}",
            "MEMORY_HUB_AUTOSTART=off",
            "DJANGO_SETTINGS_MODULE=memoryhub.settings_store",
        )
        environment = [word for setting in settings for word in ("-e", setting)]
        server = command("--project", "alpha", "--profile", "full")
        options = ("--cli", "--connect-timeout", "100000", "--method", method)
        done = self.run_node(INSPECTOR, *options, *words, *environment, *server)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        result = json.loads(done.stdout)
        assert isinstance(result, dict)
        return result

    def test_every_tools_schema_is_one_that_all_clients_take(self) -> None:
        tools = self.inspect("tools/list", "--strict")["tools"]
        self.assertIn("write_memory", [tool["name"] for tool in tools])

    def test_it_calls_and_gets(self) -> None:
        given = ["--tool-name", "write_memory", "--tool-arg", "title=Inspected", "content=by the Inspector"]
        written = self.inspect("tools/call", *given)
        self.assertIn("created #", written["content"][0]["text"])
        prompt = self.inspect("prompts/get", "--prompt-name", "session-start", "--prompt-args", "purpose=look")
        self.assertIn("Start a work session: look", prompt["messages"][0]["content"]["text"])
