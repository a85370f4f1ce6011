"""Imports as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from governance.imports.batches import Batch, counts_text
from memoryhub.core import clock
from memoryhub.core.text import flat
from memoryhub.transfer.records import Report

# Items of one kind that a line names
_MOST_NAMED = 5


def report_line(report: Report) -> str:
    named = sorted(flat(name) for name in report.names if name not in ("", report.project))
    known_as = f" (there {_some(named)})" if named else ""
    secrets = ", ".join(f"{count} {name}" for name, count in report.secrets.items())
    masked = f"; masked: {secrets}" if secrets else ""
    return f"into {report.project}{known_as}: {counts_text(report.counts) or 'nothing'}{masked}"


def left_out_lines(report: Report) -> Iterator[str]:
    """Yield a line for each reason."""
    places: dict[str, list[str]] = {}
    for left in report.left_out:
        places.setdefault(flat(left.why), []).append(flat(left.place))
    for why, alike in places.items():
        yield f"left out, {why}: {_some(alike)}"
    if report.left_out_count > len(report.left_out):
        yield f"and {report.left_out_count - len(report.left_out)} more that are left out"


def batch_line(batch: Batch) -> str:
    state = "undone" if batch.is_undone else "interrupted" if batch.counts is None else ""
    facts = [f"#{batch.id} {batch.tool} {clock.minute(batch.began_at)}", batch.place]
    return flat("  ".join(filter(None, [*facts, counts_text(batch.counts), state])))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"
