"""How long a client waits for a hook, beside what starting Python costs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.hook.client import HookTestCase, environment_of, run_hook, wait_for_spooled
from tests.web.server import serving, temporary_home

ROUNDS = 20
FLOOR = 3.0


class SpeedTests(HookTestCase):
    def test_a_hook_takes_little_longer_than_starting_python(self):
        told = self.told(tool_name="Bash", tool_input={"command": "make test"}, tool_response={"stdout": "ok\n" * 50})
        running = self.enterContext(temporary_home())

        def bare() -> None:
            command = [sys.executable, "-c", "pass"]
            subprocess.run(command, check=True, capture_output=True, env=environment_of(self.home))

        def hook(home: Path) -> Callable[[], None]:
            return lambda: self.assert_harmless(run_hook(home, "PostToolUse", told))

        with serving("--no-worker", home=running):
            steps = {"python": bare, "running": hook(running), "stopped": hook(self.home)}
            found = _interleaved(steps, lambda count: wait_for_spooled(self.home, count))
        base = found.pop("python")
        for name, seconds in found.items():
            print(f"\nhook, hub {name}: {seconds * 1000:.1f} ms, {seconds / base:.2f}x python -c pass", file=sys.stderr)
            self.assertLess(seconds / base, FLOOR, name)


def _interleaved(steps: dict[str, Callable[[], None]], settle: Callable[[int], object]) -> dict[str, float]:
    """Return each step's median in seconds; all suffer the same noise, but not each other's children."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(ROUNDS + 1):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            if turn:  # the first of each warms up
                taken[name].append(time.perf_counter() - started)
            settle(turn + 1 if name == "stopped" else turn)
    return {name: statistics.median(times) for name, times in taken.items()}
