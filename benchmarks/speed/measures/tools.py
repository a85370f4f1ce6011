"""Tokens that ``tools/list`` uses of a client's context."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from benchmarks.speed.bench import Bench
from benchmarks.speed.figures import Amount, Figure, Unit
from benchmarks.speed.stdio import StdioClient
from memoryhub.core.paging import estimate_tokens

_PROFILES = ("core", "full")


def measure_tools(bench: Bench) -> Iterator[Figure]:
    for profile in _PROFILES:
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
            page = client.ask("tools/list", {"cursor": cursor} if cursor else {})
            tools += page["tools"]
            cursor = page.get("nextCursor")
    return tools
