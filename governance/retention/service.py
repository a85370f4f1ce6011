from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from governance.events import RETENTION_BEGAN, RETENTION_RAN, RetentionBegan, RetentionRan
from governance.models import RetentionRun
from governance.retention.candidates import Candidate
from governance.retention.plan import Sorts, Survey, Tally, chunks, group_referenced, numbers
from governance.retention.policy import Policy
from governance.retention.schemas import Report, RetentionPlanRequest, RetentionRunRequest, RunView
from governance.retention.selectors import (
    began_with,
    find_run,
    plan_retention,
    tally_now,
    unfinished_run,
    view_run,
)
from memories.embeddings.vectors import forget_files
from memories.search.index import forget_removed
from memoryhub.config.retention_rules import What, pack_types
from memoryhub.core import clock, log
from memoryhub.core.errors import PreconditionFailed
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
def close(run: RetentionRun, began: RetentionBegan) -> None:
    report = _report(began)
    payload = RetentionRan(
        run_id=run.id,
        events=report["events"],
        bytes=report["bytes"],
        report=report,
    )
    with log.transaction():
        if RetentionRun.objects.filter(id=run.id, ran_at__isnull=True).exists():
            log.append(log.prepare(RETENTION_RAN, payload), stream=f"retention:{run.id}")


# The plan's report minus what became protected during the run
def _report(began: RetentionBegan) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(json.dumps(began.report))
    left = {name: (count, size) for name, count, size in rows.fetch(_LEFT_EVENTS, [json.dumps(began.positions)])}
    for place, group in enumerate(report["going"]):
        if place in began.things:
            things, events, size = rows.fetch(_LEFT_THINGS, [json.dumps(began.things[place])])[0]
        else:
            names = pack_types() if group["what"] == "pack" else [group["sub"]]
            events = sum(left.get(name, (0, 0))[0] for name in names)
            size = sum(left.get(name, (0, 0))[1] for name in names)
            things = events
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


def run_retention(*, command: RetentionRunRequest, progress: Progress = lambda _done, _total: None) -> RunView | None:
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


def run_due(*, now: datetime, progress: Progress = lambda _done, _total: None) -> RunView | None:
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
    for done, total in _Execution(run, began).batches():
        progress(done, total)
    forget_removed()
    forget_files()
    wipe_free_space()
    close(run, began)
    return view_run(find_run(run.id))


@dataclass(frozen=True, slots=True)
class _Batch:
    events: list[int]
    things: list[int]


class _Execution:
    def __init__(self, run: RetentionRun, began: RetentionBegan) -> None:
        self._reason = f"retention #{run.id}"
        self._policy = Policy.current(run.cutoff)
        self._began = began
        self._report = Report.model_validate(began.report)

    def batches(self) -> Iterator[tuple[int, int]]:
        total = self._report.things
        done = 0
        for batch in self._split():
            with log.transaction():
                self._erase(batch)
            done += len(batch.events) + len(batch.things)
            yield done, total

    def _things(self) -> Sorts:
        found: Sorts = {}
        for place, ranges in self._began.things.items():
            found.setdefault(What(self._report.going[place].what), []).extend(numbers(ranges))
        return found

    def _split(self) -> Iterator[_Batch]:
        batch: list[int] = []
        for group in group_referenced(self._things(), Survey(self._policy).cited):  # erased together or not at all
            if batch and len(batch) + len(group) > BATCH:
                yield _Batch([], batch)
                batch = []
            batch += group
        if batch:
            yield _Batch([], batch)
        for events in chunks(self._began.positions, BATCH):  # events that decisions cite are erased after the decisions
            yield _Batch(events, [])

    def _erase(self, batch: _Batch) -> None:
        survey = Survey(self._policy)
        single = (
            [candidate for candidate in survey.events(batch.events) if not candidate.keeper] if batch.events else []
        )
        whole = [candidate for candidate in survey.things(batch.things) if not candidate.keeper] if batch.things else []
        positions = [candidate.id for candidate in single if candidate.what != What.PACK]
        streams = _streams([*(candidate for candidate in single if candidate.what == What.PACK), *whole])
        if positions:
            log.erase_events(positions, reason=self._reason)
        if streams:
            log.erase_streams(streams, reason=self._reason)


def _streams(found: list[Candidate]) -> list[str]:
    return [candidate.stream for candidate in found]
