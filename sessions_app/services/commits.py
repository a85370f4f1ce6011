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
from memoryhub.core.permissions import Act, allows
from memoryhub.core.stores.lookups import begins_with
from sessions_app import git
from sessions_app.events import COMMIT_LINKED, COMMIT_RECORDED, CommitLinked, CommitRecorded
from sessions_app.models import Commit
from sessions_app.schemas import CommitRead, CommitRecord
from sessions_app.selectors import find_iteration, root_of_project

_BATCH = 500


def record_commit(*, command: CommitRead, directory: Path | None = None) -> Commit:
    """Record a commit, read from git if the directory is a repository, else from the given fields.

    The commit is linked with the named decisions and attached to its iteration, by default the active one. If it is
    already recorded, only new links are written.

    Args:
        command: its ``directory`` takes precedence over ``directory``. Unless the caller administers the hub, git is
            only asked in the project's own folder.
        directory: the client's working folder.

    Raises:
        NotFound: git does not know the hash and the fields are incomplete; or a decision or the iteration is missing.
    """
    folder = _readable(Path(command.directory) if command.directory else directory)
    record = (_from_git(command, folder) if folder else None) or _from_fields(command)
    with log.transaction():
        require_entities("decision", command.decision_ids)
        if command.iteration_id is not None:
            find_iteration(command.iteration_id)
        existing: Commit | None = Commit.objects.filter(sha=record.sha).first()
        if existing:
            _link_existing(existing, command)
        else:
            payload = _recorded(record).model_copy(update=_links(command))
            log.append(log.prepare(COMMIT_RECORDED, payload), stream=_stream(record.sha))
        commit: Commit = Commit.objects.get(sha=record.sha)
        return commit


# Others name a folder of their own machine; on the hub's, they may only mean the project's.
def _readable(folder: Path | None) -> Path | None:
    if folder is None or allows(Act.ADMINISTER):
        return folder
    root = root_of_project()
    return folder if root and folder.resolve().is_relative_to(Path(root).resolve()) else None


def _links(command: CommitRead) -> dict[str, Any]:
    links: dict[str, Any] = {}
    if command.decision_ids:
        links |= {"decision_ids": list(dict.fromkeys(command.decision_ids)), "link_type": command.link_type}
    if command.iteration_id is not None:
        links["iteration_id"] = command.iteration_id
    return links


def _link_existing(commit: Commit, command: CommitRead) -> None:
    linked = _linked_already(commit.sha)
    new = [decision for decision in command.decision_ids if linked.get(decision) != command.link_type]
    moved = command.iteration_id if command.iteration_id != commit.iteration_id else None
    links = _links(command.model_copy(update={"decision_ids": new, "iteration_id": moved}))
    if links:
        payload = CommitLinked(commit_id=commit.id, sha=commit.sha, **links)
        log.append(log.prepare(COMMIT_LINKED, payload), stream=_stream(commit.sha))


# From the events, not the read model: links that a message or a decision made don't count.
def _linked_already(sha: str) -> dict[int, str]:
    payloads = RawEvent.objects.filter(stream_id=_stream(sha), payload_json__isnull=False).order_by("position")
    linked: dict[int, str] = {}
    for text in payloads.values_list("payload_json", flat=True):
        payload = json.loads(text)
        linked |= dict.fromkeys(payload.get("decision_ids", ()), payload.get("link_type", "implements"))
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
    existing: Commit | None = Commit.objects.filter(begins_with("sha", command.sha.lower())).order_by("id").first()
    if existing:
        return CommitRecord(sha=existing.sha, committed_at=existing.committed_at)
    if command.message is None or len(command.sha) not in (40, 64):
        raise NotFound(f"git finds no commit {command.sha!r}; pass its directory, or the full sha and message")
    return CommitRecord(
        sha=command.sha.lower(),
        message=command.message,
        author=command.author or "",
        committed_at=command.committed_at or clock.now(),
        files=command.files,
    )


@dataclass(frozen=True, slots=True)
class RecordReport:
    """Counts of a bulk recording."""

    recorded: int
    known: int


def record_commits(*, commits: Sequence[CommitRecord]) -> RecordReport:
    """Record the commits that are not recorded yet, in the given order."""
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
