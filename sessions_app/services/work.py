"""Record commits and iterations, and follow a client's state file."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from memoryhub.core import clock, log
from memoryhub.core.entities import require_entities
from memoryhub.core.errors import ConflictError, NotFound
from memoryhub.core.events.event_types import EventType
from memoryhub.core.foreign_files import read_foreign
from memoryhub.core.schemas import Payload
from memoryhub.core.stores.dialect import begins_with
from memoryhub.core.text import flat
from sessions_app import events, git
from sessions_app.events.client import FILE_EDITED
from sessions_app.hook_parser import HookEvent
from sessions_app.models import Commit, Iteration, IterationStatus
from sessions_app.schemas import CommitRead, CommitRecord, IterationAdvance, IterationComplete, IterationStart
from sessions_app.selectors import find_iteration, is_readable

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
    if command.directory:
        directory = Path(command.directory)
    record = _from_git(command, directory) or _from_fields(command)
    with log.transaction():
        require_entities("decision", command.decision_ids)
        if command.iteration_id is not None:
            find_iteration(command.iteration_id)
        existing: Commit | None = Commit.objects.filter(sha=record.sha).first()
        if existing:
            _link_existing(existing, command)
        else:
            payload = _recorded(record).model_copy(update=_links_of(command))
            log.append(log.prepare(events.COMMIT_RECORDED, payload), stream=_stream(record.sha))
        commit: Commit = Commit.objects.get(sha=record.sha)
        return commit


def _links_of(command: CommitRead) -> dict[str, Any]:
    links: dict[str, Any] = {}
    if command.decision_ids:
        links |= {"decision_ids": list(dict.fromkeys(command.decision_ids)), "link_type": command.link_type}
    if command.iteration_id is not None:
        links["iteration_id"] = command.iteration_id
    return links


def _link_existing(commit: Commit, command: CommitRead) -> None:
    # From the events, not the read model: links that a message or a decision made don't count.
    linked: dict[int, str] = {}
    for payload in log.events().of_stream(_stream(commit.sha)).payloads().values():
        linked |= dict.fromkeys(payload.get("decision_ids", ()), payload.get("link_type", "implements"))
    new = [decision for decision in command.decision_ids if linked.get(decision) != command.link_type]
    command = command.model_copy(update={"decision_ids": new})
    if command.iteration_id == commit.iteration_id:
        command = command.model_copy(update={"iteration_id": None})
    if links := _links_of(command):
        linking = events.CommitLinked(commit_id=commit.id, sha=commit.sha, **links)
        log.append(log.prepare(events.COMMIT_LINKED, linking), stream=_stream(commit.sha))


def _stream(sha: str) -> str:
    return f"commit:{sha}"


def _from_git(command: CommitRead, directory: Path | None) -> CommitRecord | None:
    if directory is None or not is_readable(directory):
        return None
    commit = git.read_commit(directory, command.sha.lower())
    if commit is None:
        return None
    fields = {name: getattr(command, name) for name in ("message", "author", "committed_at", "files")}
    return commit.model_copy(update={name: value for name, value in fields.items() if value not in (None, [])})


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


def record_commits(*, commits: Sequence[CommitRecord]) -> int:
    """Record the commits that are not recorded yet, in the given order, and return how many they were."""
    recorded = 0
    for start in range(0, len(commits), _BATCH):
        batch = commits[start : start + _BATCH]
        drafts = {commit.sha: log.prepare(events.COMMIT_RECORDED, _recorded(commit)) for commit in batch}
        with log.transaction():
            for sha in Commit.objects.filter(sha__in=list(drafts)).values_list("sha", flat=True):
                del drafts[sha]
            for sha, draft in drafts.items():
                log.append(draft, stream=_stream(sha))
        recorded += len(drafts)
    return recorded


def _recorded(commit: CommitRecord) -> events.CommitRecorded:
    return events.CommitRecorded(
        sha=commit.sha,
        message=commit.message,
        author=commit.author,
        committed_at=clock.to_text(commit.committed_at),
        files=commit.files,
    )


def start_iteration(*, command: IterationStart) -> Iteration:
    """Start an iteration and return it.

    Raises:
        ConflictError: another one is active; the data has its id.
    """
    payload = events.IterationStarted(command=command.command, description=command.description)
    draft = log.prepare(events.ITERATION_STARTED, payload)
    with log.transaction():
        active = active_iteration()
        if active:
            raise ConflictError(
                f"iteration #{active.id} is active; complete it with iteration_complete, or abandon it", id=active.id
            )
        event = log.append(draft, entity="iteration")
        return find_iteration(event.position)


def advance_iteration(*, command: IterationAdvance) -> Iteration:
    """Complete the current phase, start the next, and add artifacts.

    Raises:
        NotFound: there is no such iteration, or none is active.
        ConflictError: it has ended.
    """
    with log.transaction():
        if first := log.find_by_key(command.idempotency_key, events.ITERATION_ADVANCED):
            return find_iteration(log.event_of(first).payload.iteration_id)
        iteration = _active(command.id)
        return record_phase(
            iteration,
            completed=command.completed or iteration.phase,
            phase=command.phase,
            artifacts=command.artifacts,
            key=command.idempotency_key,
        )


def record_phase(
    iteration: Iteration, *, completed: str, phase: str, artifacts: list[str], key: str | None = None
) -> Iteration:
    """Record a completed phase, "" for none, and the one that follows it."""
    payload = events.IterationAdvanced(iteration_id=iteration.id, completed=completed, phase=phase, artifacts=artifacts)
    return _append_to_iteration(iteration, events.ITERATION_ADVANCED, payload, key)


def complete_iteration(*, command: IterationComplete) -> Iteration:
    """Complete or abandon an iteration.

    Raises:
        NotFound: there is no such iteration, or none is active.
        ConflictError: it has already ended.
    """
    with log.transaction():
        iteration = _active(command.id)
        payload = events.IterationEnded(iteration_id=iteration.id, outcome=command.outcome)
        event_type = events.ITERATION_ABANDONED if command.abandon else events.ITERATION_COMPLETED
        return _append_to_iteration(iteration, event_type, payload)


def _append_to_iteration(
    iteration: Iteration, event_type: EventType[Any], payload: Payload, key: str | None = None
) -> Iteration:
    log.append(log.prepare(event_type, payload), stream=f"iteration:{iteration.id}", idempotency_key=key)
    return find_iteration(iteration.id)


def _active(iteration_id: int | None) -> Iteration:
    iteration = find_iteration(iteration_id) if iteration_id else active_iteration()
    if iteration is None:
        raise NotFound("no iteration is active; start one with iteration_start")
    if iteration.status != IterationStatus.ACTIVE:
        raise ConflictError(f"iteration #{iteration.id} is already {iteration.status}", id=iteration.id)
    return iteration


def active_iteration() -> Iteration | None:
    """Return the active iteration, or None."""
    iteration: Iteration | None = Iteration.objects.filter(status=IterationStatus.ACTIVE).order_by("-id").first()
    return iteration


logger = logging.getLogger(__name__)

STATE_FILE = "alfred-dev-state.json"
_MAX_BYTES = 256 * 1024
_MAX_NAME, _MAX_DESCRIPTION, _MAX_ARTIFACT = 64, 5_000, 500
_MAX_PHASES, _MAX_ARTIFACTS = 50, 100
# The plugin's value of the current phase when its work is done
_COMPLETED = "completado"


@dataclass(frozen=True, slots=True)
class PluginState:
    """The plugin's work, as far as an iteration shows it."""

    command: str
    description: str
    # Completed phases with their artifacts
    phases: dict[str, list[str]]
    # The current phase; "" if the work is done
    phase: str


