"""The worker's own process: runs the queue until it is told to stop, or the server that started it is gone."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

_GRACE_SECONDS = 5


def main() -> None:
    """Run the queue; its standard input ends when the server does, however that ends."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings")
    from memoryhub.env import prepare_home

    prepare_home()
    import django

    django.setup()
    from django_q.cluster import Cluster
    from django_q.signals import post_spawn

    from memoryhub.ops import jobs
    from memoryhub.ops.jobs import worker

    worker.begin()
    # There is one worker: when it begins, whoever had taken something from the queue is dead.
    post_spawn.connect(lambda **_: jobs.release_held(), weak=False)
    cluster = Cluster()
    cluster.start()
    threading.Thread(target=_stop_at_end_of_input, args=[cluster], daemon=True).start()
    cluster.sentinel.join()


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
