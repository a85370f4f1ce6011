"""One side of a move, as a process with that side's database: it follows commands on standard input.

A command is a line of JSON: its name and its arguments. So is the answer: ``{"result": …}`` or ``{"error": …}``. Events
follow as lines of their own, up to an empty one: after the answer of ``send``, and after the command ``take``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, BinaryIO, Self

import django


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "memoryhub.settings_store"
    django.setup()
    from memoryhub.core.backends.selected import places
    from memoryhub.core.home_database import work_as_guest

    places.stay_on_this_server()
    work_as_guest()
    with suppress(EOFError, BrokenPipeError), MoveSide(sys.stdin.buffer, sys.stdout.buffer) as side:
        side.serve()


class MoveSide:
    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._source, self._target = source, target
        # The store of the log that is read, or the draft that is written, while it is open
        self._open = ExitStack()
        self._locks = ExitStack()
        # Whether lines of events are still to come
        self._takes = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Who gave the commands has ended or died: a fence that was not committed must not be
        self._abort(EOFError())
        self._locks.close()

    def serve(self) -> None:
        from django.db import DatabaseError

        from memoryhub.core.errors import HubError

        for line in self._source:
            name, arguments = json.loads(line)
            try:
                result, lines = self._perform(name, arguments)
            except (HubError, DatabaseError, OSError) as error:
                self._abort(error)
                if self._takes:
                    for _ in self._incoming():
                        pass
                self._put({"error": str(error), "code": error.code if isinstance(error, HubError) else ""})
                continue
            self._put({"result": result})
            for text in lines:
                self._target.write(text)
            self._target.flush()

    def _abort(self, error: Exception) -> None:
        with suppress(Exception):
            self._open.__exit__(type(error), error, None)

    def _perform(self, name: str, arguments: dict[str, Any]) -> tuple[Any, Iterable[bytes]]:
        from memoryhub.transfer.moving import steps

        if name == "send":
            return None, _event_lines(steps.events(**arguments))
        if name == "take":
            self._takes = True
            return steps.take(self._incoming(), **arguments), ()
        if name == "lock":
            return self._locks.enter_context(steps.locked(**arguments)), ()
        if name in steps.OPENING:
            self._open.close()
            return self._open.enter_context(steps.OPENING[name](**arguments)), ()
        if name == "abort":
            self._abort(EOFError())
        if name in ("close", "abort"):  # commits what was not aborted
            self._open.close()
            return None, ()
        step: Callable[..., Any] = steps.STEPS[name]
        return step(**arguments), ()

    def _incoming(self) -> Iterator[list[Any]]:
        while (line := self._source.readline()) != b"\n":
            if not line:
                raise EOFError
            yield json.loads(line)
        self._takes = False

    def _put(self, answer: dict[str, Any]) -> None:
        self._target.write(json.dumps(answer).encode() + b"\n")
        self._target.flush()


def _event_lines(events: Iterable[tuple[Any, ...]]) -> Iterator[bytes]:
    for event in events:
        yield json.dumps(event).encode() + b"\n"
    yield b"\n"


if __name__ == "__main__":
    main()
