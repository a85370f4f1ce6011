"""Send the hook events that wait for a team's hub: in order, each once, by one process at a time.

Standard library only. An interruption loses nothing: an event leaves the spool after the hub has answered, its id is
the idempotency key by which the hub recognises it, and an acknowledged event is recorded before the next is sent.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from memoryhub.config.hook_table import NOTE, HookTable
from memoryhub.core import clock, spool
from memoryhub.core.disk import replacing
from memoryhub.core.errors import Unavailable
from memoryhub.core.spool import Broken, SpooledEvent
from memoryhub.teams.connections import TeamConnection, all_connections
from memoryhub.teams.transport import HttpAnswer, HubConnection

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHECK_SECONDS = 15.0
# How long the hub may take for one step of a request.
_STEP_SECONDS = 20.0
_ARRIVING_SECONDS = 5.0
# How long a refused token is not tried again, unless it is replaced.
_REFUSED_SECONDS = 600.0
_ACKNOWLEDGED = "acknowledged"
PROBLEM = "problem.json"
PACK = "pack.json"
# Refusals of one event; the next may be accepted. Others are of the token or the project, or pass.
_OF_THE_EVENT = frozenset({400, 404, 409, 412, 413, 415, 422})
_OF_THE_TOKEN = frozenset({401, 403})

# After so many milliseconds the action that a note is for has happened
_ACTION_MS = 5_000

# Receives the event and the context with which the hub answered it
ContextHandler = Callable[[SpooledEvent, str], None]


@dataclass(slots=True)
class SendingProblem:
    """Why events wait, or are kept aside."""

    sentence: str
    # Milliseconds since 1970.
    at: int = 0
    # Digest of the refused token, "" if another cause.
    token: str = ""


@dataclass(slots=True)
class CachedPack:
    """The context of the last session's start."""

    text: str
    # The id of the event that it answers.
    event: str
    # Milliseconds since 1970.
    at: int


@dataclass(slots=True)
class TeamState:
    """What waits for a project of a team's hub, for ``memory-hub status``."""

    url: str
    project: str
    waiting: int
    refused: int
    problem: str = ""
    # ISO 8601; "" without a problem.
    since: str = ""
    folders: list[str] = field(default_factory=list)
    # Where the refused events are kept aside.
    aside: str = ""


def send_waiting(connection: TeamConnection, *, wait: float = 0.0, handler: ContextHandler | None = None) -> bool:
    """Send what waits, and return whether nothing is left that could be sent now.

    Args:
        connection: where to.
        wait: seconds to wait for another process that sends.
        handler: called with each event whose answer has a context.
    """
    # Checked again after the lock is free: what arrived meanwhile found it taken.
    while spool.has_waiting(at=connection.spool):
        spool.wait_for_arriving(seconds=_ARRIVING_SECONDS, at=connection.spool)
        with spool.only_taker(seconds=wait, at=connection.spool) as alone:
            if not alone:
                return True
            if not _Sender(connection, handler).send():
                return False
    return True


def keep(stop: threading.Event, *, every: float = CHECK_SECONDS) -> None:
    """Send what waits for any hub, until ``stop`` is set. For the hub of this machine."""
    while not stop.wait(every):
        try:
            connections = _distinct(all_connections())
        except OSError:  # such as too many open files
            logger.exception("the hubs of teams could not be read; retrying")
            continue
        for connection in connections:
            try:
                send_waiting(connection)
            except Exception:
                logger.exception("events for %s could not be sent; retrying", connection.url)


def team_states() -> list[TeamState]:
    """Return what waits for each project of a team's hub."""
    states = [_state_of(connection) for connection in _distinct(all_connections())]
    for connection in all_connections():
        for state in states:
            if (state.url, state.project) == (connection.url, connection.project):
                state.folders.append(connection.folder)
    return states


def read_problem(connection: TeamConnection) -> SendingProblem | None:
    """Return why events wait, or None."""
    return _read_json(Path(connection.place) / PROBLEM, SendingProblem)


def read_pack(connection: TeamConnection) -> CachedPack | None:
    """Return the context of the last session's start, or None."""
    return _read_json(Path(connection.place) / PACK, CachedPack)


def _state_of(connection: TeamConnection) -> TeamState:
    problem = read_problem(connection)
    aside = connection.spool / spool.REJECTED
    rejected = aside.glob("*.jsonl")
    state = TeamState(
        url=connection.url,
        project=connection.project,
        waiting=spool.count_waiting(at=connection.spool),
        refused=sum(path.read_bytes().count(b"\n") for path in rejected),
        aside=str(aside),
    )
    if problem:
        state.problem = problem.sentence
        state.since = datetime.fromtimestamp(problem.at / 1000, UTC).isoformat(timespec="seconds")
    return state


