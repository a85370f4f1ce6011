"""What an attacker on the network tries against a hub of a team, and that it is refused."""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import time
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from unittest import TestCase

from django.test import tag

from tests.server_processes import free_port
from tests.web.public_server import (
    CLIENT,
    HOST,
    OPTIONS,
    URL,
    cookie_of,
    create_token,
    exchange,
    first_status,
    forwarded,
    public_hub,
    read_all,
    send,
    send_raw,
    sign_in,
    status_of,
    team_hub,
    team_owner,
)
from tests.web.server import DEADLINE_SECONDS, Reply, Server, poll, run, temporary_home

EVIL = "https://evil.example"
MCP = "/p/alpha/mcp"
DOORS = ("/", "/static/memoryhub/hub.css", "/api/v1/projects", "/p/alpha/admin/live/", MCP)
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "attacker", "version": "1"}},
}
MCP_ACCEPT = "application/json, text/event-stream"
FORM = "application/x-www-form-urlencoded"


@tag("attack")
class AttackerTests(TestCase):
    """One hub for all attacks that leave nothing behind."""

    server: Server
    owner: dict[str, str]
    bearer: dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server, cls.owner = team_hub(), team_owner()
        cls.bearer = {"Authorization": f"Bearer {cls.server.token}"}

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        return send(self.server, method, path, body, **headers)

    def as_everybody(self, path: str) -> dict[str, str]:
        return self.bearer if path.startswith("/api/") or path == MCP else self.owner

    def titles(self) -> list[str]:
        found = self.server.api("GET", "projects/alpha/memories").json()["results"]
        return [memory["title"] for memory in found]


@tag("attack")
class ForeignTests(AttackerTests):
    def test_a_foreign_host_is_refused_at_every_door(self):
        for path in DOORS:
            for host in ("evil.example", f"{HOST}.evil.example", "127.0.0.1.evil.example", "", f"{HOST}@evil.example"):
                with self.subTest(path=path, host=host):
                    status = first_status(self.server, "GET", path, **{**self.as_everybody(path), "Host": host})
                    self.assertIn(status, (400, 421))

    def test_a_foreign_origin_is_refused_at_every_door(self):
        for path in DOORS:
            for origin in (EVIL, "null", f"http://{HOST}", f"{URL}.evil.example", f"{URL}:8443"):
                with self.subTest(path=path, origin=origin):
                    status = first_status(self.server, "GET", path, **self.as_everybody(path), Origin=origin)
                    self.assertEqual(status, 403)

    def test_the_hubs_own_origin_is_answered(self):
        for path in ("/", "/api/v1/projects"):
            self.assertEqual(self.send("GET", path, **self.as_everybody(path), Origin=URL).status, 200)

    def test_a_name_that_was_rebound_to_the_hubs_address_is_refused(self):
        for host in ("evil.example", "evil.example:8321"):
            for path in DOORS:
                direct = self.server.request("GET", path, Host=host, Origin=f"http://{host}", **self.as_everybody(path))
                self.assertIn(direct.status, (400, 403, 421))

    def test_plain_http_is_refused_but_on_the_machine_itself(self):
        self.assertEqual(self.send("GET", "/", **self.owner, X_Forwarded_Proto="http").status, 403)
        self.assertEqual(self.server.request("GET", "/", Host=HOST).status, 403)
        self.assertEqual(self.server.api("GET", "projects").status, 200)


