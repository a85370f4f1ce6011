from __future__ import annotations

import io
import json
import re
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from django.test import SimpleTestCase
from pydantic import BaseModel, Field

from memoryhub.core.kinds import KINDS
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.schemas import UNLISTED, explained_here, self_evident
from memoryhub.core.tools import all_tools
from memoryhub.mcp import options as mcp_options
from memoryhub.mcp.listing import input_schema, load_tools
from memoryhub.mcp.options import PROFILES, parse
from tests.mcp.case import McpTestCase, Server, SharedServerTestCase, more_tools
from tests.mcp.client import ENVELOPE, ROOT


class CallingTools(SharedServerTestCase):
    def test_an_answer_is_text_by_default_and_with_format_json_the_same_as_data(self) -> None:
        result = self.server.call("test_echo", text="hi", times=2)
        self.assertEqual(result, {"content": [{"type": "text", "text": "hi hi"}], "isError": False})
        result = self.server.call("test_echo", text="hi", tags=["a"], format="json")
        self.assertEqual(result["structuredContent"], {"text": "hi", "tags": ["a"]})
        self.assertEqual(json.loads(result["content"][0]["text"]), result["structuredContent"])

    def test_aliases_dots_other_profiles_tools_and_older_names_of_arguments_are_accepted(self) -> None:
        for name in ("old_echo", "test.echo", "old.echo"):
            self.assertEqual(self.server.say(name, text="hi"), "hi")
        self.assertEqual(self.server.say("old_echo", utterance="hi"), "hi")
        self.assertNotIn("utterance", json.dumps(self.server.ask("tools/list")))

    def test_an_unknown_tool_names_the_nearest(self) -> None:
        for name, sentence in (("test_ecko", "did you mean test_echo"), ("xyzzy", "tools/list")):
            error = self.server.ask("tools/call", {"name": name, "arguments": {}})["error"]
            self.assertEqual(error["code"], -32602)
            self.assertIn(sentence, error["message"])
            self.assertEqual(name == "test_ecko", error["data"]["nearest"][:1] == ["test_echo"])

    def test_bad_arguments_name_the_field_and_what_is_accepted(self) -> None:
        for arguments, expected in (
            ({}, "test_echo: 'text' is required"),
            ({"text": "x", "times": 9}, "test_echo: 'times' must be at most 5, not 9"),
            ({"text": "x", "times": "many"}, "test_echo: 'times' must be a whole number, not 'many'"),
            ({"text": "x", "mode": "soft"}, "test_echo: 'mode' must be one of 'plain' or 'loud', not 'soft'"),
            ({"text": ["x"]}, "test_echo: 'text' must be a text"),
            ({"text": "x", "tags": ["a", 1]}, "test_echo: 'tags[1]' must be a text, not 1"),
            ({"times": 0, "mode": ""}, "test_echo: 'text' is required; also invalid: 'times', 'mode'"),
            ({"text": "x", "format": "xml"}, "'format' must be one of 'text', 'json'"),
            ({"text": "x", "utterance": "y"}, "test_echo got 'text' twice, once under an older name; send only 'text'"),
            ({"text": "x", "hue": 1}, "test_echo has no argument 'hue'; it takes: text, times, mode, tags, format"),
        ):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.server.refusal("test_echo", **arguments), f"invalid: {expected}")

    def test_lists_and_objects_may_be_json_text_and_lists_of_one_their_item(self) -> None:
        data, say = self.server.data, self.server.say
        attributes = '{"related_chunks": ["chunk-1"]}'
        written = data("memory_write", title="Sent as text", content="[1, 2]", tags='["a", "b"]', attributes=attributes)
        for number in (
            [written["id"]],
            written["id"],
            f"[{written['id']}]",
            f"#{written['id']}",
            [f"#{written['id']}"],
        ):
            (memory,) = data("memory_get", ids=number)["results"]
            self.assertEqual((memory["content"], memory["tags"]), ("[1, 2]", ["a", "b"]))
            self.assertEqual(memory["attributes"], {"related_chunks": ["chunk-1"]})
        linked = '{"uri": "code://x"}'
        data("memory_update", id=f"#{written['id']}", tags="c", content='{"d": 1}', resource_links=linked)
        (memory,) = data("memory_get", ids=written["id"])["results"]
        self.assertEqual((memory["content"], memory["tags"]), ('{"d": 1}', ["c"]))
        self.assertEqual(memory["resource_links"][0]["uri"], "code://x")
        self.assertIn("c, d", say("tag_attach", id=written["id"], tags='["d"]'))
        found = data("memory_query", types="observations", tags='{"require": "d"}', scope='{"type": "project"}')
        self.assertEqual([hit["id"] for hit in found["results"]], [written["id"]])
        first = data("decision_record", title="Keep", chosen="X", alternatives='[{"option": "Y", "why_not": "slow"}]')
        second = data("decision_record", title="Drop", chosen="Y", supersedes=f"#{first['id']}", files="a.py")
        self.assertEqual(second["superseded"], [first["id"]])

    def test_what_could_mean_two_things_is_refused(self) -> None:
        for arguments, expected in (
            ({"tags": "a, b"}, "'tags' must be a list"),
            ({"tags": ""}, "'tags' must be a list"),
            ({"tags": '["a"'}, "'tags' must be a list"),
            ({"attributes": "[1]"}, "'attributes' must be an object"),
            ({"attributes": '{"a": NaN}'}, "'attributes' must be an object"),
            ({"attributes": '{"a": "\\ud800"}'}, "'attributes' must be an object"),
            ({"tags": "[" * 100_000}, "'tags' must be a list"),
            ({"tags": True}, "'tags' must be a list"),
        ):
            with self.subTest(arguments=str(arguments)[:80]):
                refusal = self.server.refusal("memory_write", title="T", content="c", **arguments)
                self.assertTrue(refusal.startswith(f"invalid: memory_write: {expected}"), refusal[:300])

    def test_an_error_of_the_hub_includes_its_data(self) -> None:
        text = "conflict: there is one already; update it instead\nid: 412\nchoices: alpha, beta"
        self.assertEqual(self.server.refusal("test_fail"), text)
        result = self.server.call("test_fail", format="json")
        self.assertTrue(result["isError"])
        data = result["structuredContent"]
        self.assertEqual((data["id"], data["code"]), (412, "conflict"))
        self.assertIn("id: 412", result["content"][0]["text"])

    def test_an_unexpected_error_is_logged_and_the_server_continues(self) -> None:
        with self.assertLogs("memoryhub.mcp") as logged:
            text = self.server.refusal("test_crash")
        self.assertEqual(text, "internal error: ZeroDivisionError; the server's log has the details")
        self.assertEqual(self.server.say("test_echo", text="on"), "on")
        self.assertIn("ZeroDivisionError: on purpose", logged.output[0])

    def test_the_caller_is_named_in_the_origin(self) -> None:
        server = self.start("--project=beta", "--session", "s-9")
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
        server.ask("initialize", {**hello, "clientInfo": {"name": "a\nb" + "c" * 200, "version": "1"}})
        self.assertEqual(server.say("test_origin"), f"mcp ab{'c' * 98} s-9 beta")


