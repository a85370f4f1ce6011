from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest import TestCase, mock

import anyio
import mcp_types as types
from django.test import SimpleTestCase, tag
from mcp.shared.subscriptions import ResourceUpdated

from memoryhub.core.errors import Busy, TooMany
from memoryhub.mcp import admission
from memoryhub.mcp.binding import Admitted
from tests.databases import sqlite_only
from tests.mcp.case import McpTestCase
from tests.mcp.client import HANDSHAKE, MODERN, ROOT, command, environment, run_async, wait_until
from tests.mcp.http_server import (
    HttpServer,
    HttpSession,
    HubProject,
    HubTestCase,
    half_a_post,
    hello,
    hub_with,
    text_of,
)
from tests.web.server import Server, poll


async def agree(_context: Any, _params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={})


def text_in(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


def assert_foreign_refused(test: TestCase, server: HttpServer, *hosts: str, origins: tuple[str, ...] = ()) -> None:
    known, address = server.authorization, f"localhost:{server.port}"
    test.assertEqual(server.status(**known, Host=address, Origin=f"http://{address}"), 200)
    for host in hosts:
        test.assertEqual(server.status(**known, Host=host), 421, host)
    for origin in ("https://evil.example", "http://localhost:3000", "null", *origins):
        test.assertEqual(server.status(**known, Origin=origin), 403, origin)


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
        async with self.server.client(mode, elicitation_callback=agree) as client:
            self.assertEqual(text_in(await client.call_tool("test_echo", {"text": "hi"})), "hi")
            self.assertEqual(text_in(await client.call_tool("test_shred", {"path": str(path)})), "deleted")

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
        assert_foreign_refused(self, self.server, "evil.example", "127.0.0.1:1", f"evil.example:{self.server.port}")

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
            return text_in(await client.call_tool("test_origin", {}))

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
        program, variables = command("--http", f"127.0.0.1:{self.serve().port}"), environment(self.home)
        done = subprocess.run(program, env=variables, cwd=ROOT, capture_output=True, text=True, check=False)
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


class ServingAllProjects(HubTestCase):
    def test_the_sdks_client_works_in_both_eras_and_in_two_projects_at_once(self) -> None:
        for mode in ("legacy", MODERN):
            with self.subTest(mode=mode):
                run_async(self.converse, mode)

    async def converse(self, mode: str) -> None:
        path = self.folder / mode
        path.touch()
        async with self.alpha.client(mode, elicitation_callback=agree) as first, self.beta.client(mode) as second:
            await first.call_tool("test_shred", {"path": str(path)})
            self.assertFalse(path.exists())
            for client, project in ((first, "alpha"), (second, "beta")):
                written = await client.call_tool("memory_write", {"title": f"{mode} of {project}", "content": project})
                self.assertFalse(written.is_error, written)
            for client, project, other in ((first, "alpha", "beta"), (second, "beta", "alpha")):
                self.assertRegex(text_in(await client.call_tool("test_origin", {})), f" {project}$")
                results = text_in(await client.call_tool("memory_search", {"query": f"{mode} of"}))
                self.assertIn(f"of {project}", results)
                self.assertNotIn(f"of {other}", results)

    def test_a_missing_or_wrong_token_is_asked_for_and_no_sign_in_server_is_offered(self) -> None:
        for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Bearer mh_{'a' * 8}_{'b' * 43}"}):
            with self.alpha.send("POST", hello(), **wrong) as response:
                self.assertEqual((response.status, response.headers["www-authenticate"]), (401, "Bearer"))
                self.assertEqual(json.loads(response.read())["code"], "unauthorized")
        for path in ("/.well-known/oauth-protected-resource/p/alpha/mcp", "/.well-known/oauth-authorization-server"):
            with self.alpha.get(path) as response:
                self.assertEqual((response.status, response.headers["www-authenticate"]), (404, None))
                self.assertEqual(len(response.read().splitlines()), 1)

    def test_a_project_that_a_token_may_not_see_is_as_unknown_as_one_that_is_not_there(self) -> None:
        token = self.token("limited", "admin", "--project", "alpha")
        alpha, *unknown = (HubProject(self.hub, name, token) for name in ("alpha", "beta", "nowhere"))
        self.assertEqual(alpha.status(**alpha.authorization), 200)
        for project, name in zip(unknown, ("beta", "nowhere"), strict=True):
            answer = self.refused(project.send("POST", hello(), **project.authorization))
            self.assertEqual(answer, (404, f"there is no project '{name}' in this hub; known: alpha"))
        self.assertFalse((self.hub.home / "projects" / "nowhere").exists())

    def test_a_body_that_ends_after_its_token_was_revoked_writes_nothing(self) -> None:
        server = HubProject(self.hub, "alpha", self.token("slow"))
        arguments = {"title": "Too late", "content": "sent by a revoked token"}
        with HttpSession(server).partly("memory_write", **arguments) as (connection, last):
            self.run_token("revoke", "slow")
            connection.send(last)
            status, sentence = self.refused(connection.getresponse())
        self.assertEqual(status, 401)
        self.assertIn("the token 'slow' was revoked", sentence)
        results = self.hub.api("GET", "projects/alpha/memories?limit=100").json()["results"]
        self.assertNotIn("Too late", [memory["title"] for memory in results])

    def test_an_unknown_session_is_named(self) -> None:
        headers = {"MCP-Protocol-Version": HANDSHAKE[-1], "MCP-Session-Id": "never", **self.alpha.authorization}
        for method in ("POST", "GET", "DELETE"):
            answer = self.alpha.send(method, hello() if method == "POST" else None, **headers)
            self.assertEqual(self.refused(answer), (404, "there is no such session; start one with initialize"))

    def test_another_project_is_refused_with_its_address(self) -> None:
        said = HttpSession(self.alpha).say("memory_search", query="x", project_id="beta")
        self.assertIn("forbidden: this server is bound to project 'alpha'; use the address /p/beta/mcp", said)

    def test_foreign_hosts_and_pages_are_refused(self) -> None:
        hosts = ("evil.example", f"evil.example:{self.alpha.port}", "")
        assert_foreign_refused(self, self.alpha, *hosts, origins=("",))

    def test_a_body_that_is_too_long_is_refused(self) -> None:
        with half_a_post(self.alpha, {"Transfer-Encoding": "chunked"}) as connection:
            with contextlib.suppress(ConnectionError):
                for _ in range(40):
                    connection.send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            self.assertEqual(connection.getresponse().status, 413)

    def test_calls_count_in_the_metrics(self) -> None:
        HttpSession(self.beta).say("memory_search", query="anything")
        text = self.hub.api("GET", "metrics").body.decode()
        self.assertIn('memory_hub_retrieval_seconds_count{kind="search",project="beta"}', text)

    def test_clients_that_subscribed_in_either_era_are_notified_of_what_changed(self) -> None:
        session = HttpSession(self.alpha)
        number = session.say("memory_write", title="Followed", content="one").split("#")[1].split()[0]
        run_async(self.subscribe_with_handshake, f"memories://get/{number}", int(number))
        run_async(self.listen, f"memories://get/{number}", int(number))

    async def subscribe_with_handshake(self, uri: str, number: int) -> None:
        changed = anyio.Event()

        async def heard(message: Any) -> None:
            if isinstance(message, types.ResourceUpdatedNotification):
                self.assertEqual(str(message.params.uri), uri)
                changed.set()

        async with self.alpha.client("legacy", message_handler=heard) as client:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the newest revision has another way
                await client.subscribe_resource(uri)
            with anyio.fail_after(60):
                for version in range(1, 100):  # the stream of notifications may open later than the session
                    await self.update(client, number, version, f"handshake {version}")
                    with anyio.move_on_after(2):
                        await changed.wait()
                        break
            self.assertTrue(changed.is_set())

    async def update(self, client: Any, number: int, version: int, content: str) -> None:
        given = {"id": number, "content": content, "base_version": version}
        updated = await client.call_tool("memory_update", given)
        self.assertFalse(updated.is_error, updated)

    async def listen(self, uri: str, number: int) -> None:
        uris = [f"memories://get/{number + 1_000}", uri]  # the first is unchanged: there is no such memory
        async with self.alpha.client(MODERN) as client, client.listen(resource_subscriptions=uris) as stream:
            self.assertEqual(stream.honored.resource_subscriptions, uris)
            text = (await client.read_resource(uri)).contents[0]
            assert isinstance(text, types.TextResourceContents)
            await client.call_tool("memory_write", {"title": "Beside it", "content": "of no interest"})
            await self.update(client, number, json.loads(text.text)["version"], "listened to")
            with anyio.fail_after(60):
                async for event in stream:
                    self.assertEqual(event, ResourceUpdated(uri))
                    break

    def test_what_cannot_be_followed_is_refused_in_one_sentence(self) -> None:
        session = HttpSession(self.alpha)
        for uri, sentence in {
            "nowhere://x": "not_found: no resource matches 'nowhere://x'",
            "context://pack": "invalid: 'context://pack' can't be followed, because reading it is recorded; "
            "read it when you need it",
        }.items():
            body = {"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": uri}}
            with session.send("POST", body) as response:
                self.assertIn(sentence, response.read().decode())

    @tag("process")
    def test_slow_reads_of_one_project_do_not_keep_another_from_reading(self) -> None:
        with self.blocked([HttpSession(self.alpha) for _ in range(5)]) as calls:
            self.wait_for_begun(2)
            self.assertEqual(HttpSession(self.beta).say("test_echo", text="at once"), "at once")
            self.assertFalse(any(call.done() for call in calls))
            self.assertEqual(self.trace.read_text(), "begun\n" * 2)
        self.assertEqual([call.result() for call in calls], ["waited"] * 5)

    @tag("process")
    def test_a_slow_write_to_one_project_delays_its_other_writes_only(self) -> None:
        first, second = self.folder / "first", self.folder / "second"
        with ThreadPoolExecutor(2) as pool:
            slow, next_one = HttpSession(self.alpha), HttpSession(self.alpha)
            begun = pool.submit(slow.say, "test_slow_write", path=str(first), until=str(self.go))
            wait_until(lambda: first.exists() and first.read_text() == "begun")
            waiting = pool.submit(next_one.say, "test_slow_write", path=str(second))
            try:
                self.assertIn("created", HttpSession(self.beta).say("memory_write", title="Beta", content="not late"))
                self.assertEqual(HttpSession(self.alpha).say("test_echo", text="read"), "read")
                self.assertFalse(second.exists())
            finally:
                self.go.touch()
            self.assertEqual((begun.result(), waiting.result()), ("written", "written"))


