from __future__ import annotations

import http.client
import json
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import mcp_types as types
from django.test import tag

from tests.databases import sqlite_only
from tests.mcp.client import MODERN, ROOT, McpTestCase, command, environment, run_async, wait_until
from tests.mcp.http_server import HttpServer, HttpSession, text_of


@tag("process")
class HttpTestCase(McpTestCase):
    def serve(self, *options: str) -> HttpServer:
        server = HttpServer(self.home, *options)
        self.addCleanup(server.destroy)
        return server


@tag("process")
class ServingOverHttp(HttpTestCase):
    server: HttpServer

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = HttpServer(cls.home, "--profile", "full")
        cls.addClassCleanup(cls.server.destroy)

    def test_the_sdks_client_works_in_both_eras(self) -> None:
        for mode in ("legacy", MODERN):
            with self.subTest(mode=mode), tempfile.NamedTemporaryFile(delete=False) as file:
                run_async(self.converse, mode, Path(file.name))
                self.assertFalse(Path(file.name).exists())

    async def converse(self, mode: str, path: Path) -> None:
        async def agree(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            return types.ElicitResult(action="accept", content={})

        async with self.server.client(mode, elicitation_callback=agree) as client:
            output = await client.call_tool("test_echo", {"text": "hi"})
            self.assertEqual(output.content, [types.TextContent(text="hi")])
            deleted = await client.call_tool("test_shred", {"path": str(path)})
            self.assertEqual(deleted.content, [types.TextContent(text="deleted")])

    @sqlite_only("with a database, its machines agree on the token there, for a minute without asking again")
    def test_an_empty_token_file_admits_nobody(self) -> None:
        token = self.home / "token"
        before = token.read_text()
        self.addCleanup(token.write_text, before)
        token.write_text("")
        attempts: list[dict[str, str]] = [{}, {"Authorization": "Bearer "}, {"Authorization": "Bearer"}]
        for wrong in attempts:
            self.assertEqual(self.server.status(**wrong), 401)
        self.assertNotIn(token.read_text(), ("", before))
        self.assertEqual(self.server.status(**self.server.authorization), 200)
        token.write_text("short")
        with self.server.send("GET", None, **self.server.authorization) as response:
            self.assertEqual(response.status, 503)
            self.assertIn(b"holds 5 characters, and a secret needs at least 32", response.read())

    def test_only_clients_with_the_token_are_admitted(self) -> None:
        self.assertIn(str(self.home / "token"), self.server.greeting)
        self.assertEqual((self.home / "token").stat().st_mode & 0o777, 0o600)
        known = self.server.authorization
        self.assertEqual(self.server.status(**known), 200)
        for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": known["Authorization"].replace("B", "Z")}):
            self.assertEqual(self.server.status(**wrong), 401)
        with self.server.send("GET") as response:
            self.assertEqual((response.status, response.headers["www-authenticate"]), (401, "Bearer"))
            self.assertIn(b'"code":"unauthorized"', response.read())

    def test_no_sign_in_server_is_offered_and_the_type_of_a_problem_leads_somewhere(self) -> None:
        with self.server.get("/.well-known/oauth-protected-resource") as response:
            self.assertEqual((response.status, response.read()), (404, b"Not found\n"))
            self.assertIsNone(response.headers["www-authenticate"])
        with self.server.send("GET") as response:
            address = json.loads(response.read())["type"]
        with self.server.get(address) as response:
            self.assertEqual((response.status, json.loads(response.read())["status"]), (200, 401))
        with self.server.get("/.well-known/oauth-protected-resource", Host="evil.example") as response:
            self.assertEqual(response.status, 421)

    def test_foreign_hosts_and_pages_are_refused(self) -> None:
        known, own = self.server.authorization, f"localhost:{self.server.port}"
        self.assertEqual(self.server.status(**known, Host=own, Origin=f"http://{own}"), 200)
        for host in ("evil.example", "127.0.0.1:1", f"evil.example:{self.server.port}"):
            self.assertEqual(self.server.status(**known, Host=host), 421, host)
        for origin in ("https://evil.example", "http://localhost:3000", "null"):
            self.assertEqual(self.server.status(**known, Origin=origin), 403, origin)

    def test_each_client_has_a_session_of_its_own(self) -> None:
        first, second = HttpSession(self.server), HttpSession(self.server)
        for client, purpose in ((first, "one"), (second, "another")):
            self.assertIn("active", client.say("session_start", session_id=purpose, purpose=purpose))
        self.assertEqual(first.say("test_origin"), "mcp plain client one alpha")
        self.assertEqual(second.say("test_origin"), "mcp plain client another alpha")

    def test_clients_without_handshake_are_distinguished_by_name(self) -> None:
        first, other, again = (run_async(self.write_as, name) for name in ("one", "two", "one"))
        self.assertRegex(first, r"^mcp one \S+ alpha$")
        self.assertEqual(again, first)
        self.assertNotEqual(other.split()[2], first.split()[2])

    async def write_as(self, name: str) -> str:
        info = types.Implementation(name=name, version="1")
        async with self.server.client(MODERN, client_info=info) as client:
            await client.call_tool("memory_write", {"title": f"By {name}", "content": f"of {name}"})
            output = (await client.call_tool("test_origin", {})).content[0]
            assert isinstance(output, types.TextContent)
            return output.text

    def test_a_client_that_leaves_ends_its_turn(self) -> None:
        leaving, staying = HttpSession(self.server), HttpSession(self.server)
        self.assertIn("active", leaving.say("session_start", session_id="leaving", purpose="leave"))
        self.assertIn("created", leaving.say("memory_write", title="Left", content="behind"))
        self.assertNotIn("turn.ended", staying.say("audit_replay", session_id="leaving"))
        with leaving.send("DELETE") as response:
            self.assertEqual(response.status, 200)
        wait_until(lambda: "turn.ended" in staying.say("audit_replay", session_id="leaving"))


@tag("process")
class StartingOverHttp(HttpTestCase):
    def test_without_a_token_everyone_on_the_machine_is_admitted(self) -> None:
        server = self.serve("--no-token", "--allow-host", "hub.example")
        self.assertIn("to everyone on this machine", server.greeting)
        self.assertEqual(server.status(), 200)
        self.assertEqual(server.status(Host="hub.example"), 200)
        self.assertEqual(server.status(Host="evil.example"), 421)

    def test_a_port_in_use_is_an_error(self) -> None:
        taken = f"127.0.0.1:{self.serve().port}"
        done = subprocess.run(
            command("--http", taken), env=environment(self.home), cwd=ROOT, capture_output=True, text=True, check=False
        )
        self.assertEqual((done.returncode, done.stdout), (8, ""))
        self.assertRegex(done.stderr, r"^can.t listen on 127.0.0.1 port \d+ \(Address already in use\); choose another")


@tag("process")
class EndingOverHttp(HttpTestCase):
    def test_a_signal_during_a_write_lets_it_finish_and_answer(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number), tempfile.NamedTemporaryFile() as trace:
                server, path = self.serve(), Path(trace.name)
                client = HttpSession(server)
                listening = client.send("GET")
                writing = client.begin("test_slow_write", path=trace.name, seconds=1)
                wait_until(lambda path=path: path.read_text() == "begun")
                server.process.send_signal(number)
                self.assertEqual(text_of(writing), "written")
                self.assertEqual(path.read_text(), "done")
                self.assertEqual(server.process.wait(120), 0)
                for response in (listening, writing):
                    response.close()

    def test_an_open_question_does_not_delay_the_exit(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            server = self.serve()
            waiting = HttpSession(server, elicitation={}).begin("test_shred", path=file.name)
            self.assertIn("elicitation/create", _event(waiting))
            server.process.terminate()
            self.assertIn("the server is stopping", text_of(waiting))
            self.assertEqual(server.process.wait(120), 0)
            self.assertTrue(Path(file.name).exists())
            waiting.close()


def _event(response: http.client.HTTPResponse) -> str:
    while not (line := response.readline().decode()).startswith("data: "):
        assert line
    return line
