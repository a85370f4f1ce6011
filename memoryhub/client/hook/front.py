"""Pass a client's hook event to the hub, without ever failing or delaying the client.

The client waits for this process at every event. It posts standard input unparsed to the running hub and prints the
answer. If no hub answers in time, a detached child process writes the event to the spool. The exit code is always 0.

Standard library only, and mostly modules built into the interpreter: importing ``json``, ``socket`` or ``signal`` would
each take half as long as starting Python.
"""

from __future__ import annotations

import os
import time
from _signal import ITIMER_REAL, SIGALRM, setitimer  # type: ignore[import-not-found]
from _signal import signal as on_signal

from memoryhub.client.hook import post
from memoryhub.client.hook.post import ClientEvent
from memoryhub.config import enabled
from memoryhub.config.hook_table import ASK, NOTE, PACK, STATUS, HookTable
from memoryhub.core import autostart
from memoryhub.core.file_locks import try_share_lock
from memoryhub.env import DatabaseUrlError, HomeError, home_text, make_home

TYPE_CHECKING = False  # type checkers know this name; avoids importing typing
if TYPE_CHECKING:
    from _socket import socket as Connection  # noqa: N812
    from typing import NoReturn

USAGE = "memory-hub hook CLIENT EVENT [--project ID] < the event as JSON"

MAX_INPUT = 32 * 1024 * 1024
# The hub's request limit; long texts of larger events are cut.
MAX_BODY = 2_000_000
# How long the client may take to write the event.
INPUT_SECONDS = 2.0
CONNECT_SECONDS = 0.05
# How long to wait for the hub's answer; WAIT_VARIABLE overrides it.
SECONDS = 0.3
WAIT_VARIABLE = "MEMORY_HUB_HOOK_SECONDS"
# The same where the client shows the answer to its model.
PATIENT_SECONDS = 1.0
# The same for an answer that is made without a hub.
ALONE_SECONDS = 4.0
CHILD_SECONDS = 5.0
ARRIVING = "arriving.lock"  # as in core.spool
MAX_SECONDS = 60.0
_CHUNK = 1 << 20


# Not an Exception: the alarm may interrupt code that handles any of those, such as the drain, which would then go on
# for as long as it likes.
class _TooLateError(BaseException):
    pass


def main(argv: list[str]) -> NoReturn:
    """Take one event from standard input, and exit with code 0 whatever happens."""
    try:
        _take_event(argv)
    except _TooLateError:
        complain("the event did not arrive in time; it is not kept")
    except HomeError as error:
        complain(f"{error}; the event is not kept")
    except BaseException as error:  # noqa: BLE001  (no error may stop the client)
        complain(f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)  # skips the interpreter's clean-up, which takes longer than the work itself


def complain(sentence: str) -> None:
    try:
        line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(sentence.split()))
        os.write(2, f"memory-hub hook: {line}\n".encode("utf-8", "replace"))
    except OSError:
        return


def _take_event(argv: list[str]) -> None:
    event = _parse_arguments(argv)
    if event is None:
        complain(f"usage: {USAGE}")
        return
    on_signal(SIGALRM, _stop)
    setitimer(ITIMER_REAL, INPUT_SECONDS)
    event.body = _read_input()
    setitimer(ITIMER_REAL, 0)  # from here on, every wait has its own timeout
    if enabled.switched_off_by():
        return
    table = HookTable(event.client)
    event.effect, event.takes_context = table.event(event.name)
    seconds = _seconds()
    if event.takes_context and event.effect.answer not in (ASK, NOTE, STATUS):
        seconds = max(seconds, PATIENT_SECONDS)
    event.deadline = time.monotonic() + seconds
    if not _is_object(event.body):
        complain("standard input is not a JSON object; the event is not kept")
        return
    event.body = _with_root(event.body, os.environ.get(table.value("root"), ""))
    if len(event.body) > MAX_BODY:
        from memoryhub.client.hook import event_body

        event.body = event_body.shortened(event.body, MAX_BODY)
    _hand_over(event)


# Adds the root to the event, which is not parsed here. As text, because importing ``json`` takes too long.
def _with_root(body: bytes, root: str) -> bytes:
    if not root.startswith("/"):
        return body
    if not root.isprintable() or '"' in root or "\\" in root:
        import json

        text = json.dumps(root)
    else:
        text = f'"{root}"'
    fields = body.strip()[1:].lstrip()
    comma = b"" if fields.startswith(b"}") else b", "
    return b'{"memory_hub_root": ' + text.encode() + comma + fields


def _seconds() -> float:
    try:
        return min(float(os.environ.get(WAIT_VARIABLE) or SECONDS), MAX_SECONDS)
    except ValueError:
        return SECONDS


def _stop(_number: int, _frame: object) -> None:
    raise _TooLateError


def _parse_arguments(argv: list[str]) -> ClientEvent | None:
    project = ""
    words = [word for word in argv if not word.startswith("--project=")]
    if len(words) < len(argv):
        project = next(word for word in argv if word not in words).removeprefix("--project=")
    elif "--project" in words[:-1]:
        at = words.index("--project")
        project = words[at + 1]
        del words[at : at + 2]
    if len(words) != 2 or not all(map(_is_name, words)) or (project and not _is_name(project)):
        return None
    return ClientEvent(words[0], words[1], project)


