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
    if not console.is_terminal:
        yield _line_writer(job, stores, errors)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True) as bar:

        def update(target: JobTarget, count: int, total: int) -> None:
            if target.alias not in tasks:
                tasks[target.alias] = bar.add_task(f"{job.name}, {target.title}", total=None)
            bar.update(tasks[target.alias], completed=count, total=total or None)

        yield update


def _line_writer(job: Job, stores: int, errors: Any) -> Watch:
    steps: dict[str, int] = {}

    def write(target: JobTarget, count: int, total: int) -> None:
        step = count * _STEPS // total if total else 0
        if steps.get(target.alias) != step:
            steps[target.alias] = step
            far = f": {count} of {total}" if total else ""
            number = f" ({len(steps)} of {stores})" if stores > 1 else ""
            errors.write(f"{job.name}, {target.title}{number}{far}")

    return write
