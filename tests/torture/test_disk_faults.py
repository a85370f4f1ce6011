"""Disks that fail and stores that refuse: each door says so, processes live on, nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from unittest import mock

from django.test import SimpleTestCase, tag

from memories.schemas import MemoryWrite
from memories.services import write_memory
from tests import forks
from tests.databases import variables_of
from tests.home import UNMEASURED, run_home
from tests.mcp.case import ProcessTestCase
from tests.mcp.client import Process as McpServer
from tests.mcp.http_server import HttpServer, HttpSession
from tests.programs import needs
from tests.support import HubTestCase, forget_all_stores
from tests.torture.acknowledged import Expected, Kept, problems
from tests.torture.rounds import is_long, rounds
from tests.torture.workload import PROJECT
from tests.web.server import ROOT, START_SECONDS, Reply, Server, migrated_home, poll, serving, temporary_home

STORE_FILES = ("events.db", "events.db-wal")
ANCHOR = ("head",)


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    calls: str
    error: str
    files: tuple[str, ...] = STORE_FILES

    def options(self, store: Path) -> list[str]:
        paths = [part for name in self.files for part in ("-P", str(store / name))]
        events = (f"trace={self.calls}", f"inject={self.calls}:error={self.error}", "signal=none")
        return [*paths, *(part for event in events for part in ("-e", event))]


@contextmanager
def failing(fault: Fault, store: Path, pids: Sequence[int]) -> Iterator[None]:
    attach = [part for pid in pids for part in ("-p", str(pid))]
    command = ["strace", "-f", "-qq", "-o", os.devnull, *fault.options(store), *attach]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as strace:
        try:
            poll(lambda: all(map(_is_traced, pids)) or strace.poll() is not None, what="strace to attach")
            assert strace.poll() is None, "strace could not attach"
            yield
        finally:
            strace.terminate()


def under(fault: Fault, store: Path) -> list[str]:
    """Return what to put before a command, so that it meets the fault from its start."""
    return ["strace", "-f", "-qq", "--seccomp-bpf", "-o", os.devnull, *fault.options(store)]


def _is_traced(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        states = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        return all("TracerPid:\t0\n" not in state for state in states)
    return False


@contextmanager
def small_disk(place: Path, *, megabytes: int) -> Iterator[bool]:
    """Mount a file system in memory on a new folder; yields False where this user may not."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


