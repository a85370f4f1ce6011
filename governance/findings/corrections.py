"""Finding: the file that is corrected most, by what users say, or else by commits that fix or revert it soon."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

from decisions.models import CommitFile
from governance.findings.reading import SessionLog, evidence_of, excerpt, when
from governance.findings.schemas import LEAST_SESSIONS, MOST_EVIDENCE, FindingEvidence, FindingKind, ProjectFinding
from memories.lessons.rules import Correction, corrected_turns
from memoryhub.core.log.quarantine import outside_quarantine
from memoryhub.core.text import counted, first_line
from sessions_app.models import Commit
from sessions_app.selectors import caller_tree

# A correction after edits of more files does not say which of them it means, unless one is edited again
_FEW_FILES = 3
_PATH = 120


def find_corrected_file(sessions: Sequence[SessionLog]) -> ProjectFinding | None:
    """Return the file with the most corrections by users; without any that repeats, by commits; None without both."""
    return _corrected_by_users(sessions) or _corrected_by_commits()


def _corrected_by_users(sessions: Sequence[SessionLog]) -> ProjectFinding | None:
    files: dict[str, list[Correction]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    for session in sessions:
        for correction in corrected_turns(session.events):
            written_at = correction.prompt.payload["written_at"]
            # A transcript that continues another one may repeat its prompts
            if written_at and (correction.text, written_at) in seen:
                continue
            seen.add((correction.text, written_at))
            for path in _meant_files(correction):
                files[path].append(correction)
    recurring = {path: met for path, met in files.items() if len(_sessions_of(met)) >= LEAST_SESSIONS}
    if not recurring:
        return None
    path = max(recurring, key=lambda path: (len(recurring[path]), max(map(_at, recurring[path]))))
    corrections = sorted(recurring[path], key=_at, reverse=True)
    count, sessions_with = len(corrections), len(_sessions_of(corrections))
    where = f"in {counted(sessions_with, 'session')}"
    times = f"{count:,} times " if count > sessions_with else ""
    return ProjectFinding(
        kind=FindingKind.FILE,
        subject=excerpt(path),
        sentence=f"You corrected what was done to `{excerpt(path, _PATH)}` {times}{where}.",
        count=count,
        sessions=sessions_with,
        evidence=[evidence_of(item.prompt, "prompt", item.text) for item in corrections[:MOST_EVIDENCE]],
        advice="A guideline about this file, in your words, keeps the next session from the same mistake.",
    )


def _at(correction: Correction) -> tuple[str, int]:
    return when(correction.prompt)


def _sessions_of(corrections: Iterable[Correction]) -> set[str]:
    return {correction.prompt.session_id for correction in corrections}


_FILE = re.compile(r"(?<![\w./-])(?:[\w.-]+/)*[\w.-]+\.[a-z]\w{0,9}\b", re.IGNORECASE)


# Edited before the correction, and named in it; or else edited after it, or one of few. A correction that names another
# path is about that. Files outside the project are no matter of it
def _meant_files(correction: Correction) -> set[str]:
    edited = set(filter(_is_inside, correction.edited))
    mentions = _FILE.findall(correction.text)
    named = {path for path in edited if any(f"/{path}".endswith(f"/{mention}") for mention in mentions)}
    if named or any("/" in mention for mention in mentions):
        return named
    return edited & set(correction.redone) or (edited if len(edited) <= _FEW_FILES else set())


def _is_inside(path: str) -> bool:
    return not path.startswith(("/", "~", "\\")) and path[1:2] != ":" and ".." not in PurePosixPath(path).parts


# How a commit's first line begins if it corrects another
_FIXING = re.compile(
    r"(?:revert|(?:hot|bug)?fix(?:e[sd]|up)?|fixing|correct(?:s|ed)?|repair(?:s|ed)?)\b", re.IGNORECASE
)
# ``[parser]`` or ``parser:`` before the words
_SCOPE = re.compile(r"^(?:\[[^\]]{1,30}\]|[\w./-]{1,30}:)\s+")
_REVERT = re.compile(r"revert\b", re.IGNORECASE)
# Commits of other matters that begin so
_NO_FIX = re.compile(
    r"^(?:tests?|chore|ci|build|style)\b|\b(?:typos?|lint|linting|format(?:ting)?|docs?|changelog|readme|spelling"
    r"|warnings?)\b",
    re.IGNORECASE,
)
# A correction comes so soon after another commit of the file
_SOON = timedelta(days=7)
# Commits of more files do not say which of them they correct
_MOST_FILES = 10
_LEAST_FIXES = 4
_MOST_COMMITS = 20_000
# Files that every change touches, or that no one corrects by hand
_SIDE = re.compile(
    r"(?:^|/)(?:tests?|__tests__|specs?|docs?|examples?|fixtures|vendor|dist|node_modules|\.github)/|(?:^|/)(?:test_|conftest)"
    r"|[._-](?:test|spec)s?\.\w+$|(?:^|/)[^/]*(?:change(?:s|log)|news|history|readme|authors|contributors|todo)[^/]*$"
    r"|\.(?:md|rst|txt|adoc|lock|snap|svg|png|json|ya?ml|toml|cfg|ini|po|pot|min\.js|map|sum|mod)$|(?:^|/)\.[^/]+$"
    r"|(?:^|/)(?:version|__version__|_version|setup)\.\w+$",
    re.IGNORECASE,
)


class _FileCommit(NamedTuple):
    id: int
    at: datetime
    subject: str

    @property
    def is_fix(self) -> bool:
        fixes = _FIXING.match(self.subject) or _FIXING.match(_SCOPE.sub("", self.subject))
        return bool(fixes) and not _NO_FIX.search(self.subject)

    @property
    def evidence(self) -> FindingEvidence:
        return FindingEvidence(id=self.id, type="commit", text=excerpt(self.subject), at=self.at)


@dataclass(slots=True)
class _Fixes:
    fixes: list[_FileCommit] = field(default_factory=list)
    commits: int = 0

    @property
    def rank(self) -> tuple[int, datetime]:
        return len(self.fixes), self.fixes[-1].at


def _corrected_by_commits() -> ProjectFinding | None:
    files = {path: _fixes_among(commits) for path, commits in _commits_by_file().items()}
    recurring = {path: fixes for path, fixes in files.items() if len(fixes.fixes) >= _LEAST_FIXES}
    if not recurring:
        return None
    tree = caller_tree()
    ranked = sorted(recurring, key=lambda path: recurring[path].rank, reverse=True)
    path = next((path for path in ranked if tree is None or os.path.lexists(tree.top / path)), "")
    if not path:
        return None
    fixes = recurring[path].fixes
    newest = sorted(fixes, key=lambda commit: commit.at, reverse=True)[:MOST_EVIDENCE]
    reverts = sum(bool(_REVERT.match(commit.subject)) for commit in fixes)
    kinds = "fix or revert" if reverts else "fix"
    sentence = (
        f"{counted(len(fixes), 'commit')} that {kinds} something touched `{excerpt(path, _PATH)}` within "
        f"{_SOON.days} days of another commit to it, of {counted(recurring[path].commits, 'commit')} to it in all."
    )
    return ProjectFinding(
        kind=FindingKind.FILE,
        subject=excerpt(path),
        sentence=sentence,
        count=len(fixes),
        evidence=[commit.evidence for commit in newest],
        advice="What these fixes have in common is worth a guideline about this file.",
    )


def _commits_by_file() -> Mapping[str, list[_FileCommit]]:
    newest = outside_quarantine(Commit.objects.all()).order_by("-committed_at")
    commits: dict[int, _FileCommit] = {}
    for commit_id, at, message in newest.values_list("id", "committed_at", "message")[:_MOST_COMMITS]:
        subject = first_line(message)
        if not subject.startswith("Merge "):
            commits[commit_id] = _FileCommit(commit_id, at, subject)
    paths: dict[int, list[str]] = defaultdict(list)
    for commit_id, path in CommitFile.objects.values_list("commit_id", "path").iterator(5_000):
        if commit_id in commits:
            paths[commit_id].append(path)
    files: dict[str, list[_FileCommit]] = defaultdict(list)
    for commit_id, touched in paths.items():
        if len(touched) <= _MOST_FILES:
            for path in touched:
                files[path].append(commits[commit_id])
    return {path: touching for path, touching in files.items() if not _SIDE.search(path)}


def _fixes_among(commits: list[_FileCommit]) -> _Fixes:
    ordered = sorted(commits, key=lambda commit: commit.at)
    fixes = _Fixes(commits=len(ordered))
    for before, commit in pairwise(ordered):
        if commit.is_fix and commit.at - before.at <= _SOON:
            fixes.fixes.append(commit)
    return fixes
