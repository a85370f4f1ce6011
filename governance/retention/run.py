"""Taking what a plan says: batch by batch, each in a transaction of its own, so that writers wait little.

A run first writes down what it sets out to take. One that is killed is brought to its end by the next: it takes what is
left of that list, as of the same time, and reports the whole. Nothing that is not on the list goes, and nothing that
came to be kept since.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from governance.events import RETENTION_BEGAN, RETENTION_RAN, RetentionBegan, RetentionRan
from governance.models import RetentionRun
from governance.retention.candidates import Candidate
from governance.retention.plan import Tally, chunks, numbers
from governance.retention.policy import Policy
from governance.retention.references import Sorts, together
from governance.retention.schemas import Report, RetentionPlanRequest, RetentionRunRequest, RunView
from governance.retention.selectors import (
    began_with,
    find_run,
    plan_retention,
    tally_now,
    unfinished_run,
    view_run,
)
from governance.retention.survey import Survey
from memories.embeddings.vectors import forget_files
from memories.search.index import forget_removed
from memoryhub.config.retention_rules import What, pack_types
from memoryhub.core import clock, log
from memoryhub.core.errors import PreconditionFailed
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import elements, json_int
from memoryhub.core.stores.wal import wipe_free_space
from memoryhub.core.text import counted

_RANGES = f"(SELECT {json_int('value', 0)} AS low, {json_int('value', 1)} AS high FROM {elements()} AS range) AS r"
_LEFT_EVENTS = (
    "SELECT e.event_type, count(*), sum(octet_length(e.payload_json)) "
    f"FROM {_RANGES} CROSS JOIN raw_events e ON e.position BETWEEN r.low AND r.high "
    "WHERE e.payload_json IS NOT NULL GROUP BY 1"
)
_LEFT_THINGS = (
    "SELECT count(DISTINCT f.position), count(*), sum(octet_length(e.payload_json)) "
    f"FROM {_RANGES} CROSS JOIN raw_events f ON f.position BETWEEN r.low AND r.high "
    "JOIN raw_events e ON e.stream_id = f.stream_id "
    "WHERE f.payload_json IS NOT NULL AND e.payload_json IS NOT NULL"
)


def close(run: RetentionRun, began: RetentionBegan) -> None:
    """Report what went; nothing happens where another process did so first."""
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


def _report(began: RetentionBegan) -> dict[str, Any]:
    """Return the plan's report without what was left, because it came to be kept while the run went on."""
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
    return report | {name: sum(each[name] for each in report["going"]) for name in ("things", "events", "bytes")}


BATCH = 400
"""So many things go in one transaction."""

_TEXTS = {part: {"__all__": {"samples": {"__all__": {"text"}}}} for part in ("going", "kept")}
"""What no event may hold: the words of what goes would stay in the log."""

Progress = Callable[[int, int], None]


def run_retention(*, command: RetentionRunRequest, progress: Progress = lambda _done, _total: None) -> RunView | None:
    """Take what the plan of this digest says; return the report, or None where there is nothing to take.

    Args:
        command: which plan.
        progress: is told how many things were looked at, and of how many.

    Raises:
        PreconditionFailed: what would go is no longer what the plan said; the data has the ``plan`` of now.
        Forbidden: the caller may not.
    """
    demand(Act.GOVERN)
    request = RetentionPlanRequest(now=command.now)
    unfinished = unfinished_run()
    tally = tally_now(request, unfinished)
    if tally.digest != command.digest:
        plan = plan_retention(command=request).model_dump(mode="json")
        raise PreconditionFailed(
            f"what retention would take has changed since that plan: now it is {counted(plan['events'], 'event')}; "
            "look at the plan again, and run it with its digest",
            plan=plan,
        )
    if unfinished is None and not tally.going:
        return None
    return _go_on(unfinished or _begin(tally), progress)


def run_due(*, progress: Progress = lambda _done, _total: None) -> RunView | None:
    """Take what is due, without a confirmation: for the schedule. What was cut off is brought to its end first."""
    demand(Act.GOVERN)
    unfinished = unfinished_run()
    ended = _go_on(unfinished, progress) if unfinished else None
    tally = tally_now(RetentionPlanRequest(), None)
    return _go_on(_begin(tally), progress) if tally.going else ended


def _begin(tally: Tally) -> RetentionRun:
    """Write down what is to go."""
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
            raise PreconditionFailed(f"run #{other.id} of retention began meanwhile; look at the plan again")
        return find_run(log.append(log.prepare(RETENTION_BEGAN, payload), entity="retention").position)


def _go_on(run: RetentionRun, progress: Progress) -> RunView:
    began = began_with(run.id)
    for done, total in _Taking(run, began).batches():
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


class _Taking:
    """One run on its way."""

    def __init__(self, run: RetentionRun, began: RetentionBegan) -> None:
        self._reason = f"retention #{run.id}"
        self._policy = Policy.current(run.cutoff)
        self._began = began
        self._report = Report.model_validate(began.report)

    def batches(self) -> Iterator[tuple[int, int]]:
        """Take one batch after the other; yield how many things were looked at, and of how many."""
        total = self._report.things
        done = 0
        for batch in self._split():
            with log.transaction():
                self._take(batch)
            done += len(batch.events) + len(batch.things)
            yield done, total

    def _things(self) -> Sorts:
        """Return the things that are to go with their streams."""
        found: Sorts = {}
        for place, ranges in self._began.things.items():
            found.setdefault(What(self._report.going[place].what), []).extend(numbers(ranges))
        return found

    def _split(self) -> Iterator[_Batch]:
        batch: list[int] = []
        for group in together(self._things(), Survey(self._policy).cited):  # what is tied goes at once, or stays
            if batch and len(batch) + len(group) > BATCH:
                yield _Batch([], batch)
                batch = []
            batch += group
        if batch:
            yield _Batch([], batch)
        for events in chunks(self._began.positions, BATCH):  # what decisions cite goes after them
            yield _Batch(events, [])

    def _take(self, batch: _Batch) -> None:
        survey = Survey(self._policy)
        single = [each for each in survey.events(batch.events) if not each.keeper] if batch.events else []
        whole = [each for each in survey.things(batch.things) if not each.keeper] if batch.things else []
        positions = [each.id for each in single if each.what != What.PACK]
        streams = _streams([*(each for each in single if each.what == What.PACK), *whole])
        if positions:
            log.erase_events(positions, reason=self._reason)
        if streams:
            log.erase_streams(streams, reason=self._reason)


def _streams(found: list[Candidate]) -> list[str]:
    return [each.stream for each in found]
