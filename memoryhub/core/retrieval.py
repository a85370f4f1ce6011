"""What every question to a store has in common: it is timed, and it may ask how things stood at a past moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from memoryhub.core import clock, counters
from memoryhub.core.asof import as_of
from memoryhub.core.schemas import Command, Moment, Position, unlisted

T = TypeVar("T")

RETRIEVALS = counters.define_timer("retrieval_seconds", "How long answers to questions took", "kind")


def _as_moment(value: object) -> object:
    """Read a position, with or without its ``#``, or an ISO 8601 time."""
    if not isinstance(value, str):
        return value
    text = value.strip().removeprefix("#")
    if text.isascii() and text.isdecimal():
        return text
    try:
        return clock.from_text(text)
    except ValueError:
        raise ValueError("give a position such as 412, or an ISO 8601 time such as 2026-11-20T08:30:00Z") from None


PastMoment = Annotated[Position | Moment, BeforeValidator(_as_moment)]


class Retrieval(Command):
    """What every question takes."""

    as_of: PastMoment | None = Field(
        None, description="as the store stood at this position or ISO time", json_schema_extra=unlisted
    )


def retrieval(kind: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Time the decorated selector as ``kind``, and run it in the past where its ``command`` has ``as_of``.

    It must return what is read already, no lazy query.
    """

    def decorate(selector: Callable[..., T]) -> Callable[..., T]:
        @wraps(selector)
        def answer(*, command: Any, **options: Any) -> T:
            with RETRIEVALS.time(kind):
                if command.as_of is None:
                    return selector(command=command, **options)
                with as_of(command.as_of):
                    return selector(command=command, **options)

        return answer

    return decorate
