from __future__ import annotations

import re
from pathlib import Path

from tests.mcp.client import ROOT, McpTestCase, Server

PROFILES = ("core", "work", "full")


def documented() -> dict[str, set[str]]:
    """Return the documented tools of every profile."""
    text = Path(ROOT / "docs/reference/tools.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (core|work|full) \|", text, re.MULTILINE)
    return {
        profile: {name for name, first in rows if PROFILES.index(first) <= place}
        for place, profile in enumerate(PROFILES)
    }


class ProfileTests(McpTestCase):
    tools_module = ""
    servers: dict[str, Server]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.servers = {}
        for profile in PROFILES:
            cls.servers[profile] = cls.share_server("--project", "alpha", "--profile", profile)

    def listed(self, profile: str) -> list[str]:
        tools = self.servers[profile].ask("tools/list")["result"]["tools"]
        return [tool["name"] for tool in tools]

    def test_each_lists_the_documented_tools(self) -> None:
        self.assertEqual({profile: set(self.listed(profile)) for profile in PROFILES}, documented())

    def test_a_tools_view_can_be_read_but_is_not_listed(self) -> None:
        server = self.servers["work"]
        tools = {tool["name"]: tool for tool in server.ask("tools/list")["result"]["tools"]}
        views = {name: tool["_meta"]["ui"]["resourceUri"] for name, tool in tools.items() if "_meta" in tool}
        self.assertEqual(views, {"decision_get": "ui://memory-hub/lineage"})
        read = server.ask("resources/read", {"uri": views["decision_get"]})["result"]["contents"][0]
        self.assertEqual(read["mimeType"], "text/html;profile=mcp-app")
        self.assertTrue(read["text"].startswith("<!doctype html>"))
        templates = server.ask("resources/templates/list")["result"]["resourceTemplates"]
        self.assertNotIn(views["decision_get"], [template["uriTemplate"] for template in templates])

    def test_each_calls_every_tool(self) -> None:
        names = self.listed("full")
        self.assertGreater(len(names), len(self.listed("core")))
        for profile, server in self.servers.items():
            for name in names:
                output = server.say(name, no_such_argument=1)
                self.assertTrue(
                    output.startswith(f"invalid: {name} has no argument 'no_such_argument'"), (profile, output)
                )