@tag("attack")
class NoProxyTests(TestCase):
    """The hub trusts a proxy of another address here: this machine is no proxy to it."""

    server: Server
    port: int

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.port = free_port()
        options = ("--no-worker", "--public-url", URL, "--trusted-proxy", "192.0.2.9", "--remote-user-header")
        cls.server = cls.enterClassContext(public_hub(*options, "Remote-User", "--listen", f"127.0.0.1:{cls.port}"))

    def test_only_a_named_proxy_names_a_person(self):
        for name in ("Remote-User", "remote-user", "REMOTE_USER", "Remote_User"):
            answer = exchange(self.server, f"GET / HTTP/1.0\r\nHost: localhost\r\n{name}: owner\r\n\r\n".encode())
            self.assertIn(b"location: /admin/login/", answer)
            self.assertNotIn(b"memoryhub_session", answer)

    def test_only_a_named_proxy_forwards_scheme_host_and_client(self):
        self.assertEqual(send(self.server, "GET", "/").status, 403)
        made_up = {"X_Forwarded_Host": HOST, "X_Forwarded_For": CLIENT, "X_Forwarded_Proto": "https"}
        self.assertNotIn("Strict-Transport-Security", self.server.request("GET", "/", **made_up).headers)

    def test_a_peer_that_is_no_proxy_gets_no_plain_http_at_the_public_socket(self):
        bearer = {"Authorization": f"Bearer {self.server.token}"}
        for host in (f"127.0.0.1:{self.port}", "localhost", HOST):
            self.assertEqual(request_of(self.port, Host=host, **bearer)[0], 403)


@tag("attack")
class HeaderTests(AttackerTests):
    def test_a_header_with_underscores_is_no_header_of_the_proxy(self):
        answer = send_raw(self.server, "GET / HTTP/1.1", "Remote_User: owner", "X_Forwarded_Proto: http")
        self.assertIn(b"location: /admin/login/", answer)

    def test_a_person_who_is_named_twice_is_refused(self):
        answer = send_raw(self.server, "GET / HTTP/1.1", "Remote-User: owner", "remote-user: ann")
        self.assertEqual(status_of(answer), 400)

    def test_addresses_that_a_client_puts_before_its_own_do_not_count(self):
        for made_up in ("127.0.0.1", "127.0.0.1, 10.0.0.1"):
            reply = send(self.server, "GET", "/", client=f"{made_up}, {CLIENT}", X_Forwarded_Proto="http")
            self.assertEqual(reply.status, 403)
        self.assertEqual(send(self.server, "GET", "/", client="no address").status, 400)

    def test_a_forwarded_host_must_be_the_hubs_too(self):
        self.assertEqual(self.send("GET", "/", X_Forwarded_Host="evil.example").status, 400)

    def test_the_hubs_answers_name_the_client_not_the_proxy(self):
        token = create_token(self.server, "forwarded")
        made_up = f"198.51.100.9, {CLIENT}"
        reply = send(self.server, "GET", "/api/v1/projects", client=made_up, Authorization=f"Bearer {token}")
        self.assertEqual(reply.status, 200)
        self.assertIn(CLIENT, run("token", "list", home=self.server.home)[1])