class BoundToOneProject(McpTestCase):
    def test_the_folder_names_the_project_without_an_option(self) -> None:
        folders = [self.home / place / "shop" for place in ("here", "there")]
        for folder in folders:
            folder.mkdir(parents=True)
        for _ in range(2):
            self.assertEqual(self.connect(cwd=folders[0]).say("test_origin"), "mcp plain client  shop")
        self.assertIn("\nchoices: shop, ", self.connect(cwd=folders[1]).refusal("test_origin"))

    def test_with_an_ambiguous_project_lists_work_and_calls_fail(self) -> None:
        server = self.connect("--project", "No such slug!")
        self.assertTrue(server.ask("tools/list")["result"]["tools"])
        for _ in range(2):
            self.assertIn("No such slug!", server.refusal("test_echo", text="hi"))
        error = server.ask("resources/read", {"uri": "test://item/1"})["error"]
        self.assertIn("No such slug!", error["message"])


VERBS = ("add", "update", "get", "list", "history", "deactivate")
OTHER_NAMES = set(
    """memory_org_create memory_org_list memory_project_create memory_project_list memory_project_get
    memory_session_start memory_session_end memory_session_list memory_tag_create memory_tag_list memory_tag_attach
    memory_tag_detach memory_relation_create memory_relation_list memory_relation_delete memory_query memory_context
    memory_conflicts memory_conflict_resolve write_memory update_memory delete_memory memory_search memory_log_decision
    memory_log_commit memory_get_iteration memory_get_timeline memory_stats""".split()
)
WITH_ARGUMENTS = {
    "write_memory": {"title", "content", "tags", "author", "related_chunks", "resource_links", "if_exists"},
    "update_memory": {"id", "title", "content", "tags", "author", "related_chunks", "resource_links"},
    "memory_tool_add": {"name", "description", "parameters", "examples", "constraints", "if_exists", "author"},
    "memory_log_decision": {"title", "context", "chosen", "alternatives", "rationale", "impact", "phase", "author"},
    "memory_log_commit": {"sha", "message", "decision_ids", "iteration_id", "link_type"},
    "memory_search": {"query", "limit", "iteration_id"},
    "memory_get_timeline": {"iteration_id", "limit"},
    "memory_session_end": {"status", "promote", "discard"},
    "event_append": {"ack_token", "type", "payload", "trace_id"},
}


