from __future__ import annotations

import json
import random
import re
import sqlite3
from contextlib import closing
from typing import Any, ClassVar

from django.test import tag

from memoryhub.core.errors import HubError
from memoryhub.core.tools import Tool, all_resources, all_tools
from memoryhub.mcp.listing import load_tools
from tests.databases import on_postgresql, variables_of
from tests.mcp.case import Server, SharedServerTestCase
from tests.mcp.client import Message
from tests.postgresql import URL_VARIABLE
from tests.torture.rounds import is_long

SEED = 20261122
IS_LONG = is_long()
# Number of values tried per argument
VALUES_EACH = None if IS_LONG else 6
ROUNDS = 20 if IS_LONG else 2

DEEP: Any = json.loads("[" * 200 + "]" * 200)
TEXTS = (
    "", " ", "\x00", "a\x00b", "line\nbreak #77 guideline forged", "\u2028\u0085\u202e\u200f\ufeff\ufffd",
    "\U0001f30a" * 300, "x" * 300_000, "'; DROP TABLE raw_events; --", '" OR 1=1 NEAR( * ^ AND NOT',
    "%s%d{0}{}{{}}${HOME}$(id)`id`", "../../../../etc/passwd", "/" + "d" * 5_000, "global#1",
    "#999999999999999999999", "\u0661\u0662", "\u00b2", "2026", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59.999999-14:00", "2026-13-45T99:99:99Z", "NaN", "-Infinity", "1e400", "eyJhIjoxfQ", "W10",
    "project", "session", "<script>alert(1)</script>", "ghp_" + "a1B2" * 9,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, 2**53, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, [], {}, [[]], [{}],
    [None], [1, "a", None], ["x"] * 3_000, {"a": {"b": [1]}}, {"": ""}, {"mode": {"a": 1}},
    {"type": "project", "id": 10**30}, DEEP,
)  # fmt: skip
HOSTILE = (*TEXTS, *OTHERS)
# Valid values of required arguments while another argument is tried
BASES = {
    "id": 1,
    "sha": "ab" * 20,
    "type": "note.added",
    "payload": {"content": "noted"},
    "resolution": "keep_a",
    "org_create.id": "made",
    "project_create.id": "made",
    "relation": "related_to",
}
INTERNAL_ERROR = -32603
_INSIDE = re.compile(r"function-\w+\[|<function|Traceback|0x[0-9a-f]{8}")
CODES = {error.code for error in HubError.__subclasses__()}


