"""Progress of commands: a bar on a terminal; of jobs otherwise a line from time to time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:  # the jobs need the queue, which commands over stores do without
    from memoryhub.core.jobs import Job
    from memoryhub.ops.jobs.running import JobTarget, Watch

_STEPS = 10


@contextmanager
def progress_bar(unit: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error if that is a terminal; yield the function that takes the current count."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(unit, total=total)
        yield lambda count: bar.update(task, completed=count)


@contextmanager
def show_job(job: Job, stores: int, errors: Any) -> Iterator[Watch]:
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            yield _Bar(job, bar)
    else:
        yield _Lines(job, stores, errors)


class _Bar:
    def __init__(self, job: Job, bar: Progress) -> None:
        self._job, self._bar = job, bar
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, target: JobTarget, count: int, total: int) -> None:
        if target.alias not in self._tasks:
            self._tasks[target.alias] = self._bar.add_task(f"{self._job.name}, {target.title}", total=None)
        self._bar.update(self._tasks[target.alias], completed=count, total=total or None)


class _Lines:
    def __init__(self, job: Job, stores: int, errors: Any) -> None:
        self._job, self._stores, self._errors = job, stores, errors
        self._steps: dict[str, int] = {}

    def __call__(self, target: JobTarget, count: int, total: int) -> None:
        step = count * _STEPS // total if total else 0
        if self._steps.get(target.alias) != step:
            self._steps[target.alias] = step
            far = f": {count} of {total}" if total else ""
            number = f" ({len(self._steps)} of {self._stores})" if self._stores > 1 else ""
            self._errors.write(f"{self._job.name}, {target.title}{number}{far}")
