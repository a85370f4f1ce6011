"""How soon new processes answer: ``mcp`` and its list of tools, and a client's hook."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed import corpus
from benchmarks.speed.bench import Bench
from benchmarks.speed.figures import Amount, Figure, Unit, latency
from benchmarks.speed.processes import Era, StdioClient, hub_command
from benchmarks.speed.timing import seconds_of
from memories import services
from memories.schemas import MemoryWrite
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.management.bench import ANSWER_SECONDS, hub_environment

_STORE = project_store("bench-start")
_MEMORIES = 100
_STEPS = {"opening": "first answer", "lists": "tools/list answered", "call": "first search answered"}
_WITH = {"hub": "", "alone": ", without a hub"}
_BARE = "python -c pass"

_Case = tuple[str, Era]


def measure_starts(bench: Bench) -> Iterator[Figure]:
    _make_store()
    homes = {"hub": bench.rest.home, "alone": bench.home / "alone"}
    shutil.copytree(bench.home / "projects", homes["alone"] / "projects")
    cases = [(kind, era) for kind in _WITH for era in Era]
    found: dict[_Case, list[dict[str, float]]] = {case: [] for case in cases}
    interpreter: list[float] = []
    for kind, era in cases:
        _to_call(homes[kind], era)  # compiles modules on their first import, and the hub loads the SDK
    for number in range(bench.samples.starts):
        bench.progress("starts", number, bench.samples.starts)
        interpreter.append(seconds_of(_start_python))
        for kind, era in cases:
            found[kind, era].append({**_to_lists(homes[kind], era), "call": _to_call(homes[kind], era)})
    for case in cases:
        yield from _figures(case, found[case], latency(interpreter))


def _figures(case: _Case, taken: list[dict[str, float]], interpreter: Amount) -> Iterator[Figure]:
    kind, era = case
    for step, label in _STEPS.items():
        amount = latency([seconds[step] for seconds in taken])
        key, text = f"start.{step}.{kind}.{era}", f"{label} ({era}{_WITH[kind]})"
        yield Figure(key, text, Unit.MILLISECONDS, amount, None, interpreter, _BARE)


def _make_store() -> None:
    with use_store(_STORE, create=True):
        services.write_memories(commands=[MemoryWrite(**corpus.arguments(index)) for index in range(_MEMORIES)])


def _start_python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def _to_lists(home: Path, era: Era) -> dict[str, float]:
    started = time.perf_counter()
    with StdioClient(home, "--project", _STORE.name, era=era) as client:
        client.open()
        opening = time.perf_counter() - started
        client.ask("tools/list")
        return {"opening": opening, "lists": time.perf_counter() - started}


def _to_call(home: Path, era: Era) -> float:
    started = time.perf_counter()
    with StdioClient(home, "--project", _STORE.name, era=era) as client:
        client.open()
        client.search(corpus.question(0))
        return time.perf_counter() - started


def measure_tools(bench: Bench) -> Iterator[Figure]:
    for profile in ("core", "full"):
        bench.progress(f"tools/list, {profile}", 0, 1)
        tools = _listed(bench, profile)
        text = json.dumps(tools, ensure_ascii=False, separators=(",", ":"))
        amounts = {
            "count": (Unit.TOOLS, len(tools)),
            "bytes": (Unit.BYTES, len(text.encode())),
            "tokens": (Unit.TOKENS, estimate_tokens(text)),
        }
        for name, (unit, amount) in amounts.items():
            yield Figure(f"tools.{profile}.{name}", f"tools/list, {profile}", unit, Amount(amount))


def _listed(bench: Bench, profile: str) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    with StdioClient(bench.home, "--project", "bench-tools", "--profile", profile) as client:
        client.open()
        cursor: str | None = ""
        while cursor is not None:
            page = client.ask("tools/list", {"cursor": cursor} if cursor else None)
            tools += page["tools"]
            cursor = page.get("nextCursor")
    return tools


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
    seconds: dict[str, list[float]] = {name: [] for name in homes}
    interpreter: list[float] = []
    for number in range(bench.samples.starts + 1):
        bench.progress("hooks", number, bench.samples.starts)
        interpreter.append(seconds_of(_start_python))
        for name, home in homes.items():
            seconds[name].append(_run_hook(home))
            time.sleep(_REST_SECONDS)
    _check_stored(homes)
    for name, label in _LABELS.items():
        # The first call of each is a warm-up.
        amount, baseline = latency(seconds[name][1:]), latency(interpreter[1:])
        yield Figure(f"hook.{name}", label, Unit.MILLISECONDS, amount, None, baseline, _BARE)


def _check_stored(homes: dict[str, Path]) -> None:
    """Wait until the events are stored: a hook that stores nothing would be fast for nothing."""
    deadline = time.monotonic() + ANSWER_SECONDS
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


def _run_hook(home: Path) -> float:
    command = hub_command("hook", "claude-code", "PostToolUse", "--project", "bench-hook")
    started = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - our own command line
        command, check=False, input=_payload(home), capture_output=True, env=hub_environment(home), cwd=home
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
