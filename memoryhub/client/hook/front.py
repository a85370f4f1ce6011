"""Hand what a client tells of one event to the hub, and never fail or delay the client for it.

The client waits for this process at every one of its events, so it does next to nothing: it reads the event, posts it
unread to the running hub, and prints what the hub answers. Where no hub answers in time, a child process that nobody
waits for keeps the event in the spool. It always ends with exit code 0. What it imports is built into the
interpreter, because ``json``, ``socket`` and ``signal`` would each cost half of what starting Python costs.
"""

from __future__ import annotations

import os
import time
from _signal import ITIMER_REAL, SIGALRM, setitimer  # type: ignore[import-not-found]
from _signal import signal as on_signal

from memoryhub.client.hook import post
from memoryhub.client.hook.post import Event
from memoryhub.config import enabled
from memoryhub.env import HomeError, make_home

TYPE_CHECKING = False  # what checkers take for typing's, without importing it
if TYPE_CHECKING:
    from _socket import socket as Connection  # noqa: N812
    from typing import NoReturn

USAGE = "memory-hub hook CLIENT EVENT [--project ID] < the event as JSON"

MAX_INPUT = 32 * 1024 * 1024
MAX_BODY = 2_000_000
"""What the hub takes in one request; of longer input the long texts are cut."""
INPUT_SECONDS = 2.0
"""For so long the client may take to write the event: it is not the one who waits then."""
CONNECT_SECONDS = 0.05
SECONDS = 0.3
"""For so long the hub's answer is waited for, where the variable does not say otherwise."""
WAIT_VARIABLE = "MEMORY_HUB_HOOK_SECONDS"
PATIENT_SECONDS = 1.0
"""At least so long at a session's start, where the client waits for an answer to show to its model."""
CHILD_SECONDS = 5.0
MAX_SECONDS = 60.0
_CHUNK = 1 << 20


class _TooLateError(Exception):
    """The time is up."""


def main(argv: list[str]) -> NoReturn:
    """Take one event from standard input, and end this process with exit code 0, whatever happens."""
    try:
        _take(argv)
    except _TooLateError:
        complain("the event did not arrive in time; it is not kept")
    except HomeError as error:
        complain(f"{error}; the event is not kept")
    except BaseException as error:  # noqa: BLE001  (the client must go on, whatever it is)
        complain(f"{type(error).__name__}: {error}")
    finally:
        os._exit(0)  # nothing is left to clean up, and cleaning takes longer than all that was done here


def complain(sentence: str) -> None:
    """Say what is wrong in one line on standard error."""
    try:
        line = "".join(each if each.isprintable() else "?" for each in " ".join(sentence.split()))
        os.write(2, f"memory-hub hook: {line}\n".encode("utf-8", "replace"))
    except OSError:
        return


def _take(argv: list[str]) -> None:
    event = _parsed(argv)
    if event is None:
        complain(f"usage: {USAGE}")
        return
    on_signal(SIGALRM, _stop)
    setitimer(ITIMER_REAL, INPUT_SECONDS)
    event.body = _read()
    setitimer(ITIMER_REAL, 0)  # from here on, every wait has its own end
    if enabled.switched_off_by():
        return
    event.effect = effect_of(event.client, event.name)
    event.deadline = time.monotonic() + max(_seconds(), PATIENT_SECONDS if event.effect == "start" else 0)
    if not _is_object(event.body):
        complain("what came on standard input is no JSON object; it is not kept")
        return
    if len(event.body) > MAX_BODY:
        from memoryhub.client.hook import payload

        event.body = payload.shortened(event.body, MAX_BODY)
    _hand_over(event)


