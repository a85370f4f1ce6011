"""The queue of several workers: a task is held for a minute at a time, for as long as the worker that took it lives."""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ

from memoryhub.core import clock

logger = logging.getLogger(__name__)

# Longer than a lease, so that a killed worker's run has ended for all before its task is taken again
HELD_SECONDS = 60.0
_RENEW_SECONDS = 15.0


class SharedQueue(ORM):  # type: ignore[misc]
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lock = threading.Lock()
        # When each task was taken by this process, on the monotonic clock
        self._claimed: dict[int, float] = {}
        self._renews = False

    def timeout(self, task: OrmQ) -> datetime:
        return clock.now() + timedelta(seconds=HELD_SECONDS)

    def dequeue(self) -> list[tuple[int, str]] | None:
        tasks: list[tuple[int, str]] | None = super().dequeue()
        if tasks:
            with self._lock:
                self._claimed.update(dict.fromkeys((key for key, _ in tasks), time.monotonic()))
                if not self._renews:
                    self._renews = True
                    threading.Thread(target=self._keep, name="queue", daemon=True).start()
        return tasks

    # In a thread, because the process that takes tasks waits until a worker is free
    def _keep(self) -> None:
        while True:
            time.sleep(_RENEW_SECONDS)
            longest = time.monotonic() - Conf.TIMEOUT
            with self._lock:
                # A failed task stays in the queue, to be taken again after the longest time that a run may take
                self._claimed = {key: since for key, since in self._claimed.items() if since > longest}
                keys = list(self._claimed)
                if not keys:
                    self._renews = False
                    return
            try:
                self._renew(keys)
            except DatabaseError as error:
                logger.warning("tasks of the queue could not be held: %s", error)

    def _renew(self, keys: list[int]) -> None:
        rows = OrmQ.objects.filter(pk__in=keys)
        rows.update(lock=clock.now() + timedelta(seconds=HELD_SECONDS))
        held = set(rows.values_list("pk", flat=True))
        with self._lock:
            self._claimed = {key: since for key, since in self._claimed.items() if key in held or key not in keys}
