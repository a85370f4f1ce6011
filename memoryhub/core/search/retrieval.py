"""Fields and timing that all read commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated

from pydantic import BeforeValidator, Field

from memoryhub.core import clock, counters
from memoryhub.core.log.event_view import as_of
from memoryhub.core.schemas import Command, Moment, Position, unlisted

RETRIEVALS = counters.define_timer("retrieval_seconds", "How long answers to questions took", "kind")


def _as_moment(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip().removeprefix("#")
    if text.isascii() and text.isdecimal():
        return text
    try:
        return clock.from_input(text)
    except ValueError:
        raise ValueError("give a position such as 412, or an ISO 8601 time such as 2026-11-20T08:30:00Z") from None


PastMoment = Annotated[Position | Moment, BeforeValidator(_as_moment)]


# Base of all read commands.
class Retrieval(Command):
    as_of: PastMoment | None = Field(
        None, description="as the store was at this position or ISO time", json_schema_extra=unlisted
    )


@contextmanager
def retrieval(kind: str, command: Retrieval) -> Iterator[None]:
    """Time the block as ``kind``, and read the store as of ``command.as_of`` if it is given."""
    # A lazy query that leaves the block would read the present.
    with RETRIEVALS.time(kind), nullcontext() if command.as_of is None else as_of(command.as_of):
        yield