def program(*lines: str) -> str:
    """Return a program that serves a hub after some changes."""
    return "\n".join((*BEGINNING.strip().splitlines(), *lines, "sys.exit(main(sys.argv))"))


BEGINNING = """
import os, signal, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings"
django.setup()
from memoryhub.cli import main
from memoryhub.mcp import admission, gate, mount, threads
from memoryhub.ops.serving import web
"""
WITH_SMALL_LIMITS = program(
    "gate.MOST_BYTES_OF_BODIES = 1_000_000",
    "gate.MOST_SECONDS_OF_A_BODY = 5",
    "gate.MOST_STREAMS_OF_A_TOKEN = 2",
    "gate.MOST_CALLS_OF_A_TOKEN = 6",
    "gate.PATROL_SECONDS = 0.05",
    "admission.MOST_SESSIONS_OF_A_PERSON = 8",
    "threads.MAX_QUEUED = 2",
)
# Prints on a signal whether the SDK is loaded, and each use that keeps an idle hub running
WATCHED = program(
    "signal.signal(signal.SIGUSR1, lambda *_: print('loaded:', 'mcp.server.lowlevel' in sys.modules, flush=True))",
    "make = mount.McpMount.__init__",
    "mount.McpMount.__init__ = lambda self, streams, _: make(self, streams, lambda: print('used', flush=True))",
)
# Waits for what was begun as long as a slow machine takes
PATIENT = program("web._GRACE_SECONDS = 120")


