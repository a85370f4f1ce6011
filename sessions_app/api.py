"""The REST routes of what happened: sessions, commits, and the event log."""

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
by_name = Router()
"""What must be added after all other routes of sessions."""

EndBody = without(SessionEnd, "session_id")
NO_SUMMARY = EndBody()


class RecordAnswer(BaseModel):
    """What a bulk recording of commits did."""

    recorded: int
    known: int


class VerifyAnswer(BaseModel):
    """What walking the chain of the log found."""

    ok: bool
    events: int
    head_digest: str
    broken_position: int | None
    reason: str
    finding: str


@router.get("sessions", response=Listing, tags=["sessions"], summary="List sessions, newest first")
def list_sessions(request: HttpRequest, command: Query[SessionList]) -> Any:
    """Page by ``cursor``: the ``meta.next_cursor`` of the answer before."""
    return selectors.list_sessions(command=command)


@router.post("sessions", response={201: SessionView, **problems(409)}, tags=["sessions"], summary="Begin a session")
def start_session(request: HttpRequest, command: SessionStart, response: HttpResponse) -> Any:
    """Its name is given or made; a name that is taken is a conflict."""
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
    """A session that has ended already is a conflict."""
    command = command_of(SessionEnd, body, session_id=session_id)
    return selectors.view_session(services.end_session(command=command))


@router.get("commits", response=Listing, tags=["commits"], summary="List commits, last recorded first")
def list_commits(request: HttpRequest, command: Query[Paging]) -> Any:
    """Page by ``cursor``: the ``meta.next_cursor`` of the answer before."""
    return selectors.list_commits(command=command)


@router.post("commits", response=RecordAnswer, tags=["commits"], summary="Record commits")
def record_commits(request: HttpRequest, commits: list[CommitRecord]) -> Any:
    """Those that are known already are left as they are, so the same call again changes nothing."""
    return asdict(services.record_commits(commits=commits))


@router.get("events", response=Listing, tags=["events"], summary="Replay a part of the event log")
def replay_events(request: HttpRequest, command: Query[AuditReplay]) -> Any:
    """In order of position, with payloads (null once erased) and digests; page by ``cursor``."""
    return replay_page(command=command)


@router.get("events/verify", response=VerifyAnswer, tags=["events"], summary="Prove that the log is what was written")
def verify_events(request: HttpRequest) -> Any:
    """Walk the whole chain, and name the first position that is not what was written."""
    found = log.verify()
    return {**asdict(found), "finding": found.describe()}


# The last of its kind: a name may hold slashes, so this takes every address under sessions that no other has taken.
@by_name.get("sessions/{path:session_id}", response=SessionView, tags=["sessions"], summary="Get a session by its name")
def get_session(request: HttpRequest, session_id: Identifier) -> Any:
    """Return one session."""
    return selectors.view_session(services.find_session(session_id=session_id))


@router.post("sanitise", response=Sanitised, tags=["settings"], summary="See what would be taken out of a text")
def sanitise(request: HttpRequest, command: Sanitise) -> Any:
    """With the project's own rules and allow-list, or with those of the body; nothing is written."""
    return try_rules(command=command)
