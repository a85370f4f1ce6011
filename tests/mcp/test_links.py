from __future__ import annotations

import re
from typing import Any

from tests.mcp.client import McpTestCase, Server


class LinkToolsTests(McpTestCase):
    server: Server
    first: int
    second: int

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.share_server()
        cls.first, cls.second = (cls.write(title) for title in ("Use WAL", "Readers never block"))

    @classmethod
    def write(cls, title: str) -> int:
        output = cls.server.say("memory_write", title=title, content=f"{title}: why.", kind="guideline")
        found = re.search(r"#(\d+)", output)
        assert found, output
        return int(found[1])

    def refused(self, tool: str, **arguments: Any) -> str:
        result = self.server.call(tool, **arguments)
        self.assertTrue(result["isError"], result)
        return str(result["content"][0]["text"])

    def test_tags_with_current_and_older_names(self) -> None:
        described = self.server.say("memory_tag_create", name="Billing", category="domain", description="money")
        self.assertRegex(described, r"^described #\d+ billing \(domain\) 0 memories: money$")
        self.assertIn("conflict: tag 'python' is predefined", self.refused("tag_create", name="python"))
        attached = self.server.say(
            "memory_tag_attach", entry_type="guideline", entry_id=str(self.first), tag_name="billing"
        )
        self.assertEqual(attached, f"attached billing: #{self.first} Use WAL [billing] v2")
        self.assertIn("[billing, python, sql] v3", self.server.say("tag_attach", id=self.first, tags=["sql", "python"]))
        self.assertIn("is unchanged", self.server.say("tag_attach", id=self.first, tags=["sql"]))
        self.assertEqual(
            self.server.say("tag_list", used=True, category="language"),
            "python (language, predefined) 1 memory\nsql (language, predefined) 1 memory\n(2 of 2)",
        )
        detached = self.server.say("memory_tag_detach", entry_type="guideline", entry_id=self.first, tag="sql")
        self.assertIn("[billing, python] v4", detached)
        on_project = self.server.say("memory_tag_attach", entry_type="project", entry_id="alpha", tag_name="python")
        self.assertEqual(on_project, "attached python: project alpha [python]")
        self.assertIn("send only 'tags'", self.refused("tag_attach", id=self.first, tag="a", tags=["b"]))

    def test_relations_with_current_and_older_names(self) -> None:
        made = self.server.say(
            "memory_relation_create",
            source_type="guideline",
            source_id=str(self.first),
            target_type="guideline",
            target_id=str(self.second),
            relation_type="depends_on",
        )
        line = f"guideline #{self.first} Use WAL depends_on guideline #{self.second} Readers never block"
        self.assertIn(line, made)
        again = self.server.say("relation_create", source=self.first, relation="depends_on", target=self.second)
        self.assertIn("existed already", again)
        circle = self.refused("relation_create", source=self.second, relation="depends_on", target=self.first)
        self.assertIn(f"path: {self.first}, {self.second}", circle)
        listed = self.server.say("memory_relation_list", entry_type="guideline", entry_id=self.second)
        self.assertRegex(listed, rf"^#\d+ {line}, \d{{4}}-\d\d-\d\d by \S.*\n\(1 of 1\)$")
        self.assertIn(
            f"→ depends_on guideline #{self.second} Readers never block (relation #",
            self.server.say("memory_get", ids=[self.first], relations=True),
        )
        gone = self.server.say(
            "memory_relation_delete", source_id=self.first, target_id=self.second, relation_type="depends_on"
        )
        self.assertIn("deleted: #", gone)
        self.assertEqual(self.server.say("relation_list"), "no relation matches")
