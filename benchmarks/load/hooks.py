"""Hook events of many client windows on one hub: what is answered and stored, and what the hub takes for it."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.speed.bench import Progress
from benchmarks.speed.processes import HttpServer
from memoryhub.config.identity import SETTINGS_FILE
from memoryhub.core import windows
from memoryhub.core.models import RawEvent
from memoryhub.core.secret_files import TOKEN, sound_secret
from memoryhub.core.stores.store import project_store, use_store

_CLIENT = "claude-code"
_TURN = ("UserPromptSubmit", "PostToolUse", "PostToolUse", "PostToolUse", "Stop")
# Turns of a session, after which its window starts another one
_TURNS = 5
# As long as a hook waits for an answer that its client shows to its model
_PATIENCE = 1.0
_SAMPLE_EVERY = 5.0


@dataclass
class HookOutcome:
    """Seconds of the answers by event, what was refused, the keys that were acknowledged, and samples of the hub."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    # By project
    keys: dict[str, list[str]] = field(default_factory=dict)
    late: int = 0
    samples: list[dict[str, int]] = field(default_factory=list)


class HookLoad:
    """Sends events at a rate, each of a window chosen at random, whose events keep their order."""

    def __init__(self, home: Path, *, projects: list[str], windows: int, rate: float, progress: Progress) -> None:
        self._home = home
        self._projects = projects
        self._number = windows
        self._rate = rate
        self._progress = progress
        self.outcome = HookOutcome()

    async def run(self, seconds: float) -> HookOutcome:
        server = HttpServer.hub(self._home)
        await asyncio.to_thread(server.start)
        headers = {"Authorization": f"Bearer {sound_secret(TOKEN)}"}
        limits = httpx2.Limits(max_connections=50, max_keepalive_connections=0)
        try:
            with self._windows() as all_windows:
                async with httpx2.AsyncClient(
                    base_url=server.origin, headers=headers, limits=limits, timeout=30
                ) as client:
                    await self._send_all(client, all_windows, server, seconds)
        finally:
            server.stop()
        return self.outcome

    def lost(self) -> int:
        """Count the acknowledged events that the stores don't have."""
        return sum(len(keys) - self._stored(project, keys) for project, keys in self.outcome.keys.items())

    def _stored(self, project: str, keys: list[str]) -> int:
        with use_store(project_store(project)):
            stored = set(RawEvent.objects.exclude(idempotency_key=None).values_list("idempotency_key", flat=True))
        return len(stored.intersection(keys))

    # A window is known by a process that lives as long as it does
    @contextmanager
    def _windows(self) -> Iterator[list[_Window]]:
        processes = [subprocess.Popen(["sleep", "3600"]) for _ in range(self._number)]  # noqa: S607
        try:
            yield [
                _Window(number, self._projects[number % len(self._projects)], self._home, process.pid)
                for number, process in enumerate(processes)
            ]
        finally:
            for process in processes:
                process.kill()
                process.wait()

    async def _send_all(
        self, client: httpx2.AsyncClient, all_windows: list[_Window], server: HttpServer, seconds: float
    ) -> None:
        source = random.Random(0)  # noqa: S311 - the same events on every run
        started = time.monotonic()
        next_event = next_sample = 0.0
        async with asyncio.TaskGroup() as tasks:
            while (now := time.monotonic() - started) < seconds:
                tasks.create_task(self._send(client, source.choice(all_windows)))
                if now >= next_sample:
                    next_sample = now + _SAMPLE_EVERY
                    self.outcome.samples.append({"second": round(now), **_sample(server), **self._files()})
                    self._progress("hook events", round(now), round(seconds))
                next_event += source.expovariate(self._rate)
                await asyncio.sleep(max(0.0, started + next_event - time.monotonic()))

    async def _send(self, client: httpx2.AsyncClient, window: _Window) -> None:
        async with window.order:
            event, data = window.next_event()
            key = f"bench-{window.number}-{window.events}"
            headers = {"Idempotency-Key": key, "Memory-Hub-Window": window.key}
            before = time.perf_counter()
            try:
                answer = await client.post(f"/api/v1/hooks/{_CLIENT}/{event}", json=data, headers=headers)
            except httpx2.HTTPError as error:
                self.outcome.errors[f"{event}: {type(error).__name__}"] += 1
                return
            took = time.perf_counter() - before
        if not answer.is_success:
            self.outcome.errors[f"{event}: {answer.status_code} {answer.text[:100]}"] += 1
            return
        self.outcome.seconds.setdefault(event, []).append(took)
        self.outcome.late += took > _PATIENCE
        if event in ("UserPromptSubmit", "PostToolUse"):
            self.outcome.keys.setdefault(window.project, []).append(key)

    def _files(self) -> dict[str, int]:
        notes = self._home / windows.FOLDER
        logs = (self._home / "projects").glob("*/*-wal")
        return {
            "window_notes": len(list(notes.iterdir())) if notes.is_dir() else 0,
            "wal_bytes": sum(path.stat().st_size for path in logs),
        }


