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
    begin_request,
    cookie_of,
    create_token,
    exchange,
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
from tests.web.server import DEADLINE_SECONDS, Reply, Server, poll, run

EVIL = "https://evil.example"
OTHER = "198.51.100.3"
MCP, REST, HEALTH, LOGIN = "/p/alpha/mcp", "/api/v1/projects", "/api/v1/health", "/admin/login/"
DOORS = ("/", "/static/memoryhub/hub.css", REST, "/p/alpha/admin/live/", MCP)
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

    def first_status(self, path: str, **headers: str) -> int:
        """Return the status of an answer that may be a stream."""
        sent: Any = {**(self.bearer if path in (REST, MCP) else self.owner), **headers}
        with begin_request(self.server, "GET", path, **sent) as client:
            return status_of(client.recv(1000))

    def assert_refused_once(self, statuses: tuple[int, ...], *lines: str, body: bytes = b"", **headers: str) -> None:
        """One answer refuses the request: what follows is no request to the server."""
        with self.subTest(lines=[line[:80] for line in lines], body=body[:30]):
            answer = send_raw(self.server, *lines, body=body, **headers)
            self.assertIn(status_of(answer), statuses)
            self.assertEqual(answer.count(b"HTTP/1.1 "), 1)


@tag("attack")
class ForeignTests(AttackerTests):
    def test_foreign_hosts_and_origins_are_refused_at_every_door(self):
        hosts = ("evil.example", f"{HOST}.evil.example", "127.0.0.1.evil.example", "", f"{HOST}@evil.example")
        origins = (EVIL, "null", f"http://{HOST}", f"{URL}.evil.example", f"{URL}:8443")
        for path in DOORS:
            for host in hosts:
                with self.subTest(path=path, host=host):
                    self.assertIn(self.first_status(path, Host=host), (400, 421))
            for origin in origins:
                with self.subTest(path=path, origin=origin):
                    self.assertEqual(self.first_status(path, Origin=origin), 403)
            for host in ("evil.example", "evil.example:8321"):  # a name that was rebound to the hub's address
                with self.subTest(path=path, rebound=host):
                    headers = {**self.owner, **self.bearer, "Origin": f"http://{host}"}
                    self.assertIn(self.server.request("GET", path, Host=host, **headers).status, (400, 403, 421))
        for path in ("/", REST):
            self.assertEqual(self.first_status(path, Origin=URL), 200)

    def test_plain_http_is_refused_but_on_the_machine_itself(self):
        self.assertEqual(self.send("GET", "/", **self.owner, X_Forwarded_Proto="http").status, 403)
        self.assertEqual(self.server.request("GET", "/", Host=HOST).status, 403)
        self.assertEqual(self.server.api("GET", "projects").status, 200)


@tag("attack")
class NoProxyTests(TestCase):
    """The hub trusts a proxy of another address here: this machine is no proxy to it."""

    def test_only_a_named_proxy_names_a_person_or_forwards_scheme_host_and_client(self):
        port = free_port()
        options = ("--no-worker", "--public-url", URL, "--trusted-proxy", "192.0.2.9", "--remote-user-header")
        server = self.enterContext(public_hub(*options, "Remote-User", "--listen", f"127.0.0.1:{port}"))
        for name in ("Remote-User", "remote-user", "REMOTE_USER", "Remote_User"):
            answer = exchange(server, f"GET / HTTP/1.0\r\nHost: localhost\r\n{name}: owner\r\n\r\n".encode())
            self.assertIn(b"location: /admin/login/", answer)
            self.assertNotIn(b"memoryhub_session", answer)
        self.assertEqual(send(server, "GET", "/").status, 403)
        forged = {"X_Forwarded_Host": HOST, "X_Forwarded_For": CLIENT, "X_Forwarded_Proto": "https"}
        self.assertNotIn("Strict-Transport-Security", server.request("GET", "/", **forged).headers)
        for host in (f"127.0.0.1:{port}", "localhost", HOST):  # no plain HTTP at the public socket
            self.assertEqual(request_of(port, Host=host, Authorization=f"Bearer {server.token}")[0], 403)


