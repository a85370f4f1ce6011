"""What commits changed in governed files, from the project's repository where that is at hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from memoryhub.core import rows
from memoryhub.core.errors import Unavailable
from memoryhub.core.repository import is_folder
from memoryhub.core.sanitize import sanitize_text
from sessions_app import git
from sessions_app.profile import profile

MAX_COMMITS = 40
"""Commits of one answer that are read; of the others the numbers of lines are shown."""
MAX_LINES = 400
"""Lines of one commit's diff."""
MAX_CHARS = 20_000
"""Characters of one commit's diff."""

_PLACES = 3


def add_diffs(commits: Sequence[dict[str, Any]]) -> None:
    """Put into each commit, as ``diff``, what it changed in the files that it is listed with.

    Commits that no repository at hand knows keep None. All are read by one run of git.
    """
    wanted: dict[str, set[str]] = {}
    for commit in commits[:MAX_COMMITS]:
        wanted.setdefault(commit["sha"], set()).update(file["path"] for file in commit["files"])
    if not wanted:
        return
    changes = _changes(list(wanted), sorted(set().union(*wanted.values())))
    for commit in commits:
        text = changes.get(commit["sha"])
        if text is not None:
            paths = {file["path"] for file in commit["files"]}
            commit["diff"] = _shown(_of_files(text, paths))


def _changes(shas: Sequence[str], paths: Sequence[str]) -> dict[str, str]:
    for folder in repositories():
        try:
            found = git.read_changes(folder, shas, paths)
        except Unavailable:
            continue
        if found:
            return found
    return {}


def repositories() -> list[Path]:
    """Return the folders where the project's repository may be: its own, and those where sessions worked last."""
    named = [(profile().root_path,), *rows.fetch(_DIRECTORIES)]
    places = dict.fromkeys(Path(path) for (path,) in named if path.startswith("/"))
    return [place for place in places if is_folder(place)]


_DIRECTORIES = (
    "SELECT directory FROM sessions_app_session WHERE directory <> '' "
    f"GROUP BY directory ORDER BY max(id) DESC LIMIT {_PLACES}"
)


def _of_files(text: str, paths: Iterable[str]) -> str:
    """Keep the parts of a diff that are about these files."""
    heads = {f"diff --git a/{path} b/{path}" for path in paths}
    return "\n".join(part for part in _parts(text) if part.split("\n", 1)[0] in heads)


def _parts(text: str) -> Iterator[str]:
    part: list[str] = []
    for line in text.split("\n"):
        if line.startswith("diff --git ") and part:
            yield "\n".join(part)
            part = []
        part.append(line)
    yield "\n".join(part)


def _shown(diff: str) -> str:
    """Return a diff without secrets, cut where it is long."""
    lines = sanitize_text(diff[: MAX_CHARS * 2])[0].rstrip().split("\n")
    kept = "\n".join(lines[:MAX_LINES])[:MAX_CHARS]
    left = diff.rstrip().count("\n") - kept.count("\n")
    return f"{kept}\n… {left} more lines" if left > 0 else kept
