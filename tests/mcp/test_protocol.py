from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import mcp_types as types
from django.test import tag
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from memoryhub.mcp import opening
from memoryhub.mcp.opening import LIST_METHODS, Opening
from memoryhub.mcp.server import INSTRUCTIONS
from tests.mcp.client import (
    CLIENT,
    ENVELOPE,
    HANDSHAKE,
    MODERN,
    Process,
    ProcessTestCase,
    parameters,
    run_async,
)


@tag("process")
class EveryRevisionIsServed(ProcessTestCase):
    def test_the_front_knows_the_revisions_that_the_sdk_knows(self) -> None:
        self.assertEqual(opening.HANDSHAKE_VERSIONS, HANDSHAKE_PROTOCOL_VERSIONS)
        self.assertEqual(opening.MODERN_VERSIONS, MODERN_PROTOCOL_VERSIONS)

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

    def test_a_call_can_be_the_first_message_of_that_revision(self) -> None:
        server = self.start()
        answer = server.ask("tools/call", {"name": "test_echo", "arguments": {"text": "hi"}, "_meta": ENVELOPE})
        self.assertEqual(answer["result"]["content"][0]["text"], "hi")

    def test_the_instructions_fit_what_clients_keep(self) -> None:
        self.assertLessEqual(len(INSTRUCTIONS), 2048)


@tag("process")
class TheFrontAnswersAsTheServerDoes(ProcessTestCase):
    """The first server of a home has no snapshot, so its front answers nothing."""

    def start_alone(self) -> Process:
        return self.start(home=Path(tempfile.mkdtemp(dir=self.home)))

    def conversation(self, server: Process, version: str) -> list[dict[str, Any]]:
        """Return the server's answers to a script with every kind of opening message."""
        envelope = {"_meta": ENVELOPE} if version == MODERN else {}
        if version == MODERN:
            answers = [server.ask("server/discover", envelope)]
        else:
            hello = {"protocolVersion": version, "capabilities": {"roots": {"listChanged": True}}, "clientInfo": CLIENT}
            answers = [server.ask("initialize", hello)]
            server.notify("notifications/initialized")
        answers += [server.ask(method, envelope or None) for method in ("ping", *LIST_METHODS)]
        answers += [server.ask(method, {**envelope, "cursor": "x"}) for method in LIST_METHODS]
        # Messages of the other era are refused, after either kind of opening.
        answers.append(server.ask("tools/list", {} if version == MODERN else {"_meta": ENVELOPE}))
        answers.append(server.ask("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}))
        answers.append(server.ask("tools/call", {"name": "test_origin", "arguments": {}, **envelope}))
        return answers

    def test_whole_conversations_and_single_answers_are_equal(self) -> None:
        alone = {version: self.conversation(self.start_alone(), version) for version in (*HANDSHAKE, MODERN)}
        kept = json.loads(self.keep_snapshot().read_text())["answers"]
        self.assertEqual(set(kept), set(alone))
        for version, answers in alone.items():
            with self.subTest(version=version):
                self.assertEqual(self.conversation(self.start(), version), answers)
            front = Opening(kept)
            for message, answer in zip(_opening_messages(version), answers, strict=False):
                with self.subTest(version=version, method=message["method"]):
                    found = front.take(message).result
                    self.assertEqual(answer.get("result"), json.loads(found) if found else None)

    def test_requests_sent_all_at_once_are_each_answered_once(self) -> None:
        self.keep_snapshot()
        server = self.start()
        hello = {"protocolVersion": HANDSHAKE[0], "capabilities": {}, "clientInfo": CLIENT}
        ids = [server.request("initialize", hello)]
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
            async with Client(started, mode=mode, client_info=info) as client:
                await self.converse(client)

        run_async(converse)

    async def converse(self, client: Client) -> None:
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

    def test_by_handshake(self) -> None:
        self.run_client("legacy")

    def test_without_handshake(self) -> None:
        self.run_client(MODERN)

    def test_finding_out_by_itself_without_and_with_a_snapshot(self) -> None:
        self.run_client("auto")
        self.run_client("auto")


def _opening_messages(version: str) -> list[dict[str, Any]]:
    requests: list[tuple[str, dict[str, Any]]]
    if version == MODERN:
        requests = [(method, {"_meta": ENVELOPE}) for method in ("server/discover", "ping", *LIST_METHODS)]
    else:
        hello: dict[str, Any] = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
        requests = [("initialize", hello), *((method, {}) for method in ("ping", *LIST_METHODS))]
    return [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        for number, (method, params) in enumerate(requests)
    ]