def follow_state_file(event: HookEvent) -> None:
    """Begin, advance or end the iteration that a captured write of the state file describes.

    Other events return at once. A file that is not understood changes nothing and is named in the log.
    """
    path = event.payload.get("path", "")
    if event.type != FILE_EDITED.name or PurePosixPath(path).name != STATE_FILE:
        return
    try:
        state = parse_state(_state_text(event, path))
    except (OSError, ValueError, RecursionError) as error:
        logger.warning("ignoring a write of %s: %s", STATE_FILE, error)
        return
    with log.transaction():
        _apply(state)


def parse_state(text: str) -> PluginState:
    """Return the state that a file describes.

    Raises:
        ValueError: it is no JSON object with ``comando`` and ``fase_actual``.
    """
    data = json.loads(text)
    if not isinstance(data, dict):
        data = {}
    command = _short_name(data.get("comando"))
    phase = _short_name(data.get("fase_actual"))
    if not command or not phase:
        raise ValueError("it has no 'comando' and 'fase_actual'")
    description = data.get("descripcion") or data.get("descripción")
    if not isinstance(description, str):
        description = ""
    description = description[:_MAX_DESCRIPTION]
    description.encode()  # half of a surrogate pair, which no event can hold, is a ValueError
    return PluginState(
        command=command,
        description=description,
        phases=dict(_phases(data.get("fases_completadas"))),
        phase="" if phase == _COMPLETED else phase,
    )


