from __future__ import annotations

import re
from pathlib import Path

from memoryhub.core.tools import all_prompts, all_tools
from memoryhub.mcp.listing import load_tools
from memoryhub.mcp.server import completion_of
from tests.mcp.case import SharedServerTestCase
from tests.mcp.client import ENVELOPE, ROOT

LIST = "memories://list{?memory_type,tags,limit,offset,include_deleted}"


class PromptsTests(SharedServerTestCase):
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


class CompletionsTests(SharedServerTestCase):
    ids: list[str]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.ids = []
        for number, tags in enumerate((["web", "work"], ["web"], ["disk"])):
            output = cls.server.say("memory_write", title=f"Memory {number}", content=f"text {number}", tags=tags)
            cls.ids.append(output.split("#")[1].split()[0])

    def complete(self, argument: str, value: str, uri: str = LIST) -> list[str]:
        params = {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": argument, "value": value}}
        completion = self.server.ask("completion/complete", params)["result"]["completion"]
        self.assertFalse(completion["hasMore"])
        values: list[str] = completion["values"]
        return values

    def test_ids_with_the_prefix_come_newest_first(self) -> None:
        newest = [*reversed(self.ids)]
        oldest = newest[-1][0]
        for typed, expected in (
            ("", newest),
            (newest[0], newest[:1]),
            (f"#{newest[0]}", newest[:1]),
            (oldest, [number for number in newest if number.startswith(oldest)]),
            *((nonsense, []) for nonsense in ("x", "-1", "1" * 40, "²")),
        ):
            with self.subTest(typed=typed):
                self.assertEqual(self.complete("id", typed, "memories://get/{id}"), expected)
        decision = self.server.say("decision_record", title="Use WAL", chosen="WAL").split("#")[1].split()[0]
        self.assertEqual(self.complete("id", decision, "decisions://get/{id}"), [decision])

    def test_tags_come_most_used_first_and_types_are_those_in_use(self) -> None:
        for argument, typed, expected in (
            ("tags", "", ["web", "disk", "work"]),
            ("tags", "W", ["web", "work"]),
            ("tags", "disk,wo", ["disk,work"]),
            ("memory_type", "n", ["note"]),
            ("memory_type", "x", []),
            ("limit", "1", []),
        ):
            with self.subTest(argument=argument, typed=typed):
                self.assertEqual(self.complete(argument, typed), expected)

    def test_a_prompts_argument_has_no_completions_and_what_is_unknown_is_an_error(self) -> None:
        ref = {"ref": {"type": "ref/prompt", "name": "session-start"}, "argument": {"name": "purpose", "value": "a"}}
        self.assertEqual(self.server.ask("completion/complete", ref)["result"]["completion"]["values"], [])
        for unknown in ({"type": "ref/prompt", "name": "x"}, {"type": "ref/resource", "uri": "x://y"}):
            answer = self.server.ask("completion/complete", {**ref, "ref": unknown})
            self.assertEqual(answer["error"]["code"], -32602)

    def test_more_suggestions_are_announced(self) -> None:
        completion = completion_of([str(number) for number in range(101)])["completion"]
        self.assertEqual((len(completion["values"]), completion["hasMore"]), (100, True))
