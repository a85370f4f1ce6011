from __future__ import annotations

import re

from tests.mcp.client import McpTestCase


class StdioTests(McpTestCase):
    def test_an_agent_is_told_in_its_pack_looks_and_affirms(self) -> None:
        server = self.connect("--project", "alpha", "--profile", "work")
        listed = {tool["name"]: tool for tool in server.ask("tools/list")["result"]["tools"]}
        self.assertTrue(listed["memory_stale"]["annotations"]["readOnlyHint"])
        self.assertNotIn("readOnlyHint", listed["memory_affirm"]["annotations"])
        recorded = server.say("decision_record", title="Sign tokens", chosen="HMAC", files=["src/auth/"])
        decision = re.search(r"#(\d+)", recorded)
        assert decision
        self.assertEqual(server.say("memory_stale"), "nothing needs rechecking")
        changed = {"path": "src/auth/token.py", "insertions": 3, "deletions": 1}
        made = {"message": "Shorten tokens", "committed_at": "2040-01-01T00:00:00Z", "files": [changed]}
        server.say("commit_record", sha="a" * 40, **made)
        commit = "commit aaaaaaaaaa “Shorten tokens” touched src/auth/token.py"
        why = f"#{decision[1]} decision Sign tokens — since 2040-01-01: {commit}"
        self.assertIn(why, server.say("memory_context"))
        self.assertIn(why, server.say("memory_stale", kind="decision"))
        self.assertIn(f"{commit} +3 −1", server.say("memory_stale", diff=True), "no repository is at hand")
        said = server.say("memory_affirm", id=int(decision[1]), reason="shorter is safer")
        self.assertIn("affirmed: Sign tokens", said)
        self.assertEqual(server.say("memory_stale"), "nothing needs rechecking")
        refused = server.call("memory_affirm", id=999)
        self.assertTrue(refused["isError"])
        self.assertIn("there is no #999 in this store", refused["content"][0]["text"])
