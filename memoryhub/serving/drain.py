"""Drains the spool: what hooks kept while no hub answered is captured once, in order, however often this is cut short.

Only the serving process runs it. A line is done when its event is in a store; the line's id is the event's idempotency
key, so a line that is read again after a crash changes nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from json import dumps
from pathlib import Path

from django.db import OperationalError

from memoryhub import hooks
from memoryhub.core import log, spool
from memoryhub.core.errors import HubError, Locked, Unavailable
from memoryhub.core.spool import Broken, Kept
from memoryhub.core.stores import project_store, use_store

logger = logging.getLogger(__name__)

CHECK_SECONDS = 3.0
_BATCH = 50
"""So many events become durable together: a disk's sync costs more than all else."""
_TRY_AGAIN = (Locked, Unavailable, OperationalError)


@dataclass(slots=True)
class Drained:
    """What draining did."""

    captured: int = 0
    left: int = 0
    """Of projects that could not be opened; tried again the next time."""
    rejected: int = 0


def keep(stop: threading.Event, *, every: float = CHECK_SECONDS) -> None:
    """Drain now and again until ``stop`` is set."""
    while True:
        try:
            drain(stop)
        except Exception:
            logger.exception("the spool could not be drained; it is tried again")
        if stop.wait(every):
            return


def drain(stop: threading.Event | None = None) -> Drained:
    """Capture all that waits; where another process does so already, it is left to that."""
    total = Drained()
    with spool.only_taker() as alone:
        for path in spool.take() if alone else []:
            if stop and stop.is_set():
                break
            _File(path, total).drain()
    return total


class _File:
    """One file of the spool."""

    def __init__(self, path: Path, total: Drained) -> None:
        self._path = path
        self._total = total
        self._events, self._broken = spool.read(path)
        self._left: list[Kept] = []
        self._closed: set[str] = set()

    def drain(self) -> None:
        """Capture its events, project by project as they come, and leave in it only what must wait."""
        for project, group in groupby(self._placed(), key=lambda placed: placed[0]):
            events = [kept for _, kept in group]
            for start in range(0, len(events), _BATCH):
                self._take(project, events[start : start + _BATCH])
        for each in self._broken:
            logger.warning("a line of the spool was set aside in %s: %s", spool.REJECTED, each.reason)
        self._total.left += len(self._left)
        self._total.rejected += len(self._broken)
        spool.finish(self._path, left=self._left, broken=self._broken)

    def _placed(self) -> Iterator[tuple[str, Kept]]:
        for kept in self._events:
            try:
                yield hooks.project_of(kept.client, kept.payload, kept.project), kept
            except HubError as error:
                self._set_aside(kept, error.message)

    def _take(self, project: str, events: list[Kept]) -> None:
        if project in self._closed:
            self._left += events
            return
        try:
            with use_store(project_store(project), create=True):
                self._capture(events)
        except (Locked, Unavailable) as error:
            logger.warning("%d events of project %s wait in the spool: %s", len(events), project, error)
            self._closed.add(project)
            self._left += events

    def _capture(self, events: list[Kept]) -> None:
        """Capture all in one transaction; where one of them can't be, each by itself."""
        try:
            with log.transaction():
                for kept in events:
                    hooks.take_kept(kept)
        except _TRY_AGAIN:
            raise
        except Exception:  # noqa: BLE001  (which of them it was, and what, is found out one by one)
            self._capture_each(events)
        else:
            self._total.captured += len(events)

    def _capture_each(self, events: list[Kept]) -> None:
        for kept in events:
            try:
                hooks.take_kept(kept)
            except _TRY_AGAIN:
                raise
            except HubError as error:
                self._set_aside(kept, error.message)
            except Exception as error:
                logger.exception("a line of the spool could not be captured")
                self._set_aside(kept, f"{type(error).__name__}: {error}")
            else:
                self._total.captured += 1

    def _set_aside(self, kept: Kept, reason: str) -> None:
        self._broken.append(Broken(dumps(asdict(kept), ensure_ascii=False), reason))
