"""Plans and reports as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from governance.retention.schemas import Going, HoldView, Kept, Plan, Report, RunView, Share
from memoryhub.core.wording import counted, flat

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