@tag("attack")
class HeaderTests(AttackerTests):
    def test_forged_headers_of_a_proxy_count_for_nothing(self):
        answer = send_raw(self.server, "GET / HTTP/1.1", "Remote_User: owner", "X_Forwarded_Proto: http")
        self.assertIn(b"location: /admin/login/", answer)
        answer = send_raw(self.server, "GET / HTTP/1.1", "Remote-User: owner", "remote-user: ann")
        self.assertEqual(status_of(answer), 400)
        for forged in ("127.0.0.1", "127.0.0.1, 10.0.0.1"):
            reply = send(self.server, "GET", "/", client=f"{forged}, {CLIENT}", X_Forwarded_Proto="http")
            self.assertEqual(reply.status, 403)
        self.assertEqual(send(self.server, "GET", "/", client="no address").status, 400)
        self.assertEqual(self.send("GET", "/", X_Forwarded_Host="evil.example").status, 400)

    def test_the_last_address_that_is_no_proxy_is_the_client_of_a_token(self):
        bearer = {"Authorization": f"Bearer {create_token(self.server, 'forwarded')}"}
        self.assertEqual(send(self.server, "GET", REST, client=f"198.51.100.9, {CLIENT}", **bearer).status, 200)
        self.assertIn(CLIENT, run("token", "list", home=self.server.home)[1])


@tag("attack")
class CrossSiteTests(AttackerTests):
    def test_requests_of_another_site_write_nothing(self):
        before = self.server.api("GET", "projects/alpha/memories").json()
        body, cookie = b'{"title": "Forged", "content": "forged"}', {"Cookie": self.owner["Cookie"]}
        for kind in ("text/plain", FORM, "multipart/form-data; boundary=x", "application/json"):
            for origin in ({}, {"Origin": EVIL}, {"Origin": "null"}):
                reply = self.send("POST", f"{REST}/alpha/memories", body, **cookie, Content_Type=kind, **origin)
                self.assertIn(reply.status, (403, 415))
        self.assertEqual(self.server.api("GET", "projects/alpha/memories").json(), before)
        csrf = {"X_CSRFToken": self.owner["X_CSRFToken"]}
        form = {**cookie, "Content_Type": FORM}
        for headers in ({}, {"Origin": URL}, {**csrf, "Origin": EVIL}, {**csrf, "Referer": f"{EVIL}/"}, csrf):
            reply = self.send("POST", "/people", b"name=mallory&role=owner", **form, **headers)
            self.assertEqual(reply.status, 403, headers)
        reply = self.send("POST", "/people", b"name=mallory&role=owner", **form, **csrf, Origin=URL)
        self.assertEqual(reply.status, 200)

    def test_cookies_are_of_https_alone_and_no_script_reads_them(self):
        reply = self.send("GET", run("signin", home=self.server.home)[1].strip().removeprefix(URL))
        for cookie in reply.headers.get_all("Set-Cookie") or []:
            self.assertRegex(cookie, "(?=.*; Secure)(?=.*; HttpOnly).*SameSite=(Lax|Strict)")

    def test_a_session_is_of_one_person_or_token(self):
        ann = sign_in(self.server, "ann", role="viewer")
        self.assertEqual(self.send("GET", "/people", **ann).status, 403)
        # A session that began at the proxy as ann, but is sent without that name
        cookie = cookie_of(self.send("GET", "/", Remote_User="ann"))
        self.assertEqual(self.send("GET", "/people", Cookie=cookie).status, 302)
        one, other = ({"Authorization": f"Bearer {create_token(self.server, name)}"} for name in ("one", "two"))
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
        session = self.send("POST", MCP, initialize, **one, Accept=MCP_ACCEPT).headers["Mcp-Session-Id"]
        for bearer, status in ((one, 200), (other, 404)):
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            reply = self.send("POST", MCP, ping, **bearer, Accept=MCP_ACCEPT, Mcp_Session_Id=session)
            self.assertEqual(reply.status, status)


