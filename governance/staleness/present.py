"""What should be looked at again as text for a model: one line each in lists."""

from __future__ import annotations

from typing import Any

from governance.staleness.schemas import AffirmResult
from memoryhub.core.wording import flat, indented

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
    said = "; ".join(filter(None, [*(_says(reason) for reason in item["reasons"]), *commits]))
    head = flat(f"#{item['id']} {item['kind']} {item['title']}")
    return f"{head} — since {item['since'][:10]}: {said}"


def _says(reason: dict[str, Any]) -> str:
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
