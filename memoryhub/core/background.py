"""Long work of a page: a thread with its progress, so that the page answers at once.

What is redacted must not be stored, so such work is not in the job queue, whose arguments are in a file. It must
survive being killed at any point: it ends with the process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connections

from memoryhub.core import clock, ids, log
from memoryhub.core.backends.selected import machines
from memoryhub.core.errors import ConflictError, HubError
from memoryhub.core.origin import current_origin
from memoryhub.core.stores.store import StoreId, current_store, use_store
from memoryhub.core.text import as_sentence

logger = logging.getLogger(__name__)

# Work over a log with more events is long: it reads them all, at about a millisecond each
LONG_EVENTS = 1_000
_KEPT = 50
# Why there may be no task of an id
UNKNOWN_TASK = (
    "Another process of the hub does this, or did before it was started again. The log shows what was done."
    if machines.SHARED
    else "The hub was started again since. The log shows what was done."
)

Progress = Callable[[int, int], None]
# The level of ``django.contrib.messages``, and the sentence
Messages = Sequence[tuple[int, str]]


@dataclass(slots=True, eq=False)
class Task:
    title: str
    store: StoreId
    # Who started it, and is shown its messages
    actor: str
    # The page that shows the result
    page: str
    id: str = field(default_factory=lambda: ids.random_bytes(8).hex())
    started_at: datetime = field(default_factory=clock.now)
    steps: int = 0
    total: int = 0
    ended: bool = False
    messages: Messages = ()

    def report(self, steps: int, total: int) -> None:
        self.steps = steps
        self.total = total

    @property
    def version(self) -> str:
        return f"{self.steps}/{self.total}/{self.ended}"


_tasks: dict[str, Task] = {}
_lock = threading.Lock()


def is_long() -> bool:
    """Return whether work over the whole log of the current store takes longer than a person should wait."""
    return log.head()[0] > LONG_EVENTS


def find_task(task_id: str) -> Task | None:
    """Return a task of the current store."""
    task = _tasks.get(task_id)
    if task is None or task.store != current_store():
        return None
    return task


def running_tasks() -> list[Task]:
    return [task for task in _tasks.values() if not task.ended]


def start_task(
    title: str, *, page: str, work: Callable[[Progress], Any], describe: Callable[[Any], Messages], failed: int
) -> Task:
    """Do the work in a thread, in the current store and as the present caller.

    Args:
        title: a noun, such as "Redaction".
        page: address of the page that shows the result.
        work: gets a function for its progress: steps done, and in all (0 if unknown).
        describe: sentences on the result of the work.
        failed: the level of the message if the work raises an error.

    Raises:
        ConflictError: the store has a task already.
    """
    task = Task(title, current_store(), current_origin().actor, page)
    with _lock:
        for other in running_tasks():
            if other.store == task.store:
                raise ConflictError(
                    f"{other.title.lower()} of {other.store.name} is still running; wait until it has ended"
                )
        ended = [ended_id for ended_id, earlier in _tasks.items() if earlier.ended]
        for ended_id in ended[:-_KEPT]:
            del _tasks[ended_id]
        _tasks[task.id] = task
    arguments = (_run_task, task, work, describe, failed)
    threading.Thread(target=copy_context().run, args=arguments, name="task", daemon=True).start()
    return task


def _run_task(task: Task, work: Callable[[Progress], Any], describe: Callable[[Any], Messages], failed: int) -> None:
    try:
        with use_store(task.store):
            task.messages = describe(work(task.report))
    except HubError as error:
        task.messages = [(failed, as_sentence(error.message))]
    except Exception:
        logger.exception("%s of %s failed", task.title, task.store.name)
        task.messages = [(failed, f"{task.title} failed. The hub’s own log has the error.")]
    finally:
        task.ended = True
        connections.close_all()
