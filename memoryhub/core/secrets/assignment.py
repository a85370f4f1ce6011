"""Read the value that a name is assigned: in code, YAML, JSON, env files, XML, shell commands, prose and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from memoryhub.core.secrets.rule import NOWHERE, Span, compiled, spelled


# A pattern without named groups and counted repetitions, which need a state for each count
def _simplified(pattern: bytes) -> bytes:
    head, *groups = pattern.split(b"(?P<")
    pattern = b"(?:".join([head, *(part.partition(b">")[2] for part in groups)])
    for counted, repeated in ((b"{0,32}?", b"*?"), (b"{1,14}", b"+"), (b"{1,6}", b"+")):
        pattern = pattern.replace(counted, repeated)
    for most in (b"4", b"20", b"24", b"40", b"60", b"80"):
        pattern = pattern.replace(b"{0," + most + b"}", b"*")
    return pattern


# The longest name, sign and space together. It bounds every repetition below, which keeps the automata small.
_LONGEST_HEAD = 200
_MEMORY = 4 << 20
_LONGEST_VALUE = 512
_GAP = rb"(?:\s|\\+[nrt])*"  # also escaped by JSON, once or twice
_REST = rb"(?P<rest>[\w.-]*)"
_CLOSE = rb"(?:\[\w*\]|%5[Dd])?[\"'`\\)\]*]*"
_DECLARED = rb"(?: ?:? ?(?i:string|str|char\*?|const|final)\b)?"
_VALUE_OF = (
    rb"(?:,\s?[\"'\\]*\w{1,20}[\"'\\]*:\s?[\"'\\]*\w{1,20}[\"'\\]*)?[,:=]?"
    + _GAP
    + rb"\{?"
    + _GAP
    + rb"-?[\"'\\]*(?i:value)[\"'\\]*"
    + _GAP
    + rb"[:=]"
)
# ``|`` and ``>`` of a YAML block, and the line after them; a fence of Markdown.
_BLOCK = rb"(?:(?:[ \t]*[|>][-+\d]{0,3})?[ \t]*(?:#[^\n\\]{0,60})?(?:\n|\\+n)" + _GAP + rb"(?:`{3}\w*" + _GAP + rb")?)?"
_SIGN = (
    rb"(?:" + _VALUE_OF + rb"|:{1,3}=|[?.+!]={1,3}|[=-]{1,3}>|<-|={1,3}|(?:[:,]|" + spelled("：", "＝") + rb")" + _BLOCK
    + rb"|\|\|:?|(?:\.[a-z]+)?\([\"']|\?\?|%3[Dd])"
)  # fmt: skip
_IS = rb"\b(?:es|sono|ist|lautet|est|wynosi)\b|" + spelled(*"está è é это такой är là 是 为 為 は が 는 은".split())
_SAID = (
    rb"(?i:\b(?:(?:should|must|will|can|has|been|now|is|was|are|be|changed|set|reset|you need)\s){0,3}"
    rb"(?:is|was|are|be|to|equals?|use)\b|,?\s?\bit(?:'|\xe2\x80\x99)?\s?i?s\b|" + _IS + rb")(?:" + _GAP + rb"[:=])?"
)
_ARROW = rb"\xe2[\x86\x87][\x80-\xbf]|\xe2\x9e[\x80-\xbf]|\xe2\x9f[\xb0-\xbf]|\xe2\x80[\x92-\x95]|\xe2\x89\xab"
_ESCAPED_ARROW = rb"\\{1,2}u(?i:21[9ab][0-9a-f]|27[9ab][0-9a-f]|27f[0-9a-f]|201[2-5]|226b)"
# Signs that also stand where nothing is assigned: the value must look like a secret by itself.
_LOOSE = (
    rb"(?:-{1,3}[ \t]|>>|\|{1,2}|\.{2,}|\?[ \t]{0,2}(?:[Aa]:)?|\bor\b|[ \t][(\[]|"
    + _ARROW + rb"|" + _ESCAPED_ARROW + rb"|" + spelled("»", "│") + rb"|" + _SAID + rb")"
)  # fmt: skip
_MARKUP = rb"(?:</?[\w:!-][^<>\n]{0,80}>" + _GAP + rb"){1,6}\{?"
_TAG = rb"[\"'\\]*(?:\s[^<>]*)?>\{?"
_NEW = rb"(?:(?:new\b ?[\w:.]{0,32}(?:\[\])? ?[({]|HeaderValue::\w{1,20}\(|\[) ?)?"
_WRAP = (
    rb"(?:(?P<bold>\*{1,3}|__)|<(?i:code|b|strong|kbd|tt|pre|em|i|span)\b[^<>\n]{0,40}>|<!\[CDATA\[|"
    + spelled("“", "„", "«", "「", "『", "‘") + rb")?"
)  # fmt: skip
_OPEN = rb"(?:" + _NEW + rb"[@$bBrRfFuUL]{0,2}(?P<quote>\"\"\"|'''|\\*[\"'`]))?"
_WORDS = rb"(?P<words>(?:[ \t]" + rb"(?:[ \t\w./'\x80-\xff-]|\\{1,2}u[0-9a-fA-F]{4}){0,32}?)??)"
_FEW_WORDS = rb"[\w.:-]{1,14}(?:[ ,]{1,2}[\w.:-]{1,14}){0,4}"
_NOTE = rb"(?P<note>[ \t]?(?:\(" + _FEW_WORDS + rb"\)|\[" + _FEW_WORDS + rb"\]))?"
_HEAD = (
    _REST + _WORDS + _NOTE + rb"(?:" + _CLOSE + _DECLARED + rb"(?:" + _GAP + rb"(?P<sign>" + _SIGN + rb")|" + _GAP
    + rb"(?P<loose>" + _LOOSE + rb")|" + _GAP + rb"" + _MARKUP + rb")|" + _TAG + rb")"
    + _GAP + _WRAP + _OPEN
)  # fmt: skip
# What every secret has: a digit, a sign, or many letters.
_SECRET = rb"(?:\S*[0-9]|[A-Za-z]{12}|[\w.-]*[^\s\w.()\[\]{}<>\"'`,;-])"
# Most keywords have no sign and no such value after them. Without groups and counts, RE2 sees this in a tenth of the
# time.
_LIKELY = _simplified(_HEAD) + _SECRET
_SPACED = (
    rb"(?P<rest>[\w.-]*(?:[ \t](?:[a-z]{2,8} )?(?:key|token|secret|licen[cs]e)(?:'s)?)?)" + _CLOSE + rb"(?:\s|\\+[nrt])"
    + _GAP + rb"\(?(?P<quote>\\*[\"'`])?"
    rb"([^\s\"'`<>,;(){}\[\]\\|]{8,})"
)  # fmt: skip
# A character of three bytes or more ends the value: sentences continue without a space in Chinese and Japanese.
_BARE = rb"[^\s\"'`<>,;(){}\[\]\\|\xe0-\xff]+"
# In the query of an address, and in the body of a form
_NEXT_FIELD = rb"&(?:amp;)?[\w.%@-]+="
_STOP = b".,;:!?)]}>*"
_EXCLAMATION = 0x21
_DIGITS = b"0123456789"


# The sign of an assignment that only the value can confirm: *is*, a dash, an arrow, a table cell.
LOOSE = "is"


@dataclass(frozen=True, slots=True)
class Assignment:
    # The part of the name after the keyword.
    name_end: bytes
    # Words between the name and the sign.
    words: bytes
    # ``=``, ``:``, ``>`` of a tag, ``(`` of a call, ``LOOSE``; empty if there is only space.
    sign: str
    start: int
    end: int
    quoted: bool
    # Whether a bracket follows, as in ``token = make(…``.
    called: bool


def assignment_at(data: bytes, position: int, limit: int, *, spaced: bool) -> Assignment | None:
    """Return the assignment to the name in which a keyword ends at ``position``, if there is one."""
    stop = min(limit, position + _LONGEST_HEAD)
    if compiled(_LIKELY, memory=_MEMORY).at(data, position, min(limit, stop + 64)) is not None:
        head = compiled(_HEAD).at(data, position, stop)
        return _read_signed(data, head, limit) if head else None
    if not spaced:
        return None
    head = compiled(_SPACED).at(data, position, stop)
    if head is None:
        return None
    _, name_end, quote, (start, _) = head
    return _assignment(data, data[slice(*name_end)], b"", "", start, quote=data[slice(*quote)], limit=limit)


def _read_signed(data: bytes, head: list[Span], limit: int) -> Assignment | None:
    (_, start), name_end, words, note, sign, loose, bold, quote = head
    text = ">"
    if sign != NOWHERE:
        text = data[slice(*sign)].decode(errors="replace").lower().strip()
        if text.startswith("\\"):
            text = text.lstrip("\\nrt ")
    mark = data[slice(*quote)]
    if text.endswith(('("', "('")):
        mark = text[-1].encode()
        text = "("
    if loose != NOWHERE or note != NOWHERE:
        text = LOOSE
    read = _assignment(data, data[slice(*name_end)], data[slice(*words)], text, start, quote=mark, limit=limit)
    if read and bold != NOWHERE and data[read.end - 2 : read.end] == b"__":
        # The bracket, if one follows, is behind the emphasis, not behind the value
        read = replace(read, end=read.end - 2, called=False)
        if read.end <= start:
            return None
    return read


def _assignment(
    data: bytes, name_end: bytes, words: bytes, sign: str, start: int, *, quote: bytes, limit: int
) -> Assignment | None:
    end = _quoted_end(data, start, limit, quote) if quote else _bare_end(data, start, limit)
    if end <= start:
        return None
    called = not quote and data[end : end + 1] in (b"(", b"[")
    return Assignment(name_end, words, sign, start, end, bool(quote), called)


def _quoted_end(data: bytes, start: int, limit: int, quote: bytes) -> int:
    stop = min(limit, start + _LONGEST_VALUE)
    line = data.find(b"\n", start, stop)
    if line >= 0:
        stop = line
    end = data.find(quote, start, stop)
    # Skip escaped quotes.
    while len(quote) == 1 and end > start and data[end - 1] == 0x5C and data[end - 2] != 0x5C:
        end = data.find(quote, end + 1, stop)
    if end >= 0:
        return end
    return stop if stop == limit else start


def _bare_end(data: bytes, start: int, limit: int) -> int:
    run = compiled(_BARE).at(data, start, min(limit, start + _LONGEST_VALUE))
    if run is None:
        return start
    end = run[0][1]
    if b"&" in data[start:end]:
        following = compiled(_NEXT_FIELD).find(data, start, end)
        if following:
            end = following[0][0]
    stop = end
    while end > start and data[end - 1] in _STOP:
        end -= 1
    # ``Winter2024!`` ends in a sign of its own, unlike ``secret!``
    if end < stop and data[end] == _EXCLAMATION and data[end - 1] in _DIGITS:
        end += 1
    return end


_LONGEST_LINE = 400
_MOST_ROWS = 50
# Names in one cell that are tried.
_MOST_NAMES = 4
_NUMBERED_CELL = rb"[|,;\t][ \"']{0,2}\d"
_LINE_ENDS = (b"\n", b"\\n")
_RULER = frozenset(b"-=+|: \t")
_AROUND = b" \t\r\"'`*"
_SEPARATORS = b"|,;\t"
# What may stand beside the name in its cell, and what begins and ends the cell.
_BESIDE = b" \r\"'`*_-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_EDGES = _SEPARATORS + b"\n\\"


# Where the header of a column starts, where the rows read below it end, and how many names of the header were tried.
class ColumnRead(NamedTuple):
    first: int
    end: int
    names: int


def cells_below(data: bytes, start: int, end: int, read: dict[int, ColumnRead]) -> Iterator[Span]:
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
    earliest = max(0, start - _LONGEST_LINE)
    first = data.rfind(line_end, earliest, start)
    first = first + len(line_end) if first >= 0 else earliest
    header = data[first:last]
    separator = next((bytes([sign]) for sign in _SEPARATORS if sign in header), None)
    before = data[max(0, start - 24) : start].rstrip(_BESIDE)
    # A header has no cell that begins with a digit, as lists of packages with their versions have.
    if compiled(_NUMBERED_CELL).find(header, 0, len(header)):
        return
    if separator is None or (before and before[-1] not in _EDGES):
        return
    # The lines of a list end in a comma, the header of a table does not.
    if separator in b",;" and header.rstrip().endswith(separator):
        return
    shape = header.count(separator), data[first:start].count(separator)
    before_this = read.get(shape[1], ColumnRead(-1, 0, 0))
    names = before_this.names + 1 if before_this.first == first else 1
    if before_this.first < first < before_this.end or names > _MOST_NAMES:
        return
    read[shape[1]] = ColumnRead(first, last, names)
    for row_end, cell in _column(data, last, line_end, separator, shape):
        read[shape[1]] = ColumnRead(first, row_end, names)
        if cell:
            yield cell


def _column(
    data: bytes, last: int, line_end: bytes, separator: bytes, shape: tuple[int, int]
) -> Iterator[tuple[int, Span | None]]:
    for _ in range(_MOST_ROWS):
        first = last + len(line_end)
        last = data.find(line_end, first, first + _LONGEST_LINE)
        if last < 0:
            last = min(len(data), first + _LONGEST_LINE)
        row = data[first:last]
        if row and _RULER.issuperset(row):
            yield last, None
        elif row and row.count(separator) == shape[0]:
            yield last, _cell(first, row.split(separator), shape[1])
        else:
            return


def _cell(first: int, cells: list[bytes], column: int) -> Span:
    start = first + sum(len(cell) + 1 for cell in cells[:column])
    cell = cells[column]
    indent = len(cell) - len(cell.lstrip(_AROUND))
    return start + indent, start + max(indent, len(cell.rstrip(_AROUND + b"\\")))
