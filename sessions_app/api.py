"""REST routes of sessions, turns, commits, iterations, the event log and project settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel

from memoryhub.config.current_settings import project_settings
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core import log
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import EntityId, Identifier, Listing, Paging
from sessions_app import schemas, selectors, services
from sessions_app.audit import AuditReplay, replay_page
from sessions_app.services import turns, work
from sessions_app.services.profile import change_settings, try_rules

router = Router()
# Must be added after all other routes of sessions: a session's name may contain slashes, so it matches any path.
by_name = Router()

EndBody = without(schemas.SessionEnd, "session_id")
NO_SUMMARY = EndBody()


class RecordAnswer(BaseModel):
    """Result of recording commits."""

    recorded: int
    known: int


class VerifyAnswer(BaseModel):
    """Result of verifying the log's hash chain."""

    ok: bool
    events: int
    head_digest: str
    broken_position: int | None
    reason: str
    finding: str


@router.get("sessions", response=Listing, tags=["sessions"], summary="List sessions")
def list_sessions(request: HttpRequest, command: Query[schemas.SessionList]) -> Any:
    """Newest first. For the next page pass ``meta.next_cursor`` as ``cursor``."""
    return selectors.list_sessions(command=command)


@router.post(
    "sessions", response={201: schemas.SessionView, **problems(409)}, tags=["sessions"], summary="Begin a session"
)
def start_session(request: HttpRequest, command: schemas.SessionStart, response: HttpResponse) -> Any:
    """``session_id`` is optional; 409 if it is taken."""
    session = services.start_session(command=command)
    response["Location"] = f"{request.path}/{quote(session.session_id, safe='')}"
    return Status(201, selectors.view_session(session))


@router.post(
    "sessions/{path:session_id}/end",
    response={200: schemas.SessionView, **problems(409)},
    tags=["sessions"],
    summary="End a session with its summary",
)
def end_session(
    request: HttpRequest,
    session_id: Identifier,
    body: EndBody = NO_SUMMARY,  # type: ignore[valid-type]
) -> Any:
    """409 if it has already ended."""
    command = command_of(schemas.SessionEnd, body, session_id=session_id)
    return selectors.view_session(services.end_session(command=command))


@router.get("commits", response=Listing, tags=["commits"], summary="List commits")
def list_commits(request: HttpRequest, command: Query[Paging]) -> Any:
    """Last recorded first. For the next page pass ``meta.next_cursor`` as ``cursor``."""
    return selectors.list_commits(command=command)


@router.post("commits", response=RecordAnswer, tags=["commits"], summary="Record commits")
def record_commits(request: HttpRequest, commits: list[schemas.CommitRecord]) -> Any:
    """Commits that are already recorded are skipped, so the call can be repeated."""
    recorded = services.record_commits(commits=commits)
    return {"recorded": recorded, "known": len(commits) - recorded}


@router.get("events", response=Listing, tags=["events"], summary="Read the event log")
def replay_events(request: HttpRequest, command: Query[AuditReplay]) -> Any:
    """In order of position, with payloads (null once erased) and digests. Page by ``cursor``."""
    return replay_page(command=command)


@router.get("events/verify", response=VerifyAnswer, tags=["events"], summary="Verify the log's hash chain")
def verify_events(request: HttpRequest) -> Any:
    """Checks the whole chain and returns the position of the first altered event."""
    verification = log.verify()
    return {**asdict(verification), "finding": verification.describe()}


@by_name.get(
    "sessions/{path:session_id}", response=schemas.SessionView, tags=["sessions"], summary="Get a session by its name"
)
def get_session(request: HttpRequest, session_id: Identifier) -> Any:
    """The id may contain slashes."""
    return selectors.view_session(services.find_session(session_id=session_id))


@router.post(
    "sanitise", response=schemas.Sanitised, tags=["settings"], summary="Preview what would be removed from a text"
)
def sanitise(request: HttpRequest, command: schemas.Sanitise) -> Any:
    """Uses the rules and allowlist of the project, or those of the body. Nothing is written."""
    return try_rules(command=command)


work_router = Router()

AdvanceBody = without(schemas.IterationAdvance, "id")
CompleteBody = without(schemas.IterationComplete, "id")
GetQuery = without(schemas.IterationGet, "id")


class BegunTurn(schemas.TurnView):
    """A new turn with its token, which is returned only once."""

    ack_token: str


class Appended(BaseModel):
    """An appended event."""

    position: int
    type: str
    stream_seq: int
    turn_id: str


@work_router.get("turns", response=Listing, tags=["turns"], summary="List turns")
def list_turns(request: HttpRequest, command: Query[schemas.TurnList]) -> Any:
    """Newest first. For the next page pass ``meta.next_cursor`` as ``cursor``."""
    return selectors.list_turns(command=command)


