"""Timing two things in turn, so that what else the machine does hits both alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ParamSpec

from benchmarks.speed.figures import Amount, latency

P = ParamSpec("P")

Clock = Callable[[], float]
WALL: Clock = time.perf_counter
CPU: Clock = time.thread_time
"""The processor's time of this thread alone: neither waiting for the disk nor for other processes counts."""

WARM_UP = 3
"""Calls of each that are made first and not counted."""


def seconds_of(act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> float:
    """Call ``act`` and return how long it took."""
    return seconds_by(WALL, act, *args, **kwargs)


def seconds_by(clock: Clock, act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> float:
    """Call ``act`` and return how long it took by ``clock``."""
    started = clock()
    act(*args, **kwargs)
    return clock() - started


def interleave(times: int, *acts: Callable[[], float]) -> list[Amount]:
    """Call each act in turn, ``times`` times over, and return the latency of each.

    Args:
        times: samples of each, beside the warm-up.
        acts: each does its work and returns the seconds that count.
    """
    rounds = [[act() for act in acts] for _ in range(WARM_UP + times)]
    return [latency(samples) for samples in zip(*rounds[WARM_UP:], strict=True)]