class Listing(McpTestCase):
    def tools(self, profile: str) -> list[dict[str, Any]]:
        tools = self.connect("--project", "alpha", "--profile", profile).ask("tools/list")["result"]["tools"]
        assert isinstance(tools, list)
        return tools

    def test_profiles_stay_within_their_tokens(self) -> None:
        for profile, most_tokens, most_tools in (("core", 1_080, 8), ("full", 9_500, 65)):
            with more_tools(""):
                tools = self.tools(profile)
            tokens = estimate_tokens(json.dumps(tools, ensure_ascii=False, separators=(",", ":")))
            self.assertIn(len(tools), range(1, most_tools + 1), profile)
            self.assertLessEqual(tokens, most_tokens, profile)

    def test_full_lists_the_names_and_arguments_that_clients_of_other_servers_know(self) -> None:
        schemas = {tool["name"]: set(tool["inputSchema"]["properties"]) for tool in self.tools("full")}
        for name, properties in WITH_ARGUMENTS.items():
            self.assertLessEqual(properties, schemas[name], name)
        registry = {f"memory_{kind}_{verb}" for kind in ("tool", "guideline", "knowledge") for verb in VERBS}
        self.assertEqual((registry | OTHER_NAMES) - schemas.keys(), set())
        core = {tool["name"] for tool in self.tools("core")}
        self.assertEqual(core & (registry | OTHER_NAMES) - {"memory_context", "memory_search"}, set())

    def test_instructions_name_tools_as_the_profile_lists_them(self) -> None:
        for profile, names in (
            ("core", ("memory_write", "decision_record")),
            ("full", ("write_memory", "session_end")),
        ):
            server = self.start("--project", "alpha", "--profile", profile)
            instructions = server.initialize()["instructions"]
            tools = {tool["name"] for tool in server.ask("tools/list")["result"]["tools"]}
            mentioned = set(re.findall(r"call (\w+_\w+)", instructions))
            self.assertEqual((bool(mentioned), mentioned - tools), (True, set()), names)

    def test_annotations_say_what_a_tool_may_do(self) -> None:
        annotations = {tool["name"]: tool["annotations"] for tool in self.tools("full")}
        for name, hints in (
            ("test_echo", {"readOnlyHint": True}),
            ("test_slow_write", {"destructiveHint": False}),
            ("test_forget", {"idempotentHint": True}),
        ):
            self.assertEqual(annotations[name], {**hints, "openWorldHint": False})