def make_read_only(disk: Path) -> None:
    """Remount a small disk; no process may have a file of it open for writing."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Fill a file system to its last byte, and return the file that does so."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(512)):
            pass
    return ballast


UNAVAILABLE = "memory database unavailable: "
FULL = Fault("full disk", "pwrite64,write,ftruncate,fallocate", "ENOSPC")
WRITES = Fault("errors on write", "pwrite64,write,ftruncate", "EIO")
SYNCS = Fault("errors on sync", "fsync,fdatasync", "EIO")
UNDECIDED = (WRITES, SYNCS)
READS = Fault("errors on read", "pread64,read", "EIO")
ANCHOR_FULL = Fault("full disk at the anchor", "pwrite64", "ENOSPC", ANCHOR)
ANCHOR_SYNC = Fault("errors on sync of the anchor", "fsync,fdatasync", "EIO", ANCHOR)


def content_of(title: str) -> str:
    return f"What must be kept of {title}: " + " ".join(f"{title} {number}" for number in range(200))


class Doors:
    """One store at three doors: MCP over stdio, REST and the command line; and what they acknowledged."""

    def __init__(self, home: Path, mcp: McpServer, rest: Server) -> None:
        self.home, self.mcp, self.rest = home, mcp, rest
        self.store = home / "projects" / PROJECT
        self.expected = Expected()
        self.pids = [mcp.process.pid, rest.process.pid]

    def write_mcp(self, title: str, **more: str) -> str:
        result = self.mcp.call("memory_write", title=title, content=content_of(title), format="json", **more)
        if result.get("isError"):
            return str(result["content"][0]["text"])
        self.note(result["structuredContent"]["id"], title)
        return ""

    def write_rest(self, title: str, **more: str) -> Reply:
        body = {"title": title, "content": content_of(title), **more}
        reply = self.rest.api("POST", f"projects/{PROJECT}/memories", body)
        if reply.status in (200, 201):
            self.note(reply.json()["id"], title)
        return reply

    def run(self, *arguments: str, before: list[str]) -> tuple[int, str]:
        """Run a command of its own process, and return its exit code and what it said on standard error."""
        command = [*before, sys.executable, str(ROOT / "manage.py"), *arguments, "--project", PROJECT]
        environment = {**os.environ, **UNMEASURED, "MEMORY_HUB_HOME": str(self.home), "PYTHONDEVMODE": ""}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=START_SECONDS, check=False
        )
        return done.returncode, done.stderr

    def note(self, key: int, title: str) -> None:
        self.expected.memories[key] = Kept(1, title, content_of(title))


@tag("attack")
class DiskFaultTests(HubTestCase):
    @contextmanager
    def doors(self, home: Path) -> Iterator[Doors]:
        with serving("--no-worker", home=home) as rest:
            self.assertEqual(rest.api("POST", "projects", {"project_id": PROJECT}).status, 201)
            doors = Doors(home, self.server(home), rest)
            self.assert_all_write(doors, "before")
            yield doors
            self.assertEqual(doors.mcp.end()[0], 0)

    @needs("strace")
    def test_a_disk_that_fails_under_running_processes_is_named_and_recovered_from(self):
        with self.doors(self.home_of_databases()) as doors:
            for fault in (FULL, WRITES, SYNCS, READS):
                with self.subTest(fault=fault.name):
                    self.write_here(doors, f"before {fault.name}")
                    with failing(fault, doors.store, doors.pids):
                        self.assert_all_refuse(doors, fault.name, is_unknown=fault in UNDECIDED)
                        if fault is not READS:
                            self.assert_all_read(doors)
                    if is_long() or fault is READS:  # each is a process of its own
                        code = 20 if fault in UNDECIDED else 8
                        self.assert_a_command_refuses(doors, fault.name, before=under(fault, doors.store), code=code)
                    self.assert_all_write(doors, f"after {fault.name}")
            for fault in (ANCHOR_FULL, ANCHOR_SYNC):
                with self.subTest(fault=fault.name), failing(fault, doors.store, doors.pids):
                    self.assert_all_write(doors, fault.name)
            self.assert_all_write(doors, "at the end")
        self.assert_nothing_lost(doors)

    @needs("strace")
    def test_what_may_be_stored_or_not_is_stored_once_when_it_is_repeated(self):
        with self.doors(self.home_of_databases()) as doors:
            with failing(SYNCS, doors.store, doors.pids):
                said = doors.write_mcp("of mcp", idempotency_key="key of mcp")
                how = r"may be stored or not; repeat the call with idempotency_key=key of "
                self.assertRegex(said, rf"^outcome_unknown: {UNAVAILABLE}.*{how}mcp")
                reply = doors.write_rest("of rest", idempotency_key="key of rest")
                self.assertEqual((reply.status, reply.json()["code"]), (503, "outcome_unknown"))
                self.assertEqual(reply.json()["idempotency_key"], "key of rest")
                self.assertRegex(reply.json()["detail"], f"{how}rest")
            for _ in range(2):
                self.assertEqual(doors.write_mcp("of mcp", idempotency_key="key of mcp"), "")
                self.assertIn(doors.write_rest("of rest", idempotency_key="key of rest").status, (200, 201))
            memories = doors.rest.api("GET", f"projects/{PROJECT}/memories").json()["results"]
            titles = [memory["title"] for memory in memories]
            self.assertEqual((titles.count("of mcp"), titles.count("of rest")), (1, 1))
        self.assert_nothing_lost(doors)

    @needs("mount")
    def test_a_file_system_that_fills_up_or_is_read_only_is_named_and_recovered_from(self):
        disk = self.home / "disk"
        with small_disk(disk, megabytes=16) as mounted:
            if not mounted:
                self.skipTest("this user may not mount a file system")
            with self.doors(self.home_of_databases(disk)) as doors:
                ballast = fill(disk)
                self.assert_all_refuse(doors, "full", reason="(full|No space)")
                self.assert_all_read(doors)
                self.assert_a_command_refuses(doors, "full", before=[])
                ballast.unlink()
                self.assert_all_write(doors, "after full")
            self.assert_one_server_alone_goes_on_reading(disk, doors)
            make_read_only(disk)
            self.assert_read_only(doors)
            doors.home = shutil.copytree(doors.home, self.home / "copy")
            self.assert_nothing_lost(doors)

    def assert_one_server_alone_goes_on_reading(self, disk: Path, doors: Doors) -> None:
        """Where no other process keeps the store's shared memory file, SQLite would have to make it again."""
        doors.mcp = self.server(doors.home)
        self.assertIn("before", doors.mcp.say("memory_search", query="before"))
        ballast = fill(disk)
        self.assertRegex(doors.write_mcp("alone"), f"^unavailable: {UNAVAILABLE}.*full")
        self.assertIn("before", doors.mcp.say("memory_search", query="before"))
        ballast.unlink()
        self.assertEqual(doors.write_mcp("alone again") and doors.write_mcp("alone again"), "")
        self.assertEqual(doors.mcp.end()[0], 0)

    def assert_read_only(self, doors: Doors) -> None:
        doors.mcp = self.server(doors.home)
        self.assertRegex(doors.write_mcp("read-only"), f"^unavailable: {UNAVAILABLE}")
        self.assertRegex(doors.mcp.say("memory_search", query="before"), f"before|{UNAVAILABLE}")
        code, said = doors.mcp.end()
        self.assertEqual((code, said.count("Traceback")), (0, 0), said)
        self.assert_a_command_refuses(doors, "read-only", before=[])
        code, said = doors.run("backup", before=[])
        self.assertEqual((code, said.count("\n")), (8, 1), said)

    def server(self, home: Path) -> McpServer:
        server = McpServer(home, "--project", PROJECT, MEMORY_HUB_TEST_TOOLS="", **UNMEASURED)
        self.addCleanup(server.destroy)
        server.initialize()
        return server

    def home_of_databases(self, folder: Path | None = None) -> Path:
        home = (folder or self.home) / "hub"
        shutil.copytree(migrated_home(), home)
        shutil.copytree(self.home / "templates", home / "templates", dirs_exist_ok=True)
        return home

    def write_here(self, doors: Doors, title: str) -> None:
        """Write in this process, so that what the others have read of the store is out of date."""
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(doors.home)):
            try:
                with self.store(PROJECT):
                    written = write_memory(command=MemoryWrite(title=title, content=content_of(title)))
                    doors.note(written.id, title)
            finally:
                forget_all_stores()

    def assert_all_refuse(self, doors: Doors, name: str, *, reason: str = "", is_unknown: bool = False) -> None:
        code, reason = ("outcome_unknown", "search for it") if is_unknown else ("unavailable", reason)
        at_mcp = "repeat the call with idempotency_key=" if is_unknown else reason  # each call there has a key
        self.assertRegex(doors.write_mcp(f"{name} mcp"), f"^{code}: {UNAVAILABLE}.*{at_mcp}")
        reply = doors.write_rest(f"{name} rest")
        self.assertEqual((reply.status, reply.json()["code"]), (503, code), reply.body)
        self.assertRegex(reply.json()["detail"], f"^{UNAVAILABLE}.*{reason}")

    def assert_all_read(self, doors: Doors) -> None:
        self.assertIn("before", doors.mcp.say("memory_search", query="before"))
        self.assertEqual(doors.rest.api("GET", f"projects/{PROJECT}/memories").status, 200)

    def assert_a_command_refuses(self, doors: Doors, name: str, *, before: list[str], code: int = 8) -> None:
        notes = self.home / "notes"
        notes.mkdir(exist_ok=True)
        (notes / "note.md").write_text(f"# {name} command\n\n{content_of(name)}\n")
        ended, said = doors.run("import", "markdown", str(notes), before=before)
        self.assertEqual((ended, said.count("\n")), (code, 1), said)
        self.assertRegex(said, UNAVAILABLE)

    def assert_all_write(self, doors: Doors, name: str) -> None:
        """The first call after a failure may still find what failed; the second may not."""
        self.assertEqual(doors.write_mcp(f"{name} mcp") and doors.write_mcp(f"{name} mcp"), "")
        first = doors.write_rest(f"{name} rest")
        again = first if first.status == 201 else doors.write_rest(f"{name} rest")
        self.assertEqual(again.status, 201, (first.body, again.body))

    def assert_nothing_lost(self, doors: Doors) -> None:
        self.assertEqual(problems(doors.home, doors.expected, thorough=True)[:5], [])


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
    code, _, errors = forks.run("import", "markdown", "docs", "--project", "alpha", **variables_of(home))
    assert code == 0, errors
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
        pairs = zip(texts, results, strict=True)
        return dict(Counter(text.partition(":")[0] if result["isError"] else "ok" for text, result in pairs))

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
    ids = sorted(set(acknowledged))
    commands = [["get", *map(str, ids[start : start + 50])] for start in range(0, len(ids), 50)]
    for name, *arguments in (["verify"], *commands):
        code, _, errors = forks.run(name, "--project", "alpha", *arguments, **variables_of(home))
        test.assertEqual(code, 0, errors)
