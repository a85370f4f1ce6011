"""The worker process: runs the queue."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

_GRACE_SECONDS = 5


# Ends with its standard input, which the server holds open
def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings")
    from memoryhub.env import prepare_home

    prepare_home()
    import django

    django.setup()
    from django_q.cluster import Cluster
    from django_q.signals import post_spawn

    from memoryhub.core.backends.selected import machines
    from memoryhub.ops import jobs
    from memoryhub.ops.jobs.locks import announce_worker
    from memoryhub.ops.jobs.schedules import run_machine_jobs

    if not machines.SHARED:
        presence = announce_worker()
        # There is one worker, so tasks taken from the queue when it starts belong to one that died (decision 22)
        post_spawn.connect(lambda **_: jobs.release_held(), weak=False)
    cluster = Cluster()
    cluster.start()
    if machines.SHARED:
        presence = announce_worker()  # after the fork, because it starts a thread
        threading.Thread(target=run_machine_jobs, args=[threading.Event()], name="machine-jobs", daemon=True).start()
    threading.Thread(target=_stop_at_end_of_input, args=[cluster], daemon=True).start()
    cluster.sentinel.join()
    presence.close()


def _stop_at_end_of_input(cluster: Any) -> None:
    sys.stdin.buffer.read()
    killer = threading.Timer(_GRACE_SECONDS, _end_group)
    killer.daemon = True
    killer.start()
    cluster.stop()


def _end_group() -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
