from __future__ import annotations

from governance.events import RetentionBegan
from governance.models import Hold, RetentionRun
from governance.retention.candidates import RetentionPolicy, day_start, words_of
from governance.retention.plan import Survey, Tally, numbers
from governance.retention.schemas import HoldList, HoldView, Plan, RetentionPlanRequest, RunList, RunView
from memoryhub.core import clock, log
from memoryhub.core.errors import NotFound

RUNS_SHOWN = 50


def plan_retention(*, command: RetentionPlanRequest) -> Plan:
    """Return what would be deleted now, and what is past its age but protected; writes nothing.

    Ages count from midnight UTC. If a run was interrupted, the plan is the rest of that run.
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
    """Count what is past its age, or the rest of an interrupted run."""
    if unfinished is None:
        policy = RetentionPolicy.current(day_start(command.now or clock.now()))
        return Tally(policy, Survey(policy).past_age())
    policy = RetentionPolicy.current(unfinished.cutoff)
    survey, began = Survey(policy), began_with(unfinished.id)
    things = [number for ranges in began.things.values() for number in numbers(ranges)]
    return Tally(policy, survey.past_age(events=list(numbers(began.positions)), things=things))


def unfinished_run() -> RetentionRun | None:
    """Return the interrupted run, if any."""
    run: RetentionRun | None = RetentionRun.objects.filter(ran_at__isnull=True).order_by("-id").first()
    return run


def began_with(run_id: int) -> RetentionBegan:
    """Return the event that began a run, with its list."""
    return RetentionBegan.model_validate_json(log.events().get(position=run_id).payload_json or "")


def list_runs() -> RunList:
    """Return the latest runs, newest first."""
    return RunList(results=list(map(view_run, RetentionRun.objects.order_by("-id")[:RUNS_SHOWN])))


def find_run(run_id: int) -> RetentionRun:
    """Return a run.

    Raises:
        NotFound: no run has this id.
    """
    run: RetentionRun | None = RetentionRun.objects.filter(id=run_id).first()
    if run is None:
        raise NotFound(f"there is no retention run #{run_id} in this store", id=run_id)
    return run


def view_run(run: RetentionRun) -> RunView:
    """Return a run as callers get it; sample texts are read from the log, if they still exist."""
    answer = RunView.model_validate(run, from_attributes=True)
    samples = [sample for share in (*answer.report.going, *answer.report.kept) for sample in share.samples]
    words = words_of([sample.id for sample in samples])
    for sample in samples:
        sample.text = words.get(sample.id, "")
    return answer


def list_holds() -> HoldList:
    """Return the holds in force, newest first."""
    holds = Hold.objects.filter(lifted_at__isnull=True).order_by("-id")
    return HoldList(results=list(map(view_hold, holds)))


def holds_that_keep(*, stream_id: str) -> list[HoldView]:
    """Return the holds that protect a stream, newest first: its own, its sessions', the whole store's."""
    events = log.events().of_stream(stream_id).exclude(session_id="").order_by()
    sessions = events.values_list("session_id", flat=True).distinct()
    streams = ["*", stream_id, *(f"session:{name}" for name in sessions)]
    holds = Hold.objects.filter(lifted_at__isnull=True, stream_id__in=streams).order_by("-id")
    return list(map(view_hold, holds))


def find_hold(hold_id: int) -> Hold:
    """Return a hold, in force or lifted.

    Raises:
        NotFound: no hold has this id.
    """
    hold: Hold | None = Hold.objects.filter(id=hold_id).first()
    if hold is None:
        raise NotFound(f"there is no hold #{hold_id} in this store; list holds to see their ids", id=hold_id)
    return hold


def view_hold(hold: Hold) -> HoldView:
    """Return a hold as callers get it."""
    return HoldView.model_validate(hold, from_attributes=True)
