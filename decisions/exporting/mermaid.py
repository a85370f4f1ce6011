"""Decisions as a Mermaid graph: GitHub, GitLab and most viewers of Markdown draw it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from decisions.models import EdgeRelation

_ARROWS = {EdgeRelation.CONFLICTS_WITH: "x--x", EdgeRelation.RELATES_TO: "-.-"}
_STYLES = {
    "accepted": "stroke-width:3px",
    "proposed": "stroke-dasharray:6 3",
    "superseded": "color:#777,stroke:#aaa,stroke-dasharray:2 3",
    "deprecated": "color:#777,stroke:#aaa",
    "rejected": "color:#777,stroke:#aaa",
}
_UNSAFE = re.compile(r"[^\w .,:;!?()/'+=-]")
_MAX_LABEL = 80


def mermaid_graph(decisions: Sequence[dict[str, Any]]) -> str:
    """Return the decisions and the edges between them, the later pointing at the earlier."""
    there = {decision["id"] for decision in decisions}
    lines = [
        "flowchart BT",
        *(_node(decision) for decision in decisions),
        *_edges(decisions, there),
        *_styles(decisions),
    ]
    return "\n".join(lines) + "\n"


def _node(decision: dict[str, Any]) -> str:
    title = " ".join(decision["title"].split())
    cut = f"{title[:_MAX_LABEL]}…" if len(title) > _MAX_LABEL else title
    date = decision["decided_at"][:10]
    label = _escaped(f"#{decision['id']} {cut}")
    return f'    d{decision["id"]}["{label}<br/>{decision["status"]} {date}"]'


def _escaped(text: str) -> str:
    """Return a label in which nothing is markup: Mermaid reads ``#35;`` as the character of that number."""
    return _UNSAFE.sub(lambda match: f"#{ord(match[0])};", text)


def _edges(decisions: Sequence[dict[str, Any]], there: set[int]) -> Iterator[str]:
    for decision in decisions:
        for edge in decision["edges"]:
            if edge["to"] in there:
                arrow = _ARROWS.get(edge["relation"], "-->")
                yield f"    d{decision['id']} {arrow}|{edge['relation'].replace('_', ' ')}| d{edge['to']}"


def _styles(decisions: Sequence[dict[str, Any]]) -> Iterator[str]:
    for status, style in _STYLES.items():
        ids = [f"d{decision['id']}" for decision in decisions if decision["status"] == status]
        if ids:
            yield f"    classDef {status} {style}"
            yield f"    class {','.join(ids)} {status}"
