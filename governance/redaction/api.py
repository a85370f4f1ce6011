"""The REST routes of redaction."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router

from governance.redaction.schemas import RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.selectors import RedactionList, list_redactions
from governance.redaction.service import preview_redaction, redact
from memoryhub.core.rest import problems
from memoryhub.core.schemas import Listing

router = Router()


@router.get("redactions", response=Listing, tags=["governance"], summary="What was redacted so far")
def show_redactions(request: HttpRequest, command: Query[RedactionList]) -> Any:
    """Who took what out, found by what, of how many events, and why; never the text. Page by ``cursor``."""
    return list_redactions(command=command)


@router.post(
    "redactions/preview",
    response={200: RedactionPreview, **problems(403, 404)},
    tags=["governance"],
    summary="What a redaction would take out",
)
def preview(request: HttpRequest, command: RedactionSelect) -> Any:
    """Each place before and after, every copy, what stays and why; changes nothing. 404 where nothing is found."""
    return preview_redaction(command=command)


@router.post(
    "redactions",
    response={200: RedactionDone, **problems(403, 404, 409)},
    tags=["governance"],
    summary="Take text out of everything that was kept",
)
def run(request: HttpRequest, command: RedactionRun) -> Any:
    """409 without the preview's ``confirm_token``. Afterwards the files are read byte by byte, and ``left`` tells."""
    return redact(command=command)