@work_router.post(
    "turns/begin", response={201: BegunTurn, **problems(409, 412)}, tags=["turns"], summary="Begin a turn"
)
def begin_turn(request: HttpRequest, command: schemas.TurnBegin) -> Any:
    """Returns the ``ack_token`` to send with the turn's events; only its hash is stored."""
    begun = turns.begin_turn(command=command)
    return Status(201, {**selectors.view_turn(begun.turn), "ack_token": begun.ack_token})


@work_router.post(
    "turns/append", response={201: Appended, **problems(412)}, tags=["turns"], summary="Append to the open turn"
)
def append_event(request: HttpRequest, command: schemas.EventAppend) -> Any:
    """An error about an unknown type lists the known ones."""
    event = turns.append_event(command=command)
    return Status(201, {name: getattr(event, name) for name in Appended.model_fields})


@work_router.post(
    "turns/end", response={200: schemas.TurnView, **problems(412)}, tags=["turns"], summary="End the open turn"
)
def end_turn(request: HttpRequest, command: schemas.TurnEnd) -> Any:
    """Ends the turn of ``ack_token``."""
    return selectors.view_turn(turns.end_turn(command=command))


@work_router.post(
    "sessions/{path:session_id}/pause",
    response={200: schemas.SessionView, **problems(409)},
    tags=["sessions"],
    summary="Pause a session",
)
def pause_session(request: HttpRequest, session_id: Identifier) -> Any:
    """409 if it is not active."""
    return selectors.view_session(services.pause_session(command=schemas.SessionTouch(session_id=session_id)))


@work_router.post(
    "sessions/{path:session_id}/resume",
    response={200: schemas.SessionView, **problems(409)},
    tags=["sessions"],
    summary="Resume a session",
)
def resume_session(request: HttpRequest, session_id: Identifier) -> Any:
    """409 if it is not paused."""
    return selectors.view_session(services.resume_session(command=schemas.SessionTouch(session_id=session_id)))


@work_router.get("iterations", response=Listing, tags=["iterations"], summary="List iterations")
def list_iterations(request: HttpRequest, command: Query[schemas.IterationList]) -> Any:
    """Newest first. For the next page pass ``meta.next_cursor`` as ``cursor``."""
    return selectors.list_iterations(command=command)


@work_router.post(
    "iterations",
    response={201: schemas.IterationView, **problems(409)},
    tags=["iterations"],
    summary="Begin an iteration",
)
def start_iteration(request: HttpRequest, command: schemas.IterationStart, response: HttpResponse) -> Any:
    """409 if another one is active; the error names it."""
    iteration = work.start_iteration(command=command)
    response["Location"] = f"{request.path}/{iteration.id}"
    return Status(201, selectors.view_iteration(iteration))


@work_router.get("iterations/{iteration_id}", tags=["iterations"], summary="Get an iteration with its chronology")
def get_iteration(
    request: HttpRequest,
    iteration_id: EntityId,
    query: Query[GetQuery],  # type: ignore[valid-type]
) -> dict[str, Any]:
    """Includes its commits and newest events, oldest first."""
    return selectors.get_iteration(command=command_of(schemas.IterationGet, query, id=iteration_id))


@work_router.post(
    "iterations/{iteration_id}/advance",
    response={200: schemas.IterationView, **problems(409)},
    tags=["iterations"],
    summary="Complete a phase and begin the next",
)
def advance_iteration(
    request: HttpRequest,
    iteration_id: EntityId,
    body: AdvanceBody,  # type: ignore[valid-type]
) -> Any:
    """Without ``completed``, the current phase is completed."""
    command = command_of(schemas.IterationAdvance, body, id=iteration_id)
    return selectors.view_iteration(work.advance_iteration(command=command))


@work_router.post(
    "iterations/{iteration_id}/complete",
    response={200: schemas.IterationView, **problems(409)},
    tags=["iterations"],
    summary="Complete or abandon an iteration",
)
def complete_iteration(
    request: HttpRequest,
    iteration_id: EntityId,
    body: CompleteBody,  # type: ignore[valid-type]
) -> Any:
    """409 if it has already ended."""
    command = command_of(schemas.IterationComplete, body, id=iteration_id)
    return selectors.view_iteration(work.complete_iteration(command=command))


@work_router.post(
    "commits/read", response=schemas.CommitView, tags=["commits"], summary="Record a commit from its repository"
)
def record_commit(request: HttpRequest, command: schemas.CommitRead) -> Any:
    """Reads omitted fields from git in ``directory``; without a directory, send them."""
    return selectors.view_commit(services.record_commit(command=command))


@work_router.get("settings", response=ProjectSettings, tags=["settings"], summary="Get the project's settings")
def get_settings(request: HttpRequest) -> Any:
    """Effective values, from all sources."""
    return project_settings()


@work_router.patch("settings", response=ProjectSettings, tags=["settings"], summary="Change the project's settings")
def patch_settings(request: HttpRequest, command: schemas.SettingsChange) -> Any:
    """Null resets a setting to its default."""
    return change_settings(command=command)
