from __future__ import annotations

from governance.present import size
from governance.redaction.copies import last_look, look_through
from governance.retention.policy import Policy
from governance.retention.run import run_due
from memories.services.erase import wipe_traces
from memoryhub.core import clock, log
from memoryhub.core.errors import Unavailable
from memoryhub.core.jobs import Every, Over, Run, define_job
from memoryhub.core.stores.wiping import is_unwiped
from memoryhub.core.text import counted


class _TimeIsUp(Exception):
    pass


def retain(run: Run) -> str:
    if not Policy.current(clock.now()).applies:
        return ""

    def report(done: int, total: int) -> None:
        run.report(done, total)
        if run.over:
            raise _TimeIsUp

    try:
        ended = run_due(progress=report)
    except _TimeIsUp:
        return f"processed {run.done:,} of {run.total:,} items; the next run continues"
    if ended is None:
        return ""
    deleted = f"deleted {counted(ended.report.things, 'item')} in {counted(ended.events, 'event')}"
    return f"{deleted}, {size(ended.bytes)} (run #{ended.id})"


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
    found = f"{counted(look.finds, 'match', 'matches')} in {counted(look.events, 'event')}"
    return f"the secret rules find {found}; redact them"


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