class _Sender:
    def __init__(self, connection: TeamConnection, handler: ContextHandler | None) -> None:
        self._connection = connection
        self._handler = handler
        self._token = connection.token()
        self._digest = sha256(self._token.encode()).hexdigest()[:16]
        self._notes = connection.spool / _ACKNOWLEDGED
        self._place = Path(connection.place)
        self._problem = ""

    def send(self) -> bool:
        """Return whether every event was answered. Requires the spool's lock."""
        if self._is_refused():
            return False
        if not self._token:
            return self._note("no token is kept on this machine; run `memory-hub setup --url …` again", self._digest)
        try:
            url, ca_file = self._connection.url, self._connection.ca_file
            hub = HubConnection(url, token=self._token, ca_file=ca_file, seconds=_STEP_SECONDS)
            with closing(hub):
                hub.open()  # without a hub, the files stay as they are
                is_done = self._send_all(hub, spool.take(at=self._connection.spool))
        except Unavailable as error:
            return self._note(error.message)
        if is_done:
            self._notes.unlink(missing_ok=True)
            (self._place / PROBLEM).unlink(missing_ok=True)
        return is_done

    # The token is tried again when it has been replaced, or after a while.
    def _is_refused(self) -> bool:
        problem = read_problem(self._connection)
        is_same = problem is not None and problem.token == self._digest
        # Absolute: a clock that was ahead must not keep the token from being tried again
        return problem is not None and is_same and abs(_now() - problem.at) < _REFUSED_SECONDS * 1000

    # Sorted across the files: an event of a slow process may have come into a later file than the next one's.
    def _send_all(self, hub: HubConnection, paths: list[Path]) -> bool:
        path_of_project = f"/api/v1/projects/{quote(self._connection.project)}/hooks"
        acknowledged = set()
        if self._notes.exists():
            acknowledged = set(self._notes.read_text("utf-8").splitlines())
        files = {path: spool.read(path) for path in paths}
        unsent: dict[Path, list[SpooledEvent]] = {}
        paths_of: dict[int, Path] = {}
        for path, (events, _) in files.items():
            unsent[path] = [event for event in events if event.id not in acknowledged]
            paths_of |= dict.fromkeys(map(id, unsent[path]), path)
        ordered = spool.in_order(chain.from_iterable(unsent.values()))
        try:
            for event in ordered:
                path = paths_of[id(event)]
                if _asks_for_note(event) and _now() - event.at > _ACTION_MS:
                    unsent[path].remove(event)
                    continue
                path_of_event = f"{path_of_project}/{quote(event.client)}/{quote(event.event)}"
                answer = hub.post(path_of_event, _content(event), {"Idempotency-Key": event.id})
                if self._stops(answer):
                    return False
                if answer.status in _OF_THE_EVENT and not _asks_for_note(event):
                    # Before it is acknowledged: interrupted in between, it is refused and written again.
                    refused = Broken(json.dumps(asdict(event), ensure_ascii=False), answer.sentence())
                    spool.finish(path, waiting=unsent[path], broken=[refused])
                with self._notes.open("a", encoding="utf-8") as file:
                    file.write(f"{event.id}\n")
                unsent[path].remove(event)
                self._handle_context(event, answer)
        finally:
            for path, (events, broken) in files.items():
                if broken or len(unsent[path]) < len(events) or not events:
                    spool.finish(path, waiting=unsent[path], broken=broken)
        return True

    # 404 is of the event if the hub names what it knows instead, else of a project that this person does not see.
    def _stops(self, answer: HttpAnswer) -> bool:
        if 200 <= answer.status < 300:
            return False
        if answer.status in _OF_THE_TOKEN or (answer.status == 404 and "known" not in answer.problem()):
            # Without the right to read it again: otherwise it would be shown once the hub cannot be reached.
            (self._place / PACK).unlink(missing_ok=True)
            self._note(f"the hub refused the token or the project ({answer.sentence()})", self._digest)
            return True
        if answer.status in _OF_THE_EVENT:
            return False
        self._note(f"the hub answered {answer.sentence()}")
        return True

    def _handle_context(self, event: SpooledEvent, answer: HttpAnswer) -> None:
        if not 200 <= answer.status < 300:
            return
        content = answer.problem()
        text = content.get("context")
        if not isinstance(text, str) or not text:
            return
        if content.get("is_pack"):
            _write_json(self._place / PACK, CachedPack(text, event.id, _now()))
        if self._handler:
            self._handler(event, text)

    def _note(self, sentence: str, token: str = "") -> bool:
        noted = read_problem(self._connection)
        if noted and (noted.sentence, noted.token) == (sentence, token) and not token:
            os.utime(self._place / PROBLEM)  # the last failure; the content has the first
            return False
        _write_json(self._place / PROBLEM, SendingProblem(sentence, _now(), token))
        return False


# Such an event is not recorded
def _asks_for_note(event: SpooledEvent) -> bool:
    effect, _ = HookTable(event.client).event(event.event)
    return effect.answer == NOTE


def _content(event: SpooledEvent) -> dict[str, Any]:
    happened_at = datetime.fromtimestamp(event.at / 1000, UTC).isoformat()
    return {"data": event.payload, "happened_at": happened_at, "commits": event.commits}


def _distinct(connections: Iterable[TeamConnection]) -> list[TeamConnection]:
    return list({connection.place: connection for connection in connections}.values())


def _now() -> int:
    return clock.now_ns() // 1_000_000


def _read_json(path: Path, shape: type[T]) -> T | None:
    try:
        return shape(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _write_json(path: Path, value: Any) -> None:
    with replacing(path, synced=False) as file:
        file.write(json.dumps(asdict(value), ensure_ascii=False).encode())
