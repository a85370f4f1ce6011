"""Kills of the hub, of MCP servers and of hooks while a client's events are captured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from random import Random

from django.test import tag

from tests.hook.client import environment_of, replayed
from tests.hook.test_without_hub import MANAGE, AutostartTestCase
from tests.torture.rounds import randomness, rounds
from tests.web.server import poll

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
        if attack == "hub":
            self.kill_hub()
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

    def kill_hub(self) -> None:
        running = self.running()
        if running:
            os.kill(running.pid, signal.SIGKILL)

    def search_and_kill(self, seconds: float) -> None:
        """Start an MCP server whose first read imports waiting events, and kill it at some moment of that."""
        call = {"name": "memory_search", "arguments": {"query": "prompt"}}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "window", "version": "1"}}
        lines = [
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
        ]
        server = subprocess.Popen(
            [sys.executable, MANAGE, "mcp"],
            cwd=self.folder, env=environment_of(self.home), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        assert server.stdin
        server.stdin.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        server.stdin.flush()
        time.sleep(seconds)
        server.kill()
        server.communicate()

    def captured(self) -> list[str]:
        self.run_command("search", "prompt")
        events = replayed(self.home, "parser")
        return [event["payload"]["content"] for event in events if event["event_type"] == "message.user"]
