"""What should be looked at again as text for a model: one line each in lists."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from governance.retention.schemas import Going, HoldView, Kept, Plan, Report, RunView, Share
from governance.staleness.schemas import AffirmResult
from memoryhub.core.text import counted, flat, indented

_NAMES = {
    "captured": ("captured event", "captured events"),
    "pack": ("context pack", "context packs"),
    "deleted": ("deleted memory", "deleted memories"),
    "memory": ("live memory", "live memories"),
    "session": ("session", "sessions"),
    "decision": ("decision", "decisions"),
    "iteration": ("iteration", "iterations"),
    "commit": ("commit", "commits"),
}
_KILO = 1024


def plan_lines(plan: Plan, *, samples: bool = True) -> Iterator[str]:
    """Yield a plan, a line each: what goes, what stays and why, the sum, and the digest."""
    if plan.unfinished:
        yield f"run #{plan.unfinished} was cut off; this is what is left of it"
    yield from report_lines(plan, samples=samples)
    yield f"ages count from {plan.cutoff:%Y-%m-%d}; digest {plan.digest}"


def run_lines(run: RunView) -> Iterator[str]:
    """Yield the report of a run."""
    yield from report_lines(run.report, samples=False, gone=True)
    if run.report.left:
        yield f"left: {run.report.left:,}, which came to be kept while it ran"
    yield f"run #{run.id} ended; ages counted from {run.cutoff:%Y-%m-%d}"


def report_lines(report: Report, *, samples: bool, gone: bool = False) -> Iterator[str]:
    """Yield what goes and what stays."""
    for going in report.going:
        yield flat(f"{'went ' if gone else 'goes '} {_share(going)}  [{going.rule}: {going.says}]")
        if going.warning:
            yield flat(f"       warning: {going.warning}")
        yield from _samples(going) if samples else ()
    for kept in report.kept:
        yield flat(f"stays {_share(kept)}  [{kept.says}]")
        yield from _samples(kept) if samples else ()
    yield f"{'went' if gone else 'to go'}: {report.things:,} in {counted(report.events, 'event')}, {size(report.bytes)}"


def hold_line(hold: HoldView) -> str:
    """Return a hold as a line."""
    return flat(f"#{hold.id} {hold.stream_id} by {hold.placed_by} on {_day(hold.placed_at)}: {hold.reason}")


def thing_name(share: Going | Kept | Share) -> str:
    """Return what is counted: ``message.user events``, ``deleted memories (tool)``."""
    one, many = _NAMES[share.what]
    noun = one if share.things == 1 else many
    return f"{noun} ({share.sub})" if share.sub else noun


def size(count: int) -> str:
    """Return bytes as a person reads them."""
    number, units = float(count), ("bytes", "KB", "MB", "GB")
    for unit in units[:-1]:
        if number < _KILO:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"
        number /= _KILO
    return f"{number:,.1f} {units[-1]}"


def _share(share: Going | Kept) -> str:
    days = f"{_day(share.oldest)} to {_day(share.newest)}"
    return f"{share.things:>7,} {thing_name(share)}, {size(share.bytes)}, {days}"


def _samples(share: Going | Kept) -> Iterator[str]:
    for each in share.samples:
        by = f" — {each.by}" if each.by else ""
        yield f"         #{each.id} {flat(f'{_day(each.at)} {each.text}{by}')}"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


_PATHS = 3


def stale_line(item: dict[str, Any], *, diff: bool = False) -> str:
    """Return a listed thing as one line: what it is, and why it should be looked at again.

    Args:
        item: as the list has it.
        diff: it was asked what the commits changed; where no repository tells, the numbers of lines do.
    """
    if "reasons" not in item:
        return flat(f"#{item['id']} {item['title']}")
    commits = [commit_text(commit, diff=diff) for commit in item["commits"]]
    said = "; ".join(filter(None, [*(_reason_text(reason) for reason in item["reasons"]), *commits]))
    head = flat(f"#{item['id']} {item['kind']} {item['title']}")
    return f"{head} — since {item['since'][:10]}: {said}"


def _reason_text(reason: dict[str, Any]) -> str:
    return "" if reason["why"] == "touched" else flat(reason["says"])


def commit_text(commit: dict[str, Any], *, diff: bool = False) -> str:
    """Return what a commit did as a few words, with what it changed where that was asked for."""
    counted = diff and not commit["diff"]
    paths = [f"{file['path']}{_numbers(file) if counted else ''}" for file in commit["files"]]
    more = f" and {len(paths) - _PATHS} more" if len(paths) > _PATHS else ""
    said = flat(f"commit {commit['sha'][:10]} “{commit['subject'][:80]}” touched {', '.join(paths[:_PATHS])}{more}")
    return f"{said}\n{indented(commit['diff'])}\n" if commit["diff"] else said


def _numbers(file: dict[str, Any]) -> str:
    """Return how many lines a commit changed; nothing of a binary file, which has none."""
    return "" if file["insertions"] is None else f" +{file['insertions']} −{file['deletions']}"


def affirmed_text(result: AffirmResult) -> str:
    """Return what an affirmation did as one line."""
    again = "" if result.is_new else " already"
    redacted = f" (redacted before keeping: {', '.join(result.redacted)})" if result.redacted else ""
    return flat(f"#{result.id} {result.kind} affirmed{again}: {result.title}{redacted}")
