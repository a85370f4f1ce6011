"""What makes commits known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memoryhub.core import clock, log
from sessions_app.events import COMMIT_RECORDED, CommitRecorded
from sessions_app.models import Commit
from sessions_app.schemas import CommitRecord

_BATCH = 500


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
