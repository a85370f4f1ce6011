"""Store errors while other calls are running, at every door: no crash, no acknowledged write lost, reads go on."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from django.test import SimpleTestCase, tag

from tests.home import run_home
from tests.mcp.client import Process as McpServer
from tests.mcp.client import ProcessTestCase
from tests.mcp.http_server import HttpServer, HttpSession
from tests.torture.rounds import rounds
from tests.web.server import Server, migrated_home, run, serving, temporary_home

ROUNDS = rounds(2, long=200)
CALLS = 48
THREADS = 7
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

Call = Callable[[int], str]
"""Takes the number of the call; returns the code of its outcome, "ok" where there was no error."""


@contextmanager
def filled_home() -> Iterator[Path]:
    with temporary_home(fresh=True) as home:
        shutil.copytree(imported_home(), home)
        yield home


@cache
def imported_home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="imported-", dir=run_home())) / "home"
    shutil.copytree(migrated_home(), home)
    code, output = run("import", "markdown", "docs", "--project", "alpha", home=home)
    assert code == 0, output
    return home


def at_once(*calls: Call) -> set[str]:
    """Make calls of each kind from seven threads, and return the outcomes other than success."""
    work = enumerate(islice(cycle(calls), CALLS))
    with ThreadPoolExecutor(THREADS) as threads:
        return set(Counter(threads.map(lambda job: job[1](job[0]), work))) - {"ok"}


@tag("attack")
class WebTests(SimpleTestCase):
    """REST and the admin: both are answered by the same threads of one process."""

    def test_a_directory_that_cannot_exist_harms_nobody_else(self):
        with filled_home() as home, serving("--no-worker", home=home) as server:
            door = WebDoor(server)
            for _ in range(ROUNDS):
                outcomes = at_once(door.search, door.wrong, door.page, door.write, door.search, door.wrong, door.write)
                self.assertEqual(outcomes, {"not_found"}, server.text[-3000:])
            self.still_there(door, home)

    def test_a_store_that_cannot_grow_refuses_writes_and_answers_searches(self):
        with filled_home() as home:
            limit = sum(path.stat().st_size for path in (home / "projects/alpha").glob("events.db*")) + 300_000
            with serving("--no-worker", home=home, program=_LIMITED.format(limit=limit)) as server:
                door = WebDoor(server)
                outcomes = set()
                for _ in range(ROUNDS):
                    outcomes |= at_once(door.search, door.write, door.page, door.write, door.search)
                self.assertEqual(outcomes, {"outcome_unknown"}, server.text[-3000:])
                self.still_there(door, home)

    def still_there(self, door: WebDoor, home: Path) -> None:
        self.assertTrue(door.acknowledged)
        self.assertIsNone(door.server.process.poll(), door.server.text)
        self.assertEqual(door.search(0), "ok")
        door.server.end()
        require_kept(self, home, door.acknowledged)


class WebDoor:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.acknowledged: list[int] = []
        page = server.request("GET", server.link.removeprefix(server.address))
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.body.decode())
        cookies = "; ".join(line.split(";")[0] for line in page.headers.get_all("Set-Cookie") or [])
        self.cookie = self.sign_in(token[1] if token else "", cookies)

    def sign_in(self, token: str, cookies: str) -> str:
        form = f"csrfmiddlewaretoken={token}".encode()
        headers = {"Cookie": cookies, "Content-Type": "application/x-www-form-urlencoded"}
        reply = self.server.request("POST", self.server.link.removeprefix(self.server.address), form, **headers)
        found = [line.split(";")[0] for line in reply.headers.get_all("Set-Cookie") or []]
        return "; ".join([*found, cookies])

    def search(self, number: int) -> str:
        return outcome(self.server.api("GET", f"projects/alpha/search?query=store+{number}"))

    def page(self, number: int) -> str:
        reply = self.server.request("GET", f"/p/alpha/admin/memories/memory/?q=store+{number}", Cookie=self.cookie)
        return "ok" if reply.status == 200 and b"result_list" in reply.body else f"page {reply.status}"

    def write(self, number: int) -> str:
        body = {"title": f"memory {number}", "content": f"{'text ' * 800}{number} {len(self.acknowledged)}"}
        reply = self.server.api("POST", "projects/alpha/memories", body | {"if_exists": "update"})
        if reply.status in (200, 201):
            self.acknowledged.append(reply.json()["id"])
        return outcome(reply)

    def wrong(self, number: int) -> str:
        body = {"sha": "abc1234", "directory": TOO_LONG}
        return outcome(self.server.api("POST", "projects/alpha/commits/read", body))


def outcome(reply: Any) -> str:
    return "ok" if reply.status < 400 else str(reply.json()["code"])


@tag("attack")
class McpTests(ProcessTestCase):
    def test_a_directory_that_cannot_exist_harms_nobody_else_over_stdio(self):
        server = self.connect()
        for number in range(ROUNDS):
            self.assertEqual(self.pipelined(server, number), {"ok": 44, "not_found": 12})
        self.assertEqual(server.end()[0], 0)
        require_kept(self, self.home, self.acknowledged)

    def pipelined(self, server: McpServer, number: int) -> dict[str, int]:
        """Send 40 searches with twelve calls that fail and four writes among them, and count the outcomes."""
        calls = [("memory_search", {"query": f"text {at}"}) for at in range(40)]
        for at in range(12):
            calls.insert(at * 4, ("commit_record", {"sha": "abc1234", "directory": TOO_LONG}))
        for at in range(4):
            calls.insert(at * 11, ("memory_write", {"title": f"more {number} {at}", "content": f"more {number} {at}"}))
        for tool, arguments in calls:
            server.request("tools/call", {"name": tool, "arguments": arguments})
        results = [server.receive()["result"] for _ in calls]
        texts = [result["content"][0]["text"] for result in results]
        self.acknowledged += [int(found[1]) for text in texts if (found := re.match(r"created #(\d+)", text))]
        return dict(
            Counter(
                text.partition(":")[0] if result["isError"] else "ok"
                for text, result in zip(texts, results, strict=True)
            )
        )

    def test_a_directory_that_cannot_exist_harms_nobody_else_over_http(self):
        server = HttpServer(self.home)
        self.addCleanup(server.destroy)
        sessions: SimpleQueue[HttpSession] = SimpleQueue()  # one for each thread: its requests have one id
        for _ in range(THREADS):
            sessions.put(HttpSession(server))

        def call(tool: str, **arguments: str) -> Call:
            def made(number: int) -> str:
                given = {name: value.replace("N", str(number)) for name, value in arguments.items()}
                session = sessions.get()
                text = session.say(tool, format="json", **given)
                sessions.put(session)
                data = json.loads(text) if text.startswith("{") else {}
                if tool == "memory_write":
                    self.acknowledged.append(data["id"])
                return "ok" if data else text.partition(":")[0]

            return made

        search, write = call("memory_search", query="text N"), call("memory_write", title="http N", content="text N")
        wrong = call("commit_record", sha="abc1234", directory=TOO_LONG)
        for _ in range(ROUNDS):
            self.assertEqual(at_once(search, wrong, write, search, wrong), {"not_found"})
        self.assertEqual(server.end(), 0)
        require_kept(self, self.home, self.acknowledged)

    def setUp(self) -> None:
        super().setUp()
        self.acknowledged: list[int] = []


def require_kept(test: SimpleTestCase, home: Path, acknowledged: list[int]) -> None:
    test.assertTrue(acknowledged)
    code, output = run("verify", "--project", "alpha", home=home)
    test.assertEqual(code, 0, output)
    ids = sorted(set(acknowledged))
    for start in range(0, len(ids), 50):
        code, output = run("get", "--project", "alpha", *map(str, ids[start : start + 50]), home=home)
        test.assertEqual(code, 0, output)
