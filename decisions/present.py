"""Decisions as text for a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from decisions.schemas import DecisionResult
from memoryhub.core import clock
from memoryhub.core.text import flat, hanging, indented

_FIRST = 120
_TITLE = 60
_COMMITS = 3


def decision_line(decision: dict[str, Any]) -> str:
    if "chosen" not in decision:
        return flat(f"#{decision['id']} {decision['title']}")
    chosen = " ".join(decision["chosen"].split())
    cut = f"{chosen[:_FIRST]} …" if len(chosen) > _FIRST else chosen
    notes = "; ".join(filter(None, [_now(decision), *_evidence(decision)]))
    subject = f"{decision['title']}: {cut}" if cut else decision["title"]
    return flat(f"{_head(decision)} {subject}{f' ({notes})' if notes else ''}")


# Only the answer's own lines begin at the margin; the texts of decisions are indented (decision 33).
def decision_text(decision: dict[str, Any]) -> str:
    """Return a decision with its evidence, and its lineage if present."""
    head = f"{_head(decision)} impact={decision['impact']} by {decision['author'] or 'unknown'}{_where(decision)}"
    parts = [
        flat(head),
        indented(flat(decision["title"])),
        *(f"{label}: {hanging(decision[name])}" for name, label in _TEXTS if decision[name]),
        *map(_alternative, decision["alternatives"]),
        *_edges(decision),
        *map(_commit, decision["commits"]),
        *(f"{artifact['kind']}: {hanging(artifact['value'])}" for artifact in decision["artifacts"]),
        *_lineage(decision.get("lineage")),
    ]
    return "\n".join(parts)


def note_text(decision: dict[str, Any]) -> str:
    """Return a search hit's note: status and evidence."""
    status = ", ".join(filter(None, [decision["status"], _now(decision)]))
    return "; ".join([status, *_evidence(decision)])


def _now(decision: dict[str, Any]) -> str:
    replaced = decision["heads"] or decision["superseded_by"]
    return f"now {_listed(replaced)}" if replaced else ""


def _evidence(decision: dict[str, Any]) -> list[str]:
    supersedes = [edge for edge in decision["edges"] if edge["relation"] == "supersedes"]
    earlier = ", ".join(f"#{edge['to']} {_cut(edge['title'])}" for edge in supersedes)
    commits = ", ".join(commit["sha"][:7] for commit in decision["commits"][:_COMMITS])
    notes = [
        f"supersedes {earlier}" if earlier else "",
        f"iteration #{decision['iteration_id']}" if decision["iteration_id"] else "",
        f"commits {commits}" if commits else "",
        f"to review: {decision['review']}" if decision["review"] else "",
    ]
    return [note for note in notes if note]


def _cut(title: str) -> str:
    return title if len(title) <= _TITLE else f"{title[:_TITLE]}…"


_TEXTS = (("context", "context"), ("chosen", "chosen"), ("rationale", "rationale"), ("review", "to review"))


def _head(decision: dict[str, Any]) -> str:
    quarantine = f" ({decision['quarantine']})" if decision.get("quarantine") else ""
    return f"#{decision['id']} decision {decision['status']} {clock.day(decision['decided_at'])}{quarantine}"


def _where(decision: dict[str, Any]) -> str:
    names = (("session_id", "session="), ("iteration_id", "iteration=#"), ("phase", "phase="), ("topic", "topic="))
    parts = [f" {label}{decision[name]}" for name, label in (*names, ("source", "source=")) if decision[name]]
    return "".join(parts)


def _alternative(alternative: dict[str, Any]) -> str:
    why_not = f" — {alternative['why_not']}" if alternative["why_not"] else ""
    return f"not chosen: {hanging(alternative['option'] + why_not)}"


def _edges(decision: dict[str, Any]) -> Iterator[str]:
    for edge in decision["edges"]:
        yield flat(f"{edge['relation']} #{edge['to']} {edge['title']}")
    if decision["superseded_by"]:
        now = f"; now {_listed(decision['heads'])}" if decision["heads"] else ""
        yield f"superseded by {_listed(decision['superseded_by'])}{now}"
    elif decision["heads"]:
        yield f"now {_listed(decision['heads'])}"


def _commit(commit: dict[str, Any]) -> str:
    text = f"{commit['date']} {commit['link_type']}: {commit['message']}"
    return flat(f"commit {commit['sha'][:10]} {text} (#{commit['id']})")


def _lineage(lineage: dict[str, Any] | None) -> Iterator[str]:
    if not lineage:
        return
    for name in ("ancestor", "descendant"):
        steps = lineage[f"{name}s"]
        yield from (_step(name, step) for step in steps)
        more = lineage[f"{name}_count"] - len(steps)
        if more:
            yield f"({more} more {name}s; call decision_get with the last id for more)"


def _step(name: str, step: dict[str, Any]) -> str:
    to = "" if name == "ancestor" else "it "
    head = flat(f"{name} {step['depth']}: #{step['id']} {step['status']} {step['decided_at']} {step['title']}")
    return f"{head} ({to}{step['relation']} #{step['via']})" if to else f"{head} (#{step['via']} {step['relation']} it)"


def _listed(ids: list[int]) -> str:
    return ", ".join(f"#{decision_id}" for decision_id in ids)


def result_text(result: DecisionResult) -> str:
    if not result.is_new:
        return flat(f"#{result.id} is already {result.status}: {result.title}")
    replaced = f", superseding {_listed(result.superseded)}" if result.superseded else ""
    if result.supersedes_once_accepted:
        replaced += f", superseding {_listed(result.supersedes_once_accepted)} once it is accepted"
    redacted = f" (redacted before storing: {', '.join(result.redacted)})" if result.redacted else ""
    return flat(f"#{result.id} {result.status}{replaced}: {result.title}{redacted}")