@tag("attack")
class CrossSiteTests(AttackerTests):
    def test_a_form_or_plain_text_of_another_site_writes_nothing(self):
        before = self.titles()
        body = b'{"title": "Forged", "content": "forged"}'
        for kind in ("text/plain", FORM, "multipart/form-data; boundary=x", "application/json"):
            for origin in ({}, {"Origin": EVIL}, {"Origin": "null"}):
                cookie = {"Cookie": self.owner["Cookie"]}
                sent = {**cookie, "Content_Type": kind, **origin}
                self.assertIn(self.send("POST", "/api/v1/projects/alpha/memories", body, **sent).status, (403, 415))
        self.assertEqual(self.titles(), before)

    def test_a_form_without_its_token_changes_nothing(self):
        cookie = {"Cookie": self.owner["Cookie"], "Content_Type": FORM}
        csrf = {"X_CSRFToken": self.owner["X_CSRFToken"]}
        for headers in ({}, {"Origin": URL}, {**csrf, "Origin": EVIL}, {**csrf, "Referer": f"{EVIL}/"}, csrf):
            reply = self.send("POST", "/people", b"name=mallory&role=owner", **cookie, **headers)
            self.assertEqual(reply.status, 403, headers)
        done = self.send("POST", "/people", b"name=mallory&role=owner", **cookie, **csrf, Origin=URL)
        self.assertEqual(done.status, 200)

    def test_no_page_can_be_framed_or_kept_in_a_cache(self):
        for path in (
            "/",
            "/people",
            "/tokens",
            "/jobs",
            "/p/alpha/admin/",
            "/api/v1/projects",
            "/find?q=a",
            "/nowhere",
        ):
            with self.subTest(path=path):
                headers = self.send("GET", path, **self.owner).headers
                self.assertEqual(headers["X-Frame-Options"], "DENY")
                self.assertIn("frame-ancestors 'none'", headers["Content-Security-Policy"])
                self.assertIn("no-store", headers["Cache-Control"])
                self.assertIn("private", headers["Cache-Control"])
                self.assertEqual(headers["X-Content-Type-Options"], "nosniff")

    def test_cookies_are_of_https_alone_and_no_script_reads_them(self):
        output = run("signin", home=self.server.home)[1]
        reply = self.send("GET", output.strip().removeprefix(URL))
        for cookie in reply.headers.get_all("Set-Cookie") or []:
            self.assertIn("; Secure", cookie)
            self.assertIn("; HttpOnly", cookie)
            self.assertRegex(cookie, "SameSite=(Lax|Strict)")

    def test_a_session_is_of_one_person(self):
        ann = sign_in(self.server, "ann", role="viewer")
        self.assertEqual(self.send("GET", "/people", **ann).status, 403)
        # With a session that began at the proxy as ann, but is sent by owner
        taken = self.send("GET", "/people", Cookie=cookie_of(self.send("GET", "/", Remote_User="ann")))
        self.assertEqual(taken.status, 302)

    def test_an_mcp_session_is_of_the_token_that_began_it(self):
        tokens = [create_token(self.server, name) for name in ("one", "two")]
        begun = self.send("POST", MCP, INITIALIZE, Authorization=f"Bearer {tokens[0]}", Accept=MCP_ACCEPT)
        session = begun.headers["Mcp-Session-Id"]
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        sent = {"Accept": MCP_ACCEPT, "Mcp_Session_Id": session}
        own = self.send("POST", MCP, ping, Authorization=f"Bearer {tokens[0]}", **sent)
        other = self.send("POST", MCP, ping, Authorization=f"Bearer {tokens[1]}", **sent)
        self.assertEqual((own.status, other.status), (200, 404))


