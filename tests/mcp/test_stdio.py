from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mcp_types as types
from django.test import SimpleTestCase, tag
from mcp.client.client import Client as SdkClient
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from memoryhub.core.stores.store import project_store
from memoryhub.mcp import jsonrpc
from memoryhub.mcp.jsonrpc import MAX_LINE_BYTES
from memoryhub.mcp.server import INSTRUCTIONS
from tests import tampering
from tests.databases import sqlite_only
from tests.mcp.case import McpTestCase, ProcessTestCase, SharedServerTestCase
from tests.mcp.client import (
    CLIENT,
    ENVELOPE,
    HANDSHAKE,
    MODERN,
    ROOT,
    Client,
    environment,
    parameters,
    run_async,
    wait_until,
)


class MalformedInputIsAnswered(SharedServerTestCase):
    def refusal(self, line: bytes) -> dict[str, Any]:
        """Send a line and return the error; the server must go on serving."""
        self.server.send_bytes(line + b"\n")
        answer = self.server.receive()
        self.assertEqual(self.server.say("test_echo", text="still here"), "still here")
        self.assertEqual(answer["jsonrpc"], "2.0")
        return {"id": answer["id"], **answer["error"]}

    def test_what_breaks_json_or_json_rpc_is_an_error_with_its_id_where_one_can_be_read(self) -> None:
        for code, line, request_id in (
            (-32700, b"hello", None),
            (-32700, b'{"jsonrpc": "2.0", "id": 77, "method": "tools/', 77),
            (-32700, b'{"method": "x", "params": {]}, "jsonrpc": "2.0", "id": "a-1"}', "a-1"),
            (-32700, b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":NaN}}', 5),
            (-32700, b"[" * 200_000, None),
            (-32600, b"[]", None),
            (-32600, b"5", None),
            (-32600, b'{"id": 1, "method": "ping"}', 1),
            (-32600, b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', None),
            (-32600, b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', None),
            (-32600, b'{"jsonrpc": "2.0", "id": 2, "method": 7}', 2),
            (-32600, b'{"jsonrpc": "2.0", "id": 3, "method": "ping", "params": [1]}', 3),
            (-32600, b'{"jsonrpc": "2.0", "id": 4}', 4),
        ):
            with self.subTest(line=line[:60]):
                error = self.refusal(line)
                self.assertEqual((error["id"], error["code"]), (request_id, code))
        error = self.refusal(b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"\xff\xfe"}}')
        self.assertEqual((error["id"], error["code"]), (8, -32700))
        self.assertIn("UTF-8", error["message"])

    def test_half_a_surrogate_pair(self) -> None:
        call = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"test_echo","arguments":{"text":"%s"}}}'
        error = self.refusal(call % rb"\ud83d")
        self.assertEqual((error["id"], error["code"]), (9, -32600))
        self.server.send_bytes(call % rb"\uD83D\uDE00" + b"\n")
        self.assertEqual(self.server.receive()["result"]["content"][0]["text"], "\N{GRINNING FACE}")

    def test_a_batch_is_refused_for_each_request_in_it(self) -> None:
        first, last = ({"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (31, 32))
        batch: list[Any] = [first, {"jsonrpc": "2.0", "id": 33, "result": {}}, 5, last]
        self.server.send(batch)
        answers = [self.server.receive() for _ in range(2)]
        self.assertEqual([answer["id"] for answer in answers], [31, 32])
        self.assertTrue(all("batch" in answer["error"]["message"] for answer in answers))
        self.assertEqual(self.server.say("test_echo", text="on"), "on")

    def test_a_line_that_is_too_long_gets_its_id_back_from_either_end(self) -> None:
        filler = b"x" * (MAX_LINE_BYTES + 1000)
        first = self.refusal(b'{"jsonrpc":"2.0","id":41,"method":"ping","params":{"x":"' + filler + b'"}}')
        last = self.refusal(b'{"method":"ping","params":{"x":"' + filler + b'"},"jsonrpc":"2.0","id":42}')
        self.assertEqual((first["id"], last["id"]), (41, 42))
        self.assertIn(str(MAX_LINE_BYTES), first["message"])

    def test_blank_lines_and_responses_that_nobody_asked_for_are_dropped(self) -> None:
        self.server.send_bytes(b"\n  \n\r\n")
        self.server.send({"jsonrpc": "2.0", "id": 99, "result": {}})
        self.server.send({"jsonrpc": "2.0", "id": 99, "error": "nonsense"})
        self.assertEqual(self.server.say("test_echo", text="on"), "on")

    def test_long_texts_pass_in_both_directions_and_to_a_client_that_reads_late(self) -> None:
        text = "Grüße, 世界 \N{GRINNING FACE} " * 100_000
        self.assertEqual(self.server.say("test_echo", text=text), text)
        ids = {self.server.request("tools/call", _echo("y" * 50_000, times=5)) for _ in range(20)}
        self.assertEqual({self.server.receive()["id"] for _ in ids}, ids)


class TheWireCarriesOnlyTheProtocol(ProcessTestCase):
    def test_malformed_lines_before_the_server_is_up_are_refused_the_same(self) -> None:
        server = self.start()
        server.send_bytes(b"hello\n[1]\n")
        self.assertEqual([server.receive()["error"]["code"] for _ in range(2)], [-32700, -32600])
        server.initialize()
        self.assertEqual(server.say("test_echo", text="on"), "on")

    def test_what_a_tool_prints_goes_to_stderr(self) -> None:
        server = self.connect()
        self.assertEqual(server.say("test_print"), "printed")
        server.close_input()
        self.assertEqual(server.rest(), [])
        self.assertIn("this is not for the wire", server.wait()[1])

    def test_a_file_can_be_the_input(self) -> None:
        script = Path(self.enterContext(tempfile.TemporaryDirectory())) / "requests.jsonl"
        requests = [("initialize", _hello()), *[("tools/call", _echo(str(number))) for number in range(5)]]
        script.write_text("\n".join(map(json.dumps, _messages(requests))))
        self.connect().say("test_echo", text="a store that exists")  # to make one takes long on a busy machine
        with script.open() as file:
            server = self.start(stdin=file.fileno())
        answers = {answer["id"]: answer for answer in server.rest()}
        self.assertEqual(sorted(answers), list(range(6)))
        self.assertEqual(answers[5]["result"]["content"][0]["text"], "4")
        self.assertEqual(server.wait()[0], 0)


def _hello(version: str = HANDSHAKE[0], **capabilities: Any) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": capabilities, "clientInfo": CLIENT}


def _messages(requests: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(requests)
    ]


def _echo(text: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "test_echo", "arguments": {"text": text, **arguments}}


class SlowWrites(SimpleTestCase):
    """The tool that writes slowly, and the file in which it notes what it does."""

    def trace(self) -> Path:
        path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "trace"
        path.write_text("")
        return path

    def write_slowly(self, server: Client, path: Path, *, seconds: float = 0, until: Path | None = None) -> int:
        """Start a write that takes ``seconds`` or waits for a file; return the request's id once it runs."""
        arguments = {"path": str(path), "seconds": seconds, "until": str(until or "")}
        number = server.request("tools/call", {"name": "test_slow_write", "arguments": arguments})
        wait_until(lambda: path.read_text() == "begun")
        return number

    def read_forever(self, server: Client, count: int) -> list[int]:
        return [server.request("tools/call", {"name": "test_endless", "arguments": {}}) for _ in range(count)]


class CancellingCalls(McpTestCase, SlowWrites):
    @tag("backend")
    def test_a_cancelled_read_frees_its_thread(self) -> None:
        server = self.connect()
        endless = self.read_forever(server, 2)
        waiting = server.request("tools/call", _echo("at last"))
        server.ask("ping")
        for number in endless:
            server.notify("notifications/cancelled", {"requestId": number, "reason": "too slow"})
        answer = server.receive()
        self.assertEqual((answer["id"], answer["result"]["content"][0]["text"]), (waiting, "at last"))
        self.assertEqual(server.say("test_echo", text="on"), "on")

    def test_a_cancelled_write_finishes(self) -> None:
        server, path = self.connect(), self.trace()
        number = self.write_slowly(server, path, until=_go(path))
        server.notify("notifications/cancelled", {"requestId": number})
        self.assertEqual(server.say("test_echo", text="on"), "on")
        _go(path).touch()
        wait_until(lambda: path.read_text() == "done")
        self.assertEqual(server.end()[0], 0)

    @tag("backend")
    def test_slow_reads_do_not_delay_a_write(self) -> None:
        server = self.connect()
        self.read_forever(server, 2)
        self.assertEqual(server.say("test_slow_write", path=str(self.trace())), "written")


def _go(path: Path) -> Path:
    return path.with_name("go")


@tag("process")
class EndingTheProcess(ProcessTestCase, SlowWrites):
    def test_a_signal_or_the_end_of_input_during_a_write_lets_it_finish_and_answer(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, None):
            with self.subTest(signal=number):
                server, path = self.connect(), self.trace()
                request = self.write_slowly(server, path, seconds=1)
                if number:
                    server.process.send_signal(number)
                else:
                    server.close_input()
                self.assertEqual([answer["id"] for answer in server.rest()], [request])
                self.assertEqual(path.read_text(), "done")
                self.assertEqual(server.wait()[0], 0)

    def test_a_write_that_its_caller_cancelled_outlives_signals_too(self) -> None:
        server, path = self.connect(), self.trace()
        request = self.write_slowly(server, path, until=_go(path))
        server.notify("notifications/cancelled", {"requestId": request})
        server.ask("ping")
        server.close_input()
        for _ in range(3):
            server.process.terminate()
        _go(path).touch()
        self.assertEqual((server.rest(), server.wait()[0]), ([], 0))
        self.assertEqual(path.read_text(), "done")

    def test_a_signal_ends_reads_with_an_answer_and_drops_what_has_not_begun(self) -> None:
        server, begun, queued = self.connect(), self.trace(), self.trace()
        reads = self.read_forever(server, 3)
        write = self.write_slowly(server, begun, until=_go(begun))
        later = server.request("tools/call", {"name": "test_slow_write", "arguments": {"path": str(queued)}})
        self.assertEqual(server.ask("ping")["result"], {})
        server.process.terminate()
        dropped = [server.receive() for _ in (*reads, later)]
        _go(begun).touch()
        answers = {answer["id"]: answer["result"] for answer in [*dropped, *server.rest()]}
        self.assertEqual(set(answers), {*reads, write, later})
        self.assertEqual(answers[write]["content"][0]["text"], "written")
        self.assertTrue(all("the server is stopping" in str(answers[number]) for number in (*reads, later)))
        self.assertEqual(queued.read_text(), "")
        self.assertEqual(server.wait()[0], 0)

    def test_a_signal_while_idle_and_one_before_the_server_is_up(self) -> None:
        server, early = self.connect(), self.start()
        server.say("test_echo", text="up")
        early.initialize()
        for running in (server, early):
            running.process.terminate()
            self.assertEqual(running.wait()[0], 0)

    def test_a_client_that_sends_nothing_and_disconnects(self) -> None:
        self.assertEqual(self.start().end(), (0, ""))

    def test_a_client_that_stops_reading_and_disconnects(self) -> None:
        server = self.connect()
        assert server.process.stdout
        for _ in range(20):
            server.request("tools/call", _echo("x" * 100_000))
        server.process.stdout.close()
        self.assertEqual(server.wait()[0], 0)

    def test_calls_sent_before_the_end_of_input_are_answered(self) -> None:
        server = self.start()
        server.initialize(HANDSHAKE[0])
        ids = [server.request("tools/call", _echo("x")) for _ in range(30)]
        server.close_input()
        self.assertEqual(sorted(answer["id"] for answer in server.rest()), ids)
        self.assertEqual(server.wait(), (0, ""))


class EveryRevisionIsServed(McpTestCase):
    def test_the_relay_knows_the_revisions_that_the_sdk_knows(self) -> None:
        self.assertEqual(jsonrpc.HANDSHAKE_VERSIONS, HANDSHAKE_PROTOCOL_VERSIONS)
        self.assertEqual(jsonrpc.MODERN_VERSIONS, MODERN_PROTOCOL_VERSIONS)

    def test_each_handshake_revision_initialises_and_calls(self) -> None:
        for version in HANDSHAKE:
            with self.subTest(version=version):
                server = self.start()
                hello = server.initialize(version)
                self.assertEqual(hello["protocolVersion"], version)
                self.assertEqual(hello["instructions"], INSTRUCTIONS)
                self.assertEqual(server.say("test_origin"), "mcp plain client  alpha")
                self.assertEqual(server.ask("ping")["result"], {})
                self.assertEqual(server.end()[0], 0)

    def test_an_unknown_revision_gets_the_latest_with_handshake(self) -> None:
        self.assertEqual(self.start().initialize("1999-01-01")["protocolVersion"], HANDSHAKE[-1])

    def test_the_revision_without_handshake_discovers_and_calls(self) -> None:
        server = self.start()
        found = server.ask("server/discover", {"_meta": ENVELOPE})["result"]
        self.assertEqual(found["supportedVersions"], [MODERN])
        result = server.ask("tools/call", {"name": "test_origin", "arguments": {}, "_meta": ENVELOPE})["result"]
        self.assertEqual(result["content"][0]["text"], "mcp plain client  alpha")
        self.assertEqual(result["resultType"], "complete")

    def test_the_instructions_fit_what_clients_keep(self) -> None:
        self.assertLessEqual(len(INSTRUCTIONS), 2048)


@tag("process")
class RequestsSentAllAtOnce(ProcessTestCase):
    def test_each_is_answered_once(self) -> None:
        server = self.start()
        ids = [server.request("initialize", _hello())]
        server.notify("notifications/initialized")
        ids += [server.request("tools/list"), server.request("tools/call", {"name": "test_origin", "arguments": {}})]
        ids += [server.request("resources/list"), server.request("ping")]
        server.close_input()
        self.assertEqual(sorted(answer["id"] for answer in server.rest()), ids)


class TheSdksClientIsServed(ProcessTestCase):
    def run_client(self, mode: str) -> None:
        async def converse() -> None:
            started = stdio_client(parameters(self.home, "--project", "alpha", "--session", "s-1"))
            info = types.Implementation(name="the SDK's client", version="1")
            async with SdkClient(started, mode=mode, client_info=info) as client:
                await self.converse(client)

        run_async(converse)

    async def converse(self, client: SdkClient) -> None:
        tools = (await client.list_tools()).tools
        self.assertIn("test_echo", [tool.name for tool in tools])
        templates = (await client.list_resource_templates()).resource_templates
        self.assertIn("test://item/{id}{?a,b}", [template.uri_template for template in templates])
        output = await client.call_tool("test_origin", {})
        self.assertEqual(output.content, [types.TextContent(text="mcp the SDK's client s-1 alpha")])
        self.assertIsNone(output.structured_content)
        structured = await client.call_tool("test_echo", {"text": "hi", "format": "json"})
        self.assertEqual(structured.structured_content, {"text": "hi", "tags": []})
        read = await client.read_resource("test://item/7?a=x%20y")
        contents = read.contents[0]
        assert isinstance(contents, types.TextResourceContents)
        self.assertEqual(json.loads(contents.text), {"parameters": {"id": "7", "a": "x y"}, "store": "alpha"})
        with self.assertRaises(MCPError):
            await client.read_resource("test://item/404")

    def test_by_handshake_without_and_by_itself(self) -> None:
        for mode in ("legacy", MODERN, "auto"):
            with self.subTest(mode=mode):
                self.run_client(mode)


UNWANTED = ("ninja", "django_q", "django.contrib.admin", "django.contrib.auth", "uvicorn", "starlette", "mcp.client")

BUILD = """
import json, sys
from memoryhub.mcp.local import set_up
set_up(http=False)
print(json.dumps(sorted(sys.modules)))
"""

DEFERRED = """
from memoryhub.mcp.local import set_up
set_up(http=False)
import pydantic
from memories.schemas import MemoryWrite
print(MemoryWrite.__pydantic_complete__, pydantic.BaseModel.model_config)
print(MemoryWrite(title="t", content="c").title, MemoryWrite.__pydantic_complete__)
"""

BROKEN = """
from memoryhub.mcp import sdk
def fail():
    raise RuntimeError("another layout")
sdk._deferred_schemas = fail
sdk.load()
from mcp.server.lowlevel import Server
import mcp, pydantic
print(Server.__name__, mcp.Client.__name__, pydantic.BaseModel.model_config, pydantic.TypeAdapter.__name__)
"""


class ImportingTheSdk(SimpleTestCase):
    def run_python(self, code: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as home:
            return subprocess.run(
                [sys.executable, "-c", code],
                env=environment(Path(home)),
                cwd=ROOT,
                text=True,
                capture_output=True,
                timeout=120,
                check=True,
            )

    def test_the_server_imports_nothing_that_it_does_not_need(self) -> None:
        modules = set(json.loads(self.run_python(BUILD).stdout))
        self.assertEqual(modules & set(UNWANTED), set())
        self.assertIn("mcp.server.lowlevel", modules)

    def test_the_hubs_own_schemas_are_built_when_they_are_first_used(self) -> None:
        self.assertEqual(self.run_python(DEFERRED).stdout.split(), ["False", "{}", "t", "True"])

    def test_an_sdk_with_another_layout_is_imported_completely(self) -> None:
        done = self.run_python(BROKEN)
        self.assertEqual(done.stdout.split(), ["Server", "Client", "{}", "TypeAdapter"])
        self.assertIn("importing all of it", done.stderr)


class AHomeThatCannotBeUsed(ProcessTestCase):
    def test_the_reason_is_in_the_handshake_and_in_each_call(self) -> None:
        file = self.home / "file"
        file.write_text("no folder")
        for home, reason in (
            (file, f"the home folder {file} is not a folder; "),
            (Path("relative/home"), "MEMORY_HUB_HOME is 'relative/home', but must be an absolute path: "),
        ):
            with self.subTest(home=home):
                server = self.start(home=home)
                self.assertIn(reason, server.initialize()["instructions"])
                self.assertRegex(server.refusal("memory_search", query="anything"), f"^unavailable: .*{reason}")
                code, output = server.end()
                self.assertEqual((code, len(output.splitlines())), (0, 1), output)
                self.assertIn(reason, output)
        self.assertEqual([path.name for path in self.home.iterdir()], ["file"])

    def test_over_http_nothing_is_served(self) -> None:
        file = self.home / "file"
        file.write_text("no folder")
        options = ("--project", "alpha", "--http", "0")
        server = self.start(*options, home=file)
        code, output = server.wait()
        self.assertEqual((code, len(output.splitlines())), (8, 1), output)
        self.assertIn(f"the home folder {file} is not a folder; ", output)


class AStoreThatFails(McpTestCase):
    def setUp(self) -> None:
        self.server = self.connect()
        self.write("the first")
        self.store: Path = self.home / "projects" / "alpha" / "events.db"

    def write(self, title: str) -> None:
        self.server.data("memory_write", title=title, content=f"about {title}")

    def failure(self) -> str:
        return self.server.refusal("memory_write", title="lost", content="never kept")

    @tag("backend")
    def test_locked_by_another_process(self) -> None:
        with tampering.locked(project_store("alpha")), tampering.busy_timeout(0.2):
            self.assertEqual(self.failure(), "locked: memory database is locked by another process")
        self.write("the second")

    @sqlite_only("a project is known by its folder")
    def test_a_folder_that_is_gone(self) -> None:
        away = self.home / "away"
        self.store.parent.rename(away)
        self.assertIn("unavailable: memory database unavailable", self.failure())
        away.rename(self.store.parent)
        self.write("the third")
