"""The rule pack: ``rules.jsonl``, a line a rule, and where each comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from .engine import Detector
from .rule import rule_of

_FILE = Path(__file__).with_name("rules.jsonl")


def lines() -> Iterator[dict[str, Any]]:
    """Yield the pack's lines: first its sources, then the rules."""
    with _FILE.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


@cache
def detector() -> Detector:
    """Return the pack, ready to search; it is read at the first call."""
    return Detector(rule_of(line) for line in lines() if "id" in line)