@tag("attack")
class RequestTests(AttackerTests):
    def test_a_request_has_one_length(self):
        chunked = b"0\r\n\r\nGET /people HTTP/1.1\r\nHost: hub.example.org\r\n\r\n"
        lines = ("POST /api/v1/projects HTTP/1.1", f"Authorization: Bearer {self.server.token}")
        for more in (
            ("Content-Length: 4", "Transfer-Encoding: chunked"),
            ("Transfer-Encoding: chunked", "Content-Length: 4"),
            ("Content-Length: 4", "Content-Length: 5"),
            ("Transfer-Encoding: chunked, identity",),
            ("Transfer-Encoding: xchunked",),
            ("Transfer-Encoding : chunked",),
            ("Content-Length: +4",),
            ("Content-Length: 0x4",),
        ):
            with self.subTest(headers=more):
                answer = send_raw(self.server, *lines, *more, body=chunked)
                self.assertIn(status_of(answer), (400, 501))
                self.assertEqual(answer.count(b"HTTP/1.1 "), 1)

    def test_what_proxies_may_read_otherwise_is_refused(self):
        chunked = ("Content-Type: application/json", "Transfer-Encoding: chunked")
        bearer = f"Authorization: Bearer {self.server.token}"
        for line, headers, body in (
            ("GET /api/v1/projects HTTP/9.9", (), b""),
            ("GET /api/v1/projects HTTP/0.9", (), b""),
            ("GET /api/v1/projects HTTP/1.1", ("X: a\r\n b",), b""),
            ("GET /api/v1/projects HTTP/1.1", ("X: a\nY: b",), b""),
            ("GET /api/v1/projects HTTP/1.1", ("X: a\0b",), b""),
            ("GET /api/v1/projects HTTP/1.1", ("Content-Length: 99999999999999999999",), b""),
            ("POST /api/v1/projects HTTP/1.0", chunked, b"0\r\n\r\n"),
            ("POST /api/v1/projects HTTP/1.1", chunked, b"0" * 19 + b"2\r\n{}\r\n0\r\n\r\n"),
            ("POST /api/v1/projects HTTP/1.1", chunked, b"f" * 20 + b"\r\n{}\r\n0\r\n\r\n"),
            ("POST /api/v1/projects HTTP/1.1", chunked, b"2;" + b"a" * 5000 + b"\r\n{}\r\n0\r\n\r\n"),
        ):
            with self.subTest(line=line, headers=headers, body=body[:30]):
                answer = send_raw(self.server, line, *headers, bearer, body=body)
                self.assertIn(status_of(answer), (400, 413))
                self.assertEqual(answer.count(b"HTTP/1.1 "), 1)

    def test_a_request_has_one_host(self):
        self.assertEqual(status_of(send_raw(self.server, "GET / HTTP/1.1", "Host: evil.example")), 400)
        self.assertEqual(status_of(exchange(self.server, b"GET / HTTP/1.1\r\n\r\n")), 400)

    def test_huge_headers_and_bodies_are_refused(self):
        self.assertEqual(status_of(send_raw(self.server, "GET / HTTP/1.1", f"X-Huge: {'a' * 1_000_000}")), 400)
        self.assertEqual(status_of(send_raw(self.server, f"GET /{'a' * 1_000_000} HTTP/1.1")), 400)
        body = b'{"a": "' + b"a" * 3_000_000 + b'"}'
        for path, headers in (("/api/v1/projects", self.bearer), (MCP, {**self.bearer, "Accept": MCP_ACCEPT})):
            self.assertEqual(self.send("POST", path, body, **headers).status, 413)
        form = {**self.owner, "Content_Type": FORM, "Origin": URL}
        self.assertEqual(self.send("POST", "/people", b"name=" + b"a" * 3_000_000, **form).status, 413)

    def test_a_chunked_body_is_as_limited_as_another(self):
        chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        for path in ("/api/v1/projects", MCP, "/people"):
            with self.subTest(path=path):
                lines = (f"POST {path} HTTP/1.1", "Transfer-Encoding: chunked", "Content-Type: application/json")
                bearer = f"Authorization: Bearer {self.server.token}"
                answer = send_raw(self.server, *lines, bearer, body=chunk * 40 + b"0\r\n\r\n")
                self.assertEqual(status_of(answer), 413)

    def test_tricks_in_a_path_are_refused(self):
        for path in (
            "/static/%2e%2e/settings.py",
            "/static/../settings.py",
            "/p/alpha%2Fadmin/",
            "/p/..%2Fbeta/admin/",
            "/p/alpha/./admin/",
            "/p/alpha%5cadmin/",
            "/p/alpha\\admin/",
            "/p/alpha%00/admin/",
            "//evil.example/%2e%2e",
            "//evil.example",
            "/api/v1/projects/..%2f..%2ftoken",
        ):
            with self.subTest(path=path):
                answer = send_raw(self.server, f"GET {path} HTTP/1.1", Cookie=self.owner["Cookie"])
                self.assertEqual(status_of(answer), 400)

    def test_an_address_as_a_proxy_would_get_it_is_refused(self):
        answer = send_raw(self.server, "GET http://evil.example/ HTTP/1.1", Host="evil.example")
        self.assertEqual(status_of(answer), 400)
        self.assertIn(status_of(send_raw(self.server, "CONNECT evil.example:443 HTTP/1.1")), (400, 404, 405))


