"""Capture spooled hook events once and in order, however often this is interrupted.

The hub drains the spool regularly. ``mcp``, commands and hooks drain their own project's events before they read.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import groupby
from json import dumps
from pathlib import Path

from django.db import OperationalError

from memoryhub.core import log, spool
from memoryhub.core.errors import HubError, Locked, NotFound, Unavailable
from memoryhub.core.spool import Attempts, Broken, SpooledEvent
from memoryhub.core.stores.store import project_store, use_store
from sessions_app.hook_parser import HookEvent, parse_hook, place_event
from sessions_app.services.capture import capture_spooled

logger = logging.getLogger(__name__)

CHECK_SECONDS = 3.0
# How long a reader waits for another process that drains the spool.
_WAIT_SECONDS = 1.0
# Events per transaction; more would hold the write lock for longer than a hook waits
_BATCH = 20
_TRY_AGAIN = (Locked, Unavailable, OperationalError)
# Faults of the machine, not of an event's folder
_PASSING = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE}
)


@dataclass(slots=True)
class Drained:
    captured: int = 0
    # Their projects could not be opened; retried later
    postponed: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class _Placed:
    project: str
    hook_event: HookEvent
    event: SpooledEvent


def keep(stop: threading.Event, *, every: float = CHECK_SECONDS) -> None:
    while True:
        try:
            drain(stop)
        except Exception:
            logger.exception("the spool could not be drained; retrying")
        if stop.wait(every):
            return


# It can be repeated: a line's id is the event's idempotency key, so a line read again after a crash changes nothing.
# ``only_taker`` is the spool's lock, always taken before a store's (decision 31).
def drain(stop: threading.Event | None = None, *, project: str | None = None, wait: float = 0.0) -> Drained:
    """Capture all spooled events, or those of a project. Another process that drains is waited for ``wait`` seconds."""
    total = Drained()
    spool.wait_for_arriving(seconds=_WAIT_SECONDS)
    waiting: list[SpooledEvent] = []
    with spool.only_taker(seconds=wait) as alone:
        if not alone:
            return total
        paths = spool.take()
        with closing(Attempts()) as attempts:
            for path in paths:
                if stop and stop.is_set():
                    return total
                waiting += _File(path, total, project, attempts).drain()
            attempts.forget(waiting=waiting)
    return total


def drain_before_reading(project: str) -> None:
    """Capture the project's spooled events. If that fails they stay spooled, and reading goes on.

    The hub also calls it before it captures another event, which is later than these.
    """
    spool.wait_for_arriving(seconds=_WAIT_SECONDS)
    if not spool.has_waiting():
        return
    try:
        drain(project=project, wait=_WAIT_SECONDS)
    except Exception:
        logger.exception("the spool could not be drained; it is tried again")


class _File:
    def __init__(self, path: Path, total: Drained, project: str | None, attempts: Attempts) -> None:
        self._project = project
        self._attempts = attempts
        self._path = path
        self._total = total
        self._events, self._broken = spool.read(path)
        self._postponed: list[SpooledEvent] = []
        self._closed: set[str] = set()

    # Returns the events that still wait
    def drain(self) -> list[SpooledEvent]:
        for project, group in groupby(self._placed(), key=lambda placed: placed.project):
            events = list(group)
            for start in range(0, len(events), _BATCH):
                self._take(project, events[start : start + _BATCH])
        for broken in self._broken:
            logger.warning("moved a line of the spool to %s: %s", spool.REJECTED, broken.reason)
        self._total.postponed += len(self._postponed)
        self._total.rejected += len(self._broken)
        spool.finish(self._path, waiting=self._postponed, broken=self._broken)
        return self._postponed

    def _placed(self) -> Iterator[_Placed]:
        for event in self._events:
            if self._attempts.is_fatal(event):
                self._set_aside(event, "two processes were killed while they handled it")
            elif placed := self._place(event):
                yield placed

    def _place(self, event: SpooledEvent) -> _Placed | None:
        try:
            with self._attempts.handling(event):
                hook_event = parse_hook(client=event.client, event=event.event, data=event.payload)
                if hook_event.effect.is_recorded:
                    return self._place_in_project(hook_event, event)
        except HubError as error:
            self._set_aside(event, error.message)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _PASSING:
                logger.warning("an event stays in the spool: its project could not be found (%s)", error)
                self._postponed.append(event)
            else:
                logger.exception("the project of a line of the spool could not be found")
                self._set_aside(event, f"{type(error).__name__}: {error}")
        return None

    # An event of a folder without a project is dropped, as by a hub that runs
    def _place_in_project(self, hook_event: HookEvent, event: SpooledEvent) -> _Placed | None:
        try:
            project, hook_event = place_event(hook_event, client=event.client, project=event.project)
        except NotFound as error:
            logger.info("dropped an event of the spool: %s", error.message)
            return None
        return _Placed(project, hook_event, event)

    def _take(self, project: str, events: list[_Placed]) -> None:
        if project in self._closed or self._project not in (None, project):
            self._leave(events)
            return
        try:
            with use_store(project_store(project), create=True):
                self._capture(events)
        except (Locked, Unavailable) as error:
            logger.warning("%d events of project %s stay in the spool: %s", len(events), project, error)
            self._closed.add(project)
            self._leave(events)

    def _leave(self, events: list[_Placed]) -> None:
        self._postponed += [placed.event for placed in events]

    # If one of a batch fails, each is captured by itself
    def _capture(self, events: list[_Placed]) -> None:
        try:
            with log.transaction():
                for placed in events:
                    with self._attempts.handling(placed.event):
                        capture_spooled(placed.hook_event, placed.event)
        except _TRY_AGAIN:
            raise
        except Exception:  # noqa: BLE001  (found one by one)
            self._capture_each(events)
        else:
            self._total.captured += len(events)

    def _capture_each(self, events: list[_Placed]) -> None:
        for placed in events:
            try:
                with self._attempts.handling(placed.event):
                    capture_spooled(placed.hook_event, placed.event)
            except _TRY_AGAIN:
                raise
            except HubError as error:
                self._set_aside(placed.event, error.message)
            except Exception as error:
                logger.exception("a line of the spool could not be captured")
                self._set_aside(placed.event, f"{type(error).__name__}: {error}")
            else:
                self._total.captured += 1

    def _set_aside(self, event: SpooledEvent, reason: str) -> None:
        self._broken.append(Broken(dumps(asdict(event), ensure_ascii=False), reason))
