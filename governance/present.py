"""Plain-text lines for MCP and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from governance.blame import BlamedRange, BlameView
from governance.retention.schemas import Going, HoldView, Kept, Plan, Report, RunView, Share
from governance.staleness.schemas import AffirmResult
from memoryhub.core import clock
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
    if plan.unfinished:
        yield f"run #{plan.unfinished} was interrupted; this is the rest of it"
    yield from report_lines(plan, samples=samples)
    yield f"ages count from {plan.cutoff:%Y-%m-%d}; digest {plan.digest}"


def run_lines(run: RunView) -> Iterator[str]:
    yield from report_lines(run.report, samples=False, gone=True)
    if run.report.left:
        yield f"skipped: {run.report.left:,}, which became protected during the run"
    yield f"run #{run.id} finished; ages count from {clock.day(run.cutoff)}"


def report_lines(report: Report, *, samples: bool, gone: bool = False) -> Iterator[str]:
    for going in report.going:
        yield flat(f"{'deleted' if gone else 'delete '} {_share(going)}  [{going.rule}: {going.says}]")
        if going.warning:
            yield flat(f"         warning: {going.warning}")
        yield from _samples(going) if samples else ()
    for share in report.kept:
        yield flat(f"keep    {_share(share)}  [{share.says}]")
        yield from _samples(share) if samples else ()
    total = f"{report.things:,} in {counted(report.events, 'event')}, {size(report.bytes)}"
    yield f"{'deleted' if gone else 'to delete'}: {total}"


def hold_line(hold: HoldView) -> str:
    return flat(f"#{hold.id} {hold.stream_id} by {hold.placed_by} on {_day(hold.placed_at)}: {hold.reason}")


def thing_name(share: Going | Kept | Share) -> str:
    one, many = _NAMES[share.what]
    noun = one if share.things == 1 else many
    return f"{noun} ({share.sub})" if share.sub else noun


def size(count: int) -> str:
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
    for sample in share.samples:
        by = f" — {sample.by}" if sample.by else ""
        yield f"           #{sample.id} {flat(f'{_day(sample.at)} {sample.text}{by}')}"


def _day(moment: datetime) -> str:
    return clock.day(moment)


def blame_lines(view: BlameView) -> Iterator[str]:
    seen = set()
    for lines_of_commit in view.ranges:
        lines = (
            f"{lines_of_commit.first}"
            if lines_of_commit.first == lines_of_commit.last
            else f"{lines_of_commit.first}-{lines_of_commit.last}"
        )
        yield flat(f"{view.file}:{lines} {_commit_of(lines_of_commit)}")
        sha = lines_of_commit.commit.sha if lines_of_commit.commit else ""
        if sha not in seen:  # the trail of a commit is the same for all its lines
            yield from (f"  {line}" for line in _trail_lines(lines_of_commit))
        seen.add(sha)
    if view.more_ranges:
        yield f"({counted(view.more_ranges, 'more range')} of lines; name fewer lines)"
    if view.known:
        yield "about this file:"
    yield from (
        flat(f"  #{entry.id} {entry.kind or entry.type} {entry.title} ({entry.how} it)") for entry in view.known
    )


def _commit_of(lines: BlamedRange) -> str:
    if lines.commit is None:
        return "not committed"
    commit = lines.commit
    when = f" {clock.day(commit.committed_at)}" if commit.committed_at else ""
    moved = f", then in {commit.path}" if commit.path else ""
    return f"{commit.sha[:10]}{when} “{commit.summary}” by {commit.author}{moved}"


def _trail_lines(lines: BlamedRange) -> Iterator[str]:
    for decision in lines.decisions:
        yield flat(f"decision #{decision.id} {decision.status} {decision.title} ({decision.link})")
    if lines.session:
        yield flat(f"session #{lines.session.id} {lines.session.title} by {lines.session.agent or 'unknown'}")
    if lines.prompt:
        yield flat(f"prompt #{lines.prompt.id} “{lines.prompt.text}”")
    if lines.guidelines:
        named = [f"#{one.id} {one.title}{' (given)' if one.given else ''}" for one in lines.guidelines]
        more = f", and {lines.more_guidelines} more" if lines.more_guidelines else ""
        yield flat(f"guidelines then: {', '.join(named)}{more}")
    if lines.ends and lines.commit:
        yield f"the trail ends: {lines.ends}"


_PATHS = 3


def stale_line(item: dict[str, Any], *, diff: bool = False) -> str:
    if "reasons" not in item:
        return flat(f"#{item['id']} {item['title']}")
    commits = [commit_text(commit, diff=diff) for commit in item["commits"]]
    reasons = "; ".join(filter(None, [*(_reason_text(reason) for reason in item["reasons"]), *commits]))
    head = flat(f"#{item['id']} {item['kind']} {item['title']}")
    return f"{head} — since {clock.day(item['since'])}: {reasons}"


def _reason_text(reason: dict[str, Any]) -> str:
    return "" if reason["why"] == "touched" else flat(reason["says"])


def commit_text(commit: dict[str, Any], *, diff: bool = False) -> str:
    counted = diff and not commit["diff"]
    paths = [f"{file['path']}{_numbers(file) if counted else ''}" for file in commit["files"]]
    more = f" and {len(paths) - _PATHS} more" if len(paths) > _PATHS else ""
    line = flat(f"commit {commit['sha'][:10]} “{commit['subject'][:80]}” touched {', '.join(paths[:_PATHS])}{more}")
    return f"{line}\n{indented(commit['diff'])}\n" if commit["diff"] else line


# Binary files have no line counts
def _numbers(file: dict[str, Any]) -> str:
    return "" if file["insertions"] is None else f" +{file['insertions']} −{file['deletions']}"


def affirmed_text(result: AffirmResult) -> str:
    again = "" if result.is_new else " already"
    redacted = f" (redacted before storing: {', '.join(result.redacted)})" if result.redacted else ""
    return flat(f"#{result.id} {result.kind} affirmed{again}: {result.title}{redacted}")
