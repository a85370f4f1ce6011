"""How long a client waits for its hook, with the hub running and stopped."""

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
# After each hook: time for the hub, or the child that spools, to finish in the background
_REST_SECONDS = 0.3


def measure_hooks(bench: Bench) -> Iterator[Figure]:
    """Yield the time of a tool hook, over an interpreter that does nothing.

    Raises:
        RuntimeError: a hook failed, or printed something that the client would take for an answer.
    """
    homes = {"running": bench.rest.home, "stopped": bench.home / "stopped"}
    homes["stopped"].mkdir(mode=0o700)
    taken: dict[str, list[float]] = {name: [] for name in homes}
    interpreter: list[float] = []
    for number in range(bench.samples.starts + 1):
        bench.progress("hooks", number, bench.samples.starts)
        interpreter.append(seconds_of(_start_python))
        for name, home in homes.items():
            taken[name].append(_run_hook(home))
            time.sleep(_REST_SECONDS)
    _check_stored(homes)
    for name, label in _LABELS.items():
        # The first call of each is a warm-up.
        amount, baseline = latency(taken[name][1:]), latency(interpreter[1:])
        yield Figure(f"hook.{name}", label, Unit.MILLISECONDS, amount, None, baseline, _BARE)


def _check_stored(homes: dict[str, Path]) -> None:
    """Wait until the events are stored: a hook that stores nothing would be fast for nothing."""
    deadline = time.monotonic() + processes.ANSWER_SECONDS
    while missing := _missing(homes):
        if time.monotonic() > deadline:
            raise RuntimeError(missing)
        time.sleep(_REST_SECONDS)


def _missing(homes: dict[str, Path]) -> str:
    if not (homes["running"] / "projects" / "bench-hook" / "head").exists():
        return "the hub stored no event of its hooks"
    if not list((homes["stopped"] / "spool").glob("*.jsonl")):
        return "the spool has no event of the hooks that ran while the hub was stopped"
    return ""


def _start_python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def _run_hook(home: Path) -> float:
    command = processes.command("hook", "claude-code", "PostToolUse", "--project", "bench-hook")
    started = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - our own command line
        command, check=False, input=_payload(home), capture_output=True, env=processes.environment(home), cwd=home
    )
    seconds = time.perf_counter() - started
    if done.returncode or done.stdout:
        raise RuntimeError(f"the hook ended with {done.returncode}: {done.stdout!r} {done.stderr[-300:]!r}")
    return seconds


def _payload(home: Path) -> bytes:
    payload = {
        "session_id": "bench",
        "cwd": str(home),
        "hook_event_name": "PostToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "make test"},
        "tool_response": {"stdout": "ok\n" * 50},
    }
    return json.dumps(payload).encode()
