"""Running a job: store after store, one run of it at a time over each, what it did kept."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime

from memoryhub.core.errors import HubError, Locked
from memoryhub.core.jobs import Job, Run
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import use_store
from memoryhub.models import JobResult
from memoryhub.ops.jobs import locks, runs
from memoryhub.ops.jobs.locks import Held
from memoryhub.ops.jobs.runs import Outcome
from memoryhub.ops.jobs.targets import Target, targets_of

logger = logging.getLogger(__name__)

BUSY = "busy"
PASS_SECONDS = 900.0
"""So long one pass over the stores begins with another one; the rest is left to a pass of its own."""

Watch = Callable[[Target, int, int], None]


class Pass:
    """One job over several stores."""

    def __init__(self, job: Job, *, asked_by: str, capped: bool, watch: Watch = lambda *_: None) -> None:
        self._job, self._asked_by, self._capped, self._watch = job, asked_by, capped, watch
        self.left: list[Target] = []
        """Those that the time did not suffice for."""

    def over(self, targets: Sequence[Target]) -> list[Outcome]:
        """Run it over each; one that fails stops no other."""
        ends = time.monotonic() + PASS_SECONDS
        outcomes: list[Outcome] = []
        for number, target in enumerate(targets):
            if self._capped and time.monotonic() > ends:
                self.left = list(targets[number:])
                break
            outcomes.append(self._run(target))
        runs.keep_idle(self._job, [each for each in outcomes if each.idle])
        return outcomes

    def _run(self, target: Target) -> Outcome:
        try:
            with locks.hold(self._job, target, asked_by=self._asked_by) as held:
                if held.left_by:
                    runs.keep_interrupted(self._job, target, held.left_by)
                held.tell(0, 0)
                self._watch(target, 0, 0)
                return self._kept(target, held)
        except Locked as error:
            return Outcome(target, BUSY, error.message, runs.begun_now(self._asked_by))

    def _kept(self, target: Target, held: Held) -> Outcome:
        try:
            outcome = self._outcome(target, held)
        except BaseException:
            runs.keep(self._job, Outcome(target, JobResult.INTERRUPTED, "it was stopped", held.begun))
            raise
        if not outcome.idle:
            runs.keep(self._job, outcome)
        return outcome

    def _outcome(self, target: Target, held: Held) -> Outcome:
        try:
            message = self._work(target, held)
        except HubError as error:
            logger.warning("job %s of %s: %s", self._job.name, target.title, error)
            return Outcome(target, JobResult.FAILED, error.message, held.begun)
        except Exception as error:
            logger.exception("job %s of %s failed", self._job.name, target.title)
            return Outcome(target, JobResult.FAILED, f"{type(error).__name__}: {error}", held.begun)
        return Outcome(target, JobResult.OK, message, held.begun)

    def _work(self, target: Target, held: Held) -> str:
        def told(done: int, total: int) -> None:
            held.tell(done, total)
            self._watch(target, done, total)

        with ExitStack() as stack:
            if target.store and self._job.opened:
                stack.enter_context(use_store(target.store))
            stack.enter_context(use_origin(source="job", actor=self._job.name))
            return self._job.work(
                Run(store=target.store, seconds=self._job.cap if self._capped else math.inf, on_progress=told)
            )


def run_job(
    *, job: Job, targets: Sequence[Target] | None = None, asked_by: str, watch: Watch | None = None
) -> list[Outcome]:
    """Run a job now, in this process and without a limit of time; return how it went over each store.

    Args:
        job: which.
        targets: what to run it over; default: all that it is made for.
        asked_by: who wants it.
        watch: is told how far it is.
    """
    each = Pass(job, asked_by=asked_by, capped=False, watch=watch or (lambda *_: None))
    return each.over(targets_of(job) if targets is None else targets)


def run_due(
    *, job: Job, due: datetime | None, targets: Sequence[Target] | None = None, asked_by: str
) -> tuple[list[Outcome], list[Target]]:
    """Run a job that fell due, within its caps; return how it went, and the stores that are left for another pass.

    Stores over which it ran since it fell due are left out: so what was missed, or asked for twice, is done once.
    """
    wanted = targets_of(job) if targets is None else list(targets)
    if due is not None:
        for target in wanted:
            runs.running(job, target)  # who died is known as such before it is counted
        done = runs.done_since(job, due)
        wanted = [target for target in wanted if target.alias not in done]
    each = Pass(job, asked_by=asked_by, capped=True)
    return each.over(wanted), each.left