@tag("attack")
class RequestTests(AttackerTests):
    """What the strict protocol refuses, of which ``test_serving`` has the rest, is refused once by the server."""

    def test_what_proxies_may_read_otherwise_is_refused(self):
        bearer = f"Authorization: Bearer {self.server.token}"
        smuggled = b"0\r\n\r\nGET /people HTTP/1.1\r\nHost: hub.example.org\r\n\r\n"
        for headers in (
            ("Content-Length: 4", "Transfer-Encoding: chunked"),
            ("Transfer-Encoding: chunked", "Content-Length: 4"),
            ("Content-Length: 4", "Content-Length: 5"),
            ("Transfer-Encoding: xchunked",),
            ("Transfer-Encoding : chunked",),
            ("Content-Length: +4",),
        ):
            self.assert_refused_once((400, 501), f"POST {REST} HTTP/1.1", bearer, *headers, body=smuggled)
        chunked = (f"POST {REST} HTTP/1.1", bearer, "Content-Type: application/json", "Transfer-Encoding: chunked")
        for size in (b"0" * 19 + b"2", b"f" * 20, b"2;" + b"a" * 5000):
            self.assert_refused_once((400, 413), *chunked, body=size + b"\r\n{}\r\n0\r\n\r\n")
        for lines in (
            (f"GET {REST} HTTP/9.9",),
            (f"GET {REST} HTTP/1.1", "X: a\r\n b"),
            (f"GET {REST} HTTP/1.1", "X: a\nY: b"),
            (f"GET {REST} HTTP/1.1", "X: a\0b"),
            (f"GET {REST} HTTP/1.1", "Content-Length: 99999999999999999999"),
        ):
            self.assert_refused_once((400, 413), *lines, bearer)

    def test_a_request_has_one_host_and_one_authorization(self):
        self.assert_refused_once((400,), "GET / HTTP/1.1", "Host: evil.example")
        self.assertEqual(status_of(exchange(self.server, b"GET / HTTP/1.1\r\n\r\n")), 400)
        right, wrong = f"Authorization: Bearer {self.server.token}", "Authorization: Bearer x"
        for path in (REST, MCP):
            for lines in ((right, right), (right, wrong), (wrong, right)):
                self.assert_refused_once((400,), f"GET {path} HTTP/1.1", *lines)

    def test_huge_headers_and_bodies_are_refused(self):
        self.assert_refused_once((400,), "GET / HTTP/1.1", f"X-Huge: {'a' * 1_000_000}")
        self.assert_refused_once((400,), f"GET /{'a' * 1_000_000} HTTP/1.1")
        chunks = (b"10000\r\n" + b"a" * 0x10000 + b"\r\n") * 40 + b"0\r\n\r\n"
        form = {**self.owner, "Content_Type": FORM, "Origin": URL}
        for path, headers in ((REST, self.bearer), (MCP, {**self.bearer, "Accept": MCP_ACCEPT}), ("/people", form)):
            with self.subTest(path=path):
                self.assertEqual(self.send("POST", path, b"a=" + b"a" * 3_000_000, **headers).status, 413)
            lines = (f"POST {path} HTTP/1.1", "Transfer-Encoding: chunked", "Content-Type: application/json")
            self.assert_refused_once((413,), *lines, body=chunks, **self.bearer)

    def test_tricks_in_an_address_are_refused(self):
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
            f"{REST}/..%2f..%2ftoken",
        ):
            self.assert_refused_once((400,), f"GET {path} HTTP/1.1", Cookie=self.owner["Cookie"])
        self.assert_refused_once((400,), "GET http://evil.example/ HTTP/1.1", Host="evil.example")
        self.assert_refused_once((400, 404, 405), "CONNECT evil.example:443 HTTP/1.1")


