"""What makes commits known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memoryhub.core import clock, log
from memoryhub.core.entities import require_entities
from memoryhub.core.errors import NotFound
from memoryhub.core.models import RawEvent
from sessions_app import git
from sessions_app.events import COMMIT_LINKED, COMMIT_RECORDED, CommitLinked, CommitRecorded
from sessions_app.models import Commit
from sessions_app.schemas import CommitRead, CommitRecord
from sessions_app.selectors import find_iteration

_BATCH = 500


def record_commit(*, command: CommitRead, directory: Path | None = None) -> Commit:
    """Record one commit: read from git where the directory is a repository, else from the fields that are given.

    ``directory`` is where the client works; what the command names goes before it.

    It is linked with the decisions that the command names, and attached to its iteration, the active one by default.
    Of a commit that is known already only these links change; naming what is linked already changes nothing.

    Raises:
        NotFound: git does not know the hash, and the fields do not say enough; or a decision or the iteration that is
            named is not there.
    """
    place = Path(command.directory) if command.directory else directory
    record = (_from_git(command, place) if place else None) or _from_fields(command)
    with log.transaction():
        require_entities("decision", command.decision_ids)
        if command.iteration_id is not None:
            find_iteration(command.iteration_id)
        known: Commit | None = Commit.objects.filter(sha=record.sha).first()
        if known:
            _link_known(known, command)
        else:
            payload = _recorded(record).model_copy(update=_links(command))
            log.append(log.prepare(COMMIT_RECORDED, payload), stream=_stream(record.sha))
        commit: Commit = Commit.objects.get(sha=record.sha)
        return commit


def _links(command: CommitRead) -> dict[str, Any]:
    """Return what the command links the commit with, as both events say it."""
    links: dict[str, Any] = {}
    if command.decision_ids:
        links |= {"decision_ids": list(dict.fromkeys(command.decision_ids)), "link_type": command.link_type}
    if command.iteration_id is not None:
        links["iteration_id"] = command.iteration_id
    return links


def _link_known(commit: Commit, command: CommitRead) -> None:
    linked = _linked_already(commit.sha)
    new = [each for each in command.decision_ids if linked.get(each) != command.link_type]
    moved = command.iteration_id if command.iteration_id != commit.iteration_id else None
    links = _links(command.model_copy(update={"decision_ids": new, "iteration_id": moved}))
    if links:
        payload = CommitLinked(commit_id=commit.id, sha=commit.sha, **links)
        log.append(log.prepare(COMMIT_LINKED, payload), stream=_stream(commit.sha))


def _linked_already(sha: str) -> dict[int, str]:
    """Return the decisions that the commit was linked with by those who recorded it, and how."""
    payloads = RawEvent.objects.filter(stream_id=_stream(sha), payload_json__isnull=False).order_by("position")
    linked: dict[int, str] = {}
    for text in payloads.values_list("payload_json", flat=True):
        said = json.loads(text)
        linked |= dict.fromkeys(said.get("decision_ids", ()), said.get("link_type", "implements"))
    return linked


def _stream(sha: str) -> str:
    return f"commit:{sha}"


def _from_git(command: CommitRead, directory: Path) -> CommitRecord | None:
    found = git.read_commit(directory, command.sha.lower())
    if found is None:
        return None
    given = {name: getattr(command, name) for name in ("message", "author", "committed_at", "files")}
    return found.model_copy(update={name: value for name, value in given.items() if value not in (None, [])})


def _from_fields(command: CommitRead) -> CommitRecord:
    known: Commit | None = Commit.objects.filter(sha__startswith=command.sha.lower()).order_by("id").first()
    if known:
        return CommitRecord(sha=known.sha, committed_at=known.committed_at)
    if command.message is None or len(command.sha) not in (40, 64):
        raise NotFound(
            f"git knows no commit {command.sha!r} here; name its directory, or send the full sha and message"
        )
    return CommitRecord(
        sha=command.sha.lower(),
        message=command.message,
        author=command.author or "",
        committed_at=command.committed_at or clock.now(),
        files=command.files,
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
            log.append(draft, stream=_stream(sha))
    return len(drafts)


def _recorded(commit: CommitRecord) -> CommitRecorded:
    return CommitRecorded(
        sha=commit.sha,
        message=commit.message,
        author=commit.author,
        committed_at=clock.to_text(commit.committed_at),
        files=commit.files,
    )
