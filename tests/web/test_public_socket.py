"""The socket of ``--listen``: nobody who comes through it passes for a client of this machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from unittest import TestCase

from tests.server_processes import free_port
from tests.web.public_server import CLIENT, HOST, URL, forwarded, public_hub, send
from tests.web.server import DEADLINE_SECONDS, Server

REST = "/api/v1/projects"
UNNAMED = b"the proxy must send X-Forwarded-For and X-Forwarded-Proto with each request\n"


class PublicSocketTests(TestCase):
    @contextlib.contextmanager
    def hub(self, proxy: str, **limits: float) -> Iterator[Server]:
        self.port = free_port()
        options = ("--no-worker", "--listen", f"127.0.0.1:{self.port}", "--public-url", URL, "--trusted-proxy", proxy)
        with public_hub(*options, limits=json.dumps(limits)) as server:
            yield server

    def request(self, **headers: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        with contextlib.closing(connection):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("GET", REST, headers=named)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def test_a_proxy_that_forwards_nothing_is_refused_whatever_its_host(self):
        with self.hub("127.0.0.1") as server:
            bearer = {"Authorization": f"Bearer {server.token}"}
            for host in (f"127.0.0.1:{self.port}", "localhost", HOST):
                for named in ({}, {"X_Forwarded_For": CLIENT}, {"X_Forwarded_Proto": "https"}):
                    with self.subTest(host=host, named=named):
                        self.assertEqual(self.request(Host=host, **bearer, **named), (400, UNNAMED))
            self.assertEqual(self.request(**forwarded(**bearer))[0], 200)
            self.assertEqual(server.api("GET", "projects").status, 200)

    def test_a_peer_that_is_no_proxy_gets_no_plain_http(self):
        with self.hub("192.0.2.9") as server:
            bearer = {"Authorization": f"Bearer {server.token}"}
            for host in (f"127.0.0.1:{self.port}", "localhost", HOST):
                self.assertEqual(self.request(Host=host, **bearer)[0], 403)

    def test_guesses_from_the_machine_through_the_proxy_are_cut_off(self):
        with self.hub("127.0.0.1", failures_burst=5, failures_per_minute=0.01) as server:
            for client in ("127.0.0.1", "::1"):
                sent = forwarded(client, Authorization="Bearer wrong")
                self.assertEqual([self.request(**sent)[0] for _ in range(7)], [401] * 5 + [429] * 2)
            self.assertEqual(send(server, "GET", "/api/v1/health").status, 200)
