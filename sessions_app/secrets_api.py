"""The REST route that tries out what would be taken out of a text."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from sessions_app.schemas.secrets import Sanitise, Sanitised
from sessions_app.services.secrets import try_rules

router = Router()


@router.post("sanitise", response=Sanitised, tags=["settings"], summary="See what would be taken out of a text")
def sanitise(request: HttpRequest, command: Sanitise) -> Any:
    """With the project's own rules and allow-list, or with those of the body; nothing is written."""
    return try_rules(command=command)