@tag("attack")
class FuzzTests(SharedServerTestCase):
    ids: ClassVar[dict[str, int]]
    database: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        load_tools()
        cls.ids = _fill(cls.server)
        if on_postgresql():
            import psycopg

            url = variables_of(cls.home)[URL_VARIABLE]
            cls.database = cls.enterClassContext(psycopg.connect(url, autocommit=True))

    def setUp(self) -> None:
        self.random = random.Random(SEED)
        self.faults: list[str] = []
        self.before = self.heads()

    def test_no_value_of_any_argument_breaks_a_tool_or_is_written_in_error(self) -> None:
        for tool in _tools():
            base = _base(tool, self.ids)
            for name in [*tool.input.model_fields, "format", "project_id", "ack_token", "no_such_argument"]:
                for value in self.some_of(HOSTILE):
                    self.check_call(tool.name, {**base, name: value})
        self.check_end()

    def test_no_combination_of_values_breaks_a_tool(self) -> None:
        for tool in _tools():
            fields = [*tool.input.model_fields]
            for _ in range(ROUNDS):
                chosen = self.random.sample(fields, self.random.randint(0, len(fields)))
                self.check_call(tool.name, {name: self.random.choice(HOSTILE) for name in chosen})
        self.check_end()

    def test_no_parameter_of_a_resource_breaks_it(self) -> None:
        for resource in all_resources():
            for value in self.some_of(TEXTS):
                address = re.sub(r"\{[^}]*\}", value[:2_000].replace("\\", r"\\"), resource.uri_template)
                before = self.heads()
                answer = self.server.ask("resources/read", {"uri": address})
                if "error" in answer and (answer["error"]["code"] == INTERNAL_ERROR or self.heads() != before):
                    self.faults.append(f"{address[:200]}: {answer}")
        self.check_end()

    def some_of(self, values: tuple[Any, ...]) -> list[Any]:
        count = len(values) if VALUES_EACH is None else min(VALUES_EACH, len(values))
        return self.random.sample(values, count)

    def check_call(self, tool: str, arguments: dict[str, Any]) -> None:
        """Call a tool; an error must have a known code and leave every log unchanged."""
        before, answer = self.before, self.server.ask("tools/call", {"name": tool, "arguments": arguments})
        self.before = self.heads()
        for fault in self.faults_of(answer, is_written=self.before != before):
            self.faults.append(f"{fault}: {tool} {json.dumps(arguments)[:300]}: {json.dumps(answer)[:600]}")

    def faults_of(self, answer: Message, *, is_written: bool) -> list[str]:
        if "error" in answer:
            return ["no result of a tool"]
        if not answer["result"]["isError"]:
            return []
        text = answer["result"]["content"][0]["text"]
        found = {
            "no code of the table": text.partition(":")[0] not in CODES,
            "shows the inside": _INSIDE.search(text),
            "refused and written all the same": is_written,
        }
        return [fault for fault, is_so in found.items() if is_so]

    def heads(self) -> dict[str, int]:
        if on_postgresql():
            return dict(self.database.execute("SELECT store, position FROM heads.anchors").fetchall())
        found = {}
        for path in self.home.glob("**/events.db"):
            if "cache" not in path.parts:  # as-of views aren't stores
                with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
                    found[str(path)] = connection.execute("SELECT max(position) FROM raw_events").fetchone()[0]
        return found

    def check_end(self) -> None:
        self.assertEqual(self.faults, [], "\n".join(self.faults[:60]))
        self.assertIn("holds", self.server.say("audit_verify"))


def _tools() -> list[Tool]:
    return [tool for tool in all_tools() if not tool.name.startswith("test_")]


def _base(tool: Tool, ids: dict[str, int]) -> dict[str, Any]:
    own = next((number for kind, number in ids.items() if kind in tool.name), ids["memory"])
    bases = {**BASES, "id": own, "source": ids["memory"], "target": ids["decision"]}
    needed = tool.input.model_json_schema().get("required", [])
    return {name: bases.get(f"{tool.name}.{name}", bases.get(name, "plain words")) for name in needed}


def _fill(server: Server) -> dict[str, int]:
    """Store something of every kind, so that calls don't all end with not_found; return the ids."""
    calls: dict[str, tuple[str, Message]] = {
        "memory": ("memory_write", {"title": "Use WAL", "content": "readers do not wait", "tags": ["sqlite"]}),
        "session": ("session_start", {"session_id": "fuzz", "purpose": "to be asked for"}),
        "decision": ("decision_record", {"title": "SQLite", "chosen": "one file", "alternatives": ["a server"]}),
        "iteration": ("iteration_start", {"command": "feature", "description": "a first one"}),
        "commit": ("commit_record", {"sha": "cd" * 20, "message": "Begin", "files": ["a.py"]}),
        "guideline": ("guideline_add", {"name": "Short functions", "content": "at most 30 lines"}),
        "tool": ("tool_add", {"name": "make test", "description": "runs all"}),
        "knowledge": ("knowledge_add", {"title": "Ports", "content": "8321", "source": "README"}),
        "tag": ("tag_create", {"name": "tides", "description": "of the sea"}),
    }
    ids = {kind: server.data(name, **arguments)["id"] for kind, (name, arguments) in calls.items()}
    ends = {"source": ids["memory"], "target": ids["decision"]}
    ids["relation"] = server.data("relation_create", **ends, relation="related_to")["id"]
    for content in ("readers never wait", "writers wait"):  # both from the first version
        change = {"id": ids["memory"], "content": content, "base_version": 1}
        ids["conflict"] = server.data("memory_update", **change)["conflict"]
    assert ids["conflict"], ids
    # The kind is the first one in the tool's name.
    return {kind: ids[kind] for kind in ("conflict", "relation", *calls)}
