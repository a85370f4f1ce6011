"""Reading what retention would do, what it did, and what is held."""

from __future__ import annotations

from typing import Any

from governance.models import Hold, RetentionRun
from governance.retention.events import RetentionBegan
from governance.retention.policy import Policy, day_start
from governance.retention.ranges import numbers
from governance.retention.samples import words_of
from governance.retention.schemas import HoldList, HoldView, Plan, RetentionPlanRequest, RunList, RunView
from governance.retention.survey import Survey
from governance.retention.tally import Tally
from memoryhub.core import clock
from memoryhub.core.errors import NotFound
from memoryhub.core.models import RawEvent

RUNS_SHOWN = 50


def plan_retention(*, command: RetentionPlanRequest) -> Plan:
    """Return what would go now, and what stays though its time is up; nothing is changed.

    Ages count from midnight in UTC. Where a run was cut off, the plan is what is left of that one.
    """
    unfinished = unfinished_run()
    tally = tally_now(command, unfinished)
    report = tally.report()
    return Plan(
        **report.model_dump(),
        cutoff=tally.policy.cutoff,
        digest=tally.digest,
        unfinished=unfinished.id if unfinished else None,
        rules=[f"{tally.policy.name(index)}: {rule.sentence()}" for index, rule in enumerate(tally.policy.rules)],
    )


def tally_now(command: RetentionPlanRequest, unfinished: RetentionRun | None) -> Tally:
    """Return what is past its age, counted; of a run that was cut off, what is left of it."""
    if unfinished is None:
        policy = Policy.current(day_start(command.now or clock.now()))
        return Tally(policy, Survey(policy).past_age())
    policy = Policy.current(unfinished.cutoff)
    survey, began = Survey(policy), began_with(unfinished.id)
    things = [each for ranges in began.things.values() for each in numbers(ranges)]
    return Tally(policy, survey.past_age(events=list(numbers(began.positions)), things=things))


def unfinished_run() -> RetentionRun | None:
    """Return the run that was cut off, if there is one."""
    found: RetentionRun | None = RetentionRun.objects.filter(ran_at__isnull=True).order_by("-id").first()
    return found


def began_with(run_id: int) -> RetentionBegan:
    """Return what a run set out to take."""
    payload_json = RawEvent.objects.values_list("payload_json", flat=True).get(position=run_id)
    return RetentionBegan.model_validate_json(payload_json)


def list_runs() -> RunList:
    """Return the latest runs, the newest first."""
    return RunList(results=[view_run(each) for each in RetentionRun.objects.order_by("-id")[:RUNS_SHOWN]])


def find_run(run_id: int) -> RetentionRun:
    """Return the run.

    Raises:
        NotFound: there is none of that id.
    """
    found: RetentionRun | None = RetentionRun.objects.filter(id=run_id).first()
    if found is None:
        raise NotFound(f"there is no run of retention #{run_id} here", id=run_id)
    return found


def view_run(run: RetentionRun) -> RunView:
    """Return a run as callers get it; the words of its samples as far as they are still there."""
    shown = RunView(**{name: getattr(run, name) for name in RunView.model_fields})
    samples = [each for share in (*shown.report.going, *shown.report.kept) for each in share.samples]
    words = words_of([each.id for each in samples])
    for each in samples:
        each.text = words.get(each.id, "")
    return shown


def list_holds(*, stream_id: str = "") -> HoldList:
    """Return the holds that are in force, the newest first; with ``stream_id``, those on that stream."""
    found = Hold.objects.filter(lifted_at__isnull=True, **({"stream_id": stream_id} if stream_id else {}))
    return HoldList(results=[view_hold(each) for each in found.order_by("-id")])


def holds_that_keep(*, stream_id: str) -> list[HoldView]:
    """Return the holds in force that keep a stream, the newest first: its own, its sessions', and the whole store's."""
    sessions = RawEvent.objects.filter(stream_id=stream_id).exclude(session_id="").values_list("session_id", flat=True)
    streams = ["*", stream_id, *(f"session:{name}" for name in sessions.order_by().distinct())]
    found = Hold.objects.filter(lifted_at__isnull=True, stream_id__in=streams).order_by("-id")
    return [view_hold(each) for each in found]


def find_hold(hold_id: int) -> Hold:
    """Return the hold, in force or not.

    Raises:
        NotFound: there is none of that id.
    """
    found: Hold | None = Hold.objects.filter(id=hold_id).first()
    if found is None:
        raise NotFound(f"there is no hold #{hold_id} here; retention holds lists those there are", id=hold_id)
    return found


def view_hold(hold: Any) -> HoldView:
    """Return a hold as callers get it."""
    return HoldView(**{name: getattr(hold, name) for name in HoldView.model_fields})
