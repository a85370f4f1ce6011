"""The REST routes of retention: the plan, its run, what was taken, and holds."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from governance.retention import selectors
from governance.retention.holds import lift_hold, place_hold
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
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import EntityId

router = Router()

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