@tag("attack")
class SlowTests(TestCase):
    LIMITS = json.dumps({"header_seconds": 0.5, "body_seconds": 0.5, "answer_seconds": 0.5})

    def drip(self, client: socket.socket, content: bytes) -> bytes:
        """Send a byte now and then, until the server answers or ends the connection."""
        client.settimeout(0.1)
        until = time.monotonic() + DEADLINE_SECONDS
        for at in range(len(content)):
            try:
                client.sendall(content[at : at + 1])
                received = client.recv(1000)
            except TimeoutError:
                self.assertLess(time.monotonic(), until)
                continue
            except ConnectionError:
                return b""
            return received
        raise AssertionError("the server waited for all of it")

    def read_answer(self, client: socket.socket) -> None:
        """Read one answer to its end, of a connection that stays open."""
        answer = HTTPResponse(client)
        answer.begin()
        self.assertEqual(answer.status, 200)
        answer.read()

    def test_slow_headers_and_bodies_and_silence_end_the_connection(self):
        with public_hub(limits=self.LIMITS) as server, contextlib.ExitStack() as stack:
            silent = stack.enter_context(socket.create_connection(server.place, DEADLINE_SECONDS))
            client = stack.enter_context(socket.create_connection(server.place, DEADLINE_SECONDS))
            head = f"POST /api/v1/projects HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
            self.assertIn(status_of(self.drip(client, head.encode() * 10)), (0, 408))
            sender = stack.enter_context(socket.create_connection(server.place, DEADLINE_SECONDS))
            sender.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n".encode())
            self.assertIn(status_of(self.drip(sender, b" " * 1000)), (0, 408))
            keeper = stack.enter_context(socket.create_connection(server.place, DEADLINE_SECONDS))
            keeper.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.read_answer(keeper)
            self.assertIn(status_of(self.drip(keeper, head.encode() * 10)), (0, 408))
            self.assertIn(status_of(read_all(silent)), (0, 408))

    def test_no_more_connections_than_the_limit_are_held(self):
        with public_hub(limits='{"connections": 5}') as server, contextlib.ExitStack() as stack:
            held = {stack.enter_context(socket.create_connection(server.place)) for _ in range(7)}
            until = time.monotonic() + DEADLINE_SECONDS
            while len(held) > 5 and time.monotonic() < until:
                for client in select.select(held, [], [], 1)[0]:
                    self.assertEqual(status_of(client.recv(100)), 503)
                    held.remove(client)
            self.assertEqual(len(held), 5)


@tag("attack")
class GuessedSecretTests(TestCase):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.enterClassContext(public_hub(limits=json.dumps({**FEW_FAILURES, "failures_burst": 5})))
        cls.server.api("POST", "projects", {"project_id": "alpha"})

    def guess(self, prefix: str, client: str, path: str = "/api/v1/projects") -> int:
        wrong = {"Authorization": f"Bearer mh_{prefix}_{'a' * 43}"}
        return send(self.server, "GET", path, client=client, Accept=MCP_ACCEPT, **wrong).status

    def counted(self, name: str) -> float:
        """Return a counter of the metrics."""
        found = re.search(
            rf"^memory_hub_{re.escape(name)} (\S+)$", self.server.api("GET", "metrics").body.decode(), re.M
        )
        return float(found[1]) if found else 0

    def test_guesses_of_a_token_are_cut_off_and_counted(self):
        prefix = create_token(self.server).split("_")[1]
        names = ('authentication_failures_total{kind="token"}', 'limited_requests_total{limit="failures"}')
        before = [self.counted(name) for name in names]
        statuses = [self.guess(prefix, "203.0.113.11", path) for path in ("/api/v1/projects", MCP) * 4]
        self.assertEqual(statuses, [401] * 5 + [429] * 3)
        self.assertEqual([self.counted(name) - was for name, was in zip(names, before, strict=True)], [5, 3])
        self.assertRegex(self.server.text, r"failed authentications: \d+ × token from 203.0.113.\d+")

    def test_others_of_the_same_address_go_on_to_work(self):
        client = "203.0.113.12"
        token = {"Authorization": f"Bearer {create_token(self.server, 'other')}"}
        self.assertEqual(send(self.server, "GET", "/api/v1/projects", client=client, **token).status, 200)
        statuses = [self.guess(f"{number:08}", client) for number in range(60)]
        self.assertEqual((statuses[0], statuses[-1]), (401, 429))
        self.assertEqual(send(self.server, "GET", "/api/v1/projects", client=client, **token).status, 200)
        self.assertEqual(self.guess("abcdefgh", "198.51.100.12"), 401)
        self.assertEqual(send(self.server, "GET", "/api/v1/health", client=client).status, 200)
        self.assertEqual(self.server.api("GET", "projects").status, 200)

    def test_who_knows_a_tokens_prefix_cannot_lock_its_owner_out(self):
        text = create_token(self.server, "known")
        for _ in range(10):
            self.guess(text.split("_")[1], "198.51.100.13")
        token = {"Authorization": f"Bearer {text}"}
        self.assertEqual(send(self.server, "GET", "/api/v1/projects", client="203.0.113.13", **token).status, 200)

    def test_guesses_of_sign_in_links_are_cut_off(self):
        statuses = [send(self.server, "GET", f"/signin/{n}", client="203.0.113.14").status for n in range(7)]
        self.assertEqual(statuses, [410] * 5 + [429] * 2)
        path = self.server.link.removeprefix(URL)
        self.assertEqual(send(self.server, "GET", path, client="198.51.100.14").status, 302)


