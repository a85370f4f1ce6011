"""Results as text for a model: one line each, the parts of the score as one short group."""

from __future__ import annotations

from typing import Any

from memories.present import memory_line, version_line
from memoryhub.core.wording import flat


def query_line(item: dict[str, Any]) -> str:
    """Return a result as one line: what it is, its session, its score, the words around what matched; then versions."""
    if "score" not in item:
        return memory_line(item)
    session = f" session={item['session_id']}" if item["session_id"] else ""
    text = "" if item["content"] in ("", item["title"]) else f": {item['content']}"
    versions = [version_line(version) for version in item.get("versions", [])]
    return "\n".join([flat(f"{memory_line(item)}{session} {score_text(item)}{text}"), *versions])


def score_text(item: dict[str, Any]) -> str:
    """Return ``score 7.1 (tags 3.0, scope 1.3, recency .4)``: what each part brought; parts of nothing are left out."""
    told = [f"{name} {_short(part['points'])}" for name, part in item["parts"].items() if part["points"] >= 0.05]
    return f"score {item['score']:.1f} ({', '.join(told)})" if told else f"score {item['score']:.1f}"


def _short(points: float) -> str:
    return f"{points:.1f}".removeprefix("0")
