"""Reading what retention would do, what it did, and what is held."""

from __future__ import annotations

from typing import Any

from governance.events import HOLD_LIFTED, HOLD_PLACED, HoldLifted, HoldPlaced, RetentionBegan
from governance.models import Hold, RetentionRun
from governance.retention.candidates import words_of
from governance.retention.plan import Tally, numbers
from governance.retention.policy import Policy, day_start
from governance.retention.schemas import (
    HoldLift,
    HoldList,
    HoldPlace,
    HoldView,
    Plan,
    RetentionPlanRequest,
    RunList,
    RunView,
)
from governance.retention.survey import Survey
from memoryhub.core import clock, log
from memoryhub.core.errors import Conflict, NotFound
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


EVERYTHING = "*"


def place_hold(*, command: HoldPlace) -> HoldView:
    """Keep a stream, all of a session, or the whole store, whatever its age, until the hold is lifted.

    Raises:
        NotFound: nothing of that name is in this store, or all of it is erased.
        Forbidden: the caller may not.
    """
    draft = log.prepare(HOLD_PLACED, HoldPlaced(stream_id=command.stream_id.strip(), reason=command.reason))
    with log.transaction():
        first = log.find_by_key(command.idempotency_key, HOLD_PLACED)
        if first:
            return view_hold(find_hold(first.position))
        _require_stream(draft.payload.stream_id)
        event = log.append(draft, entity="hold", idempotency_key=command.idempotency_key)
        return view_hold(find_hold(event.position))


def lift_hold(*, command: HoldLift) -> HoldView:
    """End a hold; what it kept goes as its age says, from the next run on.

    Raises:
        NotFound: there is no such hold.
        Conflict: it was lifted before.
        Forbidden: the caller may not.
    """
    with log.transaction():
        hold = find_hold(command.id)
        _require_in_force(hold)
        draft = log.prepare(HOLD_LIFTED, HoldLifted(hold_id=hold.id, reason=command.reason))
        log.append(draft, stream=f"hold:{hold.id}")
        return view_hold(find_hold(hold.id))


def _require_in_force(hold: Hold) -> None:
    if hold.lifted_at is not None:
        raise Conflict(f"hold #{hold.id} was lifted by {hold.lifted_by} already", id=hold.id)


def _require_stream(stream: str) -> None:
    if stream == EVERYTHING:
        return
    kind, _, name = stream.partition(":")
    if RawEvent.objects.filter(stream_id=stream, payload_json__isnull=False).exists():
        return
    if kind == "session" and name and RawEvent.objects.filter(session_id=name).exists():
        return
    raise NotFound(
        f"there is nothing to hold called {stream[:80]!r}; name a stream such as memory:12, decision:7 or "
        "session:<name>, or * for all",
        stream_id=stream,
    )
