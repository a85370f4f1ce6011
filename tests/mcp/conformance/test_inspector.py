from __future__ import annotations

import json
from typing import Any

from tests.mcp.client import command
from tests.mcp.conformance.node import INSPECTOR, NodeTestCase


class InspectorTests(NodeTestCase):
    def inspect(self, method: str, *words: str) -> dict[str, Any]:
        env = [
            "-e",
            f"MEMORY_HUB_HOME={self.home}",
            "-e",
            "MEMORY_HUB_AUTOSTART=off",
            "-e",
            "DJANGO_SETTINGS_MODULE=memoryhub.settings_store",
        ]
        server = command("--project", "alpha", "--profile", "full")
        done = self.run_node(INSPECTOR, "--cli", "--method", method, *words, *env, *server)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        result = json.loads(done.stdout)
        assert isinstance(result, dict)
        return result

    def test_every_tools_schema_is_one_that_all_clients_take(self) -> None:
        tools = self.inspect("tools/list", "--strict")["tools"]
        self.assertIn("memory_write", [tool["name"] for tool in tools])

    def test_it_calls_and_gets(self) -> None:
        given = ["--tool-name", "memory_write", "--tool-arg", "title=Inspected", "content=by the Inspector"]
        written = self.inspect("tools/call", *given)
        self.assertIn("created #", written["content"][0]["text"])
        prompt = self.inspect("prompts/get", "--prompt-name", "session-start", "--prompt-args", "purpose=look")
        self.assertIn("Start a work session: look", prompt["messages"][0]["content"]["text"])