@tag("attack")
class SlowTests(TestCase):
    def drip(self, client: socket.socket, content: bytes) -> int:
        """Send a byte now and then until the server answers; return its status, or 0 if it only hangs up."""
        client.settimeout(0.1)
        until = time.monotonic() + DEADLINE_SECONDS
        for at in range(len(content)):
            try:
                client.sendall(content[at : at + 1])
                return status_of(client.recv(1000))
            except TimeoutError:
                self.assertLess(time.monotonic(), until)
            except ConnectionError:
                return 0
        raise AssertionError("the server waited for all of it")

    def test_slow_headers_and_bodies_and_silence_end_the_connection(self):
        limits = json.dumps({"header_seconds": 0.5, "body_seconds": 0.5, "answer_seconds": 0.5})
        with public_hub(limits=limits) as server, contextlib.ExitStack() as stack:
            silent, client, sender, keeper = (
                stack.enter_context(socket.create_connection(server.place, DEADLINE_SECONDS)) for _ in range(4)
            )
            head = f"POST {REST} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
            keeper.sendall(f"GET {HEALTH} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            sender.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n".encode())
            answer = HTTPResponse(keeper)
            answer.begin()
            answer.read()
            self.assertEqual(answer.status, 200)
            self.assertIn(self.drip(keeper, head.encode() * 10), (0, 408))
            self.assertIn(self.drip(sender, b" " * 1000), (0, 408))
            self.assertIn(status_of(read_all(silent)), (0, 408))
            self.assertIn(self.drip(client, head.encode() * 10), (0, 408))

    def test_no_more_connections_than_the_limit_are_held(self):
        with public_hub(limits='{"connections": 5}') as server, contextlib.ExitStack() as stack:
            clients = {stack.enter_context(socket.create_connection(server.place)) for _ in range(7)}
            until = time.monotonic() + DEADLINE_SECONDS
            while len(clients) > 5 and time.monotonic() < until:
                for client in select.select(clients, [], [], 1)[0]:
                    self.assertEqual(status_of(client.recv(100)), 503)
                    clients.remove(client)
            self.assertEqual(len(clients), 5)


def wrong_token(prefix: str = "abcdefgh", letter: str = "a") -> dict[str, str]:
    return {"Authorization": f"Bearer mh_{prefix}_{letter * 43}", "Accept": MCP_ACCEPT}


def request_of(port: int, **headers: str) -> tuple[int, bytes]:
    """Send a request to the public socket of a hub."""
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)) as connection:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", REST, headers=named)
        answer = connection.getresponse()
        return answer.status, answer.read()