class ReadingResources(McpTestCase):
    def test_an_address_is_decoded_and_read(self) -> None:
        server = self.connect()
        contents = server.ask("resources/read", {"uri": "test://item/a%2Fb%20c?b=%C3%BC&a=1"})["result"]["contents"][0]
        self.assertEqual(contents["mimeType"], "application/json")
        self.assertEqual(
            json.loads(contents["text"]), {"parameters": {"id": "a/b c", "a": "1", "b": "ü"}, "store": "alpha"}
        )

    def test_an_unknown_resource_is_an_error_of_the_clients_revision(self) -> None:
        handshake, modern = self.connect(), self.start()
        for uri in ("test://item/404", "other://item/1", "test://item/1/2", "memories://get/999999"):
            with self.subTest(uri=uri):
                error = handshake.ask("resources/read", {"uri": uri})["error"]
                self.assertEqual((error["code"], error["data"]["uri"]), (-32002, uri))
                error = modern.ask("resources/read", {"uri": uri, "_meta": ENVELOPE})["error"]
                self.assertEqual((error["code"], error["data"]["uri"]), (-32602, uri))


class Options(SimpleTestCase):
    def test_defaults_and_both_ways_of_writing_a_value(self) -> None:
        written = ["--project=alpha", "--session", "s-1", "--profile", "full"]
        for arguments, expected in (([], (None, "", "core")), (written, ("alpha", "s-1", "full"))):
            options = parse(arguments)
            self.assertEqual((options.project, options.session, options.profile), expected)

    def test_an_address_is_a_host_and_a_port(self) -> None:
        for given, expected in (
            ("8322", ("127.0.0.1", 8322)),
            ("0.0.0.0:1", ("0.0.0.0", 1)),
            ("[::1]:0", ("::1", 0)),
            ("localhost:8322", ("localhost", 8322)),
        ):
            self.assertEqual(parse(["--http", given]).http, expected)
        self.assertTrue(parse(["--http", "0.0.0.0:1"]).token)
        self.assertFalse(parse(["--http", "[::1]:1", "--no-token"]).token)

    def test_wrong_options_are_explained(self) -> None:
        for options in ("--profile huge", "--colour red", "--project", "alpha", "--project --profile", "--no-token",
                        "--http localhost", "--http ::1:80", "--http 0.0.0.0:8322 --no-token"):  # fmt: skip
            with self.subTest(options=options):
                code, output, errors = self.ended(options.split())
                self.assertEqual((code, output), (2, ""))
                self.assertIn("usage: memory-hub mcp", errors)

    def test_help_names_every_option(self) -> None:
        code, shown, _ = self.ended(["--help"])
        self.assertEqual(code, 0)
        named = [f"--{name.replace('_', '-')}" for name in mcp_options.Options.__slots__ if name != "token"]
        self.assertEqual([option for option in (*named, "--no-token") if option not in shown], [])

    def ended(self, arguments: list[str]) -> tuple[Any, str, str]:
        """Return the exit code of arguments that are not served, and what is printed."""
        output, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(output), redirect_stderr(errors), self.assertRaises(SystemExit) as ended:
            parse(arguments)
        return ended.exception.code, output.getvalue(), errors.getvalue()


