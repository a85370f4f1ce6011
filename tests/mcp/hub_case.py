"""A hub that serves the fixture tools of MCP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import TestCase, mock

from tests.mcp.http_server import HubProject
from tests.web.server import Server, Shell, serving

FIXTURES = "tests.mcp.fixture_tools"


@contextlib.contextmanager
def hub_with(*projects: str, program: str = "") -> Iterator[Server]:
    with mock.patch.dict(os.environ, MEMORY_HUB_TEST_TOOLS=FIXTURES), serving("--no-worker", program=program) as hub:
        for project in projects:
            assert hub.api("POST", "projects", {"project_id": project}).status == 201
        yield hub


class HubTestCase(TestCase):
    hub: Server
    shell: Shell
    program = ""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.hub = stack.enter_context(hub_with("alpha", "beta", program=cls.program))
        cls.shell = Shell(cls.hub.home)
        stack.callback(cls.shell.close)

    def setUp(self) -> None:
        self.alpha, self.beta = HubProject(self.hub), HubProject(self.hub, "beta")
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_token(self, *words: str) -> str:
        code, output = self.shell.run("token", *words)
        self.assertEqual(code, 0, output)
        return output

    def token(self, name: str, verbs: str = "read,write", *options: str) -> str:
        return self.run_token("create", "--name", name, "--verbs", verbs, "--days", "30", *options).split()[-1]

    def refused(self, response: http.client.HTTPResponse) -> tuple[int, str]:
        with response:
            return response.status, json.loads(response.read())["detail"]
