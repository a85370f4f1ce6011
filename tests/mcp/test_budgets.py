from __future__ import annotations

from typing import Any

from memoryhub.core.paging import estimate_tokens
from memoryhub.core.tools import all_tools
from memoryhub.mcp.registry import load_tools
from tests.mcp.client import McpTestCase

BUDGETS = (50, 120, 400, 2_000)
# Tools that take a budget, with arguments that match more than fits
CALLS: dict[str, dict[str, Any]] = {
    "memory_search": {"query": "pump"},
    "memory_get": {"ids": []},
    "memory_list": {},
    "memory_query": {"search": "pump"},
    "memory_context": {"query": "pump"},
    "memory_conflicts": {},
    "decision_get": {"topic": "water"},
    "decision_list": {},
    "session_list": {},
    "org_list": {},
    "project_list": {},
    "tag_list": {},
    "relation_list": {},
    "audit_replay": {},
    "memory_stale": {},
    **{f"{kind}_list": {} for kind in ("tool", "guideline", "knowledge")},
    **{f"{kind}_history": {"name": f"{kind} 1"} for kind in ("tool", "guideline", "knowledge")},
}
# The least budget that a tool accepts, if it isn't 50
LEAST = {"memory_context": 200}


class BudgetTests(McpTestCase):
    def test_no_answer_is_longer_than_its_budget_in_the_form_that_is_sent(self) -> None:
        load_tools()
        takes = {tool.name for tool in all_tools() if "max_tokens" in tool.input.model_fields}
        self.assertEqual(takes - set(CALLS), set())
        server = self.connect()
        ids = self.fill(server)
        for name in sorted(takes):
            arguments = {**CALLS[name], **({"ids": ids} if name == "memory_get" else {})}
            for budget in BUDGETS:
                given = {**arguments, "max_tokens": max(budget, LEAST.get(name, 0))}
                with self.subTest(tool=name, **given):
                    text = server.say(name, **given)
                    result = server.call(name, **given, format="json")
                    self.check(name, given["max_tokens"], text, result)

    def check(self, name: str, budget: int, text: str, result: dict[str, Any]) -> None:
        data, sent = result["structuredContent"], result["content"][0]["text"]
        meta = data.get("meta", data)
        count = len(data["sections"]) if name == "memory_context" else len(data["results"])
        if estimate_tokens(sent) > budget:
            self.assertEqual((count, meta["truncated"]), (1, True), sent)
        if estimate_tokens(text) > budget:
            self.assertNotIn("\n#", text)
        left_out = data.get("left_out") or (meta.get("has_more") and count < 20)
        self.assertTrue(meta["truncated"] or not left_out, sent)
        if "estimated_tokens" in meta:
            self.assertAlmostEqual(meta["estimated_tokens"], estimate_tokens(sent), delta=30)

    def fill(self, server: Any) -> list[int]:
        kinds = ("tool", "guideline", "knowledge")
        for number in range(30):
            server.say("memory_write", title=f"Pump {number} «ä»", content=f"The pump {number} hums “é”. " * 20)
        for kind in kinds:
            name = "title" if kind == "knowledge" else "name"
            text = "description" if kind == "tool" else "content"
            for number in range(12):
                server.say(f"{kind}_add", **{name: f"{kind} {number}", text: f"About the pump {number}. " * 9})
            for number in range(8):
                server.say(f"{kind}_update", **{name: f"{kind} 1", text: f"Changed {number}. " * 9})
        for number in range(12):
            why = f"The pump {number} is quiet. " * 9
            server.say("decision_record", title=f"Use pump {number}", rationale=why, topic="water", phase="design")
        found = server.call("memory_list", kind="observation", limit=100, compact=True, format="json")
        ids = [memory["id"] for memory in found["structuredContent"]["results"]]
        for memory in ids[1:12]:
            server.say("relation_create", source=memory, relation="related_to", target=ids[0])
        return ids
