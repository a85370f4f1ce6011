"""Hand an event to a team's hub: a child process spools and sends it, and the client waits a moment for context.

The client never waits for the network itself: not for a name server, a handshake or an answer.
"""

from __future__ import annotations

import os
import select
import time
from _signal import ITIMER_REAL, SIG_DFL, SIGALRM, setitimer  # type: ignore[import-not-found]
from _signal import signal as on_signal
from contextlib import suppress

from memoryhub.client.hook import event_body
from memoryhub.client.hook.post import MAX_ANSWER
from memoryhub.config.hook_table import ASK, NOTE, PACK, HookTable
from memoryhub.config.identity import begin_session
from memoryhub.core import autostart
from memoryhub.core.file_locks import share_lock, try_lock, unlock
from memoryhub.core.session_places import find_place
from memoryhub.env import make_home, working_folder_text
from memoryhub.teams.connections import connection_of

TYPE_CHECKING = False  # type checkers know the name; importing typing takes time
if TYPE_CHECKING:
    from memoryhub.client.hook.post import ClientEvent
    from memoryhub.core.spool import SpooledEvent
    from memoryhub.teams.connections import TeamConnection

ARRIVING = "arriving.lock"  # as in core.spool
# How long a child may live: a hub that never answers must not collect processes.
_LIFE_SECONDS = 300.0
# When a child tries again to send what waits, while no other hook does.
_PAUSES = (2.0, 8.0, 30.0, 120.0)
# So long after a failure, a prompt or an action does not wait for context.
_PATIENCE_SECONDS = 30.0


def find_connection(event: ClientEvent) -> TeamConnection | None:
    """Return the connection of the folder in which the event's session began; if it names none, of this process's."""
    try:
        folder, session = event_body.folder_of(event), event_body.session_of(event)
    except ValueError:
        folder = session = ""
    folder = folder or working_folder_text()
    if place := find_place(event.client, session):
        folder = place.folder
    elif session and not event_body.is_switched_off(event):
        make_home()
        folder = begin_session(event.client, session, folder).folder
    return connection_of(folder)


def hand_over(event: ClientEvent, connection: TeamConnection) -> str:
    """Spool and send the event, print its context, and return a problem that the user must solve, or ""."""
    if event_body.is_switched_off(event):
        return ""
    if event.effect.answer == NOTE and _deadline(event, connection) <= time.monotonic():
        return ""
    if event.effect.answer == ASK:
        event.takes_context = False  # the end of a turn does not wait for another machine
    make_home()
    arriving = _mark_arriving(connection)
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:
        child = None  # no process available: the event is only spooled
    if not child:
        _keep_and_send(event, connection, arriving, writing, is_child=child == 0)
    os.close(writing)
    os.close(arriving)
    if not event.takes_context:
        return ""
    context = _read_until(reading, _deadline(event, connection))
    problem = ""
    if not context and event.effect.answer != NOTE:
        problem = _refusal(connection)
        if event.effect.answer == PACK:
            context = f"No context from the team's hub: {problem}." if problem else _cached_pack(event, connection)
    if context:
        os.write(1, _shaped(event, context))
    return problem


# Why the hub refuses this person, who may then see no earlier context either; "" if it does not.
def _refusal(connection: TeamConnection) -> str:
    from memoryhub.teams import sending

    problem = sending.read_problem(connection)
    if problem is None or not problem.token:
        return ""
    return f"{problem.sentence}; events wait, see `memory-hub status`"


# What sends waits for the processes that hold this lock, shared, so that it sends in order.
def _mark_arriving(connection: TeamConnection) -> int:
    folder = f"{connection.place}/spool"
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    descriptor = os.open(f"{folder}/{ARRIVING}", os.O_RDWR | os.O_CREAT, 0o600)
    share_lock(descriptor)
    return descriptor


def _keep_and_send(
    event: ClientEvent, connection: TeamConnection, arriving: int, writing: int, *, is_child: bool
) -> None:
    try:
        if is_child:
            _become_background(event)
        from memoryhub.client.hook import without_hub

        without_hub.spool_event(event, connection)
        unlock(arriving)
        if is_child:
            _send(event, connection, writing)
    finally:
        if is_child:
            os._exit(0)


# The client waits until all copies of its pipes are closed; ending its process group does not end the child.
def _become_background(event: ClientEvent) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.setsid()
    on_signal(SIGALRM, SIG_DFL)
    setitimer(ITIMER_REAL, _LIFE_SECONDS)
    if not event.takes_context:
        os.nice(10)


def _send(event: ClientEvent, connection: TeamConnection, writing: int) -> None:
    from memoryhub.teams import sending

    pipe = open(writing, "wb", buffering=0)  # noqa: SIM115

    def write_context(sent: SpooledEvent, context: str) -> None:
        if sent.id == event.key and not pipe.closed:
            with suppress(OSError), pipe:  # the client did not wait
                pipe.write(context.encode("utf-8", "replace"))

    wait = max(0.0, event.deadline - time.monotonic()) if event.takes_context else 0.0
    is_sent = sending.send_waiting(connection, wait=wait, handler=write_context)
    pipe.close()
    if is_sent or not autostart.is_allowed():
        return
    descriptor = os.open(f"{connection.place}/retry.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not try_lock(descriptor):
        return
    os.nice(10)
    for pause in _PAUSES:
        time.sleep(pause)
        if sending.send_waiting(connection):
            return


def _deadline(event: ClientEvent, connection: TeamConnection) -> float:
    try:
        # Absolute, because the clock may have been ahead then
        failed = abs(time.time() - os.stat(f"{connection.place}/problem.json").st_mtime)  # noqa: PTH116
    except OSError:
        return event.deadline
    if event.effect.answer != PACK and failed < _PATIENCE_SECONDS:
        return time.monotonic()
    return event.deadline


# "" unless all of it comes in time.
def _read_until(reading: int, deadline: float) -> str:
    parts: list[bytes] = []
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reading, MAX_ANSWER)
        if not part:
            return b"".join(parts).decode("utf-8", "replace")
        parts.append(part)
    return ""


def _cached_pack(event: ClientEvent, connection: TeamConnection) -> str:
    from datetime import UTC, datetime

    from memoryhub.teams import sending

    pack = sending.read_pack(connection)
    if pack is None:
        return ""
    if pack.event == event.key:
        return pack.text
    at = datetime.fromtimestamp(pack.at / 1000, UTC)
    age = _age(abs(time.time() - pack.at / 1000))
    return (
        f"The team's hub did not answer in time. This context is {age} old ({at:%Y-%m-%d %H:%M} UTC) and may be out of "
        f"date; what you do is recorded and sent later.\n\n{pack.text}"
    )


def _age(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' * (count > 1)}"
    return "less than a minute"


def _shaped(event: ClientEvent, context: str) -> bytes:
    import json

    from memoryhub.config.hook_json import hook_answer

    answer = hook_answer(HookTable(event.client).value("answer"), event.name, context)
    return json.dumps(answer, ensure_ascii=False).encode()
