"""How long a client waits for a hook, beside what starting Python costs."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.hook.client import HookTestCase, environment_of, run_hook, spooled
from tests.web.server import poll, serving, temporary_home

ROUNDS = 5 if "COVERAGE_PROCESS_CONFIG" in os.environ else 20
"""Few where starting Python is slowed twenty times by measuring coverage, which leaves no figure worth having."""
FLOOR = 3.0


class SpeedTests(HookTestCase):
    def test_a_hook_takes_little_longer_than_starting_python(self):
        told = self.told(tool_name="Bash", tool_input={"command": "make test"}, tool_response={"stdout": "ok\n" * 50})
        running = self.enterContext(temporary_home())

        def bare() -> None:
            command = [sys.executable, "-c", "pass"]
            subprocess.run(command, check=True, capture_output=True, env=environment_of(self.home))

        def hook(home: Path) -> Callable[[], None]:
            return lambda: self.assert_harmless(run_hook(home, "PostToolUse", told, MEMORY_HUB_HOOK_SECONDS=""))

        head = running / "projects" / "alpha" / "head"

        def captured(count: int) -> bool:
            """Whether the hub has done with the events: session and turn began, and so many commands ran."""
            return head.exists() and int(head.read_text().split()[0]) == count + 2

        with serving("--no-worker", home=running):
            found = _interleaved(
                {
                    "python": (bare, lambda _: True),
                    "running": (hook(running), captured),
                    "stopped": (hook(self.home), lambda count: len(spooled(self.home)) == count),
                }
            )
        base = found.pop("python")
        for name, seconds in found.items():
            print(f"\nhook, hub {name}: {seconds * 1000:.1f} ms, {seconds / base:.2f}x python -c pass", file=sys.stderr)
            self.assertLess(seconds / base, FLOOR, name)


def _interleaved(steps: dict[str, tuple[Callable[[], None], Callable[[int], bool]]]) -> dict[str, float]:
    """Return each step's median in seconds; all suffer the same noise, and none what another has left to be done."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for count in range(1, ROUNDS + 2):
        for name, (step, settled) in steps.items():
            started = time.perf_counter()
            step()
            if count > 1:  # the first of each warms up
                taken[name].append(time.perf_counter() - started)
            poll(lambda: settled(count), seconds=20, what=name)  # noqa: B023  (called at once)
    return {name: statistics.median(times) for name, times in taken.items()}