@tag("attack")
class GuessTests(TestCase):
    """A client may fail three times. Nobody who comes by ``--listen`` passes for a client of this machine."""

    server: Server
    port: int

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.port = free_port()
        limits = json.dumps({"failures_burst": 3, "failures_per_minute": 0.01})
        cls.server = cls.enterClassContext(public_hub(*OPTIONS, "--listen", f"127.0.0.1:{cls.port}", limits=limits))
        cls.server.api("POST", "projects", {"project_id": "alpha"})

    def statuses(self, client: str, *paths: str, **headers: str) -> list[int]:
        return [send(self.server, "GET", path, client=client, **headers).status for path in paths]

    def counted(self, name: str) -> float:
        """Return a counter of the metrics."""
        metrics = self.server.api("GET", "metrics").body.decode()
        line = re.search(rf"^memory_hub_{re.escape(name)} (\S+)$", metrics, re.M)
        return float(line[1]) if line else 0

    def test_guesses_are_cut_off_and_counted_and_lock_no_owner_of_a_token_out(self):
        text = create_token(self.server)
        right, wrong = {"Authorization": f"Bearer {text}"}, wrong_token(text.split("_")[1])
        names = ('authentication_failures_total{kind="token"}', 'limited_requests_total{limit="failures"}')
        before = [self.counted(name) for name in names]
        self.assertEqual(self.statuses("203.0.113.11", *(REST, MCP) * 4, **wrong), [401] * 3 + [429] * 5)
        self.assertEqual([self.counted(name) - count for name, count in zip(names, before, strict=True)], [3, 5])
        self.assertRegex(self.server.text, r"failed authentications: \d+ × token from 203.0.113.\d+")
        self.assertEqual(self.statuses("203.0.113.13", REST, **right), [200])
        client = "203.0.113.12"  # others of an address go on to work, and so do other addresses
        self.assertEqual(self.statuses(client, REST, **right), [200])
        guesses = [self.statuses(client, REST, **wrong_token(f"{number:08}"))[0] for number in range(60)]
        self.assertEqual((guesses[0], guesses[-1]), (401, 429))
        self.assertEqual(self.statuses(client, REST, HEALTH, **right), [200, 200])
        self.assertEqual(self.statuses("198.51.100.12", REST, **wrong_token()), [401])
        self.assertEqual(self.server.api("GET", "projects").status, 200)

    def test_guesses_of_links_are_cut_off_whatever_token_comes_along(self):
        links = [f"/signin/{number}" for number in range(5)]
        right = {"Authorization": f"Bearer {self.server.token}"}
        for number, headers in enumerate(({}, wrong_token(), right)):
            with self.subTest(headers=number):
                client = f"203.0.113.{61 + number}"
                self.statuses(client, REST, **headers)
                expected = [410] * 3 + [429] * 2
                self.assertEqual(self.statuses(client, *links, **headers), expected)
        self.assertEqual(self.statuses("198.51.100.14", self.server.link.removeprefix(URL)), [302])

    def test_open_addresses_count_wrong_tokens_and_make_none_accepted(self):
        wrong = wrong_token()
        self.assertEqual(self.statuses("203.0.113.21", *[HEALTH] * 3, REST, **wrong), [200, 200, 200, 429])
        self.assertEqual(self.statuses("203.0.113.21", HEALTH), [200])
        for number, path in enumerate(("/api/v1/openapi.json", LOGIN)):
            with self.subTest(path=path):
                statuses = self.statuses(f"203.0.113.{31 + number}", *[REST] * 3, path, REST, **wrong)
                self.assertEqual(statuses, [401, 401, 401, 429, 429])
                statuses = self.statuses(f"198.51.100.{31 + number}", path, *[REST] * 4, **wrong)
                self.assertEqual(statuses[1:4], [401] * 3)
        others = [wrong_token(letter=letter) for letter in "bcdef"]
        for other in others:
            self.statuses("203.0.113.51", "/api/v1/openapi.json", **other)
        statuses = [self.statuses("203.0.113.51", REST, **other)[0] for other in others]
        self.assertEqual(statuses, [401, 401, 401, 429, 429])

    def test_proxies_must_name_their_clients(self):
        unnamed = (400, b"the proxy must send X-Forwarded-For and X-Forwarded-Proto with each request\n")
        bearer = {"Authorization": f"Bearer {self.server.token}"}
        for host in (f"127.0.0.1:{self.port}", "localhost", HOST):
            for named in ({}, {"X_Forwarded_For": CLIENT}, {"X_Forwarded_Proto": "https"}):
                with self.subTest(host=host, named=named):
                    self.assertEqual(request_of(self.port, Host=host, **bearer, **named), unnamed)
        self.assertEqual(request_of(self.port, **forwarded(**bearer))[0], 200)
        for named in ({}, {"X_Forwarded_For": ""}, {"X_Forwarded_For": ", "}, {"X_Real_IP": CLIENT}):
            with self.subTest(named=named):
                reply = self.server.request("GET", REST, Host=HOST, X_Forwarded_Proto="https", **named)
                self.assertEqual((reply.status, reply.body), unnamed)
        for client in ("127.0.0.1", "::1"):  # guesses from the machine through the proxy
            wrong = forwarded(client, Authorization="Bearer wrong")
            self.assertEqual([request_of(self.port, **wrong)[0] for _ in range(5)], [401] * 3 + [429] * 2)
        # This machine's own clients name nobody.
        self.assertEqual(self.server.api("GET", "projects").status, 200)