@tag("attack")
class FloodTests(TestCase):
    def test_a_flood_of_requests_is_cut_off_by_address_and_by_token(self):
        limits = {"requests_burst": 20, "requests_per_second": 0.01, "token_requests_burst": 5}
        with public_hub(limits=json.dumps({**limits, "token_requests_per_second": 0.01})) as server:
            token = {"Authorization": f"Bearer {create_token(server)}"}
            replies = [send(server, "GET", "/api/v1/projects", **token) for _ in range(7)]
            self.assertEqual([reply.status for reply in replies], [200] * 5 + [429] * 2)
            self.assertGreater(int(replies[-1].headers["Retry-After"]), 0)
            statuses = [send(server, "GET", "/admin/login/").status for _ in range(20)]
            self.assertEqual((statuses[0], statuses[-1]), (200, 429))
            self.assertEqual(send(server, "GET", "/admin/login/", client="198.51.100.3").status, 200)

    def test_streams_and_requests_at_once_are_limited_by_address(self):
        with public_hub(limits='{"streams": 2}') as server, contextlib.ExitStack() as stack:
            server.api("POST", "projects", {"project_id": "alpha"})
            owner = sign_in(server)
            for _ in range(2):
                self.assertEqual(status_of(self.open_stream(stack, server, owner["Cookie"])), 200)
            self.assertEqual(status_of(self.open_stream(stack, server, owner["Cookie"])), 429)
            self.assertEqual(status_of(self.open_stream(stack, server, owner["Cookie"], client="198.51.100.3")), 200)

    def open_stream(self, stack: contextlib.ExitStack, server: Server, cookie: str, client: str = CLIENT) -> bytes:
        named = forwarded(client, Cookie=cookie, Accept="text/event-stream")
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in named.items()]
        connection = stack.enter_context(socket.create_connection(server.place, DEADLINE_SECONDS))
        connection.sendall("\r\n".join(["GET /p/alpha/admin/live/ HTTP/1.1", *lines, "", ""]).encode())
        return connection.recv(1000)


@tag("attack")
class StartTests(TestCase):
    def test_headers_are_removed_in_a_hub_of_this_machine_too(self):
        with temporary_home() as home, public_hub("--no-worker", home=home) as server:
            reply = server.request("GET", "/", Remote_User="owner", X_Forwarded_Proto="https", X_Forwarded_For=CLIENT)
            self.assertEqual(reply.headers["Location"], "/admin/login/")
            self.assertNotIn("Strict-Transport-Security", reply.headers)


FEW_FAILURES = {"failures_burst": 3, "failures_per_minute": 0.01}
WRONG = {"Authorization": f"Bearer mh_abcdefgh_{'a' * 43}"}
REST = "/api/v1/projects"
# Addresses that a wrong token does not close, because they need none
NEED_NO_TOKEN = ("/api/v1/openapi.json", "/admin/login/")