def documented() -> dict[str, set[str]]:
    """Return the documented tools of every profile."""
    text = Path(ROOT / "docs/reference/tools.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (core|work|full) \| (?:`(\w+)`)?", text, re.MULTILINE)
    return {
        profile: {
            (full_name if profile == "full" else "") or name
            for name, first, full_name in rows
            if PROFILES.index(first) <= place
        }
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
                self.assertRegex(output, r"^invalid: (\w+) has no argument 'no_such_argument'")
                self.assertIn(output.split()[1], self.listed(profile) if profile == "full" else output)


class Kind(StrEnum):
    ONE = "one"
    TWO = "two"


class Part(BaseModel):
    """A part."""

    name: str = Field(pattern=r"\S")
    kind: Kind | None = None


class Whole(BaseModel):
    title: Annotated[str, Field(min_length=1, max_length=200, description="What it says.")]
    kind: Kind = Kind.ONE
    count: Annotated[int, Field(ge=1, le=100, json_schema_extra=self_evident, description="How many.")] = 10
    limit: int = Field(10, ge=1, le=100, description="maximum number of results")
    scope: Kind = Kind.ONE
    max_tokens: int | None = None
    key: Annotated[str | None, Field(json_schema_extra={UNLISTED: True})] = None
    parts: list[Part] = Field(default_factory=list, max_length=9)
    id: int | None = Field(None, le=2**53)
    mode: Literal["a", "b"] | None = None
    ids: int | list[int] | None = None
    compact: bool = False
    mild: bool = False
    attributes: dict[str, Any] | None = None


class Differs(BaseModel):
    scope: Annotated[Kind, Field(json_schema_extra=explained_here)] = Kind.ONE
    max_tokens: int = 1_500


class SlimSchemas(SimpleTestCase):
    def test_a_schema_lists_only_what_a_model_needs(self) -> None:
        schema = input_schema(Whole)
        self.assertEqual((schema["required"], schema["type"]), (["title"], "object"))
        self.assertNotIn("$", str(schema))
        properties = schema["properties"]
        numbers = [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]
        for name, expected in (
            # Descriptions and useful defaults, but not null, empty ones or limits
            ("title", {"type": "string", "description": "What it says."}),
            ("count", {"type": "integer", "default": 10}),
            ("mode", {"enum": ["a", "b"]}),
            ("mild", {"type": "boolean"}),
            ("id", {"type": "integer"}),
            ("attributes", {"type": "object"}),
            ("ids", {"anyOf": numbers}),
            # References are resolved in place
            ("kind", {"enum": ["one", "two"], "default": "one"}),
            # What the instructions explain
            ("limit", {"type": "integer"}),
            ("scope", {"type": "string"}),
        ):
            with self.subTest(name):
                self.assertEqual(properties[name], expected)
        self.assertEqual(set(properties["parts"]), {"type", "items"})
        items = properties["parts"]["items"]
        self.assertEqual(set(items), {"type", "properties", "required"})
        self.assertEqual(items["properties"], {"name": {"type": "string"}, "kind": {"enum": ["one", "two"]}})
        # Accepted without being listed
        self.assertEqual(properties.keys() & {"key", "format", "compact", "max_tokens"}, set())

    def test_an_argument_that_differs_from_the_instructions_is_listed_in_full(self) -> None:
        properties = input_schema(Differs)["properties"]
        self.assertEqual(properties["scope"], {"enum": ["one", "two"], "default": "one"})
        self.assertEqual(properties["max_tokens"], {"type": "integer", "default": 1500})


# How each kind that has tools of its own names its title and its text
ENTRIES = {name: kind.tools for name, kind in KINDS.items() if kind.tools}
BUDGETS = (50, 120, 400, 2_000)
WITHOUT_ARGUMENTS = (
    "memory_list memory_conflicts decision_list session_list org_list project_list tag_list "
    "relation_list audit_replay memory_stale memory_get"
).split()
# Tools that take a budget, with arguments that match more than fits
CALLS: dict[str, dict[str, Any]] = {
    **{name: {} for name in WITHOUT_ARGUMENTS},
    **{name: {"query": "pump"} for name in ("memory_search", "memory_context")},
    "memory_query": {"search": "pump"},
    "decision_get": {"topic": "water"},
    **{f"{kind}_list": {} for kind in ENTRIES},
    **{f"{kind}_history": {"name": f"{kind} 1"} for kind in ENTRIES},
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
        for number in range(30):
            server.say("memory_write", title=f"Pump {number} «ä»", content=f"The pump {number} hums “é”. " * 20)
        for kind, entry in ENTRIES.items():
            for number in range(12):
                text = f"About the pump {number}. " * 9
                server.say(f"{kind}_add", **{entry.name: f"{kind} {number}", entry.text: text})
            for number in range(8):
                server.say(f"{kind}_update", **{entry.name: f"{kind} 1", entry.text: f"Changed {number}. " * 9})
        for number in range(12):
            why = f"The pump {number} is quiet. " * 9
            server.say("decision_record", title=f"Use pump {number}", rationale=why, topic="water", phase="design")
        found = server.call("memory_list", kind="observation", limit=100, compact=True, format="json")
        ids = [memory["id"] for memory in found["structuredContent"]["results"]]
        for memory in ids[1:12]:
            server.say("relation_create", source=memory, relation="related_to", target=ids[0])
        return ids


class FolderSettingsTests(McpTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="work-"))).resolve()
        self.file = self.folder / ".memory-hub.toml"

    def serve(self) -> Server:
        return self.connect(cwd=self.folder)

    def test_they_apply_to_the_server_and_are_read_once(self) -> None:
        self.file.write_text('project = "alpha"\nsearch_mode = "basic"\ncapture_decisions = false\n')
        server = self.serve()
        server.say("memory_write", title="Readers", content="never wait")
        self.file.unlink()
        self.assertIn("mode: basic", server.say("memory_search", query="reader"))
        refusal = f"forbidden: agents cannot record decisions here: capture_decisions is false, set by {self.file}"
        for tool, title in (("decision_record", "Use WAL"), ("memory_log_decision", "Tea")):
            self.assertIn(refusal, server.refusal(tool, chosen="that", title=title))
        self.assertNotIn("WAL", server.say("memory_search", query="WAL"))
        server.end()

    def test_a_broken_file_is_reported_in_each_call_until_it_is_fixed(self) -> None:
        self.file.write_text('project = "alpha"\nserch_mode = "basic"\n')
        server = self.serve()
        for _ in range(2):
            output = server.say("memory_search", query="anything")
            self.assertIn(f"{self.file}: there is no setting 'serch_mode' (did you mean 'search_mode'?)", output)
        self.file.write_text('project = "alpha"\nsearch_mode = "basic"\n')
        self.assertIn("mode: basic", server.say("memory_stats"))
        server.end()