class _Window:
    def __init__(self, number: int, project: str, home: Path, pid: int) -> None:
        self.number = number
        self.project = project
        self.order = asyncio.Lock()
        self.events = 0
        process = windows.find_process(pid)
        self.key = process.key if process else ""
        self._folder = home / "work" / project
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / SETTINGS_FILE).touch()  # hooks are recorded in a folder that is a project
        self._events = self._stream()

    def next_event(self) -> tuple[str, dict[str, Any]]:
        self.events += 1
        return next(self._events)

    def _stream(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for session in range(1_000_000):
            common = {"session_id": f"window-{self.number}-{session}", "cwd": str(self._folder)}
            yield "SessionStart", {**common, "source": "startup"}
            for turn in range(_TURNS):
                for event in _TURN:
                    yield event, {**common, **self._fields(event, turn)}
            yield "SessionEnd", {**common, "reason": "exit"}

    def _fields(self, event: str, turn: int) -> dict[str, Any]:
        if event == "UserPromptSubmit":
            return {"prompt": f"Why does gauge {self.number} read {turn} after the tide of event {self.events}?"}
        if event == "PostToolUse":
            command = {"command": f"pytest tests/test_gauge_{self.number}.py -k {self.events}"}
            return {"tool_name": "Bash", "tool_input": command, "tool_response": {"stdout": "1 passed"}}
        return {"last_assistant_message": f"The gauge reads {turn}."}


def _sample(server: HttpServer) -> dict[str, int]:
    """Return what the hub's processes take now: proportional set size in bytes, threads, open files (Linux)."""
    family = _family(server.process.pid) if server.process else []
    return {
        "processes": len(family),
        "proportional_bytes": sum(_proportional_bytes(pid) for pid in family),
        "threads": sum(_count(f"/proc/{pid}/task") for pid in family),
        "open_files": sum(_count(f"/proc/{pid}/fd") for pid in family),
    }


def _family(pid: int) -> list[int]:
    children = [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in _read(task).split()]
    return [pid, *(member for child in children for member in _family(child))]


def _proportional_bytes(pid: int) -> int:
    lines = [line.split() for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines()]
    return 1024 * sum(int(words[1]) for words in lines if words[0] == "Pss:")


def _count(folder: str) -> int:
    try:
        return len(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return 0


# A process may have ended
def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def summary(load: HookLoad) -> dict[str, Any]:
    """Return the figures as JSON data: times in milliseconds, sizes in bytes."""
    outcome = load.outcome
    latest = outcome.samples[-1] if outcome.samples else {}
    return {
        "answered": sum(map(len, outcome.seconds.values())),
        "errors": dict(outcome.errors.most_common()),
        "later_than_a_hook_waits": outcome.late,
        "lost": load.lost(),
        "samples": {"first": outcome.samples[:1], "last": latest, "most": _most(outcome.samples)},
    }


def _most(samples: list[dict[str, int]]) -> dict[str, int]:
    names = samples[0] if samples else {}
    return {name: max(sample[name] for sample in samples) for name in names if name != "second"}
