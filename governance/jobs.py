"""The jobs of governance."""

from __future__ import annotations

from governance.present import size
from governance.redaction.copies import last_look, look_through
from governance.retention.policy import Policy
from governance.retention.run import run_due
from memories.services.erase import wipe_traces
from memoryhub.core import clock, log
from memoryhub.core.errors import Unavailable
from memoryhub.core.jobs import Every, Over, Run, define_job
from memoryhub.core.stores.wal import is_unwiped
from memoryhub.core.text import counted


class _TimeIsUp(Exception):
    """Leaves a run where it is; the next one goes on."""


def retain(run: Run) -> str:
    """Take what is due in the current store; nothing where no rule lets anything go."""
    if not Policy.current(clock.now()).applies:
        return ""

    def told(done: int, total: int) -> None:
        run.report(done, total)
        if run.over:
            raise _TimeIsUp

    try:
        ended = run_due(progress=told)
    except _TimeIsUp:
        return f"{run.done:,} of {run.total:,} things were taken; the next run goes on"
    if ended is None:
        return ""
    went = f"{counted(ended.report.things, 'thing')} in {counted(ended.events, 'event')} went"
    return f"{went}, {size(ended.bytes)} (run #{ended.id})"


define_job(
    "retention",
    does="Permanently deletes what is past its age under the store's policy, unless something protects it.",
    work=retain,
    every=Every.DAY,
    over=Over.STORES,
    cap=600,
)


def look_for_secrets(run: Run) -> str:
    """Look through the current store where the rules have changed since the last look; what is found stays for now."""
    before = last_look()
    if before and before.is_current:
        return ""
    total = log.head()[0]

    def told(position: int) -> None:
        run.report(position, total)
        run.require_time()

    look = look_through(told)
    if not look.finds:
        return "the rules for secrets have changed, and find nothing that was kept before"
    found = f"{counted(look.finds, 'place')} in {counted(look.events, 'event')}"
    return f"the rules for secrets find {found}; redaction takes them out"


define_job(
    "look for secrets",
    does="Scans a log after the secret rules have changed, and reports what they find.",
    work=look_for_secrets,
    every=Every.DAY,
    over=Over.STORES,
    cap=600,
)


def wipe(_run: Run) -> str:
    """Leave nothing in the current store's files of what was erased, where the process that erased could not."""
    if not is_unwiped():
        return ""
    log.forget_views()
    if not wipe_traces():
        raise Unavailable("others hold the store, so what was erased is in its files still; the next run tries again")
    return "what was erased is out of the store's files"


define_job(
    "wipe",
    does="Removes erased text from the files where the process that erased it did not.",
    work=wipe,
    every=Every.HOUR,
    over=Over.STORES,
    cap=600,
)
