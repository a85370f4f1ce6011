"""A report of changes as Markdown, for a comment on a pull request.

Stored text is data of agents: it must neither imitate a part of the report, nor notify people, close issues, load
images or run quick actions. Everything stored is therefore in a code span or a fenced block, in which each line has a
sign before it, so that no line of the report begins with stored text (decision 33).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from difflib import unified_diff

from memoryhub.core.text import counted, flat, printable, shortened
from memoryhub.transfer.changes.report import ChangeKind, ChangeReport, EntryChange, EntryText

# GitHub takes 65,536 characters
MAX_COMMENT = 60_000
# Room for the last line
_RESERVED = 500
_MAX_LINES = 60
_MAX_CHARACTERS = 6_000
_MAX_SPAN = 300
_SHORT_SHA = 12
_MOST_PLACES = 8
_MOST_UNREAD = 10
_WIDTH = 100
# Characters of a text that are compared
_MAX_READ = 50_000
_TICKS = re.compile("`+")
_SHA = re.compile(r"\b(?:[0-9a-f]{40}|[0-9a-f]{64})\b")
_HEADINGS = {ChangeKind.ADDED: "Added", ChangeKind.CHANGED: "Changed", ChangeKind.REMOVED: "Removed"}


def markdown_report(report: ChangeReport) -> str:
    """Return the report in at most ``MAX_COMMENT`` characters; its last line names what was left out."""
    end = _unread_lines(report)
    range_span = code_span(_SHA.sub(lambda sha: sha[0][:_SHORT_SHA], report.range))
    if not report.results:
        return "\n".join([f"No memory or decision was added, changed or removed in {range_span}.", *end])
    parts = [f"## Memory changes in {range_span}", "", _summary(report)]
    remaining = MAX_COMMENT - _RESERVED - sum(len(line) + 1 for line in [*parts, *end])
    blocks = list(_fitting(_blocks(report), remaining))
    omitted = len(report.results) - len(blocks)
    if omitted:
        end += ["", f"{counted(omitted, 'entry', 'entries')} left out: a comment holds no more. {_hint(report)}"]
    return "\n".join([*parts, *blocks, *end])


def _blocks(report: ChangeReport) -> Iterator[str]:
    for kind in ChangeKind:
        heading = f"\n### {_HEADINGS[kind]}\n"
        for change in report.results:
            if change.change is kind:
                yield f"{heading}\n{_entry(change)}"
                heading = ""


def _fitting(blocks: Iterator[str], remaining: int) -> Iterator[str]:
    for block in blocks:
        remaining -= len(block) + 1
        if remaining < 0:
            return
        yield block


def _hint(report: ChangeReport) -> str:
    folder = f" --mirror {report.folder}" if report.folder else ""
    return f"{code_span(f'memory-hub changes {report.range}{folder} --json')} prints all."


def _summary(report: ChangeReport) -> str:
    counts = [f"{number} {kind}" for kind, number in report.counts.items() if number]
    waiting = sum(change.is_proposed for change in report.results)
    if waiting:
        counts.append(f"{waiting} of them waiting for a review")
    return f"{', '.join(counts)}."


def _unread_lines(report: ChangeReport) -> list[str]:
    unread = report.unread[:_MOST_UNREAD]
    lines = [f"- {code_span(path)} was not read: {code_span(reason)}" for path, reason in unread]
    hidden = len(report.unread) - _MOST_UNREAD
    if hidden > 0:
        lines.append(f"- {counted(hidden, 'more file')} could not be read")
    if report.omitted:
        lines.append(f"- {counted(report.omitted, 'more file')} changed, and only the first ones are read")
    return ["", *lines] if lines else []


def _entry(change: EntryChange) -> str:
    number = f"{code_span(f'#{change.id}')} " if change.id else ""
    lines = [f"#### {number}{code_span(change.text.title)}", "", _facts(change), "", *_text_block(change)]
    return "\n".join(lines)


def _facts(change: EntryChange) -> str:
    authorship = change.authorship
    facts = [
        ("", [change.text.facts]),
        ("by", [authorship.author]),
        ("in the session", [authorship.purpose or authorship.session_id]),
        ("on", [authorship.branch]),
        ("at", [authorship.commit[:_SHORT_SHA]]),
        ("committed by", change.committers),
        ("in", [change.path]),
        ("about", authorship.code),
        ("**amends**", map(_reference, authorship.amends)),
        ("**contradicts**", map(_reference, authorship.contradicts)),
    ]
    parts = []
    for label, values in facts:
        if spans := _spans(list(filter(None, values))):
            parts.append(f"{label} {spans}".lstrip())
    if change.is_proposed:
        parts.append("**waits for a review**")
    return " · ".join(parts)


def _reference(name: int | str) -> str:
    return f"#{name}" if isinstance(name, int) else name


def _spans(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_PLACES
    spans = ", ".join(map(code_span, texts[:_MOST_PLACES]))
    return f"{spans} and {more} more" if more > 0 else spans


def _text_block(change: EntryChange) -> list[str]:
    lines = list(_signed_lines(change))
    chosen: list[str] = []
    size = 0
    for line in lines[:_MAX_LINES]:
        size += len(line) + 1
        if size > _MAX_CHARACTERS:
            break
        chosen.append(line)
    hidden = len(lines) - len(chosen)
    fence = _fence("\n".join(chosen), least=3)
    block = [f"{fence}diff", *chosen, fence]
    if hidden:
        block += ["", f"{counted(hidden, 'more line')}."]
    return block


def _signed_lines(change: EntryChange) -> Iterator[str]:
    if change.before is None or change.after is None:
        sign = "-" if change.after is None else "+"
        yield from (f"{sign} {line}".rstrip() for line in _wrapped(change.text.text))
        return
    before, after = _compared(change.before), _compared(change.after)
    differences = list(unified_diff(before, after, lineterm="", n=2))
    for line in differences[3:]:  # the first lines name the files and the first place
        if line.startswith("@@"):
            yield "@@"
        else:
            yield f"·{line[1:]}" if line.startswith(" ") else line


def _compared(text: EntryText) -> list[str]:
    lines = [f"# {flat(text.title)}", flat(text.facts), "", *_wrapped(text.text)]
    return [f" {printable(line)}".rstrip() for line in lines]


def _wrapped(text: str) -> list[str]:
    lines: list[str] = []
    for line in printable(text[:_MAX_READ]).splitlines():
        lines += textwrap.wrap(line, _WIDTH, drop_whitespace=False, break_on_hyphens=False) or [""]
    if len(text) > _MAX_READ:
        lines.append(f"… {len(text) - _MAX_READ:,} characters more")
    return lines


def code_span(text: str) -> str:
    """Return a text as a code span of one line, whatever it contains."""
    line = shortened(printable(flat(text)).strip() or "?", _MAX_SPAN)
    ticks = _fence(line, least=1)
    if "`" in (line[0], line[-1]):
        line = f" {line} "
    return f"{ticks}{line}{ticks}"


# Longer than every run of backticks inside
def _fence(text: str, *, least: int) -> str:
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    return "`" * max(least, longest + 1)
