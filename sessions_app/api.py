"""REST routes of sessions, commits, the event log and the sanitiser."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status
from pydantic import BaseModel

from memoryhub.core import log
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import Identifier, Listing, Paging
from sessions_app import selectors, services
from sessions_app.replay import AuditReplay, replay_page
from sessions_app.schemas import CommitRecord, SessionEnd, SessionList, SessionStart, SessionView
from sessions_app.schemas.work import Sanitise, Sanitised
from sessions_app.services.profile import try_rules

router = Router()
# Must be added after all other routes of sessions: a session's name may contain slashes, so it matches any path.
by_name = Router()

EndBody = without(SessionEnd, "session_id")
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
def list_sessions(request: HttpRequest, command: Query[SessionList]) -> Any:
    """Newest first. For the next page pass ``meta.next_cursor`` as ``cursor``."""
    return selectors.list_sessions(command=command)


@router.post("sessions", response={201: SessionView, **problems(409)}, tags=["sessions"], summary="Begin a session")
def start_session(request: HttpRequest, command: SessionStart, response: HttpResponse) -> Any:
    """``session_id`` is optional; 409 if it is taken."""
    session = services.start_session(command=command)
    response["Location"] = f"{request.path}/{quote(session.session_id, safe='')}"
    return Status(201, selectors.view_session(session))


@router.post(
    "sessions/{path:session_id}/end",
    response={200: SessionView, **problems(409)},
    tags=["sessions"],
    summary="End a session with its summary",
)
def end_session(
    request: HttpRequest,
    session_id: Identifier,
    body: EndBody = NO_SUMMARY,  # type: ignore[valid-type]
) -> Any:
    """409 if it has already ended."""
    command = command_of(SessionEnd, body, session_id=session_id)
    return selectors.view_session(services.end_session(command=command))


@router.get("commits", response=Listing, tags=["commits"], summary="List commits")
def list_commits(request: HttpRequest, command: Query[Paging]) -> Any:
    """Last recorded first. For the next page pass ``meta.next_cursor`` as ``cursor``."""
    return selectors.list_commits(command=command)


@router.post("commits", response=RecordAnswer, tags=["commits"], summary="Record commits")
def record_commits(request: HttpRequest, commits: list[CommitRecord]) -> Any:
    """Commits that are already recorded are skipped, so the call can be repeated."""
    return asdict(services.record_commits(commits=commits))


@router.get("events", response=Listing, tags=["events"], summary="Read the event log")
def replay_events(request: HttpRequest, command: Query[AuditReplay]) -> Any:
    """In order of position, with payloads (null once erased) and digests. Page by ``cursor``."""
    return replay_page(command=command)


@router.get("events/verify", response=VerifyAnswer, tags=["events"], summary="Verify the log's hash chain")
def verify_events(request: HttpRequest) -> Any:
    """Checks the whole chain and returns the position of the first altered event."""
    found = log.verify()
    return {**asdict(found), "finding": found.describe()}


@by_name.get("sessions/{path:session_id}", response=SessionView, tags=["sessions"], summary="Get a session by its name")
def get_session(request: HttpRequest, session_id: Identifier) -> Any:
    """The id may contain slashes."""
    return selectors.view_session(services.find_session(session_id=session_id))


@router.post("sanitise", response=Sanitised, tags=["settings"], summary="Preview what would be removed from a text")
def sanitise(request: HttpRequest, command: Sanitise) -> Any:
    """Uses the rules and allowlist of the project, or those of the body. Nothing is written."""
    return try_rules(command=command)