# The written text if the event has it; after an edit of a part the file itself, unless it is on another machine
def _state_text(event: HookEvent, path: str) -> str:
    is_here = event.directory.startswith("/")
    folder = event.directory if is_here else event.directory.partition(":")[2]
    place = PurePosixPath(event.working_directory or folder, path)
    if ".." in place.parts or not place.is_relative_to(folder):
        raise ValueError(f"{flat(path)[:200]} is not in the session's folder")
    if event.written:
        return event.written
    if not is_here:
        raise ValueError("only a part of it was written, on another machine")
    return read_foreign(Path(place), limit=_MAX_BYTES, follows_links=False).decode()


def _phases(value: Any) -> Iterator[tuple[str, list[str]]]:
    if not isinstance(value, list):
        return
    for phase in value[:_MAX_PHASES]:
        fields: Mapping[str, Any] = phase if isinstance(phase, dict) else {"nombre": phase}
        artifacts = fields.get("artefactos")
        if not isinstance(artifacts, list):
            artifacts = []
        texts = [item for item in artifacts[:_MAX_ARTIFACTS] if isinstance(item, str) and item.strip()]
        if name := _short_name(fields.get("nombre")):
            yield name, [flat(text)[:_MAX_ARTIFACT] for text in texts]


def _short_name(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return flat(value).strip()[:_MAX_NAME]


def _apply(state: PluginState) -> None:
    iteration = active_iteration()
    if iteration:
        has_begun_again = not set(iteration.phases_completed) <= set(state.phases)  # it has lost a phase
        if iteration.command != state.command or has_begun_again:
            outcome = f"{STATE_FILE} describes other work: {state.command}"
            complete_iteration(command=IterationComplete(id=iteration.id, outcome=outcome, abandon=True))
            iteration = None
    if iteration is None:
        if not state.phase and _is_recorded(state):
            return
        iteration = start_iteration(command=IterationStart(command=state.command, description=state.description))
    names = [name for name in state.phases if name not in iteration.phases_completed]
    for name, following in zip(names, [*names, state.phase][1:], strict=True):
        record_phase(iteration, completed=name, phase=following, artifacts=state.phases[name])
    if not names and state.phase and state.phase != iteration.phase:
        record_phase(iteration, completed="", phase=state.phase, artifacts=[])
    if not state.phase:
        complete_iteration(command=IterationComplete(id=iteration.id))


def _is_recorded(state: PluginState) -> bool:
    last = Iteration.objects.order_by("-id").first()
    return (
        last is not None
        and last.status == IterationStatus.COMPLETED
        and (last.command, last.description) == (state.command, state.description)
        and list(last.phases_completed) == list(state.phases)
    )