@tag("attack")
class GuessTests(TestCase):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.enterClassContext(public_hub(limits=json.dumps(FEW_FAILURES)))
        cls.server.api("POST", "projects", {"project_id": "alpha"})

    def statuses(self, client: str, *paths: str, **headers: str) -> list[int]:
        return [send(self.server, "GET", path, client=client, **headers).status for path in paths]

    def test_a_wrong_token_at_the_hubs_health_counts(self):
        statuses = self.statuses("203.0.113.21", *["/api/v1/health"] * 3, REST, **WRONG)
        self.assertEqual(statuses, [200, 200, 200, 429])
        self.assertEqual(self.statuses("203.0.113.21", "/api/v1/health"), [200])

    def test_an_answer_that_needs_no_token_does_not_make_one_accepted(self):
        for number, path in enumerate(NEED_NO_TOKEN):
            with self.subTest(path=path):
                client = f"203.0.113.{31 + number}"
                self.assertEqual(self.statuses(client, *[REST] * 3, path, REST, **WRONG), [401, 401, 401, 429, 429])
                self.assertEqual(self.statuses(f"198.51.100.{31 + number}", path, *[REST] * 4, **WRONG)[1:4], [401] * 3)

    def test_a_wrong_token_is_not_accepted_by_way_of_an_open_address(self):
        others = [{"Authorization": f"Bearer mh_abcdefgh_{letter * 43}"} for letter in "bcdef"]
        for other in others:
            send(self.server, "GET", NEED_NO_TOKEN[0], client="203.0.113.51", **other)
        statuses = [self.statuses("203.0.113.51", REST, **other)[0] for other in others]
        self.assertEqual(statuses, [401, 401, 401, 429, 429])

    def test_a_link_with_a_token_counts_as_a_link(self):
        right = {"Authorization": f"Bearer {self.server.token}"}
        for number, headers in enumerate((WRONG, right)):
            with self.subTest(headers=number):
                client = f"203.0.113.{61 + number}"
                self.statuses(client, REST, **headers)
                links = [f"/signin/{number}" for number in range(4)]
                self.assertEqual(self.statuses(client, *links, **headers), [410, 410, 410, 429])

    def test_a_request_has_one_authorization(self):
        right = f"Authorization: Bearer {self.server.token}"
        for path in (REST, "/p/alpha/mcp"):
            for lines in ((right, right), (right, "Authorization: Bearer x"), ("Authorization: Bearer x", right)):
                answer = send_raw(self.server, f"GET {path} HTTP/1.1", *lines, Host=HOST)
                self.assertEqual(status_of(answer), 400)


REST, MCP = "/api/v1/projects", "/p/alpha/mcp"
OTHER = "198.51.100.3"
SIZE = 1_000_000
UNNAMED = b"the proxy must send X-Forwarded-For and X-Forwarded-Proto with each request\n"


