from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from memoryhub.core.tools import all_prompts, all_tools
from memoryhub.mcp.prompts import completion_of
from memoryhub.mcp.registry import load_tools
from tests.mcp.case import McpTestCase, Server
from tests.mcp.client import ENVELOPE, ROOT

LIST = "memories://list{?memory_type,tags,limit,offset,include_deleted}"


class PromptsTests(McpTestCase):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.share_server()

    def test_a_prompt_lists_its_arguments(self) -> None:
        listed = self.server.ask("prompts/list")["result"]["prompts"]
        names = ["librarian", "record-decision", "session-start", "session-summary"]
        self.assertEqual([prompt["name"] for prompt in listed], names)
        purpose = {"name": "purpose", "description": "goal of the session", "required": True}
        self.assertEqual(listed[2]["arguments"], [purpose])
        self.assertFalse(listed[3]["arguments"][0]["required"])

    def test_a_prompt_is_filled_with_its_arguments(self) -> None:
        text = self.get("session-start", purpose="make search faster")
        self.assertIn("Start a work session: make search faster", text)
        self.assertNotIn("Focus on", self.get("session-summary"))
        self.assertIn("Focus on: the index.", self.get("session-summary", focus="the index"))

    def test_a_prompt_mentions_only_existing_tools(self) -> None:
        load_tools()
        known = {name for tool in all_tools() for name in (tool.name, *tool.input.model_fields)} | {"why_not"}
        filled = [self.get(name) for name in ("session-summary", "librarian", "record-decision")]
        for text in (self.get("session-start", purpose="x"), *filled):
            named = set(re.findall(r"[a-z]+(?:_[a-z]+)+", text))
            self.assertTrue(named)
            self.assertEqual(named - known, set())

    def test_it_is_served_without_handshake_too(self) -> None:
        server = self.start()
        params = {"name": "session-summary", "_meta": ENVELOPE}
        self.assertEqual(server.ask("prompts/get", params)["result"]["messages"][0]["role"], "user")

    def test_errors_name_the_problem(self) -> None:
        for params, sentence in (
            ({"name": "x"}, "Unknown prompt: x; known: librarian, record-decision, session-start, session-summary"),
            ({"name": "session-start"}, "session-start: 'purpose' is required"),
            ({"name": "session-start", "arguments": {"purpose": "x", "b": "y"}}, "'b' is not known; leave it out"),
        ):
            error = self.server.ask("prompts/get", params)["error"]
            self.assertEqual(error["code"], -32602)
            self.assertIn(sentence, error["message"])

    def test_the_documents_name_every_prompt(self) -> None:
        text = Path(ROOT, "docs/reference/prompts.md").read_text()
        load_tools()
        for prompt in all_prompts():
            self.assertIn(f"| `{prompt.name}` |", text)

    def get(self, name: str, **arguments: str) -> str:
        result = self.server.ask("prompts/get", {"name": name, "arguments": arguments})["result"]
        (message,) = result["messages"]
        text = message["content"]["text"]
        assert isinstance(text, str)
        return text


class CompletionsTests(McpTestCase):
    server: Server
    ids: list[str]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.share_server()
        cls.ids = []
        for number, tags in enumerate((["web", "work"], ["web"], ["disk"])):
            output = cls.server.say("memory_write", title=f"Memory {number}", content=f"text {number}", tags=tags)
            cls.ids.append(output.split("#")[1].split()[0])

    def complete(self, argument: str, value: str, uri: str = LIST, **more: Any) -> dict[str, Any]:
        params = {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": argument, "value": value}, **more}
        completion = self.server.ask("completion/complete", params)["result"]["completion"]
        assert isinstance(completion, dict)
        return completion

    def test_ids_with_the_prefix_come_newest_first(self) -> None:
        newest = [*reversed(self.ids)]
        found = self.complete("id", "", "memories://get/{id}")
        self.assertEqual(found, {"values": newest, "hasMore": False})
        for begun in ("", "#"):
            typed = f"{begun}{newest[0]}"
            self.assertEqual(self.complete("id", typed, "memories://get/{id}")["values"], [newest[0]])
        expected = [known for known in newest if known.startswith(newest[-1][0])]
        self.assertEqual(self.complete("id", newest[-1][0], "memories://get/{id}")["values"], expected)
        for nonsense in ("x", "-1", "1" * 40, "²"):
            self.assertEqual(self.complete("id", nonsense, "memories://get/{id}")["values"], [])

    def test_ids_of_decisions(self) -> None:
        decision = self.server.say("decision_record", title="Use WAL", chosen="WAL").split("#")[1].split()[0]
        self.assertEqual(self.complete("id", decision, "decisions://get/{id}")["values"], [decision])

    def test_tags_come_most_used_first_and_complete_the_last_of_a_list(self) -> None:
        self.assertEqual(self.complete("tags", "")["values"], ["web", "disk", "work"])
        self.assertEqual(self.complete("tags", "W")["values"], ["web", "work"])
        self.assertEqual(self.complete("tags", "disk,wo")["values"], ["disk,work"])

    def test_types_in_use(self) -> None:
        self.assertEqual(self.complete("memory_type", "n")["values"], ["note"])
        self.assertEqual(self.complete("memory_type", "x")["values"], [])

    def test_arguments_without_completions(self) -> None:
        self.assertEqual(self.complete("limit", "1"), {"values": [], "hasMore": False})
        ref = {"ref": {"type": "ref/prompt", "name": "session-start"}, "argument": {"name": "purpose", "value": "a"}}
        self.assertEqual(self.server.ask("completion/complete", ref)["result"]["completion"]["values"], [])
        for unknown in ({"type": "ref/prompt", "name": "x"}, {"type": "ref/resource", "uri": "x://y"}):
            answer = self.server.ask("completion/complete", {**ref, "ref": unknown})
            self.assertEqual(answer["error"]["code"], -32602)

    def test_more_suggestions_are_announced(self) -> None:
        completion = completion_of([str(number) for number in range(101)])["completion"]
        self.assertEqual((len(completion["values"]), completion["hasMore"]), (100, True))
