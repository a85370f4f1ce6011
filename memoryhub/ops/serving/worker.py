"""The worker process: runs the queue."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Any

_GRACE_SECONDS = 5


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


# Ends with its standard input, which the server holds open
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
    from memoryhub.ops.jobs.running import announce_worker
    from memoryhub.ops.jobs.schedules import keep_queueing, run_machine_jobs

    if not machines.SHARED:
        presence = announce_worker()
        # There is one worker, so tasks taken from the queue when it starts belong to one that died (decision 22)
        post_spawn.connect(lambda **_: jobs.release_held(), weak=False)
    django_q.cluster.Event = MonotonicEvent
    cluster = django_q.cluster.Cluster()
    cluster.start()
    if machines.SHARED:
        presence = announce_worker()  # after the fork, because it starts a thread
        threading.Thread(target=run_machine_jobs, args=[threading.Event()], name="machine-jobs", daemon=True).start()
    threading.Thread(target=keep_queueing, args=[threading.Event()], name="schedules", daemon=True).start()
    threading.Thread(target=_stop_at_end_of_input, args=[cluster], daemon=True).start()
    cluster.sentinel.join()
    presence.close()


def _stop_at_end_of_input(cluster: Any) -> None:
    sys.stdin.buffer.read()
    killer = threading.Timer(_GRACE_SECONDS, os.killpg, [os.getpgrp(), signal.SIGKILL])
    killer.daemon = True
    killer.start()
    cluster.stop()


if __name__ == "__main__":
    main()
