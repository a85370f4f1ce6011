"""Kills: of processes that write to one store, and of the hub, MCP servers and hooks while events are captured."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from random import Random

from django.test import tag

from memories.models import Memory
from memoryhub.core import log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.models import RawEvent
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import project_store
from tests.forks import Fork
from tests.hook.client import environment_of, replayed
from tests.hook.test_without_hub import MANAGE, AutostartTestCase
from tests.support import HubTestCase
from tests.torture.rounds import randomness, rounds
from tests.web.server import poll

WRITER = """
import os, sys
from memoryhub.core.backends.sqlite import base
base.BUSY_TIMEOUT_SECONDS = 60.0  # a slow disk takes a second for what eight write
from memoryhub.core.stores.store import project_store, use_store
from memories.services import write_memory
from memories.schemas import MemoryWrite
name, count = sys.argv[1:]
for number in range(int(count)):
    with use_store(project_store("alpha"), create=True):
        result = write_memory(command=MemoryWrite(title=f"{name} {number}", content=f"text {name} {number}"))
    # Whole, whenever this is killed
    os.write(1, f"{result.id} {name} {number}\\n".encode())
"""
DEADLINE_SECONDS = 300
WRITER_KILLS = rounds(50, long=1_000)


@tag("attack")
class ManyProcessesTests(HubTestCase):
    def holds(self, acknowledged: dict[int, str]) -> None:
        with self.store("alpha"):
            titles = dict(Memory.objects.values_list("id", "title"))
            lost = {position: title for position, title in acknowledged.items() if titles.get(position) != title}
            self.assertEqual(lost, {})
            self.assertEqual(rows.fetch("PRAGMA integrity_check"), [("ok",)])
            rows.execute("INSERT INTO search_fts (search_fts) VALUES ('integrity-check')")
            found = log.verify()
            self.assertTrue(found.ok, found.describe())

    def test_eight_writers_at_once_lose_nothing_and_none_is_locked_out(self):
        writers = [Fork(WRITER, f"w{number}", "25") for number in range(8)]
        outputs, errors = zip(*(writer.communicate() for writer in writers), strict=True)
        self.assertEqual(("".join(errors), {writer.returncode for writer in writers}), ("", {0}))
        acknowledged = parse("".join(outputs))
        self.assertEqual(len(acknowledged), 200)
        self.holds(acknowledged)
        with self.store("alpha"):
            positions = list(RawEvent.objects.order_by("position").values_list("position", flat=True))
        self.assertEqual(positions, list(range(1, 201)))

    def test_a_kill_at_any_moment_loses_no_acknowledged_write(self):
        chance = random.Random(20261121)
        acknowledged: dict[int, str] = {}
        for kill in range(WRITER_KILLS):
            acknowledged |= self.write_until_killed(f"k{kill}", chance.randrange(1, 12))
        self.assertGreaterEqual(len(acknowledged), WRITER_KILLS)
        self.holds(acknowledged)
        with self.store("alpha"):
            self.assertTrue(log.rebuild().identical)
        self.assertTrue(path_of(project_store("alpha")).with_name("head").exists())

    def write_until_killed(self, name: str, count: int) -> dict[int, str]:
        """Kill a writer when it has acknowledged so many writes, and return all that it acknowledged."""
        with Fork(WRITER, name, "100000") as writer:
            lines = [writer.stdout.readline() for _ in range(count)]
            writer.kill()
            lines += writer.stdout.readlines()
        self.assertEqual(writer.returncode, -signal.SIGKILL)
        return parse("".join(lines))


def parse(output: str) -> dict[int, str]:
    """Return what was acknowledged. A line is written whole, or not at all where its writer was killed before."""
    return {int(line.split(" ", 1)[0]): line.split(" ", 1)[1] for line in output.splitlines()}


ROUNDS = rounds(6, long=200)
EVENTS = 4


@tag("attack")
class CaptureKillTests(AutostartTestCase):
    def setUp(self) -> None:
        super().setUp()
        # Texts of prompts by whether their hook ended by itself. One that was killed may be captured, at any place.
        self.acknowledged: list[str] = []
        self.killed: list[str] = []

    def test_every_event_is_captured_once_and_in_order(self) -> None:
        with randomness() as random:
            for number in range(ROUNDS):
                self.attack(number, random)
            self.check()

    def attack(self, number: int, random: Random) -> None:
        for event in range(EVENTS):
            # Seconds until the hook is killed; it usually ends by itself.
            self.send(f"prompt {number:03}-{event}", random.uniform(0, 0.3) if random.random() < 0.2 else None)
        attack = random.choice(["hub", "server", "nothing"])
        hub = self.running()
        if attack == "hub" and hub:
            os.kill(hub.pid, signal.SIGKILL)
        elif attack == "server":
            self.search_and_kill(random.uniform(0, 1.5))

    def check(self) -> None:
        # One that was killed may have come after it
        poll(lambda: self.acknowledged[-1] in self.captured(), what="the last event in the log")
        captured = self.captured()
        self.assertEqual(len(captured), len(set(captured)))
        self.assertEqual([text for text in captured if text in self.acknowledged], self.acknowledged)
        self.assertLessEqual(set(captured), {*self.acknowledged, *self.killed})
        self.run_command("verify", "--project", "parser")  # fails unless the log and its anchor are whole

    def send(self, text: str, kill_after: float | None) -> None:
        payload = {"session_id": "s1", "cwd": str(self.folder), "hook_event_name": "UserPromptSubmit", "prompt": text}
        hook = subprocess.Popen(
            [sys.executable, MANAGE, "hook", "claude-code", "UserPromptSubmit"],
            env=environment_of(self.home), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert hook.stdin
        hook.stdin.write(json.dumps(payload).encode())
        hook.stdin.close()
        if kill_after is not None:
            time.sleep(kill_after)
            hook.kill()
        (self.acknowledged if hook.wait() == 0 else self.killed).append(text)

    def search_and_kill(self, seconds: float) -> None:
        """Start an MCP server whose first read imports waiting events, and kill it at some moment of that."""
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "window", "version": "1"}}
        requests = [
            ("initialize", hello),
            ("tools/call", {"name": "memory_search", "arguments": {"query": "prompt"}}),
        ]
        server = subprocess.Popen(
            [sys.executable, MANAGE, "mcp"],
            cwd=self.folder, env=environment_of(self.home), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        assert server.stdin
        for number, (method, params) in enumerate(requests):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        time.sleep(seconds)
        server.kill()
        server.communicate()

    def captured(self) -> list[str]:
        self.run_command("search", "prompt")
        events = replayed(self.home, "parser")
        return [event["payload"]["content"] for event in events if event["event_type"] == "message.user"]
