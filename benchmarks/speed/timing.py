"""Interleaved timing: other work on the machine affects both sides equally."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ParamSpec

from benchmarks.speed.figures import Amount, latency

P = ParamSpec("P")

Clock = Callable[[], float]
WALL: Clock = time.perf_counter
# CPU time of this thread: excludes waiting for the disk and for other processes
CPU: Clock = time.thread_time

# Warm-up calls of each act, not counted
WARM_UP = 3


def seconds_of(act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> float:
    return seconds_by(WALL, act, *args, **kwargs)


def seconds_by(clock: Clock, act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> float:
    started = clock()
    act(*args, **kwargs)
    return clock() - started


def interleave(times: int, *acts: Callable[[], float]) -> list[Amount]:
    """Call the acts in turn, ``times`` times, and return the latency of each.

    Args:
        times: samples of each, after the warm-up.
        acts: each returns the seconds that count.
    """
    rounds = [[act() for act in acts] for _ in range(WARM_UP + times)]
    return [latency(samples) for samples in zip(*rounds[WARM_UP:], strict=True)]
