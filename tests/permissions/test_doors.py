"""Tokens at real doors: a hub that serves REST, a server of MCP over HTTP, and commands in a process of their own."""

from __future__ import annotations

import http.client
import json
from contextlib import ExitStack
from typing import Any

from django.test import SimpleTestCase

from tests.mcp.client import HANDSHAKE
from tests.mcp.http_server import HttpServer, HttpSession, hello, text_of
from tests.web.server import Server, Shell, poll, serving


class DoorTests(SimpleTestCase):
    server: Server
    mcp: HttpServer
    shell: Shell

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        with ExitStack() as stack:
            cls.server = stack.enter_context(serving("--no-worker"))
            for project in ("alpha", "beta"):
                assert cls.server.api("POST", "projects", {"project_id": project}).status == 201
            cls.mcp = HttpServer(cls.server.home)
            stack.callback(cls.mcp.destroy)
            cls.shell = Shell(cls.server.home)
            stack.callback(cls.shell.close)
            cls.addClassCleanup(stack.pop_all().close)

    def run_token(self, *arguments: str) -> str:
        code, output = self.shell.run("token", *arguments)
        self.assertEqual(code, 0, output)
        return output

    def make(self, name: str, verbs: str, *options: str) -> str:
        return self.run_token("create", "--name", name, "--verbs", verbs, "--days", "30", *options).split()[-1]

    def rest(self, token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        reply = self.server.request(method, f"/api/v1/{path}", body, Authorization=f"Bearer {token}")
        return reply.status, reply.json()

    def session(self, token: str) -> HttpSession:
        return HttpSession(_As(self.mcp, token))  # type: ignore[arg-type]

    def test_a_token_that_may_write_names_itself_in_the_events_of_both_doors(self) -> None:
        text = self.make("both", "read,write", "--project", "alpha")
        status, written = self.rest(text, "POST", "projects/alpha/memories", {"title": "R", "content": "by REST"})
        self.assertEqual(status, 201, written)
        self.assertIn("created", self.session(text).say("memory_write", title="M", content="by MCP"))
        events = self.rest(text, "GET", "projects/alpha/events?type=memory.written")[1]["results"]
        origins = {(event["source"], event["actor"]) for event in events if event["actor"] == "token:both"}
        self.assertEqual(origins, {("rest", "token:both"), ("mcp", "token:both")})

    def test_a_token_that_may_read_reads_over_mcp_and_writes_nothing(self) -> None:
        session = self.session(self.make("reader", "read", "--project", "alpha"))
        before = self.server.api("GET", "projects/alpha").json()["memories"]
        self.assertNotIn("forbidden", session.say("memory_search", query="anything"))
        self.assertNotIn("forbidden", session.say("memory_context"))
        for tool, arguments in (
            ("memory_write", {"title": "No", "content": "no"}),
            ("session_start", {"purpose": "no"}),
            ("project_create", {"id": "alpha", "if_exists": "update", "name": "no"}),
        ):
            self.assertIn("forbidden: this caller may not", session.say(tool, **arguments))
        self.assertEqual(self.server.api("GET", "projects/alpha").json()["memories"], before)

    def test_a_token_for_another_project_does_not_get_in_and_one_for_this_sees_no_other(self) -> None:
        foreign = self.make("foreign", "admin", "--project", "beta")
        status, problem = self.initialize(foreign)
        self.assertEqual((status, problem["code"]), (403, "forbidden"))
        self.assertNotIn("alpha", problem["detail"])
        session = self.session(self.make("own", "admin", "--project", "alpha"))
        self.assertNotIn("beta", session.say("project_list"))
        self.assertIn("not_found: there is no project 'beta'", session.say("project_get", id="beta"))
        self.assertIn("no organisation yet", session.say("org_list"))
        self.assertIn("forbidden", session.say("memory_write", title="G", content="g", scope="global"))

    def test_a_session_is_its_own_tokens(self) -> None:
        mine = self.session(self.make("mine", "read"))
        theirs = self.session(self.make("theirs", "read"))
        theirs._headers["MCP-Session-Id"] = mine._headers["MCP-Session-Id"]
        with theirs.begin("memory_search", query="x") as response:
            self.assertEqual(response.status, 404)
        with theirs.send("DELETE") as response:
            self.assertEqual(response.status, 404)
        self.assertNotIn("error", mine.say("memory_search", query="x"))

    def test_a_revocation_counts_at_once_in_every_process(self) -> None:
        text = self.make("short", "read", "--project", "alpha")
        session = self.session(text)
        self.assertEqual(self.rest(text, "GET", "projects/alpha/stats")[0], 200)
        self.assertIn("revoked on", self.run_token("revoke", "short"))
        status, problem = self.rest(text, "GET", "projects/alpha/stats")
        self.assertEqual(status, 401)
        self.assertIn("the token 'short' was revoked on", problem["detail"])
        with session.begin("memory_search", query="x") as response:
            self.assertEqual(response.status, 401)
            self.assertIn(b"was revoked on", response.read())

    def test_its_last_use_is_shown_and_its_text_is_nowhere(self) -> None:
        text = self.make("shown", "read")
        self.assertRegex(self.run_token("list"), rf"{text[:11]}…  shown may read in the whole hub until .+; never used")
        with self.session(text).begin("memory_search", query="x") as response:
            text_of(response)
        poll(
            lambda: "used last" in next(line for line in self.run_token("list").splitlines() if " shown " in line),
            what="the note of its use",
        )
        self.rest(text, "GET", "projects/nowhere/stats")
        secret = text[12:].encode()
        kept = [path for path in self.server.home.rglob("*") if path.is_file() and secret in path.read_bytes()]
        self.assertEqual(kept, [])
        self.assertNotIn(secret.decode(), self.server.text)

    def test_people_are_let_in_from_the_command_line(self) -> None:
        code, link = self.shell.run("signin", "--user", "ann", "--role", "viewer")
        self.assertEqual(code, 0, link)
        path = link.strip().removeprefix(self.server.address)
        given = self.server.request("GET", path).headers.get_all("Set-Cookie") or []
        cookie = "; ".join(each.partition(";")[0] for each in given)
        page = self.server.request("GET", "/p/alpha/admin/", Cookie=cookie)
        self.assertEqual(page.status, 200)
        self.assertEqual(self.server.request("GET", "/people", Cookie=cookie).status, 403)
        for arguments, said in (
            (("--user", "bob"), "add --role to create them"),
            (("--user", "Bob", "--role", "viewer"), "use 1 to 64 of a-z"),
            (("--role", "viewer"), "--role needs --user"),
            (("--user", "owner", "--role", "viewer"), "the last active owner"),
        ):
            code, output = self.shell.run("signin", *arguments)
            self.assertNotEqual(code, 0)
            self.assertIn(said, output)
        self.assertEqual(self.shell.run("signin", "--user", "ann")[0], 0)

    def initialize(self, token: str) -> tuple[int, Any]:
        with _As(self.mcp, token).send("POST", hello(), **_As(self.mcp, token).authorization) as response:
            return response.status, json.loads(response.read())


class _As:
    """The server as a client sees it that sends a token of its own."""

    def __init__(self, server: HttpServer, token: str) -> None:
        self._server = server
        self.authorization = {"Authorization": f"Bearer {token}", "MCP-Protocol-Version": HANDSHAKE[-1]}

    def send(self, method: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        return self._server.send(method, body, **headers)