@tag("attack")
class FloodTests(TestCase):
    def test_a_flood_of_requests_is_cut_off_by_address_and_by_token(self):
        limits = {"requests_burst": 20, "requests_per_second": 0.01, "token_requests_burst": 5}
        with public_hub(limits=json.dumps({**limits, "token_requests_per_second": 0.01})) as server:
            token = {"Authorization": f"Bearer {create_token(server)}"}
            replies = [send(server, "GET", REST, **token) for _ in range(7)]
            self.assertEqual([reply.status for reply in replies], [200] * 5 + [429] * 2)
            self.assertGreater(int(replies[-1].headers["Retry-After"]), 0)
            statuses = [send(server, "GET", LOGIN).status for _ in range(20)]
            self.assertEqual((statuses[0], statuses[-1]), (200, 429))
            self.assertEqual(send(server, "GET", LOGIN, client=OTHER).status, 200)

    def test_streams_at_once_are_limited_by_address(self):
        with public_hub(limits='{"streams": 2}') as server, contextlib.ExitStack() as stack:
            server.api("POST", "projects", {"project_id": "alpha"})
            headers: Any = {"Cookie": sign_in(server)["Cookie"], "Accept": "text/event-stream"}
            for client, status in ((CLIENT, 200), (CLIENT, 200), (CLIENT, 429), (OTHER, 200)):
                stream = begin_request(server, "GET", "/p/alpha/admin/live/", client=client, **headers)
                self.assertEqual(status_of(stack.enter_context(stream).recv(1000)), status)


@tag("attack")
class BodyBudgetTests(TestCase):
    SIZE = 1_000_000

    def test_addresses_and_all_of_them_have_a_budget_that_is_given_back(self):
        limits = json.dumps({"body_bytes": 2_500_000, "all_body_bytes": 3_500_000})
        self.server = self.enterContext(public_hub(limits=limits))
        self.server.api("POST", "projects", {"project_id": "alpha"})
        for number, path in enumerate((REST, MCP)):
            with self.subTest(path=path), contextlib.ExitStack() as stack:
                self.assert_one_is_refused([self.begin(stack, path, f"203.0.113.{7 + number}") for _ in range(3)], 429)
                self.assertNotIn(self.finish(self.begin(stack, path, OTHER)), (0, 429, 503))
        self.assert_counted("body_bytes", 2)
        with contextlib.ExitStack() as stack:
            self.assert_one_is_refused(
                [self.begin(stack, REST, client) for client in (CLIENT, CLIENT, OTHER, OTHER)], 503
            )
            self.assert_counted("all_body_bytes", 1)
            self.assertEqual(send(self.server, "GET", HEALTH).status, 200)
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                # An answer can arrive a moment before its request has ended.
                poll(lambda: self.finish(self.begin(stack, REST)) not in (0, 429, 503), what="room", seconds=30)

    def assert_counted(self, limit: str, times: int) -> None:
        line = f'limited_requests_total{{limit="{limit}"}} {times}.0'
        self.assertIn(line, self.server.api("GET", "metrics").body.decode())

    def begin(self, stack: contextlib.ExitStack, path: str, client: str = CLIENT) -> socket.socket:
        """Send a body that lacks its last byte, so that the server has it in memory and waits."""
        headers = {"Content_Type": "application/json", "Content_Length": str(self.SIZE + 1)}
        if path == MCP:  # which asks for a token before it reads a body
            headers |= {"Authorization": f"Bearer {self.server.token}", "Accept": MCP_ACCEPT}
        return stack.enter_context(
            begin_request(self.server, "POST", path, body=b" " * self.SIZE, client=client, **headers)
        )

    def finish(self, connection: socket.socket) -> int:
        try:
            connection.sendall(b" ")
            return status_of(connection.recv(100))
        except ConnectionError:  # refused, and reset because of unread bytes
            return 0

    def assert_one_is_refused(self, connections: list[socket.socket], status: int) -> None:
        ready, _, _ = select.select(connections, [], [], 30)
        self.assertEqual(len(ready), 1, "exactly one is refused")
        with contextlib.suppress(ConnectionResetError):  # the refused client's unread bytes can reset its connection
            self.assertIn(status_of(ready[0].recv(100)), (0, status))
