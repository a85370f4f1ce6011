"""Run retention, and place and lift holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from governance.events import (
    HOLD_LIFTED,
    HOLD_PLACED,
    RETENTION_BEGAN,
    RETENTION_RAN,
    HoldLifted,
    HoldPlaced,
    RetentionBegan,
    RetentionRan,
)
from governance.models import RetentionRun
from governance.retention.candidates import Candidate, RetentionPolicy
from governance.retention.plan import Sorts, Survey, Tally, chunks, group_referenced, numbers
from governance.retention.schemas import (
    HoldLift,
    HoldPlace,
    HoldView,
    Report,
    RetentionPlanRequest,
    RetentionRunRequest,
    RunView,
)
from governance.retention.selectors import (
    began_with,
    find_hold,
    find_run,
    plan_retention,
    tally_now,
    unfinished_run,
    view_hold,
    view_run,
)
from memories.embeddings.vectors import forget_files
from memories.search.index import forget_removed
from memoryhub.config.retention_rules import What, pack_types
from memoryhub.core import clock, log
from memoryhub.core.errors import ConflictError, NotFound, PreconditionFailed
from memoryhub.core.log.erase import wipe_free_space
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import ORDERED_JOIN, elements, json_int
from memoryhub.core.text import counted

_RANGES = f"(SELECT {json_int('value', 0)} AS low, {json_int('value', 1)} AS high FROM {elements()} AS range) AS r"
# Events of these ranges that still have their payload, by type
_LEFT_EVENTS = (
    "SELECT e.event_type, count(*), sum(octet_length(e.payload_json)) "
    f"FROM {_RANGES} {ORDERED_JOIN} raw_events e ON e.position BETWEEN r.low AND r.high "
    "WHERE e.payload_json IS NOT NULL GROUP BY 1"
)
# Items of these ranges that still have their payloads
_LEFT_THINGS = (
    "SELECT count(DISTINCT f.position), count(*), sum(octet_length(e.payload_json)) "
    f"FROM {_RANGES} {ORDERED_JOIN} raw_events f ON f.position BETWEEN r.low AND r.high "
    "JOIN raw_events e ON e.stream_id = f.stream_id "
    "WHERE f.payload_json IS NOT NULL AND e.payload_json IS NOT NULL"
)


# Does nothing if another process closed the run first
def _close(run: RetentionRun, began: RetentionBegan) -> None:
    report = _report(began)
    payload = RetentionRan(run_id=run.id, events=report["events"], bytes=report["bytes"], report=report)
    with log.transaction():
        if RetentionRun.objects.filter(id=run.id, ran_at__isnull=True).exists():
            log.append(log.prepare(RETENTION_RAN, payload), stream=f"retention:{run.id}")


# The plan's report minus what became protected during the run
def _report(began: RetentionBegan) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(json.dumps(began.report))
    remaining = {name: (count, size) for name, count, size in rows.fetch(_LEFT_EVENTS, [json.dumps(began.positions)])}
    for place, group in enumerate(report["going"]):
        if place in began.things:
            things, events, size = rows.fetch(_LEFT_THINGS, [json.dumps(began.things[place])])[0]
        else:
            names = pack_types() if group["what"] == "pack" else [group["sub"]]
            counts = [remaining[name] for name in names if name in remaining]
            things = events = sum(count for count, _ in counts)
            size = sum(size for _, size in counts)
        group["things"] -= things
        group["events"] -= events
        group["bytes"] -= size or 0
        report["left"] += things
    report["going"] = [group for group in report["going"] if group["things"]]
    return report | {name: sum(share[name] for share in report["going"]) for name in ("things", "events", "bytes")}


# Items per transaction: writers wait for one batch at most (decision 26)
BATCH = 400

# Sample texts must not be in the event: they would outlive the deleted items
_TEXTS = {part: {"__all__": {"samples": {"__all__": {"text"}}}} for part in ("going", "kept")}

Progress = Callable[[int, int], None]


def run_retention(*, command: RetentionRunRequest, progress: Progress = lambda _count, _total: None) -> RunView | None:
    """Delete what the plan with this digest lists.

    An interrupted run is finished first: it deletes the rest of its list, as of its own time.

    Args:
        command: which plan.
        progress: called with the number of processed items and the total.

    Returns:
        The report, or None if there is nothing to delete.

    Raises:
        PreconditionFailed: the plan has changed; the error's data has the new ``plan``.
        Forbidden: the caller may not govern.
    """
    demand(Act.GOVERN)
    request = RetentionPlanRequest(now=command.now)
    unfinished = unfinished_run()
    tally = tally_now(request, unfinished)
    if tally.digest != command.digest:
        plan = plan_retention(command=request).model_dump(mode="json")
        raise PreconditionFailed(
            f"the retention plan has changed: it now deletes {counted(plan['events'], 'event')}; "
            "review the new plan and run it with its digest",
            plan=plan,
        )
    if unfinished is None and not tally.going:
        return None
    return _finish(unfinished or _begin(tally), progress)


def run_due(*, now: datetime, progress: Progress = lambda _count, _total: None) -> RunView | None:
    """Delete what is due, without confirmation: for the daily job. Finishes an interrupted run first.

    Args:
        now: the time until which ages are counted.
        progress: called with the number of processed items and the total.
    """
    demand(Act.GOVERN)
    unfinished = unfinished_run()
    ended = _finish(unfinished, progress) if unfinished else None
    tally = tally_now(RetentionPlanRequest(now=now), None)
    return _finish(_begin(tally), progress) if tally.going else ended


# The list is in the log before anything is deleted, so any process can finish the run (decision 26)
def _begin(tally: Tally) -> RetentionRun:
    report = tally.report()
    payload = RetentionBegan(
        cutoff=clock.to_text(tally.policy.cutoff),
        digest=tally.digest,
        report=report.model_dump(mode="json", exclude=_TEXTS),
        events=report.events,
        bytes=report.bytes,
        positions=tally.positions,
        things=tally.things(),
    )
    with log.transaction():
        other = unfinished_run()
        if other:
            raise PreconditionFailed(f"retention run #{other.id} has started meanwhile; review the plan again")
        return find_run(log.append(log.prepare(RETENTION_BEGAN, payload), entity="retention").position)


def _finish(run: RetentionRun, progress: Progress) -> RunView:
    began = began_with(run.id)
    policy = RetentionPolicy.current(run.cutoff)
    report = Report.model_validate(began.report)
    count = 0
    for events, things in _batches(began, report, policy):
        with log.transaction():
            _erase(events, things, policy, reason=f"retention #{run.id}")
        count += len(events) + len(things)
        progress(count, report.things)
    forget_removed()
    forget_files()
    wipe_free_space()
    _close(run, began)
    return view_run(find_run(run.id))


# Batches of single events or of items with their streams
def _batches(began: RetentionBegan, report: Report, policy: RetentionPolicy) -> Iterator[tuple[list[int], list[int]]]:
    things: Sorts = {}
    for place, ranges in began.things.items():
        things.setdefault(What(report.going[place].what), []).extend(numbers(ranges))
    batch: list[int] = []
    for group in group_referenced(things, Survey(policy).cited):  # erased together or not at all
        if batch and len(batch) + len(group) > BATCH:
            yield [], batch
            batch = []
        batch += group
    if batch:
        yield [], batch
    for events in chunks(began.positions, BATCH):  # events that decisions cite are erased after the decisions
        yield events, []


def _erase(events: list[int], things: list[int], policy: RetentionPolicy, *, reason: str) -> None:
    survey = Survey(policy)
    candidates: list[Candidate] = []
    if events:
        candidates += survey.events(events)
    if things:
        candidates += survey.things(things)
    positions: list[int] = []
    streams: list[str] = []
    for candidate in candidates:
        if candidate.keeper:
            continue
        if candidate.what == What.CAPTURED:
            positions.append(candidate.id)
        else:
            streams.append(candidate.stream)
    if positions:
        log.erase_events(positions, reason=reason)
    if streams:
        log.erase_streams(streams, reason=reason)


def place_hold(*, command: HoldPlace) -> HoldView:
    """Protect a stream, a session or the whole store from deletion until the hold is lifted.

    Raises:
        NotFound: the store has no such stream, or all of it is erased.
        Forbidden: the caller may not govern.
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
    """Lift a hold; from the next run on, what it protected is deleted when due.

    Raises:
        NotFound: no hold has this id.
        ConflictError: it is already lifted.
        Forbidden: the caller may not govern.
    """
    with log.transaction():
        hold = find_hold(command.id)
        if hold.lifted_at is not None:
            raise ConflictError(f"hold #{hold.id} was already lifted by {hold.lifted_by}", id=hold.id)
        draft = log.prepare(HOLD_LIFTED, HoldLifted(hold_id=hold.id, reason=command.reason))
        log.append(draft, stream=f"hold:{hold.id}")
        return view_hold(find_hold(hold.id))


def _require_stream(stream: str) -> None:
    if stream == "*":
        return
    kind, _, name = stream.partition(":")
    if log.events().of_stream(stream).readable().exists():
        return
    if kind == "session" and name and log.events().of_session(name).exists():
        return
    raise NotFound(
        f"no stream {stream[:80]!r} in this store; give one such as memory:12, decision:7 or session:<name>, "
        "or * for the whole store",
        stream_id=stream,
    )
