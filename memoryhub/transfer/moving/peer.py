"""The other end of ``side``: start the process of a place, and give it commands."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from memoryhub import env
from memoryhub.core.errors import Conflict, HubError, Invalid, Locked, Moved, NotFound, Unavailable
from memoryhub.core.module_processes import module_command, module_environment

_ERRORS: dict[str, type[HubError]] = {kind.code: kind for kind in (Conflict, Invalid, Locked, Moved, NotFound)}


@dataclass(frozen=True, slots=True)
class Place:
    """A database that can have stores."""

    # As `memory-hub move` takes it; "" if only its address names it
    name: str
    # "" for files in the home
    url: str


class Peer:
    """A process that works in a place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._process = subprocess.Popen(  # noqa: S603
            module_command("memoryhub.transfer.moving.side"),
            env=module_environment(**{env.DATABASE_VARIABLE: place.url or env.FILES}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C ends this process first, and the other one with its input
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # It ends with its input, and rolls back what is open
        self._process.communicate()

    def call(self, name: str, **arguments: Any) -> Any:
        self.ask(name, **arguments)
        return self.answer()

    def ask(self, name: str, **arguments: Any) -> None:
        self.write(json.dumps([name, arguments]).encode() + b"\n")

    def answer(self) -> Any:
        line = self._out.readline()
        if not line:
            raise self._ended()
        answer = json.loads(line)
        if "error" in answer:
            raise _ERRORS.get(answer["code"], Unavailable)(answer["error"])
        return answer["result"]

    def copy_to(self, other: Peer, *, after: int) -> int:
        """Send the open log's events after a position to the other's draft; return how many there were."""
        self.call("send", after=after)
        other.ask("take")
        while (line := self._out.readline()) != b"\n":
            if not line:
                raise self._ended()
            other.write(line)
        other.write(line)
        count: int = other.answer()
        return count

    def write(self, line: bytes) -> None:
        assert self._process.stdin  # noqa: S101 - a pipe
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    @property
    def _out(self) -> Any:
        return self._process.stdout

    def _ended(self) -> Unavailable:
        return Unavailable(f"the process that works in {self.place.name or 'the other place'} has ended; try again")
