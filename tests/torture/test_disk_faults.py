"""A disk that fails: each door says so in one sentence, the processes live on, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from django.test import tag

from memories.schemas import MemoryWrite
from memories.services import write_memory
from tests.home import UNMEASURED
from tests.mcp.client import Process as McpServer
from tests.programs import needs
from tests.support import HubTestCase, forget_all_stores
from tests.torture.acknowledged import Expected, Kept
from tests.torture.aftermath import problems
from tests.torture.faults import ANCHOR, Fault, failing, fill, make_read_only, small_disk, under
from tests.torture.rounds import is_long
from tests.torture.workload import PROJECT
from tests.web.server import ROOT, START_SECONDS, Reply, Server, migrated_home, serving

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
    @contextlib.contextmanager
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
                        expected = 20 if fault in UNDECIDED else 8
                        self.assert_a_command_refuses(
                            doors, fault.name, before=under(fault, doors.store), code=expected
                        )
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
                self.assertRegex(said, rf"^outcome_unknown: {UNAVAILABLE}.*may be stored or not; .*\(key of mcp\)")
                reply = doors.write_rest("of rest", idempotency_key="key of rest")
                self.assertEqual((reply.status, reply.json()["code"]), (503, "outcome_unknown"))
                self.assertEqual(reply.json()["idempotency_key"], "key of rest")
                self.assertRegex(reply.json()["detail"], r"may be stored or not; .*\(key of rest\)")
            for _ in range(2):
                self.assertEqual(doors.write_mcp("of mcp", idempotency_key="key of mcp"), "")
                self.assertIn(doors.write_rest("of rest", idempotency_key="key of rest").status, (200, 201))
            titles = [
                memory["title"] for memory in doors.rest.api("GET", f"projects/{PROJECT}/memories").json()["results"]
            ]
            self.assertEqual((titles.count("of mcp"), titles.count("of rest")), (1, 1))
        self.assert_nothing_lost(doors)

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
            self.assert_nothing_lost_of_a_copy(doors)

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

    def assert_nothing_lost_of_a_copy(self, doors: Doors) -> None:
        home = self.home / "copy"
        shutil.copytree(doors.home, home)
        self.assertEqual(problems(home, doors.expected, thorough=True)[:5], [])

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
        self.assertRegex(doors.write_mcp(f"{name} mcp"), f"^{code}: {UNAVAILABLE}.*{reason}")
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
