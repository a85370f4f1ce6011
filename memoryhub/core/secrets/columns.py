"""Read the values below a name in the first row of a table: Markdown, a terminal's table, or CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from memoryhub.core.secrets.rule import Span

_LONGEST_LINE = 400
_MOST_ROWS = 50
# Names in one cell that are tried.
_MOST_NAMES = 4
_LINE_ENDS = (b"\n", b"\\n")
_RULER = frozenset(b"-=+|: \t")
_AROUND = b" \t\r\"'`*"
_SEPARATORS = b"|,;\t"
# What may stand beside the name in its cell, and what begins and ends the cell.
_BESIDE = b" \r\"'`*_-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_EDGES = _SEPARATORS + b"\n\\"


# Where the header of a column starts, where the rows read below it end, and how many names of the header were tried.
class Read(NamedTuple):
    first: int
    end: int
    names: int


def cells_below(data: bytes, start: int, end: int, read: dict[int, Read]) -> Iterator[Span]:
    """Yield the cells below the cell that contains ``start`` to ``end``, if its line is the first row of a table.

    ``read`` keeps what was read by column, so that a table with a name in each row is read once.
    """
    after = data[end : end + 24].lstrip(_BESIDE)
    if after and after[0] not in _EDGES:
        return
    for line_end in _LINE_ENDS:
        last = data.find(line_end, end, end + _LONGEST_LINE)
        if last >= 0:
            break
    else:
        return
    first = data.rfind(line_end, max(0, start - _LONGEST_LINE), start)
    first = first + len(line_end) if first >= 0 else max(0, start - _LONGEST_LINE)
    header = data[first:last]
    separator = next((bytes([sign]) for sign in _SEPARATORS if sign in header), None)
    before = data[max(0, start - 24) : start].rstrip(_BESIDE)
    if separator is None or (before and before[-1] not in _EDGES):
        return
    shape = header.count(separator), data[first:start].count(separator)
    before_this = read.get(shape[1], Read(-1, 0, 0))
    names = before_this.names + 1 if before_this.first == first else 1
    if before_this.first < first < before_this.end or names > _MOST_NAMES:
        return
    read[shape[1]] = Read(first, last, names)
    for row_end, cell in _column(data, last, line_end, separator, shape):
        read[shape[1]] = Read(first, row_end, names)
        if cell:
            yield cell


def _column(
    data: bytes, last: int, line_end: bytes, separator: bytes, shape: tuple[int, int]
) -> Iterator[tuple[int, Span | None]]:
    for _ in range(_MOST_ROWS):
        first = last + len(line_end)
        last = data.find(line_end, first, first + _LONGEST_LINE)
        last = last if last >= 0 else min(len(data), first + _LONGEST_LINE)
        row = data[first:last]
        if not row or (row.count(separator) != shape[0] and not _RULER.issuperset(row)):
            return
        yield last, None if _RULER.issuperset(row) else _cell(first, row.split(separator), shape[1])


def _cell(first: int, cells: list[bytes], column: int) -> Span:
    start = first + sum(len(cell) + 1 for cell in cells[:column])
    cell = cells[column]
    left = len(cell) - len(cell.lstrip(_AROUND))
    return start + left, start + max(left, len(cell.rstrip(_AROUND + b"\\")))
