"""The worker: a process that runs the queue while it has tasks."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Any

from memoryhub.ops.serving.process import Child

_GRACE_SECONDS = 5
# How long the hub waits for the worker when it ends
_HUB_GRACE_SECONDS = 1.5
# The worker ends after so many looks at an empty queue, one after the other: jobs of every minute keep it
_EMPTY_LOOKS = 90
_LOOK_SECONDS = 1.0


class MonotonicEvent(Event):
    """An event of several processes whose wait is not lengthened by a clock that is set back.

    The waits of ``multiprocessing`` end at a time of the system's clock. The guard of django-q2's processes waits half
    a second again and again; when a clock that was ten years ahead is set right, it would wait ten years.
    """

    def __init__(self) -> None:
        super().__init__(ctx=get_context())

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            return super().wait()
        if not self.is_set():
            time.sleep(timeout)
        return self.is_set()


@contextmanager
def run_jobs() -> Iterator[None]:
    """Queue jobs as they fall due, and run a worker whenever the queue has tasks."""
    from memoryhub.core.backends.selected import machines
    from memoryhub.ops.jobs.running import announce_worker
    from memoryhub.ops.jobs.schedules import keep_queueing, run_machine_jobs, wait_for_tasks

    stop = threading.Event()
    keepers = [keep_queueing, run_machine_jobs] if machines.SHARED else [keep_queueing]
    with announce_worker():
        for keep in keepers:
            threading.Thread(target=keep, args=[stop], name=keep.__name__, daemon=True).start()
        worker = Child(__name__, wait_for_work=wait_for_tasks)
        try:
            yield
        finally:
            stop.set()
            worker.stop(grace=_HUB_GRACE_SECONDS)


# Ends with its standard input, which the hub holds open, and when the queue has been empty for a moment
def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings")
    from memoryhub.env import prepare_home

    prepare_home()
    import django

    django.setup()
    import django_q.cluster
    from django_q.signals import post_spawn

    from memoryhub.core.backends.selected import machines
    from memoryhub.ops import jobs

    if not machines.SHARED:
        # There is one worker, so tasks taken from the queue when it starts belong to one that died (decision 22)
        post_spawn.connect(lambda **_: jobs.release_held(), weak=False)
    django_q.cluster.Event = MonotonicEvent
    cluster = django_q.cluster.Cluster()
    cluster.start()
    threading.Thread(target=_stop_at_end_of_input, args=[cluster], daemon=True).start()
    _wait_for_empty_queue(cluster.sentinel)
    cluster.stop()


def _wait_for_empty_queue(sentinel: Any) -> None:
    from memoryhub.ops.jobs.schedules import queue_is_empty

    looks = 0
    while sentinel.is_alive() and looks < _EMPTY_LOOKS:
        sentinel.join(_LOOK_SECONDS)
        looks = looks + 1 if queue_is_empty() else 0


def _stop_at_end_of_input(cluster: Any) -> None:
    os.read(sys.stdin.fileno(), 1)  # a buffered read would hold a lock as the interpreter ends
    killer = threading.Timer(_GRACE_SECONDS, os.killpg, [os.getpgrp(), signal.SIGKILL])
    killer.daemon = True
    killer.start()
    cluster.stop()


if __name__ == "__main__":
    main()
