"""The REST routes of roll-backs."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Status

from governance.taint.schemas import (
    Preview,
    RollbackList,
    RollbackMake,
    RollbackPlan,
    RollbackUndo,
    RollbackView,
)
from governance.taint.selectors import list_rollbacks
from governance.taint.services import preview, roll_back, undo_rollback
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import EntityId, Listing

router = Router()

UndoBody = without(RollbackUndo, "id")


@router.get("rollbacks", response=Listing, tags=["governance"], summary="What was rolled back so far")
def show_rollbacks(request: HttpRequest, command: Query[RollbackList]) -> Any:
    """The latest first: what was chosen, what was done and left, and whether it was undone. Page by ``cursor``."""
    return list_rollbacks(command=command)


@router.post("rollbacks/preview", response=Preview, tags=["governance"], summary="What a roll-back would do")
def show_preview(request: HttpRequest, command: RollbackPlan) -> Any:
    """What the selection did, what was derived from it, what would be done and left; changes nothing."""
    return preview(command=command)


@router.post(
    "rollbacks",
    response={201: RollbackView, **problems(403, 409)},
    tags=["governance"],
    summary="Roll back what a session, a client, a door or a time has left",
)
def make_rollback(request: HttpRequest, command: RollbackMake) -> Any:
    """409 without the ``confirm_token`` of the preview that shows just what would be done now."""
    return Status(201, roll_back(command=command))


@router.post(
    "rollbacks/{rollback_id}/undo",
    response={200: RollbackView, **problems(403, 404, 409)},
    tags=["governance"],
    summary="Undo a roll-back",
)
def undo(request: HttpRequest, rollback_id: EntityId, body: UndoBody) -> Any:  # type: ignore[valid-type]
    """In one transaction; what others have changed since is left, and named in ``undone_left``."""
    return undo_rollback(command=command_of(RollbackUndo, body, id=rollback_id))
