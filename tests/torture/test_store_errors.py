"""Store errors while other calls are running, at every door: no crash, no acknowledged write lost, reads go on.

``TORTURE_ROUNDS`` sets how often each round is repeated; ``make torture`` runs the long form.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from django.test import SimpleTestCase

from tests.mcp.client import McpTestCase
from tests.mcp.client import Server as McpServer
from tests.web.server import Server, run, serving, temporary_home

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "2"))
TOO_LONG = "/" + "x" * 300
"""A directory that no file system can hold: every call that looks at it fails with ENAMETOOLONG."""

_LIMITED = """
import resource, signal, sys
from memoryhub.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
sys.exit(main(["memory-hub", *sys.argv[1:]]))
"""
"""Runs a command whose files cannot grow over a limit: from there on each write to the store fails."""


class RestTests(SimpleTestCase):
    def test_a_directory_that_cannot_exist_harms_nobody_else(self):
        with self.hub() as home, serving("--no-worker", home=home) as server:
            acknowledged: list[int] = []
            for number in range(ROUNDS):
                wrong = [
                    lambda _: self.status(server, "POST", "commits/read", {"sha": "abc1234", "directory": TOO_LONG})
                ]
                statuses = self.together(server, acknowledged, number, wrong)
                self.assertEqual(set(statuses) - {200, 201}, {422})
            self.still_there(server, home, acknowledged)

    def test_a_store_that_cannot_grow_refuses_writes_and_answers_searches(self):
        with self.hub() as home:
            limit = sum(path.stat().st_size for path in (home / "projects/alpha").glob("events.db*")) + 300_000
            program = _LIMITED.format(limit=limit)
            with serving("--no-worker", home=home, program=program) as server:
                acknowledged: list[int] = []
                for number in range(ROUNDS):
                    statuses = self.together(server, acknowledged, number, [])
                self.assertEqual(set(statuses) - {200, 201}, {503}, server.text[-3000:])
                self.still_there(server, home, acknowledged)

    @contextmanager
    def hub(self) -> Iterator[Path]:
        with temporary_home() as home:
            code, output = run("import", "markdown", "docs", "--project", "alpha", home=home)
            self.assertEqual(code, 0, output)
            yield home

    def together(self, server: Server, acknowledged: list[int], number: int, wrong: list[Callable[[int], int]]) -> Any:
        """Run three searchers, two writers and two of those that go wrong at once; return all statuses."""

        def search(at: int) -> int:
            return self.status(server, "GET", f"search?query=store+{at}")

        def write(at: int) -> int:
            body = {"title": f"memory {number} {at}", "content": f"{'text ' * 800}{number} {at}"}
            reply = server.api("POST", "projects/alpha/memories", body)
            if reply.status == 201:
                acknowledged.append(reply.json()["id"])
            return reply.status

        jobs = islice(cycle([search, search, write, search, write, *wrong, *wrong]), 120)
        with ThreadPoolExecutor(7) as threads:
            return Counter(threads.map(lambda job: job[1](job[0]), enumerate(jobs)))

    def status(self, server: Server, method: str, path: str, body: Any = None) -> int:
        return server.api(method, f"projects/alpha/{path}", body).status

    def still_there(self, server: Server, home: Path, acknowledged: list[int]) -> None:
        self.assertTrue(acknowledged)
        self.assertIsNone(server.process.poll(), server.text)
        self.assertEqual(server.api("GET", "projects/alpha/memories?limit=1").status, 200)
        server.end()
        code, output = run("verify", "--project", "alpha", home=home)
        self.assertEqual(code, 0, output)
        for start in range(0, len(acknowledged), 50):
            code, output = run("get", "--project", "alpha", *map(str, acknowledged[start : start + 50]), home=home)
            self.assertEqual(code, 0, output)


class StdioTests(McpTestCase):
    def test_a_directory_that_cannot_exist_harms_nobody_else(self):
        server = self.connect()
        written = [server.call("memory_write", title=f"first {n}", content=f"text {n}") for n in range(20)]
        self.assertFalse(any(result["isError"] for result in written))
        for number in range(ROUNDS):
            refused = self.pipelined(server, number)
            self.assertEqual(refused, 12)
        self.assertEqual(server.end()[0], 0)

    def pipelined(self, server: McpServer, number: int) -> int:
        """Send 40 searches with twelve calls that go wrong and four writes among them; return how many were refused."""
        calls = [("memory_search", {"query": f"text {at}"}) for at in range(40)]
        for at in range(12):
            calls.insert(at * 4, ("commit_record", {"sha": "abc1234", "directory": TOO_LONG}))
        for at in range(4):
            calls.insert(at * 11, ("memory_write", {"title": f"more {number} {at}", "content": f"more {number} {at}"}))
        for tool, arguments in calls:
            server.request("tools/call", {"name": tool, "arguments": arguments})
        results = [server.receive()["result"] for _ in calls]
        texts = [result["content"][0]["text"] for result in results if result["isError"]]
        self.assertEqual({text.partition(":")[0] for text in texts}, {"invalid"}, texts)
        return len(texts)