def effect_of(client: str, event: str) -> str:
    """Return what the client's table declares as the event's effect; "" where it is not known.

    The client has nothing to learn from the answer to ``tool``: it is sent, and a child waits. Not so the others: a
    prompt, a turn's end and a session's end may follow one another at once, and must stay in order. Searches the text,
    because a TOML parser takes longer to import than the hook may take.
    """
    try:
        with open(post.CLIENTS_FILE, "rb") as file:  # noqa: PTH123  (pathlib takes longer to import than all of this)
            text = file.read().decode()
    except OSError:
        return ""
    return text.partition(f'[{client}.hooks.events.{event}]\neffect = "')[2].partition('"')[0]


def _seconds() -> float:
    try:
        return min(float(os.environ.get(WAIT_VARIABLE) or SECONDS), MAX_SECONDS)
    except ValueError:
        return SECONDS


def _stop(_number: int, _frame: object) -> None:
    raise _TooLateError


def _parsed(argv: list[str]) -> Event | None:
    """Return the event that the command line names; None where it does not name one."""
    project = ""
    words = [word for word in argv if not word.startswith("--project=")]
    if len(words) < len(argv):
        project = next(word for word in argv if word not in words).removeprefix("--project=")
    elif "--project" in words[:-1]:
        at = words.index("--project")
        project = words[at + 1]
        del words[at : at + 2]
    named = [word for word in (*words, *([project] if project else [])) if _is_name(word)]
    if len(words) != 2 or len(named) != len(words) + bool(project):
        return None
    return Event(words[0], words[1], project)


def _is_name(word: str) -> bool:
    return word.isascii() and word.replace("-", "").replace("_", "").replace(".", "").isalnum()


def _read() -> bytes:
    """Return standard input; what is longer than ``MAX_INPUT`` is read and dropped, so that its writer never fails."""
    parts: list[bytes] = []
    size = 0
    while chunk := os.read(0, _CHUNK):
        size += len(chunk)
        if size <= MAX_INPUT:
            parts.append(chunk)
    if size > MAX_INPUT:
        raise ValueError(f"the event has {size} bytes, more than {MAX_INPUT}; it is not kept")
    return b"".join(parts)


def _is_object(body: bytes) -> bool:
    text = body.strip()
    return text[:1] == b"{" and text[-1:] == b"}"


def _hand_over(event: Event) -> None:
    """Post the event; keep it in the spool where that fails."""
    _name_project(event)
    connection = post.send(event, connect_seconds=CONNECT_SECONDS)
    if connection is None or (event.effect == "tool" and not os.environ.get(WAIT_VARIABLE)):
        _leave_to_child(event, connection)
        return
    answer = post.receive(connection, event.deadline)
    if answer is None or answer.is_passing:
        _leave_to_child(event, None)
    elif answer.is_refusal:
        complain(answer.sentence())
    elif answer.body:
        os.write(1, answer.body)


def _name_project(event: Event) -> None:
    """Find the project here where this process's environment says how; the hub's own may say otherwise."""
    if event.project or not os.environ.get("MEMORY_HUB_IDENTITY"):
        return
    from memoryhub.client.hook import payload

    event.project = payload.project_of(event.body)


def _leave_to_child(event: Event, connection: Connection | None) -> None:
    """Let a child process wait for the hub, or keep the event: reading it for secrets takes longer than this may.

    Raises:
        HomeError: the home folder cannot be used, which the child could tell nobody.
    """
    make_home()
    _let_go()
    try:
        child = os.fork()
    except OSError:
        child = None  # no process to be had: the client waits this once
    if child:
        return
    try:
        if child == 0:
            os.setsid()  # so that nothing that ends the client's processes ends this one
            os.nice(10)  # the client has better things to do with the processor
        _see_through(event, connection)
    finally:
        if child == 0:
            os._exit(0)


def _see_through(event: Event, connection: Connection | None) -> None:
    answer = post.receive(connection, time.monotonic() + CHILD_SECONDS) if connection else None
    if answer is None or answer.is_passing:
        from memoryhub.client.hook import keep

        keep.keep(event)


def _let_go() -> None:
    """Close the client's pipes: it waits until nobody holds them any more, the child included."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
