from __future__ import annotations

import re
from typing import Any

from tests.mcp.client import McpTestCase, Server


class QueryToolsTests(McpTestCase):
    server: Server
    tool_id: int

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.share_server()
        say = cls.server.say
        python: dict[str, Any] = {"kind": "guideline", "tags": ["python", "security"], "attributes": {"priority": 90}}
        say("memory_write", title="Type hints", content="Type every function.", **python)
        say("memory_write", title="Check input", content="Before authentication too.", scope="global", **python)
        made = say("memory_write", title="Linter", content="Run it before each commit.", kind="tool", type="cli")
        cls.tool_id = int(re.findall(r"#(\d+)", made)[0])
        say("relation_create", source=f"{cls.tool_id}", target="project", relation="applies_to")

    def test_the_usual_queries_are_answered(self) -> None:
        scope = {"type": "project", "id": "alpha", "inherit": True}
        guidelines = self.server.say(
            "memory_query", types=["guidelines"], scope=scope, tags={"require": ["python"]}
        ).splitlines()
        self.assertRegex(
            guidelines[0], r"^#\d+ guideline/general .* Type hints .* score 6\.2 \(tags 3\.0, scope 1\.3, "
        )
        self.assertRegex(guidelines[1], r"^global#\d+ guideline/general .* Check input ")
        self.assertEqual(guidelines[2:], ["(2 of 2)"])
        tools = self.server.say("memory_query", types=["tools"], related_to={"type": "project", "id": "alpha"})
        self.assertRegex(tools, rf"^#{self.tool_id} tool/cli .* Linter .* score 6\.8 \(relation 5\.0, ")
        self.assertIn("Check input", self.server.say("memory_query", search="authentication", scope=scope))
        security = self.server.say(
            "memory_query", types=["guidelines"], tags={"require": ["security"]}, scope={"type": "global"}
        )
        self.assertRegex(security, r"^global#\d+ .*\n\(1 of 1\)$")

    def test_an_answer_in_json_has_the_parts_of_each_score(self) -> None:
        found: dict[str, Any] = self.server.call("memory_query", types=["tool"], format="json")["structuredContent"]
        (item,) = found["results"]
        self.assertEqual(list(item["parts"]), ["relation", "tags", "scope", "priority", "text", "recency"])
        self.assertEqual(found["meta"]["total_count"], 1)

    def test_a_conflict_is_shown_and_resolved_with_older_names(self) -> None:
        made = self.server.say("memory_write", title="Indent", content="Use tabs.")
        memory_id = int(re.findall(r"#(\d+)", made)[0])
        for text in ("Use two spaces.", "Use four spaces."):
            self.server.say("memory_update", id=memory_id, base_version=1, content=text)
        shown = self.server.say("memory_conflicts")
        self.assertIn("Use [-two-]{+four+} spaces.", shown)
        conflict_id = int(re.findall(r"conflict #(\d+) \(open\)", shown)[0])
        answer = self.server.say("memory_conflict_resolve", conflict_id=conflict_id, resolution="kept_version_a")
        self.assertIn(f"resolved conflict #{conflict_id} with keep_a: #{memory_id} is now v4", answer)
        self.assertEqual(self.server.say("memory_conflicts"), "no open conflict")
