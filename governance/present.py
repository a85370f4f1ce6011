"""Plain-text lines for MCP and the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.template.defaultfilters import filesizeformat

from governance.blame import BlamedRange, BlameView
from governance.findings.schemas import FindingEvidence, FindingsReport
from governance.retention.schemas import HoldView, Plan, Report, RunView, Share
from governance.staleness.schemas import AffirmResult
from memoryhub.core import clock
from memoryhub.core.kinds import word_for
from memoryhub.core.text import as_data, counted, flat, indented

# One and several of each sort of item
NOUNS = {
    "captured": ("captured event", "captured events"),
    "pack": ("context pack", "context packs"),
    "deleted": ("deleted memory", "deleted memories"),
    "memory": ("live memory", "live memories"),
    "session": ("session", "sessions"),
    "decision": ("decision", "decisions"),
    "iteration": ("iteration", "iterations"),
    "commit": ("commit", "commits"),
}


def plan_lines(plan: Plan) -> Iterator[str]:
    if plan.unfinished:
        yield f"run #{plan.unfinished} was interrupted; this is the rest of it"
    yield from report_lines(plan)
    yield f"ages count from {plan.cutoff:%Y-%m-%d}; digest {plan.digest}"


def run_lines(run: RunView) -> Iterator[str]:
    yield from report_lines(run.report, gone=True)
    if run.report.left:
        yield f"skipped: {run.report.left:,}, which became protected during the run"
    yield f"run #{run.id} finished; ages count from {clock.day(run.cutoff)}"


def report_lines(report: Report, *, gone: bool = False) -> Iterator[str]:
    verb = "deleted" if gone else "delete "
    for going in report.going:
        yield flat(f"{verb} {_share(going)}  [{going.rule}: {going.says}]")
        if going.warning:
            yield flat(f"         warning: {going.warning}")
        if not gone:
            yield from _samples(going)
    for share in report.kept:
        yield flat(f"keep    {_share(share)}  [{share.says}]")
        if not gone:
            yield from _samples(share)
    total = f"{report.things:,} in {counted(report.events, 'event')}, {size(report.bytes)}"
    yield f"deleted: {total}" if gone else f"to delete: {total}"


def hold_line(hold: HoldView) -> str:
    return flat(f"#{hold.id} {hold.stream_id} by {hold.placed_by} on {clock.day(hold.placed_at)}: {hold.reason}")


def thing_name(share: Share) -> str:
    noun = NOUNS[share.what][share.things != 1]
    return f"{noun} ({share.sub})" if share.sub else noun


def size(count: int) -> str:
    return filesizeformat(count).replace("\N{NO-BREAK SPACE}", " ")


def _share(share: Share) -> str:
    days = f"{clock.day(share.oldest)} to {clock.day(share.newest)}"
    return f"{share.things:>7,} {thing_name(share)}, {size(share.bytes)}, {days}"


def _samples(share: Share) -> Iterator[str]:
    for sample in share.samples:
        line = f"{clock.day(sample.at)} {sample.text}"
        if sample.by:
            line += f" — {sample.by}"
        yield f"           #{sample.id} {flat(line)}"


def blame_lines(view: BlameView) -> Iterator[str]:
    shas: set[str] = set()
    for part in view.ranges:
        lines = str(part.first)
        if part.last != part.first:
            lines += f"-{part.last}"
        yield flat(f"{view.file}:{lines} {_commit_of(part)}")
        sha = part.commit.sha if part.commit else ""
        if sha not in shas:  # the trail of a commit is the same for all its lines
            yield from (f"  {line}" for line in _trail_lines(part))
        shas.add(sha)
    if view.more_ranges:
        yield f"({counted(view.more_ranges, 'more range')} of lines; name fewer lines)"
    if view.known:
        yield "about this file:"
    for entry in view.known:
        yield flat(f"  #{entry.id} {word_for(entry.kind) or entry.type} {entry.title} ({entry.how} it)")


def _commit_of(part: BlamedRange) -> str:
    commit = part.commit
    if commit is None:
        return "not committed"
    line = commit.sha[:10]
    if commit.committed_at:
        line += f" {clock.day(commit.committed_at)}"
    line += f" “{commit.summary}” by {commit.author}"
    if commit.path:
        line += f", then in {commit.path}"
    return line


def _trail_lines(part: BlamedRange) -> Iterator[str]:
    for decision in part.decisions:
        yield flat(f"decision #{decision.id} {decision.status} {decision.title} ({decision.link})")
    if part.session:
        yield flat(f"session #{part.session.id} {part.session.title} by {part.session.agent or 'unknown'}")
    if part.prompt:
        yield flat(f"prompt #{part.prompt.id} “{part.prompt.text}”")
    if part.guidelines:
        names = []
        for guideline in part.guidelines:
            mark = " (given)" if guideline.given else ""
            names.append(f"#{guideline.id} {guideline.title}{mark}")
        line = f"guidelines then: {', '.join(names)}"
        if part.more_guidelines:
            line += f", and {part.more_guidelines} more"
        yield flat(line)
    if part.ends and part.commit:
        yield f"the trail ends: {part.ends}"


_PATHS = 3


def stale_line(item: dict[str, Any], *, diff: bool = False) -> str:
    if "reasons" not in item:
        return flat(f"#{item['id']} {item['title']}")
    notes = [flat(reason["says"]) for reason in item["reasons"] if reason["why"] != "touched"]
    notes += [_commit_text(commit, diff=diff) for commit in item["commits"]]
    notes += [f"{flat(path)}:\n{indented(text)}\n" for path, text in item["diffs"].items()]
    head = flat(f"#{item['id']} {word_for(item['kind'])} {item['title']}")
    return f"{head} — since {clock.day(item['since'])}: {'; '.join(filter(None, notes))}"


def _commit_text(commit: dict[str, Any], *, diff: bool) -> str:
    paths = []
    for file in commit["files"][:_PATHS]:
        path = file["path"]
        # Binary files have no line counts
        if diff and not commit["diff"] and file["insertions"] is not None:
            path += f" +{file['insertions']} −{file['deletions']}"
        paths.append(path)
    line = f"commit {commit['sha'][:10]} “{commit['subject'][:80]}” touched {', '.join(paths)}"
    more = len(commit["files"]) - _PATHS
    if more > 0:
        line += f" and {more} more"
    return f"{flat(line)}\n{indented(commit['diff'])}\n" if commit["diff"] else flat(line)


def affirmed_text(result: AffirmResult) -> str:
    line = f"#{result.id} {word_for(result.kind)} affirmed"
    if not result.is_new:
        line += " already"
    line += f": {result.title}"
    if result.redacted:
        line += f" (redacted before storing: {', '.join(result.redacted)})"
    return flat(line)


def findings_lines(report: FindingsReport) -> Iterator[str]:
    """Yield the findings about a project, each with its evidence below it, and how to read that."""
    read = f"{counted(report.sessions, 'session')} and {counted(report.commits, 'commit')}"
    if not report.findings:
        yield f"no findings in {read}: nothing was met twice, nothing contradicts, no secret was masked"
        return
    newest = "the newest " if report.is_partial else ""
    yield f"{counted(len(report.findings), 'finding')} in {newest}{read}"
    for number, finding in enumerate(report.findings, 1):
        yield flat(f"{number}. {finding.kind.label}: {as_data(finding.sentence)}")
        yield from map(_evidence_line, finding.evidence)
        ids = " ".join(str(item.id) for item in finding.evidence)
        yield f"   {finding.advice} `memory-hub get {ids}` shows the evidence."


def _evidence_line(item: FindingEvidence) -> str:
    day = f" {clock.day(item.at)}" if item.at else ""
    return flat(f"   #{item.id} {item.type}{day}: {as_data(item.text)}")
