from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from tests.mcp.client import ENVELOPE, MODERN, McpTestCase, Server, parameters, run_async

QUESTION = "permanently delete #412 'file'?"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
Action = Literal["accept", "decline", "cancel"]


class ConfirmationTestCase(McpTestCase):
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
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = Server()
        cls.addClassCleanup(cls.server.destroy)
        cls.server.initialize(elicitation={})

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

    def test_is_asked_and_accepting_deletes(self) -> None:
        self.assert_deleted(self.answer({"result": {"action": "accept", "content": {}}}))

    def test_declining_deletes_nothing(self) -> None:
        self.assert_refused(self.answer({"result": {"action": "decline"}}), "forbidden: the user declined")
        self.assert_refused(self.answer({"result": {"action": "cancel"}}), "forbidden: the user dismissed the question")

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


class AClientWithoutElicitation(ConfirmationTestCase):
    def test_gets_the_question_the_token_and_how_to_call_again(self) -> None:
        server = self.share_server()
        by_addresses_alone = self.start()
        by_addresses_alone.initialize(elicitation={"url": {}})
        for client in (server, by_addresses_alone):
            code, lines = self.refusal(client)
            self.assertEqual(code, "confirmation_required")
            self.assertEqual(lines[0], f"confirmation_required: {QUESTION}")
            self.assertIn("next: nothing was deleted yet: ask the user", lines[3])
            self.assertIn("call test_shred again", lines[3])
        token = lines[2].removeprefix("confirm_token: ")
        wrong = server.call("test_shred", path=str(self.path), confirm_token="shred-0")
        self.assertTrue(wrong["isError"])
        self.assertTrue(self.path.exists())
        self.assert_deleted(server.call("old_shred", path=str(self.path), confirm_token=token))

    def refusal(self, server: Server) -> tuple[str, list[str]]:
        result = server.call("test_shred", path=str(self.path), format="json")
        self.assertTrue(result["isError"])
        self.assertEqual(result["structuredContent"]["id"], 412)
        lines = result["content"][0]["text"].splitlines()
        self.assertEqual(result["structuredContent"]["confirm_token"], lines[2].removeprefix("confirm_token: "))
        return result["structuredContent"]["code"], lines

    def test_is_refused_in_the_revision_without_handshake_too(self) -> None:
        arguments = {"path": str(self.path)}
        answer = self.start().ask("tools/call", {"name": "test_shred", "arguments": arguments, "_meta": ENVELOPE})
        self.assertIn("confirm_token: shred-", answer["result"]["content"][0]["text"])


class AClientWithoutHandshake(ConfirmationTestCase):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = Server()
        cls.addClassCleanup(cls.server.destroy)

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


class TheSdksClient(ConfirmationTestCase):
    def run_client(self, mode: str, action: Action) -> types.CallToolResult:
        async def ask(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            self.assertEqual(params.message, QUESTION)
            return types.ElicitResult(action=action, content={} if action == "accept" else None)

        async def converse() -> types.CallToolResult:
            started = stdio_client(parameters(self.home, "--project", "alpha", "--profile", "full"))
            async with Client(started, mode=mode, elicitation_callback=ask) as client:
                return await client.call_tool("test_shred", {"path": str(self.path)})

        return run_async(converse)

    def test_asks_its_user_in_both_eras(self) -> None:
        for mode in ("legacy", MODERN):
            with self.subTest(mode=mode):
                self.path.write_text("again")
                declined = self.run_client(mode, "decline")
                self.assertTrue(declined.is_error)
                self.assertTrue(self.path.exists())
                accepted = self.run_client(mode, "accept")
                self.assertEqual(accepted.content, [types.TextContent(text="deleted")])
                self.assertFalse(self.path.exists())