@tag("attack")
class BodyBudgetTests(TestCase):
    server: Server

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        limits = json.dumps({"body_bytes": 2_500_000, "all_body_bytes": 3_500_000})
        cls.server = cls.enterClassContext(public_hub(limits=limits))
        cls.server.api("POST", "projects", {"project_id": "alpha"})

    def assert_refused(self, limit: str, times: int) -> None:
        counted = f'limited_requests_total{{limit="{limit}"}} {times}.0'
        self.assertIn(counted, self.server.api("GET", "metrics").body.decode())

    def test_addresses_and_all_of_them_have_a_budget_that_is_given_back(self):
        for number, path in enumerate((REST, MCP)):
            with self.subTest(path=path), contextlib.ExitStack() as held:
                bodies = [self.begin(held, self.server, path, f"203.0.113.{7 + number}") for _ in range(3)]
                self.assertIn(self.first_refusal(bodies), (0, 429))
                self.assertNotIn(self.finish(self.begin(held, self.server, path, client=OTHER)), (0, 429, 503))
        self.assert_refused("body_bytes", 2)
        with contextlib.ExitStack() as held:
            bodies = [self.begin(held, self.server, REST, client) for client in (CLIENT, CLIENT, OTHER, OTHER)]
            self.assertIn(self.first_refusal(bodies), (0, 503))
            self.assert_refused("all_body_bytes", 1)
            self.assertEqual(send(self.server, "GET", "/api/v1/health").status, 200)
        with contextlib.ExitStack() as held:
            answer = lambda: self.finish(self.begin(held, self.server, REST))  # noqa: E731
            for _ in range(4):
                # An answer can arrive a moment before its request has ended.
                poll(lambda: answer() not in (0, 429, 503), what="room for one body", seconds=30)

    def begin(self, stack: contextlib.ExitStack, server: Server, path: str, client: str = CLIENT) -> socket.socket:
        """Send a body that lacks its last byte, so that the server has it in memory and waits."""
        named = {**forwarded(client), "Content-Type": "application/json", "Content-Length": str(SIZE + 1)}
        if path == MCP:  # which asks for a token before it reads a body
            named |= {"Authorization": f"Bearer {server.token}", "Accept": "application/json, text/event-stream"}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in named.items()]
        connection = stack.enter_context(socket.create_connection(server.place, DEADLINE_SECONDS))
        with contextlib.suppress(ConnectionError):  # refused before all of it is sent
            connection.sendall("\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode() + b" " * SIZE)
        return connection

    def finish(self, connection: socket.socket) -> int:
        try:
            connection.sendall(b" ")
            return status_of(connection.recv(100))
        except ConnectionError:  # refused, and reset because of unread bytes
            return 0

    # 0 if the refused client's unread bytes have reset its connection
    def first_refusal(self, connections: list[socket.socket]) -> int:
        ready, _, _ = select.select(connections, [], [], 30)
        self.assertEqual(len(ready), 1, "exactly one is refused")
        try:
            return status_of(ready[0].recv(100))
        except ConnectionResetError:
            return 0


def request_of(port: int, **headers: str) -> tuple[int, bytes]:
    """Send a request to the public socket of a hub."""
    connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
    with contextlib.closing(connection):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", REST, headers=named)
        answer = connection.getresponse()
        return answer.status, answer.read()


@tag("attack")
class PublicSocketTests(TestCase):
    """Nobody who comes through the socket of ``--listen`` passes for a client of this machine."""

    server: Server
    port: int

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.port = free_port()
        limits = json.dumps({**FEW_FAILURES, "failures_burst": 5})
        cls.server = cls.enterClassContext(public_hub(*OPTIONS, "--listen", f"127.0.0.1:{cls.port}", limits=limits))

    def test_a_proxy_that_forwards_nothing_is_refused_whatever_its_host(self):
        bearer = {"Authorization": f"Bearer {self.server.token}"}
        for host in (f"127.0.0.1:{self.port}", "localhost", HOST):
            for named in ({}, {"X_Forwarded_For": CLIENT}, {"X_Forwarded_Proto": "https"}):
                with self.subTest(host=host, named=named):
                    self.assertEqual(request_of(self.port, Host=host, **bearer, **named), (400, UNNAMED))
        self.assertEqual(request_of(self.port, **forwarded(**bearer))[0], 200)

    def test_a_proxy_must_name_its_clients(self):
        for named in ({}, {"X_Forwarded_For": ""}, {"X_Forwarded_For": ", "}, {"X_Real_IP": CLIENT}):
            with self.subTest(named=named):
                reply = self.server.request("GET", REST, Host=HOST, X_Forwarded_Proto="https", **named)
                self.assertEqual((reply.status, reply.body), (400, UNNAMED))
        # This machine's own clients name nobody.
        self.assertEqual(self.server.api("GET", "projects").status, 200)

    def test_guesses_from_the_machine_through_the_proxy_are_cut_off(self):
        for client in ("127.0.0.1", "::1"):
            sent = forwarded(client, Authorization="Bearer wrong")
            self.assertEqual([request_of(self.port, **sent)[0] for _ in range(7)], [401] * 5 + [429] * 2)
        self.assertEqual(send(self.server, "GET", "/api/v1/health").status, 200)