QUESTION = "permanently delete #412 'file'?"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
Action = Literal["accept", "decline", "cancel"]


class ConfirmationTestCase(SharedServerTestCase):
    def setUp(self) -> None:
        with tempfile.NamedTemporaryFile(dir=self.home, delete=False) as file:
            self.path = Path(file.name)

    def assert_refused(self, result: dict[str, Any], sentence: str) -> None:
        self.assertTrue(result["isError"], result)
        self.assertIn(sentence, result["content"][0]["text"])
        self.assertNotIn("confirm_token", result["content"][0]["text"])
        self.assertTrue(self.path.exists())

    def assert_deleted(self, result: dict[str, Any]) -> None:
        self.assertEqual(result["content"][0]["text"], "deleted")
        self.assertFalse(self.path.exists())


class AClientWithHandshake(ConfirmationTestCase):
    capabilities: ClassVar = {"elicitation": {}}

    def ask_for_it(self, server: Server | None = None) -> tuple[Server, int, dict[str, Any]]:
        """Call the tool; return the call's id and the question."""
        server = server or self.server
        number = server.request("tools/call", {"name": "test_shred", "arguments": {"path": str(self.path)}})
        question = server.receive()
        self.assertEqual(question["method"], "elicitation/create")
        return server, number, question

    def answer(self, reply: dict[str, Any]) -> dict[str, Any]:
        server, number, question = self.ask_for_it()
        self.assertEqual(question["params"]["message"], QUESTION)
        self.assertEqual(question["params"]["requestedSchema"], {"type": "object", "properties": {}})
        server.send({"jsonrpc": "2.0", "id": question["id"], **reply})
        answer = server.receive()
        self.assertEqual(answer["id"], number)
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def test_is_asked_and_only_accepting_deletes(self) -> None:
        for action, sentence in (("decline", "the user declined"), ("cancel", "the user dismissed the question")):
            self.assert_refused(self.answer({"result": {"action": action}}), f"forbidden: {sentence}")
        self.assert_deleted(self.answer({"result": {"action": "accept", "content": {}}}))

    def test_a_client_that_fails_to_ask_gets_the_token(self) -> None:
        result = self.answer({"error": {"code": -32603, "message": "no window"}})
        self.assertTrue(result["isError"])
        self.assertIn("confirm_token: shred-", result["content"][0]["text"])
        self.assertTrue(self.path.exists())

    def test_accepting_after_a_change_deletes_nothing(self) -> None:
        server, _, question = self.ask_for_it()
        kept = self.path.with_suffix(".other")
        kept.write_text("another file")
        self.path.rename(self.path.with_suffix(".away"))
        kept.rename(self.path)
        server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        self.assert_refused(server.receive()["result"], "precondition_failed: ")

    def test_other_calls_continue_while_a_question_is_open(self) -> None:
        server, number, question = self.ask_for_it()
        self.assertEqual(server.say("test_echo", text="on"), "on")
        self.assertEqual(server.say("test_slow_write", path=str(self.path)), "written")
        server.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        answer = server.receive()
        self.assertEqual(answer["id"], number)
        self.assert_deleted(answer["result"])

    def test_the_end_of_the_process_does_not_wait_for_an_answer(self) -> None:
        server = self.start()
        server.initialize(elicitation={"form": {}})
        _, number, _ = self.ask_for_it(server)
        server.close_input()
        answers = {message["id"]: message for message in server.rest() if "id" in message}
        self.assert_refused(answers[number]["result"], "the server is stopping")
        self.assertEqual(server.wait()[0], 0)


