"""Decisions as text for a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from decisions.schemas import DecisionResult
from memories.present import amended_text, clause
from memoryhub.core import clock
from memoryhub.core.text import as_data, flat, hanging, indented, one_line, shortened

_MAX_CHOSEN = 120
_MAX_TITLE = 60
_COMMITS = 3
_TEXTS = (("context", "context"), ("chosen", "chosen"), ("rationale", "rationale"), ("review", "to review"))
_ORIGIN = (
    ("session_id", "session="),
    ("iteration_id", "iteration=#"),
    ("phase", "phase="),
    ("topic", "topic="),
    ("source", "source="),
)


def decision_line(decision: dict[str, Any]) -> str:
    if "chosen" not in decision:
        return flat(f"#{decision['id']} {as_data(decision['title'])}")
    line = f"{_head(decision)} {as_data(decision['title'])}"
    chosen = one_line(decision["chosen"], _MAX_CHOSEN)
    if chosen:
        line += f": {as_data(chosen)}"
    notes = [*_replacements(decision), *_evidence_notes(decision)]
    if notes:
        line += f" ({'; '.join(notes)})"
    return flat(line)


# Only the answer's own lines begin at the margin; the texts of decisions are indented (decision 33).
def decision_text(decision: dict[str, Any]) -> str:
    """Return a decision with its evidence, and its lineage if present."""
    head = f"{_head(decision)} impact={decision['impact']} by {as_data(decision['author']) or 'unknown'}"
    for name, label in _ORIGIN:
        if decision[name]:
            head += f" {label}{as_data(str(decision[name]))}"
    lines = [flat(head), indented(flat(decision["title"]))]
    lines += [f"{label}: {hanging(decision[name])}" for name, label in _TEXTS if decision[name]]
    for alternative in decision["alternatives"]:
        option = alternative["option"]
        if alternative["why_not"]:
            option += f" — {alternative['why_not']}"
        lines.append(f"not chosen: {hanging(option)}")
    lines += _edge_lines(decision)
    for commit in decision["commits"]:
        text = f"{commit['date']} {commit['link_type']}: {as_data(commit['message'])}"
        lines.append(flat(f"commit {commit['sha'][:10]} {text} (#{commit['id']})"))
    lines += [f"{artifact['kind']}: {hanging(artifact['value'])}" for artifact in decision["artifacts"]]
    if decision["anchors"]:
        lines.append(flat(f"code: {', '.join(decision['anchors'])}"))
    if decision.get("lineage"):
        lines += _lineage_lines(decision["lineage"])
    return "\n".join(lines)


def note_text(decision: dict[str, Any]) -> str:
    status = ", ".join([decision["status"], *_replacements(decision)])
    return "; ".join([status, *_evidence_notes(decision)])


def _replacements(decision: dict[str, Any]) -> Iterator[str]:
    replacements = decision["heads"] or decision["superseded_by"]
    if replacements:
        yield f"now {numbers(replacements)}"


def _evidence_notes(decision: dict[str, Any]) -> Iterator[str]:
    earlier = []
    for edge in decision["edges"]:
        if edge["relation"] == "supersedes":
            earlier.append(f"#{edge['to']} {as_data(shortened(edge['title'], _MAX_TITLE))}")
    if earlier:
        yield f"supersedes {', '.join(earlier)}"
    if decision["iteration_id"]:
        yield f"iteration #{decision['iteration_id']}"
    if decision["commits"]:
        yield f"commits {', '.join(commit['sha'][:7] for commit in decision['commits'][:_COMMITS])}"
    if decision["review"]:
        yield f"to review: {as_data(decision['review'])}"


def _head(decision: dict[str, Any]) -> str:
    head = f"#{decision['id']} decision {decision['status']} {clock.day(decision['decided_at'])}"
    return "".join([head, *(f" ({doubt})" for doubt in decision_doubts(decision))])


def decision_doubts(decision: dict[str, Any]) -> list[str]:
    """Return the reasons to distrust a decision: quarantined, or marked."""
    return list(filter(None, [decision.get("quarantine", ""), *(mark["text"] for mark in decision["marks"])]))


def _edge_lines(decision: dict[str, Any]) -> Iterator[str]:
    for edge in decision["edges"]:
        yield flat(f"{edge['relation']} #{edge['to']} {as_data(edge['title'])}")
    notes = []
    if decision["superseded_by"]:
        notes.append(f"superseded by {numbers(decision['superseded_by'])}")
    if decision["heads"]:
        notes.append(f"now {numbers(decision['heads'])}")
    if notes:
        yield "; ".join(notes)


def _lineage_lines(lineage: dict[str, Any]) -> Iterator[str]:
    for name in ("ancestor", "descendant"):
        steps = lineage[f"{name}s"]
        for step in steps:
            title = as_data(step["title"])
            line = flat(f"{name} {step['depth']}: #{step['id']} {step['status']} {step['decided_at']} {title}")
            if name == "ancestor":
                yield f"{line} (#{step['via']} {step['relation']} it)"
            else:
                yield f"{line} (it {step['relation']} #{step['via']})"
        more = lineage[f"{name}_count"] - len(steps)
        if more:
            yield f"({more} more {name}s; call decision_get with the last id for more)"


def numbers(ids: list[int]) -> str:
    return ", ".join(f"#{decision_id}" for decision_id in ids)


def result_text(result: DecisionResult) -> str:
    if not result.is_new:
        return flat(f"#{result.id} is already {result.status}: {result.title}")
    line = f"#{result.id} {result.status}"
    if result.superseded:
        line += f", superseding {numbers(result.superseded)}"
    if result.supersedes_once_accepted:
        line += f", superseding {numbers(result.supersedes_once_accepted)} once it is accepted"
    line += f": {result.title}"
    line += clause("; ", amended_text(result.amendments), "; decision_supersede or memory_update it")
    if result.redacted:
        line += f" (redacted before storing: {', '.join(result.redacted)})"
    return flat(line)
