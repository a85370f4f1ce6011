from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from memoryhub.mcp.wire import MAX_LINE_BYTES
from tests.mcp.client import CLIENT, HANDSHAKE, Client, McpTestCase, ProcessTestCase, Server


class MalformedInputIsAnswered(McpTestCase):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.share_server()
        assert cls.server.say("test_echo", text="up") == "up"

    def refusal(self, line: bytes) -> dict[str, Any]:
        """Send a line and return the error; the server must go on serving."""
        self.server.send_bytes(line + b"\n")
        answer = self.server.receive()
        self.assertEqual(self.server.say("test_echo", text="still here"), "still here")
        self.assertEqual(answer["jsonrpc"], "2.0")
        return {"id": answer["id"], **answer["error"]}

    def test_text_that_is_no_json(self) -> None:
        error = self.refusal(b"hello")
        self.assertEqual((error["id"], error["code"]), (None, -32700))

    def test_json_that_breaks_off_still_gets_its_id_back(self) -> None:
        self.assertEqual(self.refusal(b'{"jsonrpc": "2.0", "id": 77, "method": "tools/')["id"], 77)
        self.assertEqual(self.refusal(b'{"method": "x", "params": {]}, "jsonrpc": "2.0", "id": "a-1"}')["id"], "a-1")

    def test_numbers_that_json_does_not_have(self) -> None:
        self.assertEqual(self.refusal(b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":NaN}}')["code"], -32700)

    def test_a_nest_too_deep_to_parse(self) -> None:
        self.assertEqual(self.refusal(b"[" * 200_000)["code"], -32700)

    def test_invalid_utf8(self) -> None:
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
        self.server.send([{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (31, 32)])
        answers = [self.server.receive() for _ in range(2)]
        self.assertEqual([answer["id"] for answer in answers], [31, 32])
        self.assertTrue(all("batch" in answer["error"]["message"] for answer in answers))
        self.assertEqual(self.refusal(b"[]")["id"], None)

    def test_messages_that_break_json_rpc(self) -> None:
        for line, request_id in (
            (b"5", None),
            (b'{"id": 1, "method": "ping"}', 1),
            (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', None),
            (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', None),
            (b'{"jsonrpc": "2.0", "id": 2, "method": 7}', 2),
            (b'{"jsonrpc": "2.0", "id": 3, "method": "ping", "params": [1]}', 3),
            (b'{"jsonrpc": "2.0", "id": 4}', 4),
        ):
            with self.subTest(line=line):
                error = self.refusal(line)
                self.assertEqual((error["id"], error["code"]), (request_id, -32600))

    def test_a_line_that_is_too_long_gets_its_id_back_from_either_end(self) -> None:
        filler = b"x" * (MAX_LINE_BYTES + 1000)
        first = self.refusal(b'{"jsonrpc":"2.0","id":41,"method":"ping","params":{"x":"' + filler + b'"}}')
        last = self.refusal(b'{"method":"ping","params":{"x":"' + filler + b'"},"jsonrpc":"2.0","id":42}')
        self.assertEqual((first["id"], last["id"]), (41, 42))
        self.assertIn(str(MAX_LINE_BYTES), first["message"])

    def test_blank_lines_are_nothing(self) -> None:
        self.server.send_bytes(b"\n  \n\r\n")
        self.assertEqual(self.server.say("test_echo", text="on"), "on")

    def test_a_response_that_nobody_asked_for_is_dropped(self) -> None:
        self.server.send({"jsonrpc": "2.0", "id": 99, "result": {}})
        self.server.send({"jsonrpc": "2.0", "id": 99, "error": "nonsense"})
        self.assertEqual(self.server.say("test_echo", text="on"), "on")


class TheFrontRefusesTheSame(ProcessTestCase):
    def test_malformed_lines_before_the_server_is_up(self) -> None:
        self.keep_snapshot()
        server = self.start()
        server.send_bytes(b"hello\n[1]\n")
        self.assertEqual([server.receive()["error"]["code"] for _ in range(2)], [-32700, -32600])
        server.initialize()
        self.assertEqual(server.say("test_echo", text="on"), "on")


class TheWireCarriesOnlyTheProtocol(ProcessTestCase):
    def rest_after_end(self, server: Client) -> list[dict[str, Any]]:
        server.close_input()
        return server.rest()

    def test_what_a_tool_prints_goes_to_stderr(self) -> None:
        server = self.connect()
        self.assertEqual(server.say("test_print"), "printed")
        self.assertEqual(self.rest_after_end(server), [])
        self.assertIn("this is not for the wire", server.wait()[1])

    def test_long_texts_pass_in_both_directions(self) -> None:
        text = "Grüße, 世界 \N{GRINNING FACE} " * 100_000
        server = self.connect()
        self.assertEqual(server.say("test_echo", text=text), text)

    def test_a_client_that_reads_late_gets_everything(self) -> None:
        server = self.connect()
        ids = {server.request("tools/call", _echo("y" * 50_000, times=5)) for _ in range(20)}
        self.assertEqual({server.receive()["id"] for _ in ids}, ids)

    def test_a_file_can_be_the_input(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "requests.jsonl"
            hello = {"protocolVersion": HANDSHAKE[0], "capabilities": {}, "clientInfo": CLIENT}
            lines = [("initialize", hello), *[("tools/call", _echo(str(number))) for number in range(5)]]
            script.write_text(
                "\n".join(
                    json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
                    for number, (method, params) in enumerate(lines)
                )
            )
            with script.open() as file:
                server = self.start(stdin=file.fileno())
            answers = {answer["id"]: answer for answer in server.rest()}
            self.assertEqual(sorted(answers), list(range(6)))
            self.assertEqual(answers[5]["result"]["content"][0]["text"], "4")
            self.assertEqual(server.wait()[0], 0)


def _echo(text: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "test_echo", "arguments": {"text": text, **arguments}}
