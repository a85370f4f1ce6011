from __future__ import annotations

from datetime import timedelta

from governance.present import size
from governance.redaction.copies import last_look, look_through
from governance.retention.candidates import RetentionPolicy
from governance.retention.schemas import RetentionPlanRequest
from governance.retention.selectors import plan_retention
from governance.retention.service import run_due
from memories.services.deletion import wipe_traces
from memoryhub.core import clock, log
from memoryhub.core.errors import Unavailable
from memoryhub.core.jobs import Every, Over, Run, define_job
from memoryhub.core.log.erase import is_unwiped
from memoryhub.core.text import counted

_GAP = timedelta(days=2)


class _TimeIsUp(Exception):
    pass


def retain(run: Run) -> str:
    if not RetentionPolicy.current(clock.now()).applies:
        return ""
    deleted = _delete_due(run)
    return "; ".join(filter(None, [deleted, _waiting(run)]))


def _delete_due(run: Run) -> str:
    if run.ages_until is None:
        return ""

    def report(deleted: int, total: int) -> None:
        run.report(deleted, total)
        if run.over:
            raise _TimeIsUp

    try:
        ended = run_due(now=run.ages_until, progress=report)
    except _TimeIsUp:
        return f"processed {run.steps:,} of {run.total:,} items; the next run continues"
    if ended is None:
        return ""
    deleted = f"deleted {counted(ended.report.things, 'item')} in {counted(ended.events, 'event')}"
    return f"{deleted}, {size(ended.bytes)} (run #{ended.id})"


# Counted only after a gap: every day, a few items have aged since the run of the day before
def _waiting(run: Run) -> str:
    if run.ages_until and clock.now() - run.ages_until < _GAP:
        return ""
    things = plan_retention(command=RetentionPlanRequest()).things
    if not things:
        return ""
    return f"kept until a later run, in case the clock is wrong: {counted(things, 'item')} past the age"


define_job(
    "retention",
    does="Permanently deletes what is past its age under the store's policy, unless something protects it.",
    work=retain,
    every=Every.DAY,
    over=Over.STORES,
    cap=600,
)


def look_for_secrets(run: Run) -> str:
    before = last_look()
    if before and before.is_current:
        return ""
    total = log.head()[0]

    def report(position: int) -> None:
        run.report(position, total)
        run.require_time()

    look = look_through(report)
    if not look.finds:
        return "the secret rules have changed; no matches in stored events"
    summary = f"{counted(look.finds, 'match', 'matches')} in {counted(look.events, 'event')}"
    return f"the secret rules find {summary}; redact them"


define_job(
    "look for secrets",
    does="Scans a log after the secret rules have changed, and reports what they find.",
    work=look_for_secrets,
    every=Every.DAY,
    over=Over.STORES,
    cap=600,
)


def wipe(_run: Run) -> str:
    if not is_unwiped():
        return ""
    log.forget_views()
    if not wipe_traces():
        raise Unavailable(
            "other processes use the store, so erased text is still in its files; the next run tries again"
        )
    return "removed erased text from the store's files"


define_job(
    "wipe",
    does="Removes erased text from the files where the process that erased it did not.",
    work=wipe,
    every=Every.HOUR,
    over=Over.STORES,
    cap=600,
)
