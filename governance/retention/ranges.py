"""Many ids in few words: ``[(412, 430), (433, 433)]``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

Ranges = list[tuple[int, int]]


def extend(ranges: Ranges, number: int) -> None:
    """Add an id that is greater than all before it."""
    if ranges and ranges[-1][1] == number - 1:
        ranges[-1] = (ranges[-1][0], number)
    else:
        ranges.append((number, number))


def numbers(ranges: Iterable[Sequence[int]]) -> Iterator[int]:
    """Yield the ids of the ranges, one by one."""
    for first, last in ranges:
        yield from range(first, last + 1)


def chunks(ranges: Iterable[Sequence[int]], size: int) -> Iterator[list[int]]:
    """Yield the ids of the ranges, at most ``size`` at a time."""
    chunk: list[int] = []
    for number in numbers(ranges):
        chunk.append(number)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