class AScratchSession(McpTestCase):
    """A user chooses what becomes of the entries where the client can ask."""

    def setUp(self) -> None:
        self.server = self.start("--project", f"scratch-{self._testMethodName[-20:].replace('_', '-')}")

    def begin(self, session: str) -> dict[str, Any]:
        self.server.say("session_start", session_id=session, mode="scratch")
        self.server.say("memory_write", title=f"Tried in {session}", content=f"It works with {session}.")
        return {"name": "session_end", "arguments": {"session_id": session, "status": "completed"}}

    def test_ends_as_the_user_chooses(self) -> None:
        self.server.initialize(elicitation={})
        for choice, line in (("promote", "session promote completed"), ("discard", "session discard discarded")):
            number = self.server.request("tools/call", self.begin(choice))
            question = self.server.receive()
            self.assertIn(f"Tried in {choice}", question["params"]["message"])
            self.assertNotIn("promote=true", question["params"]["message"])
            (field,) = question["params"]["requestedSchema"]["properties"].values()
            self.assertEqual(field["enum"], ["promote", "discard"])
            answer = {"action": "accept", "content": {"choice": choice}}
            self.server.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
            ended = self.server.receive()
            self.assertEqual(ended["id"], number)
            self.assertIn(line, ended["result"]["content"][0]["text"])

    def test_goes_on_where_the_user_declines_or_chooses_nothing(self) -> None:
        self.server.initialize(elicitation={})
        call = self.begin("s1")
        for answer in ({"action": "decline"}, {"action": "accept", "content": {"choice": "burn"}}):
            self.server.request("tools/call", call)
            question = self.server.receive()
            self.server.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
            self.assertTrue(self.server.receive()["result"]["isError"])
        self.assertIn("session s1 active", self.server.say("session_list"))

    def test_is_chosen_with_the_repeated_call_in_the_revision_without_handshake(self) -> None:
        name = "session_start"
        for arguments in ({"session_id": "s2", "mode": "scratch"}, {"title": "Tried", "content": "It works."}):
            self.server.ask("tools/call", {"name": name, "arguments": arguments, "_meta": ENVELOPE})
            name = "memory_write"
        envelope = {**ENVELOPE, CAPABILITIES: {"elicitation": {}}}
        call = {"name": "session_end", "arguments": {"session_id": "s2"}, "_meta": envelope}
        asked = self.server.ask("tools/call", call)["result"]
        self.assertEqual(asked["resultType"], "input_required")
        (question,) = asked["inputRequests"]
        answers = {question: {"action": "accept", "content": {"choice": "discard"}}}
        again = {**call, "inputResponses": answers, "requestState": asked["requestState"]}
        ended = self.server.ask("tools/call", again)["result"]
        self.assertIn("session s2 discarded", ended["content"][0]["text"])


