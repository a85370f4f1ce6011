"""Run a job, store by store, one run at a time per store, and record the results."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial

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
# After so many seconds, the remaining stores are left to another pass
PASS_SECONDS = 900.0

Watch = Callable[[Target, int, int], None]


class Pass:
    def __init__(self, job: Job, *, asked_by: str, capped: bool, watch: Watch = lambda *_: None) -> None:
        self._job, self._asked_by, self._capped, self._watch = job, asked_by, capped, watch
        self.left: list[Target] = []

    def over(self, targets: Sequence[Target]) -> list[Outcome]:
        ends = time.monotonic() + PASS_SECONDS
        outcomes: list[Outcome] = []
        for number, target in enumerate(targets):
            if self._capped and time.monotonic() > ends:
                self.left = list(targets[number:])
                break
            outcomes.append(self._run(target))
        runs.keep_idle(self._job, [outcome for outcome in outcomes if outcome.idle])
        return outcomes

    def _run(self, target: Target) -> Outcome:
        try:
            with locks.hold(self._job, target, asked_by=self._asked_by) as held:
                if held.left_by:
                    runs.keep_interrupted(self._job, target, held.left_by)
                held.report(0, 0)
                self._watch(target, 0, 0)
                return self._kept(target, held)
        except Locked as error:
            return Outcome(target, BUSY, error.message, locks.begun_now(self._asked_by))

    def _kept(self, target: Target, held: Held) -> Outcome:
        try:
            outcome = self._outcome(target, held)
        except BaseException:
            runs.keep(self._job, Outcome(target, JobResult.INTERRUPTED, "stopped", held.begun))
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
        def report(done: int, total: int) -> None:
            held.report(done, total)
            self._watch(target, done, total)

        with ExitStack() as stack:
            if target.store and self._job.opened:
                stack.enter_context(use_store(target.store))
            stack.enter_context(use_origin(source="job", actor=self._job.name))
            return self._job.work(
                Run(
                    store=target.store,
                    seconds=self._job.cap if self._capped else math.inf,
                    seen_at=partial(runs.seen_at, self._job, target),
                    on_progress=report,
                )
            )


def run_job(
    *, job: Job, targets: Sequence[Target] | None = None, asked_by: str, watch: Watch | None = None
) -> list[Outcome]:
    """Run a job now, in this process, without a time limit; return the outcomes.

    Args:
        job: the job.
        targets: default: all targets of the job.
        asked_by: shown with the runs.
        watch: called with the target and its progress.
    """
    job_pass = Pass(job, asked_by=asked_by, capped=False, watch=watch or (lambda *_: None))
    return job_pass.over(targets_of(job) if targets is None else targets)


def run_due(
    *, job: Job, due: datetime | None, targets: Sequence[Target] | None = None, asked_by: str
) -> tuple[list[Outcome], list[Target]]:
    """Run a job that is due, within its time limits; return the outcomes and the stores left for another pass.

    Skips stores over which it ran since ``due``, so missed or repeated requests cause one run.
    """
    wanted = targets_of(job) if targets is None else list(targets)
    if due is not None:
        for target in wanted:
            runs.running(job, target)  # records died runs as interrupted before they are counted
        done = runs.done_since(job, due)
        wanted = [target for target in wanted if target.alias not in done]
    job_pass = Pass(job, asked_by=asked_by, capped=True)
    return job_pass.over(wanted), job_pass.left
