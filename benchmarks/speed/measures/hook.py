"""How long a client waits for its hook, while the hub runs and while it does not."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.speed import processes
from benchmarks.speed.bench import Bench
from benchmarks.speed.figures import Figure, Unit, latency
from benchmarks.speed.timing import seconds_of

_BARE = "python -c pass"
_LABELS = {"running": "hook, the hub runs", "stopped": "hook, the hub does not run"}
_REST_SECONDS = 0.3
"""After each hook the hub, or the child that spools, has time to end what the hook did not wait for."""


def measure_hooks(bench: Bench) -> Iterator[Figure]:
    """Yield the time from the start of a tool's hook to its end, beside an interpreter that does nothing.

    Raises:
        RuntimeError: a hook failed, or said something that the client would take for an answer.
    """
    homes = {"running": bench.rest.home, "stopped": bench.home / "stopped"}
    homes["stopped"].mkdir(mode=0o700)
    taken: dict[str, list[float]] = {name: [] for name in homes}
    interpreter: list[float] = []
    for number in range(bench.samples.starts + 1):
        bench.progress("hooks", number, bench.samples.starts)
        interpreter.append(seconds_of(_start_python))
        for name, home in homes.items():
            taken[name].append(_tell(home))
            time.sleep(_REST_SECONDS)
    _check_kept(homes)
    for name, label in _LABELS.items():
        # The first of each warms up.
        amount, baseline = latency(taken[name][1:]), latency(interpreter[1:])
        yield Figure(f"hook.{name}", label, Unit.MILLISECONDS, amount, None, baseline, _BARE)


def _check_kept(homes: dict[str, Path]) -> None:
    """A hook that kept nothing would be quick for nothing; RuntimeError where nothing is kept even after a minute."""
    deadline = time.monotonic() + processes.ANSWER_SECONDS
    while missing := _missing(homes):
        if time.monotonic() > deadline:
            raise RuntimeError(missing)
        time.sleep(_REST_SECONDS)


def _missing(homes: dict[str, Path]) -> str:
    """Say what is not kept yet; empty where all is."""
    if not (homes["running"] / "projects" / "bench-hook" / "head").exists():
        return "the hub has none of the events that its hooks told it"
    if not list((homes["stopped"] / "spool").glob("*.jsonl")):
        return "the spool has none of the events that the hooks told while the hub did not run"
    return ""


def _start_python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def _tell(home: Path) -> float:
    """Run the hook as a client does, and return the seconds that the client waited."""
    command = processes.command("hook", "claude-code", "PostToolUse", "--project", "bench-hook")
    started = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - our own command line
        command, check=False, input=_told(home), capture_output=True, env=processes.environment(home), cwd=home
    )
    seconds = time.perf_counter() - started
    if done.returncode or done.stdout:
        raise RuntimeError(f"the hook ended with {done.returncode}: {done.stdout!r} {done.stderr[-300:]!r}")
    return seconds


def _told(home: Path) -> bytes:
    told = {
        "session_id": "bench",
        "cwd": str(home),
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "make test"},
        "tool_response": {"stdout": "ok\n" * 50},
    }
    return json.dumps(told).encode()