@tag("process")
class Limits(HubTestCase):
    program = WITH_SMALL_LIMITS

    def test_one_token_has_so_many_sessions(self) -> None:
        token = self.token("many")
        server = HubProject(self.hub, "alpha", token)
        admission = [HttpSession(server) for _ in range(8)]
        refused = server.send("POST", hello(), **server.authorization)
        self.assertEqual(refused.headers["Retry-After"], "1")
        self.assertEqual(self.refused(refused), (429, "you have 8 sessions; end some of them"))
        with admission[0].send("DELETE") as response:
            self.assertEqual(response.status, 200)
        HttpSession(server)
        HttpSession(HubProject(self.hub, "alpha", self.token("another")))

    def test_one_token_has_so_many_streams_and_a_revoked_one_has_none(self) -> None:
        token = self.token("streams")
        server = HubProject(self.hub, "alpha", token)
        streams = [HttpSession(server).send("GET") for _ in range(2)]
        self.assertEqual([stream.status for stream in streams], [200, 200])
        status, sentence = self.refused(HttpSession(server).send("GET"))
        self.assertEqual((status, sentence), (429, "this token has 2 streams open at once; wait for some to end"))
        self.run_token("revoke", "streams")
        for stream in streams:
            with stream:
                self.assertNotIn(b"data:", stream.read())

    def test_calls_beyond_the_queue_of_a_project_are_answered_with_busy(self) -> None:
        with self.blocked([HttpSession(self.alpha) for _ in range(5)]) as calls:
            poll(lambda: any(call.done() for call in calls), what="an answer")
            (refusal,) = [call.result() for call in calls if call.done()]
            self.assertEqual(refusal, "busy: 2 calls of this project are waiting already; repeat the call in a moment")
            self.assertEqual(HttpSession(self.beta).say("test_echo", text="beta"), "beta")
        self.assertEqual(sorted(call.result() for call in calls)[1:], ["waited"] * 4)

    def test_bodies_have_limits_of_time_and_of_their_sum(self) -> None:
        self.assertEqual(self.send_body(b" ", length=1_000), (408, b"The body took too long\n"))
        status, problem = self.send_body(b" " * 1_500_000, length=1_500_000)
        self.assertEqual((status, json.loads(problem)["code"]), (503, "busy"))
        self.assertEqual(HttpSession(self.alpha).say("test_echo", text="on"), "on")

    def send_body(self, content: bytes, *, length: int) -> tuple[int, bytes]:
        with half_a_post(self.alpha, {"Content-Length": str(length)}) as connection:
            with contextlib.suppress(ConnectionError):
                connection.send(content)
            response = connection.getresponse()
            return response.status, response.read()

    def test_one_token_has_so_many_calls_at_once(self) -> None:
        token = self.token("caller")
        alpha, beta = (HubProject(self.hub, project, token) for project in ("alpha", "beta"))
        with self.blocked([HttpSession(server) for server in (alpha, beta) for _ in range(3)]) as calls:
            self.wait_for_begun(4)
            # The other two calls may arrive later than these four.
            poll(lambda: self.is_full(alpha), what="a refusal")
        self.assertEqual([call.result() for call in calls], ["waited"] * 6)

    def is_full(self, server: HubProject) -> bool:
        with server.send("POST", hello(), **server.authorization) as response:
            return response.status == 429 and b"this token has 6 calls open at once" in response.read()


