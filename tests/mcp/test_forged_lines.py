from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core.errors import HubError
from memoryhub.core.kinds.definition import all_kinds
from memoryhub.core.tools import Answer, Tool, all_prompts, all_tools
from memoryhub.mcp.calls import _arguments, _present, error_result
from memoryhub.mcp.registry import load_tools
from memoryhub.mcp.resources import Resources
from tests.hostile import BREAKS, FORGED, Hostile, fill, forged_lines, forging, ids_at_line_starts
from tests.mcp.case import Server
from tests.support import HubTestCase, forget_all_stores

QUESTION = "guideline x"
EVERY = {"limit": 50}

Calls = dict[str, list[dict[str, Any]]]


def questions(known: Hostile) -> Calls:
    """Return sample calls by tool, for tools that need arguments to show or write data; others are called without."""
    return {**_entry_reads(known), **_registry_calls(known), **_list_calls(known), **_writes(known)}


def _registry_calls(known: Hostile) -> Calls:
    calls: Calls = {}
    for name, kind in all_kinds().items():
        if entry := kind.entry:
            which = getattr(known, name, known.guideline)
            calls[f"{name}_add"] = [{entry.name: "new", entry.text: "new"}]
            calls[f"{name}_list"] = [EVERY, {"compact": True}]
            calls |= {f"{name}_{verb}": [{"id": which}] for verb in ("update", "get", "history", "deactivate")}
    return calls


def _entry_reads(known: Hostile) -> Calls:
    return {
        "memory_context": [{}, {"query": QUESTION, "max_tokens": 20_000}],
        "memory_search": [{"query": QUESTION, **EVERY}, {"query": QUESTION, "compact": True}],
        "memory_get": [
            {"ids": [known.memory, known.guideline], "versions": True, "relations": True, "use": True},
            {"name": known.title},
        ],
        "memory_list": [EVERY, {"compact": True}],
        "memory_timeline": [{"before": 100}, {"id": known.memory}],
        "memory_query": [{**EVERY, "include_versions": True}, {"search": QUESTION}, {"compact": True}],
        "memory_conflicts": [{}, {"compact": True}],
        "memory_blame": [{"file": "README.md"}],
        "memory_stale": [EVERY, {"compact": True}, {"diff": True}],
    }


def _list_calls(known: Hostile) -> Calls:
    return {
        "tag_list": [EVERY, {"compact": True}],
        "relation_list": [EVERY, {"compact": True}],
        "project_list": [{}, {"compact": True}],
        "audit_replay": [{"limit": 200}, {"compact": True}],
        "session_list": [EVERY, {"compact": True}],
        "decision_get": [{"ids": [known.decision, known.later_decision], "lineage": True}],
    }


def _writes(known: Hostile) -> Calls:
    ends = {"source": str(known.memory), "relation": "supersedes", "target": str(known.knowledge)}
    return {
        "memory_write": [{"title": "New", "content": "new"}, {"title": known.title, "content": "other"}],
        "memory_update": [{"id": known.memory}, {"id": known.memory, "base_version": 1, "content": "another"}],
        "memory_conflict_resolve": [{"id": 1, "resolution": "keep_a"}],
        "tag_create": [{"name": "new"}],
        "tag_attach": [{"id": str(known.memory), "tags": ["new"]}],
        "tag_detach": [{"id": str(known.memory), "tags": ["new"]}],
        "relation_create": [ends, {**ends, "relation": "related_to", "target": str(known.decision)}],
        "relation_delete": [{"id": known.relation}],
        "org_create": [{"id": "acme"}],
        "project_create": [{"id": "alpha"}, {"id": "alpha", "if_exists": "update"}],
        "commit_record": [{"sha": "0123abcd" * 5}, {"sha": "9" * 40, "message": "new"}],
        "memory_affirm": [{"id": known.guideline}, {"id": known.decision}],
        "decision_supersede": [{"id": known.decision, "chosen": "new"}],
        "decision_record": [{"title": "New", "chosen": "new"}],
        "iteration_advance": [{"phase": "last"}],
        "iteration_complete": [{"outcome": "done"}],
        "iteration_start": [{"command": "fix"}],
        "session_start": [{"session_id": "s-2"}],
        "session_pause": [{"session_id": "s-2"}],
        "session_resume": [{"session_id": "s-2"}],
        "turn_begin": [{"session_id": "s-2"}],
        "event_append": [{"type": "note.added", "payload": {"content": "new"}}],
        "turn_end": [{}],
        "session_end": [{"session_id": "s-2"}],
        "memory_delete": [{"id": known.guideline}, {"id": known.guideline, "permanent": True}],
        "memory_restore": [{"id": known.guideline}, {"id": known.memory, "version": 1}],
    }


