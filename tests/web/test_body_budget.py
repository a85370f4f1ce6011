"""Bodies that wait for their end take memory before anybody has authenticated, so their sum is limited."""

from __future__ import annotations

import contextlib
import json
import select
import socket
from collections.abc import Iterator
from unittest import TestCase

from tests.web.public_server import CLIENT, HOST, forwarded, public_hub, send, status_of
from tests.web.server import DEADLINE_SECONDS, Server, poll

REST, MCP = "/api/v1/projects", "/p/alpha/mcp"
OTHER = "198.51.100.3"
SIZE = 1_000_000
UNNAMED = b"the proxy must send X-Forwarded-For and X-Forwarded-Proto with each request\n"


class BodyBudgetTests(TestCase):
    def test_an_address_has_a_budget(self):
        with self.hub(body_bytes=2_500_000) as server:
            for path, client in ((REST, CLIENT), (MCP, "203.0.113.8")):
                with self.subTest(path=path), contextlib.ExitStack() as held:
                    bodies = [self.begin(held, server, path, client) for _ in range(3)]
                    self.assertIn(self.first_refusal(bodies), (0, 429))
                    self.assertNotIn(self.finish(self.begin(held, server, path, client=OTHER)), (0, 429, 503))
            self.assertIn(b'limited_requests_total{limit="body_bytes"} 2.0', server.api("GET", "metrics").body)

    def test_all_addresses_have_a_budget(self):
        with self.hub(body_bytes=2_500_000, all_body_bytes=3_500_000) as server, contextlib.ExitStack() as held:
            bodies = [self.begin(held, server, REST, client) for client in (CLIENT, CLIENT, OTHER, OTHER)]
            self.assertIn(self.first_refusal(bodies), (0, 503))
            self.assertIn(b'limited_requests_total{limit="all_body_bytes"} 1.0', server.api("GET", "metrics").body)
            self.assertEqual(send(server, "GET", "/api/v1/health").status, 200)

    def test_what_a_request_held_is_given_back(self):
        with self.hub(body_bytes=1_500_000) as server, contextlib.ExitStack() as held:
            answer = lambda: self.finish(self.begin(held, server, REST))  # noqa: E731
            for _ in range(3):
                # An answer can arrive a moment before its request has ended.
                poll(lambda: answer() not in (0, 429, 503), what="room for one body", seconds=30)

    @contextlib.contextmanager
    def hub(self, **limits: int) -> Iterator[Server]:
        with public_hub(limits=json.dumps(limits)) as server:
            server.api("POST", "projects", {"project_id": "alpha"})
            yield server

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


class ForwardedClientTests(TestCase):
    def test_a_proxy_must_name_its_clients(self):
        with public_hub() as server:
            for named in ({}, {"X_Forwarded_For": ""}, {"X_Forwarded_For": ", "}, {"X_Real_IP": CLIENT}):
                with self.subTest(named=named):
                    reply = server.request("GET", REST, Host=HOST, X_Forwarded_Proto="https", **named)
                    self.assertEqual((reply.status, reply.body), (400, UNNAMED))
            # This machine's own clients name nobody.
            self.assertEqual(server.api("GET", "projects").status, 200)
