"""The REST routes of staleness: what should be looked at again, and saying that it holds."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from governance.redaction.schemas import RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.selectors import RedactionList, list_redactions
from governance.redaction.service import preview_redaction, redact
from governance.retention import selectors
from governance.retention.run import run_retention
from governance.retention.schemas import (
    HoldLift,
    HoldList,
    HoldPlace,
    HoldView,
    Plan,
    RetentionPlanRequest,
    RetentionRunRequest,
    RunList,
    RunView,
)
from governance.retention.selectors import lift_hold, place_hold
from governance.rollback.schemas import Preview, RollbackList, RollbackMake, RollbackPlan, RollbackUndo, RollbackView
from governance.rollback.selectors import list_rollbacks
from governance.rollback.services import preview, roll_back, undo_rollback
from governance.staleness.schemas import Affirm, AffirmResult, StaleList
from governance.staleness.selectors import list_stale
from governance.staleness.services import affirm
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import EntityId, Listing

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
def show_redaction(request: HttpRequest, command: RedactionSelect) -> Any:
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


LiftReason = without(HoldLift, "id")


@router.get("retention", response=Plan, tags=["retention"], summary="What retention would take now")
def show_plan(request: HttpRequest, command: Query[RetentionPlanRequest]) -> Any:
    """What goes by which rule, and what is past its age and stays, with what keeps it; nothing is changed."""
    return selectors.plan_retention(command=command)


@router.post(
    "retention/run",
    response={200: RunView, 204: None, **problems(403, 412)},
    tags=["retention"],
    summary="Take for good what a plan said",
)
def run_plan(request: HttpRequest, command: RetentionRunRequest) -> Any:
    """412 with the present ``plan`` where it is no longer the one of the digest; 204 where there is nothing to take.

    A run that was cut off is brought to its end by this.
    """
    run = run_retention(command=command)
    return Status(200, run) if run else Status(204, None)


@router.get("retention/runs", response=RunList, tags=["retention"], summary="What retention took")
def list_runs(request: HttpRequest) -> Any:
    """The latest runs with their reports, the newest first."""
    return selectors.list_runs()


@router.get("retention/runs/{run_id}", response=RunView, tags=["retention"], summary="One run of retention")
def get_run(request: HttpRequest, run_id: EntityId) -> Any:
    """With what it took by which rule, and what it left."""
    return selectors.view_run(selectors.find_run(run_id))


@router.get("holds", response=HoldList, tags=["retention"], summary="List the holds in force")
def list_holds(request: HttpRequest) -> Any:
    """The newest first."""
    return selectors.list_holds()


@router.post(
    "holds", response={201: HoldView, **problems(403, 404)}, tags=["retention"], summary="Keep something for now"
)
def hold(request: HttpRequest, command: HoldPlace, response: HttpResponse) -> Any:
    """A stream, all of a session, or the whole store: no retention takes it until the hold is lifted."""
    placed = place_hold(command=command)
    response["Location"] = f"{request.path}/{placed.id}"
    return Status(201, placed)


@router.delete(
    "holds/{hold_id}", response={200: HoldView, **problems(403, 409)}, tags=["retention"], summary="Lift a hold"
)
def lift(
    request: HttpRequest,
    hold_id: EntityId,
    reason: Query[LiftReason],  # type: ignore[valid-type]
) -> Any:
    """What it kept goes as its age says, from the next run on."""
    return lift_hold(command=command_of(HoldLift, reason, id=hold_id))


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


AffirmBody = without(Affirm, "id")


@router.get("stale", response=Listing, tags=["staleness"], summary="List what should be looked at again")
def list_due(request: HttpRequest, command: Query[StaleList]) -> Any:
    """What has waited longest first; ``diff=true`` adds what the commits changed in the governed files."""
    return list_stale(command=command)


@router.post(
    "stale/{entity_id}/affirm",
    response={200: AffirmResult, **problems(409, 410)},
    tags=["staleness"],
    summary="Say that a memory or a decision still holds",
)
def affirm_thing(
    request: HttpRequest,
    entity_id: EntityId,
    body: AffirmBody,  # type: ignore[valid-type]
) -> Any:
    """Due again by its age from now on, or by the next commit; 409 where it does not hold, 410 where it is deleted."""
    return affirm(command=command_of(Affirm, body, id=entity_id))
