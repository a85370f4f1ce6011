"""Capture the hook events that wait in the spool: each once, in order, even if the process is killed in between.

The hub drains the spool now and again. ``mcp``, commands and hooks drain their own project's events before they read.
A line is done when its event is in a store; the line's id is the event's idempotency key, so a line that is read again
after a crash changes nothing.
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

from memoryhub.core import log, spool
from memoryhub.core.errors import HubError, Locked, Unavailable
from memoryhub.core.spool import Broken, Kept
from memoryhub.core.stores.store import project_store, use_store
from sessions_app.hook_clients import Effect
from sessions_app.hook_parser import HookEvent, parse_hook, project_of
from sessions_app.services.capture import capture_kept

logger = logging.getLogger(__name__)

CHECK_SECONDS = 3.0
_BATCH = 20
"""So many events become durable together; more would hold the store's write lock for longer than a hook waits."""
_TRY_AGAIN = (Locked, Unavailable, OperationalError)


@dataclass(slots=True)
class Drained:
    """What draining did."""

    captured: int = 0
    left: int = 0
    """Of projects that could not be opened; tried again the next time."""
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class _Placed:
    """An event that waits, with what it says and where it belongs."""

    project: str
    heard: HookEvent
    kept: Kept


def keep(stop: threading.Event, *, every: float = CHECK_SECONDS) -> None:
    """Drain now and again until ``stop`` is set."""
    while True:
        try:
            drain(stop)
        except Exception:
            logger.exception("the spool could not be drained; it is tried again")
        if stop.wait(every):
            return


def drain(stop: threading.Event | None = None, *, project: str | None = None) -> Drained:
    """Capture what waits, or only one project's events; if another process does so already, do nothing."""
    total = Drained()
    with spool.only_taker() as alone:
        for path in spool.take() if alone else []:
            if stop and stop.is_set():
                break
            _File(path, total, project).drain()
    return total


def drain_before_reading(project: str) -> None:
    """Capture what the project's hooks told a moment ago. Reading goes on whatever fails: the events stay spooled."""
    if not spool.has_waiting():
        return
    try:
        drain(project=project)
    except Exception:
        logger.exception("the spool could not be drained; it is tried again")


class _File:
    """One file of the spool."""

    def __init__(self, path: Path, total: Drained, project: str | None) -> None:
        self._project = project
        self._path = path
        self._total = total
        self._events, self._broken = spool.read(path)
        self._left: list[Kept] = []
        self._closed: set[str] = set()

    def drain(self) -> None:
        """Capture its events, project by project as they come, and leave in it only what must wait."""
        for project, group in groupby(self._placed(), key=lambda placed: placed.project):
            events = list(group)
            for start in range(0, len(events), _BATCH):
                self._take(project, events[start : start + _BATCH])
        for each in self._broken:
            logger.warning("a line of the spool was set aside in %s: %s", spool.REJECTED, each.reason)
        self._total.left += len(self._left)
        self._total.rejected += len(self._broken)
        spool.finish(self._path, left=self._left, broken=self._broken)

    def _placed(self) -> Iterator[_Placed]:
        for kept in self._events:
            try:
                heard = parse_hook(client=kept.client, event=kept.event, data=kept.payload)
                if heard.effect is not Effect.NOTHING:
                    yield _Placed(project_of(heard, kept.project), heard, kept)
            except HubError as error:
                self._set_aside(kept, error.message)

    def _take(self, project: str, events: list[_Placed]) -> None:
        if project in self._closed or self._project not in (None, project):
            self._leave(events)
            return
        try:
            with use_store(project_store(project), create=True):
                self._capture(events)
        except (Locked, Unavailable) as error:
            logger.warning("%d events of project %s wait in the spool: %s", len(events), project, error)
            self._closed.add(project)
            self._leave(events)

    def _leave(self, events: list[_Placed]) -> None:
        self._left += [each.kept for each in events]

    def _capture(self, events: list[_Placed]) -> None:
        """Capture all in one transaction; where one of them can't be, each by itself."""
        try:
            with log.transaction():
                for each in events:
                    capture_kept(each.heard, each.kept)
        except _TRY_AGAIN:
            raise
        except Exception:  # noqa: BLE001  (which of them it was, and what, is found out one by one)
            self._capture_each(events)
        else:
            self._total.captured += len(events)

    def _capture_each(self, events: list[_Placed]) -> None:
        for each in events:
            try:
                capture_kept(each.heard, each.kept)
            except _TRY_AGAIN:
                raise
            except HubError as error:
                self._set_aside(each.kept, error.message)
            except Exception as error:
                logger.exception("a line of the spool could not be captured")
                self._set_aside(each.kept, f"{type(error).__name__}: {error}")
            else:
                self._total.captured += 1

    def _set_aside(self, kept: Kept, reason: str) -> None:
        self._broken.append(Broken(dumps(asdict(kept), ensure_ascii=False), reason))
