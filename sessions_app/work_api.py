"""REST routes of turns, iterations, single commits and project settings."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel

from memoryhub.config.current_settings import project_settings
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import EntityId, Identifier, Listing
from sessions_app import selectors, services
from sessions_app.schemas import (
    CommitRead,
    CommitView,
    EventAppend,
    IterationAdvance,
    IterationComplete,
    IterationGet,
    IterationList,
    IterationStart,
    IterationView,
    SessionTouch,
    SessionView,
    SettingsChange,
    TurnBegin,
    TurnEnd,
    TurnList,
    TurnView,
)
from sessions_app.services import iterations, turns
from sessions_app.services.profile import change_settings

router = Router()

AdvanceBody = without(IterationAdvance, "id")
CompleteBody = without(IterationComplete, "id")
GetQuery = without(IterationGet, "id")


class BegunTurn(TurnView):
    """A new turn with its token, which is returned only once."""

    ack_token: str


class Appended(BaseModel):
    """An appended event."""

    position: int
    type: str
    stream_seq: int
    turn_id: str


@router.get("turns", response=Listing, tags=["turns"], summary="List turns")
def list_turns(request: HttpRequest, command: Query[TurnList]) -> Any:
    """Newest first. For the next page pass ``meta.next_cursor`` as ``cursor``."""
    return selectors.list_turns(command=command)


@router.post("turns/begin", response={201: BegunTurn, **problems(409, 412)}, tags=["turns"], summary="Begin a turn")
def begin_turn(request: HttpRequest, command: TurnBegin) -> Any:
    """Returns the ``ack_token`` to send with the turn's events; only its hash is stored."""
    begun = turns.begin_turn(command=command)
    return Status(201, {**selectors.view_turn(begun.turn), "ack_token": begun.ack_token})


@router.post(
    "turns/append", response={201: Appended, **problems(412)}, tags=["turns"], summary="Append to the open turn"
)
def append_event(request: HttpRequest, command: EventAppend) -> Any:
    """An error about an unknown type lists the known ones."""
    event = turns.append_event(command=command)
    return Status(201, {name: getattr(event, name) for name in Appended.model_fields})


@router.post("turns/end", response={200: TurnView, **problems(412)}, tags=["turns"], summary="End the open turn")
def end_turn(request: HttpRequest, command: TurnEnd) -> Any:
    """Ends the turn of ``ack_token``."""
    return selectors.view_turn(turns.end_turn(command=command))


@router.post(
    "sessions/{path:session_id}/pause",
    response={200: SessionView, **problems(409)},
    tags=["sessions"],
    summary="Pause a session",
)
def pause_session(request: HttpRequest, session_id: Identifier) -> Any:
    """409 if it is not active."""
    return selectors.view_session(services.pause_session(command=SessionTouch(session_id=session_id)))


@router.post(
    "sessions/{path:session_id}/resume",
    response={200: SessionView, **problems(409)},
    tags=["sessions"],
    summary="Resume a session",
)
def resume_session(request: HttpRequest, session_id: Identifier) -> Any:
    """409 if it is not paused."""
    return selectors.view_session(services.resume_session(command=SessionTouch(session_id=session_id)))


@router.get("iterations", response=Listing, tags=["iterations"], summary="List iterations")
def list_iterations(request: HttpRequest, command: Query[IterationList]) -> Any:
    """Newest first. For the next page pass ``meta.next_cursor`` as ``cursor``."""
    return selectors.list_iterations(command=command)


@router.post(
    "iterations", response={201: IterationView, **problems(409)}, tags=["iterations"], summary="Begin an iteration"
)
def start_iteration(request: HttpRequest, command: IterationStart, response: HttpResponse) -> Any:
    """409 if another one is active; the error names it."""
    iteration = iterations.start_iteration(command=command)
    response["Location"] = f"{request.path}/{iteration.id}"
    return Status(201, selectors.view_iteration(iteration))


@router.get("iterations/{iteration_id}", tags=["iterations"], summary="Get an iteration with its chronology")
def get_iteration(
    request: HttpRequest,
    iteration_id: EntityId,
    query: Query[GetQuery],  # type: ignore[valid-type]
) -> dict[str, Any]:
    """Includes its commits and newest events, oldest first."""
    return selectors.get_iteration(command=command_of(IterationGet, query, id=iteration_id))


@router.post(
    "iterations/{iteration_id}/advance",
    response={200: IterationView, **problems(409)},
    tags=["iterations"],
    summary="Complete a phase and begin the next",
)
def advance_iteration(
    request: HttpRequest,
    iteration_id: EntityId,
    body: AdvanceBody,  # type: ignore[valid-type]
) -> Any:
    """Without ``completed``, the current phase is completed."""
    command = command_of(IterationAdvance, body, id=iteration_id)
    return selectors.view_iteration(iterations.advance_iteration(command=command))


@router.post(
    "iterations/{iteration_id}/complete",
    response={200: IterationView, **problems(409)},
    tags=["iterations"],
    summary="Complete or abandon an iteration",
)
def complete_iteration(
    request: HttpRequest,
    iteration_id: EntityId,
    body: CompleteBody,  # type: ignore[valid-type]
) -> Any:
    """409 if it has already ended."""
    command = command_of(IterationComplete, body, id=iteration_id)
    return selectors.view_iteration(iterations.complete_iteration(command=command))


@router.post("commits/read", response=CommitView, tags=["commits"], summary="Record a commit from its repository")
def record_commit(request: HttpRequest, command: CommitRead) -> Any:
    """Reads omitted fields from git in ``directory``; without a directory, send them."""
    return selectors.view_commit(services.record_commit(command=command))


@router.get("settings", response=ProjectSettings, tags=["settings"], summary="Get the project's settings")
def get_settings(request: HttpRequest) -> Any:
    """Effective values, from all sources."""
    return project_settings()


@router.patch("settings", response=ProjectSettings, tags=["settings"], summary="Change the project's settings")
def patch_settings(request: HttpRequest, command: SettingsChange) -> Any:
    """Null resets a setting to its default."""
    return change_settings(command=command)
