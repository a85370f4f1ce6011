"""How many rounds an attack runs, and the random choices of each."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import SkipTest

SEED_VARIABLE = "MEMORY_HUB_TORTURE_SEED"
FORM_VARIABLE = "MEMORY_HUB_TORTURE"


def is_long() -> bool:
    return os.environ.get(FORM_VARIABLE) == "long"


def rounds(short: int, *, long: int) -> int:
    return long if is_long() else short


def seed() -> int:
    given = os.environ.get(SEED_VARIABLE)
    return int(given) if given else random.SystemRandom().randrange(2**32)


@contextmanager
def randomness() -> Iterator[random.Random]:
    """Yield the random choices of one test; a failure says how to repeat them."""
    chosen = seed()
    try:
        yield random.Random(chosen)
    except SkipTest:
        raise
    except BaseException as error:
        error.add_note(f"to repeat: {SEED_VARIABLE}={chosen}")
        raise