def hostile_arguments(tool: Tool, base: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """Yield the call with hostile text in each text argument in turn."""
    for name, field in tool.input.model_json_schema()["properties"].items():
        choices = [field, *field.get("anyOf", [])]
        if any(choice.get("type") == "string" and "enum" not in choice for choice in choices):
            yield {**base, name: text}
        if any(choice.get("type") == "array" for choice in choices):
            yield {**base, name: [text]}


class EveryToolTests(HubTestCase):
    tools: list[Tool]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        load_tools()
        cls.tools = [tool for tool in all_tools() if not tool.name.startswith("test_")]

    def test_no_line_of_an_answer_begins_with_stored_text(self) -> None:
        projects = itertools.count()

        @settings(max_examples=8, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(st.sampled_from(BREAKS), min_size=1, max_size=3).map("".join))
        @example("\n")
        @example("\u2028")
        @example("\x85")
        def holds(line_break: str) -> None:
            self.check_every_tool(f"p{next(projects)}", forging(line_break))

        holds()

    def check_every_tool(self, project: str, text: str) -> None:
        with self.store(project, actor=text, session_id="s-hostile"):
            known = fill(text)
            calls = questions(known)
            without = [tool for tool in self.tools if tool.name not in calls]
            self.assertEqual([tool.name for tool in without if tool.input.model_json_schema().get("required")], [])
            # Writes come last: some delete what the others show.
            for tool in [*without, *(tool for name in calls for tool in self.tools if tool.name == name)]:
                for arguments in calls.get(tool.name, [{}]):
                    self.check(tool, arguments)
                    for hostile in hostile_arguments(tool, arguments, text):
                        self.check(tool, hostile)
            self.check_resources(known)

    def check(self, tool: Tool, arguments: dict[str, Any]) -> None:
        try:
            given = _arguments(tool, arguments)
            answer = tool.handler(given)
            text = tool.in_words(given) if tool.in_words else answer.text
        except HubError as error:
            for as_json in (True, False):
                self.check_text(tool.name, error_result(error, as_json=as_json)["content"][0]["text"])
            return
        self.check_text(tool.name, text)
        as_json = _present(Answer("", answer.data), as_json=True)["content"][0]["text"]
        self.check_text(tool.name, as_json)
        self.assertLessEqual(ids_at_line_starts(text), set(numbers(json.loads(as_json))), (tool.name, text))

    def check_text(self, name: str, text: str) -> None:
        self.assertEqual(forged_lines(text), [], f"{name}: {text}")

    def check_resources(self, known: Hostile) -> None:
        for uri in (
            f"memories://get/{known.memory}",
            "memories://list?limit=50",
            "memories://search/guideline%20x?limit=50",
            f"decisions://get/{known.decision}",
            "context://pack",
        ):
            found = Resources().find(uri)
            assert found, uri
            self.check_text(uri, found.read())

    def test_arguments_of_prompts_forge_no_line(self) -> None:
        for prompt in all_prompts():
            for name in prompt.input.model_fields:
                for line_break in BREAKS:
                    self.check_text(prompt.name, prompt.render(prompt.input(**{name: forging(line_break)})))


def numbers(data: Any) -> Iterator[int]:
    """Yield every number in JSON data and in its texts, such as ``#12``."""
    if isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from numbers(value)
    elif isinstance(data, int):
        yield data
    elif isinstance(data, str) and not forged_lines(data):
        yield from ids_at_line_starts(data)


class OverPipesTests(HubTestCase):
    """Over a real connection, with a store written by an earlier version."""

    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha", actor="ada", session_id="s-hostile"):
            self.known = fill(forging("\n"))
        forget_all_stores()
        load_tools()
        self.server = Server("--project", "alpha")
        self.addCleanup(self.server.destroy)
        self.server.initialize()

    def test_text_of_an_earlier_version_forges_nothing(self) -> None:
        for name in ("memory_search", "memory_list", "memory_timeline", "session_list", "decision_get", "memory_get",
                     "memory_context", "session_start"):  # fmt: skip
            for arguments in questions(self.known)[name]:
                text = self.server.say(name, **arguments)
                with self.subTest(name=name, arguments=arguments):
                    self.assertNotIn("invalid", text[:20])
                    self.assertEqual(forged_lines(text), [], text)

    def test_a_line_break_in_a_field_of_one_line_is_refused_by_name(self) -> None:
        for name, arguments, field in (
            ("memory_write", {"title": "a%sb", "content": "x"}, "title"),
            ("memory_write", {"title": "a", "content": "x", "tags": ["a%sb"]}, "tags[0]"),
            ("memory_write", {"title": "a", "content": "x", "topic_key": "a%sb"}, "topic_key"),
            ("memory_write", {"title": "a", "content": "x", "source": "a%sb"}, "source"),
            ("session_start", {"purpose": "a%sb"}, "purpose"),
            ("session_start", {"directory": "a%sb"}, "directory"),
            ("session_start", {"agent": "a%sb"}, "agent"),
            ("decision_record", {"title": "a%sb", "chosen": "x"}, "title"),
            ("decision_record", {"title": "a", "chosen": "x", "files": ["a%sb"]}, "files[0]"),
            ("project_create", {"id": "alpha", "if_exists": "update", "name": "a%sb"}, "name"),
            ("tag_create", {"name": "a%sb"}, "name"),
            ("iteration_start", {"command": "a%sb"}, "command"),
        ):
            for line_break in BREAKS:
                with self.subTest(name=name, field=field, line_break=ascii(line_break)):
                    hostile = json.loads(json.dumps(arguments).replace("%s", json.dumps(line_break)[1:-1]))
                    output = self.server.say(name, **hostile)
                    self.assertRegex(
                        output, rf"^invalid: {name}: '{field.replace('[', chr(92) + '[')}' must be one line"
                    )

    def test_a_trailing_line_break_is_stripped(self) -> None:
        self.assertIn("created #", self.server.say("memory_write", title="Port\n", content="It is 8321."))


class ContentsTests(HubTestCase):
    def test_content_of_several_lines_is_shown_below_its_head(self) -> None:
        with self.store("alpha"):
            written = write_memory(command=MemoryWrite(title="Port", content="one\n\ntwo\u2028three"))
            tool = next(tool for tool in all_tools() if tool.name == "memory_get")
            text = tool.handler(tool.input(ids=[written.id])).text
        self.assertEqual(text.split("\n")[1:], ["  Port", "  one", "", "  two", "  three"])
        self.assertNotIn(str(FORGED), text)