class AClientWithoutElicitation(ConfirmationTestCase):
    def test_gets_the_question_the_token_and_how_to_call_again(self) -> None:
        by_addresses_alone = self.start()
        by_addresses_alone.initialize(elicitation={"url": {}})
        for client in (self.server, by_addresses_alone):
            result = client.call("test_shred", path=str(self.path), format="json")
            self.assertTrue(result["isError"])
            lines = result["content"][0]["text"].splitlines()
            token = lines[2].removeprefix("confirm_token: ")
            data = result["structuredContent"]
            self.assertEqual(
                [data[name] for name in ("id", "confirm_token", "code")], [412, token, "confirmation_required"]
            )
            self.assertEqual(lines[0], f"confirmation_required: {QUESTION}")
            self.assertRegex(lines[3], "next: nothing was deleted yet: ask the user.*call test_shred again")
        self.server.refusal("test_shred", path=str(self.path), confirm_token="shred-0")
        self.assertTrue(self.path.exists())
        self.assert_deleted(self.server.call("old_shred", path=str(self.path), confirm_token=token))

    def test_is_refused_in_the_revision_without_handshake_too(self) -> None:
        arguments = {"path": str(self.path)}
        answer = self.start().ask("tools/call", {"name": "test_shred", "arguments": arguments, "_meta": ENVELOPE})
        self.assertIn("confirm_token: shred-", answer["result"]["content"][0]["text"])


class AClientWithoutHandshake(ConfirmationTestCase):
    @classmethod
    def share_server(cls, *_options: str, **_settings: Any) -> Server:
        server = Server()
        cls.addClassCleanup(server.destroy)
        return server

    def call(self, tool: str = "test_shred", path: Path | None = None, **more: Any) -> dict[str, Any]:
        envelope = {**ENVELOPE, CAPABILITIES: {"elicitation": {}}}
        arguments = {"path": str(path or self.path)}
        return self.server.ask("tools/call", {"name": tool, "arguments": arguments, "_meta": envelope, **more})

    def answer(self, action: Action, state: str | None = None, **more: Any) -> dict[str, Any]:
        """Call, then call again with the user's answer and the returned state."""
        asked = self.call()["result"]
        self.assertEqual(asked["resultType"], "input_required")
        self.assertEqual(asked["inputRequests"]["confirm"]["params"]["message"], QUESTION)
        self.assertNotIn("shred-", str(asked))
        responses = {"confirm": {"action": action}}
        return self.call(**{"inputResponses": responses, "requestState": state or asked["requestState"], **more})

    def test_answers_with_the_repeated_call(self) -> None:
        self.assert_refused(self.answer("decline")["result"], "forbidden: the user declined")
        self.assert_refused(self.answer("cancel")["result"], "forbidden: the user dismissed the question")
        self.assert_deleted(self.answer("accept")["result"])

    def test_a_state_is_valid_only_for_its_own_call(self) -> None:
        other = self.path.with_suffix(".other")
        other.write_text("not this one")
        for changes in ({"state": "v1.forged"}, {"path": other}, {"tool": "test_forget"}):
            with self.subTest(changes=changes):
                error = self.answer("accept", **changes)["error"]
                self.assertEqual((error["code"], error["message"]), (-32602, "Invalid or expired requestState"))
        self.assertTrue(self.path.exists())
        self.assertTrue(other.exists())

    def test_an_answer_without_a_question_is_ignored(self) -> None:
        asked = self.call(inputResponses={"confirm": {"action": "accept"}})["result"]
        self.assertEqual(asked["resultType"], "input_required")
        asked = self.answer("accept", inputResponses={"another": {"action": "accept"}})["result"]
        self.assertEqual(asked["resultType"], "input_required")
