"""REST routes of redaction, retention, roll-back and rechecks."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from governance.audit import Activity, AuditPeriod, AuditRequest, list_activity, list_packs_read
from governance.blame import BlameRequest, BlameView, blame
from governance.findings.schemas import FindingsReport
from governance.findings.selectors import project_findings
from governance.redaction.schemas import RedactionDone, RedactionPreview, RedactionRun, RedactionSelect
from governance.redaction.selectors import RedactionList, list_redactions
from governance.redaction.service import preview_redaction, redact
from governance.retention import selectors
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
from governance.retention.service import lift_hold, place_hold, run_retention
from governance.rollback.schemas import Preview, RollbackList, RollbackMake, RollbackPlan, RollbackUndo, RollbackView
from governance.rollback.selectors import list_rollbacks
from governance.rollback.service import preview, roll_back, undo_rollback
from governance.staleness.schemas import Affirm, AffirmResult, StaleList
from governance.staleness.selectors import list_stale
from governance.staleness.service import affirm
from memoryhub.core.rest import command_of, problems, without
from memoryhub.core.schemas import EntityId, Listing

router = Router(tags=["governance"])


@router.get("redactions", response=Listing, summary="List redactions")
def show_redactions(request: HttpRequest, command: Query[RedactionList]) -> Any:
    """Actor, selection, number of events and reason, but never the text. Page by ``cursor``."""
    return list_redactions(command=command)


@router.post(
    "redactions/preview", response={200: RedactionPreview, **problems(403, 404)}, summary="Preview a redaction"
)
def show_redaction(request: HttpRequest, command: RedactionSelect) -> Any:
    """Matches before and after, copies, and what is kept and why. Nothing is changed. 404 if nothing matches."""
    return preview_redaction(command=command)


@router.post("redactions", response={200: RedactionDone, **problems(403, 404, 409)}, summary="Redact text permanently")
def run(request: HttpRequest, command: RedactionRun) -> Any:
    """409 without the preview's ``confirm_token``. Files that still contain the text are listed in ``left``."""
    return redact(command=command)


LiftReason = without(HoldLift, "id")


@router.get("retention", response=Plan, tags=["retention"], summary="Preview a retention run")
def show_plan(request: HttpRequest, command: Query[RetentionPlanRequest]) -> Any:
    """What each rule would delete, and expired items that are kept, with the reason. Nothing is changed."""
    return selectors.plan_retention(command=command)


@router.post(
    "retention/run",
    response={200: RunView, 204: None, **problems(403, 412)},
    tags=["retention"],
    summary="Delete what a plan lists",
)
def run_plan(request: HttpRequest, command: RetentionRunRequest) -> Any:
    """412 with the current ``plan`` if it has changed; 204 if there is nothing to delete.

    An interrupted run is finished by the next one.
    """
    run = run_retention(command=command)
    return Status(200, run) if run else Status(204, None)


@router.get("retention/runs", response=RunList, tags=["retention"], summary="List retention runs")
def list_runs(request: HttpRequest) -> Any:
    """Latest runs with their reports, newest first."""
    return selectors.list_runs()


@router.get("retention/runs/{run_id}", response=RunView, tags=["retention"], summary="Get a retention run")
def get_run(request: HttpRequest, run_id: EntityId) -> Any:
    """Includes what each rule deleted, and what was kept."""
    return selectors.view_run(selectors.find_run(run_id))


@router.get("holds", response=HoldList, tags=["retention"], summary="List active holds")
def list_holds(request: HttpRequest) -> Any:
    """Newest first."""
    return selectors.list_holds()


@router.post("holds", response={201: HoldView, **problems(403, 404)}, tags=["retention"], summary="Create a hold")
def hold(request: HttpRequest, command: HoldPlace, response: HttpResponse) -> Any:
    """Exempts a stream, a session or the whole store from retention until the hold is lifted."""
    placed = place_hold(command=command)
    response["Location"] = f"{request.path}/{placed.id}"
    return Status(201, placed)