def _is_name(word: str) -> bool:
    return word.isascii() and word.replace("-", "").replace("_", "").replace(".", "").isalnum()


# Input beyond MAX_INPUT is read and dropped, so that the client's write never fails.
def _read_input() -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := os.read(0, _CHUNK):
        size += len(chunk)
        if size <= MAX_INPUT:
            parts.append(chunk)
    if size > MAX_INPUT:
        raise ValueError(f"the event has {size} bytes, and at most {MAX_INPUT} are allowed; it is not kept")
    return b"".join(parts)


def _is_object(body: bytes) -> bool:
    text = body.strip()
    return text[:1] == b"{" and text[-1:] == b"}"


def _hand_over(event: ClientEvent) -> None:
    # The status line is that of this machine's hub
    if event.effect.answer != STATUS and _is_for_a_team(event):
        return
    # Identify the project here if this process has its own rules: the hub's environment may differ.
    if not event.project and os.environ.get("MEMORY_HUB_IDENTITY"):
        from memoryhub.client.hook import event_body

        event.project = event_body.project_of(event)
    connection = post.send(event, connect_seconds=CONNECT_SECONDS)
    if event.effect.answer in (NOTE, STATUS):
        # Nothing is recorded, so that nothing is kept or said without an answer in time
        answer = post.receive(connection, event.deadline) if connection else None
        if answer and not answer.is_refusal:
            os.write(1, answer.body)
        return
    if connection is None and event.takes_context and event.effect.answer != ASK:
        _answer_alone(event)
        return
    # Tool events are frequent and the client ignores the answer: a child process waits for it. Others (a prompt, the
    # end of a turn or session) may follow each other at once and must stay in order.
    if connection is None or (event.effect.is_tool and not os.environ.get(WAIT_VARIABLE)):
        _leave_to_child(event, connection)
        return
    answer = post.receive(connection, event.deadline)
    if answer is None or answer.is_passing:
        _leave_to_child(event, None)
    elif answer.is_refusal:
        complain(answer.sentence())
    elif answer.body:
        os.write(1, answer.body)


# Few machines work with a team's hub: on the others, this costs the look for a file.
def _is_for_a_team(event: ClientEvent) -> bool:
    if event.project or not os.path.exists(f"{home_text()}/teams.toml"):  # noqa: PTH110
        return False
    from memoryhub.client.hook import team

    connection = team.find_connection(event)
    if connection is None:
        return False
    if problem := team.hand_over(event, connection):
        complain(problem)
    return True


# Without a hub, the answer is made in this process: the event is spooled first, so that nothing is lost if that fails.
def _answer_alone(event: ClientEvent) -> None:
    from memoryhub.client.hook import event_body, without_hub
    from memoryhub.core.errors import NotFound
    from memoryhub.core.home_database import require_own

    if event_body.is_switched_off(event):
        return
    until = time.monotonic() + max(_seconds(), ALONE_SECONDS)
    make_home()
    try:
        without_hub.spool_event(event)
    except NotFound as error:
        if event.effect.answer == PACK:  # one sentence for a session is enough
            complain(error.message)
        return
    setitimer(ITIMER_REAL, max(0.1, until - time.monotonic()))
    try:
        require_own(by_client=True)
        os.write(1, without_hub.answer_event(event))
    except DatabaseUrlError as error:
        complain(f"{error}; the event is kept")
    except _TooLateError:
        complain("no context was given in time; the event is kept")
    finally:
        setitimer(ITIMER_REAL, 0)
        autostart.start_hub()


# The child waits for the hub or spools the event: finding secrets takes longer than the client may wait. The home
# folder is checked first, while errors can still be reported.
def _leave_to_child(event: ClientEvent, connection: Connection | None) -> None:
    make_home()
    if connection is None:
        _mark_arriving()
    _close_pipes()
    try:
        child = os.fork()
    except OSError:
        child = None  # no process available: the client waits this time
    if child:
        return
    try:
        if child == 0:
            os.setsid()  # a new session: ending the client's process group does not end the child
            if connection:  # else this starts the hub, which would keep the priority
                os.nice(10)  # the client's own work goes first
        _wait_or_keep(event, connection)
    finally:
        if child == 0:
            os._exit(0)


# The process that spools the event holds this lock, shared, until it ends; what captures later events waits for it. The
# hub does, so a process that waits for the hub must not hold it.
def _mark_arriving() -> None:
    try:
        folder = f"{home_text()}/spool"
        if not os.path.isdir(folder):  # noqa: PTH112
            os.mkdir(folder, 0o700)  # noqa: PTH102
        try_share_lock(os.open(f"{folder}/{ARRIVING}", os.O_RDWR | os.O_CREAT, 0o600))
    except OSError:
        return  # the child reports what is wrong with the folder


def _wait_or_keep(event: ClientEvent, connection: Connection | None) -> None:
    answer = post.receive(connection, time.monotonic() + CHILD_SECONDS) if connection else None
    if answer is None or answer.is_passing:
        from memoryhub.client.hook import event_body, without_hub
        from memoryhub.core.errors import NotFound

        if event_body.is_switched_off(event):
            return
        if connection:
            _mark_arriving()
        try:
            without_hub.spool_event(event)
        except NotFound:
            return  # its session began in a folder without a project
    if connection is None:
        autostart.start_hub()


# The client waits until all copies of its pipes are closed, including the child's.
def _close_pipes() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