@tag("process")
class WatchingTheHub(TestCase):
    def test_the_first_admitted_request_loads_the_sdk_and_calls_but_no_streams_count_as_use(self) -> None:
        with hub_with("alpha", program=WATCHED) as hub:
            self.assertEqual(HubProject(hub).status(), 401)
            self.assertEqual(self.loaded(hub), "loaded: False\n")
            session = HttpSession(HubProject(hub))
            self.assertEqual(self.loaded(hub), "loaded: True\n")
            with session.send("GET") as stream:
                self.assertEqual(stream.status, 200)
                session.say("test_echo", text="a call")
                session.send("DELETE").close()
            hub.end()
            self.assertEqual(hub.output.count("used\n"), 4)  # two of the handshake, the call, the end of the session

    def loaded(self, hub: Server) -> str:
        before = self.answers(hub)
        hub.process.send_signal(signal.SIGUSR1)
        poll(lambda: len(self.answers(hub)) > len(before), what="the answer")
        return self.answers(hub)[-1]

    def answers(self, hub: Server) -> list[str]:
        return [line for line in hub.output if line.startswith("loaded: ")]


@tag("process")
class EndingTheHub(TestCase):
    def test_a_signal_during_a_write_lets_it_finish_and_answer_and_ends_the_streams(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with (
                self.subTest(signal=number),
                hub_with("alpha", program=PATIENT) as hub,
                tempfile.TemporaryDirectory() as folder,
                ThreadPoolExecutor(1) as pool,
            ):
                path, go = Path(folder, "trace"), Path(folder, "go")
                alpha = HubProject(hub)
                session, late = HttpSession(alpha), HttpSession(alpha)
                listening = session.send("GET")
                writing = pool.submit(text_of, session.begin("test_slow_write", path=str(path), until=str(go)))
                wait_until(lambda path=path: path.exists() and path.read_text() == "begun")
                hub.process.send_signal(number)
                poll(partial(self.is_stopping, late), what="a refusal")
                go.touch()
                self.assertEqual(writing.result(), "written")
                self.assertEqual(path.read_text(), "done")
                listening.read()
                listening.close()
                self.assertEqual(hub.process.wait(120), 0)
                self.assertNotIn("Traceback", hub.text)

    def test_a_subscriber_of_the_newest_revision_is_sent_the_end_of_its_stream(self) -> None:
        with hub_with("alpha") as hub:
            run_async(self.listen_to_the_end, hub)
            self.assertEqual(hub.process.wait(120), 0)

    async def listen_to_the_end(self, hub: Server) -> None:
        async with HubProject(hub).client(MODERN) as client, client.listen(resources_list_changed=True) as stream:
            hub.process.send_signal(signal.SIGTERM)
            with anyio.fail_after(60):
                self.assertEqual([event async for event in stream], [])  # it would raise if the connection broke

    def is_stopping(self, session: HttpSession) -> bool:
        with session.begin("test_echo", text="late") as response:
            return response.status == 503 and b'"the server is stopping; ' in response.read()

    def test_a_client_that_is_still_sending_does_not_delay_the_end(self) -> None:
        with hub_with("alpha") as hub:
            alpha = HubProject(hub)
            HttpSession(alpha)
            with half_a_post(alpha, {"Content-Length": "1000"}) as connection:
                connection.send(b"{")
                self.assertEqual(hub.end(), 0)
                self.assertNotIn("were not answered", hub.text)


def _caller(actor: str, token: str) -> Admitted:
    return Admitted("alpha", actor, owner=token)


ANN, BEN = _caller("ann/laptop", "mh_1"), _caller("ben/laptop", "mh_2")


class SessionTests(SimpleTestCase):
    def setUp(self) -> None:
        self.sessions = admission.Sessions()
        self.enterContext(mock.patch.multiple(admission, MOST_SESSIONS=6, MOST_SESSIONS_OF_A_PERSON=4))

    def begin(self, name: str, caller: Admitted) -> list[tuple[str, str]]:
        ended = self.sessions.make_room(caller)
        self.sessions.begin(name, caller)
        return ended

    def test_all_tokens_of_a_person_share_one_limit(self) -> None:
        for number in range(4):
            self.begin(f"a{number}", _caller(f"ann/client{number}", f"mh_{number}"))
        with self.assertRaisesMessage(TooMany, "4 sessions"):
            self.sessions.make_room(_caller("ann/another", "mh_9"))
        self.begin("b0", BEN)

    def test_the_longest_idle_session_of_who_has_most_gives_room(self) -> None:
        for number in range(4):
            self.begin(f"a{number}", ANN)
        for number in range(2):
            self.begin(f"c{number}", _caller("token:ci", "mh_3"))
        with self.sessions.using("a0", ANN):
            self.assertEqual(self.begin("b0", BEN), [("a1", "alpha")])

    def test_sessions_in_use_are_not_ended(self) -> None:
        names = [f"{letter}{number}" for letter in "abc" for number in range(2)]
        for name in names:
            self.begin(name, _caller(f"{name[0]}/x", name[0]))
        for session in self.sessions._sessions.values():
            session.open = 1
        with self.assertRaises(Busy):
            self.sessions.make_room(BEN)