@router.delete(
    "holds/{hold_id}", response={200: HoldView, **problems(403, 409)}, tags=["retention"], summary="Lift a hold"
)
def lift(request: HttpRequest, hold_id: EntityId, reason: Query[LiftReason]) -> Any:  # type: ignore[valid-type]
    """From the next run on, retention applies again."""
    return lift_hold(command=command_of(HoldLift, reason, id=hold_id))


UndoBody = without(RollbackUndo, "id")


@router.get("rollbacks", response=Listing, summary="List roll-backs")
def show_rollbacks(request: HttpRequest, command: Query[RollbackList]) -> Any:
    """Newest first: filters, actions, items left unchanged, and whether it was undone. Page by ``cursor``."""
    return list_rollbacks(command=command)


@router.post("rollbacks/preview", response=Preview, summary="Preview a roll-back")
def show_preview(request: HttpRequest, command: RollbackPlan) -> Any:
    """Direct and downstream effects, and what would be done to each. Nothing is changed."""
    return preview(command=command)


@router.post(
    "rollbacks",
    response={201: RollbackView, **problems(403, 409)},
    summary="Roll back the writes of a session, client, source or period",
)
def make_rollback(request: HttpRequest, command: RollbackMake) -> Any:
    """409 without the ``confirm_token`` of a preview that is still current."""
    return Status(201, roll_back(command=command))


@router.post(
    "rollbacks/{rollback_id}/undo", response={200: RollbackView, **problems(403, 404, 409)}, summary="Undo a roll-back"
)
def undo(request: HttpRequest, rollback_id: EntityId, body: UndoBody) -> Any:  # type: ignore[valid-type]
    """What others changed since is left unchanged, and listed in ``undone_left``."""
    return undo_rollback(command=command_of(RollbackUndo, body, id=rollback_id))


@router.get("blame", response={200: BlameView, **problems(404)}, tags=["staleness"], summary="Explain lines of a file")
def show_blame(request: HttpRequest, command: Query[BlameRequest]) -> Any:
    """In the project's folder on the hub's machine; 404 without such a folder or file."""
    return blame(command=command).view


@router.get("findings", response=FindingsReport, tags=["projects"], summary="Get what the project's events show")
def show_findings(request: HttpRequest) -> Any:
    """The error met most, the command that fails first, the file corrected most, contradictions, masked secrets.

    At most one finding of each kind, with its evidence; without evidence there is none.
    """
    return project_findings()


@router.get("audit", response=Listing, summary="List who was given which context pack")
def show_audit(request: HttpRequest, command: Query[AuditRequest]) -> Any:
    """Newest first: person, client, interface, session, entries. For owners. Page by ``cursor``."""
    return list_packs_read(command=command)


@router.get("audit/activity", response=list[Activity], summary="Count what each person did")
def show_activity(request: HttpRequest, command: Query[AuditPeriod]) -> Any:
    """By person, client and interface, the last active first. For owners."""
    return list_activity(command=command)


AffirmBody = without(Affirm, "id")


@router.get("stale", response=Listing, tags=["staleness"], summary="List what needs rechecking")
def list_due(request: HttpRequest, command: Query[StaleList]) -> Any:
    """Longest waiting first; ``diff=true`` adds the commits' changes of the governed files."""
    return list_stale(command=command)


@router.post(
    "stale/{entity_id}/affirm",
    response={200: AffirmResult, **problems(409, 410)},
    tags=["staleness"],
    summary="Confirm that a memory or decision is still valid",
)
def affirm_thing(request: HttpRequest, entity_id: EntityId, body: AffirmBody) -> Any:  # type: ignore[valid-type]
    """Restarts its age. 409 if it is superseded, not accepted or in quarantine; 410 if it is deleted."""
    return affirm(command=command_of(Affirm, body, id=entity_id))
