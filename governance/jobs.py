"""The jobs of governance."""

from __future__ import annotations

from governance.retention.policy import Policy
from governance.retention.present import size
from governance.retention.run import run_due
from memoryhub.core import clock
from memoryhub.core.jobs import Every, Over, Run, define_job


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
    things = f"{ended.report.things:,} thing{'s' * (ended.report.things != 1)}"
    return f"{things} in {ended.events:,} events went, {size(ended.bytes)} (run #{ended.id})"


define_job(
    "retention",
    does="Takes for good what is past its age by the store's policy, but for what something keeps.",
    work=retain,
    every=Every.DAY,
    over=Over.STORES,
    cap=600,
)
