"""What makes commits known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memoryhub.core import clock, log
from memoryhub.core.errors import NotFound
from sessions_app import git
from sessions_app.events import COMMIT_RECORDED, CommitRecorded
from sessions_app.models import Commit
from sessions_app.schemas import CommitRead, CommitRecord

_BATCH = 500


def record_commit(*, command: CommitRead, directory: Path | None = None) -> Commit:
    """Record one commit: read from git where the directory is a repository, else from the fields that are given.

    ``directory`` is where the client works; what the command names goes before it.

    A commit that is known already is returned as it is. It attaches to the active iteration by itself.

    Raises:
        NotFound: git does not know the hash, and the fields do not say enough.
    """
    place = Path(command.directory) if command.directory else directory
    record = (_from_git(command, place) if place else None) or _from_fields(command)
    with log.transaction():
        _record_batch([record])
        commit: Commit = Commit.objects.get(sha=record.sha)
        return commit


def _from_git(command: CommitRead, directory: Path) -> CommitRecord | None:
    found = git.read_commit(directory, command.sha.lower())
    if found is None:
        return None
    given = command.model_dump(include={"message", "author", "committed_at"}, exclude_none=True)
    return found.model_copy(update=given)


def _from_fields(command: CommitRead) -> CommitRecord:
    known: Commit | None = Commit.objects.filter(sha__startswith=command.sha.lower()).order_by("id").first()
    if known:
        return CommitRecord(sha=known.sha, committed_at=known.committed_at)
    if command.message is None or command.committed_at is None or len(command.sha) not in (40, 64):
        raise NotFound(
            f"git knows no commit {command.sha!r} here; name its directory, or send the full sha, message and "
            "committed_at"
        )
    return CommitRecord(
        sha=command.sha.lower(),
        message=command.message,
        author=command.author or "",
        committed_at=command.committed_at,
    )


@dataclass(frozen=True, slots=True)
class RecordReport:
    """What a bulk recording did."""

    recorded: int
    known: int


def record_commits(*, commits: Sequence[CommitRecord]) -> RecordReport:
    """Record those of the commits that are not known yet, in the order given."""
    recorded = 0
    for start in range(0, len(commits), _BATCH):
        recorded += _record_batch(commits[start : start + _BATCH])
    return RecordReport(recorded, len(commits) - recorded)


def _record_batch(commits: Sequence[CommitRecord]) -> int:
    drafts = {commit.sha: log.prepare(COMMIT_RECORDED, _recorded(commit)) for commit in commits}
    with log.transaction():
        for sha in Commit.objects.filter(sha__in=list(drafts)).values_list("sha", flat=True):
            del drafts[sha]
        for sha, draft in drafts.items():
            log.append(draft, stream=f"commit:{sha}")
    return len(drafts)


def _recorded(commit: CommitRecord) -> CommitRecorded:
    return CommitRecorded(
        sha=commit.sha,
        message=commit.message,
        author=commit.author,
        committed_at=clock.to_text(commit.committed_at),
        files=commit.files,
    )
