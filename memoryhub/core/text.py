"""Format answers as text: counts with nouns, and stored text that cannot imitate a line of the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

# Readers take a line that begins with ``#412`` for a hit, so stored text never begins a line: in a list it is
# ``flat``, elsewhere ``indented`` or ``hanging`` below a line of the answer (decision 33). Standard library only, and
# quick to import: hooks use it.

# Matches a text without a line break, in pydantic, JSON Schema and ``re`` alike. The characters are those at which
# ``str.splitlines`` splits, because some readers of an answer split there too.
ONE_LINE = r"^[^\u000a-\u000d\u001c-\u001e\u0085\u2028\u2029]*$"
# Matches a text without a line break that is not only space, so that stripping leaves something.
FILLED_LINE = (
    r"^[^\u000a-\u000d\u001c-\u001e\u0085\u2028\u2029]*[^\s\u001c-\u001e\u0085]"
    r"[^\u000a-\u000d\u001c-\u001e\u0085\u2028\u2029]*$"
)
# Matches a text of any number of lines that is not only space.
NOT_BLANK = r"\S"

INDENT = "  "

_REFERENCE = re.compile(r"\s*\w*#\d")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BREAK = re.compile("[\n-\r\x1c-\x1e\x85\u2028\u2029]")
# What a line of the hub says in parentheses about an entry
_IMITATED_MARK = re.compile(
    r"(?:\([^()]{0,100}?\b(?:(?:not )?(?:accepted|reviewed|proposed|rejected|expired|deleted|merged)(?=\s*(?:[,;:)]|$))"
    r"|(?:rejected|superseded|amended|contradicted) by\b|(?:conflict|amends|contradicts) #|in quarantine\b"
    r"|has changed since\b|is gone\b|erased since\b|redacted before\b|check (?:failed|passed)\b"
    r"|from (?:a|the) (?:web ?page|tool)\b|from branch\b|imported from\b)"
    r"|[()][^()]{0,100}?\b(?:accepted by|reviewed by|not accepted|not reviewed)\b)[^()]{0,100}\)?",
    re.IGNORECASE,
)
# The beginning of a tag in which clients and models frame instructions, tools and speakers
_FRAME_TAG = re.compile(
    r"<(?=\s*[/|]?\s*(?:antml:\w+|im_(?:start|end)|(?:system|function|tool)(?:[-_]\w+)+|system|assistant|human|user"
    r"|invoke|parameter|instructions?|important|reminder)(?:[\s|/][^<>\n]{0,200})?>)",
    re.IGNORECASE,
)
# Letters of other alphabets that look like Latin ones
_LOOKALIKES = str.maketrans("аеорсухіјѕԁһАВЕМНОРСТХαορν", "aeopcyxijsdhABEMHOPCTXaopv")
# Characters that are not seen, and those that change the direction of what follows (Unicode TR 9)
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]"
)
_DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069]")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029]")
# Controls except tab, newline and the CR of a CRLF; line separators; bidirectional characters (Unicode TR 9).
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\r(?!\n)")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: ``1 memory``, ``2 memories``; ``plural`` defaults to the noun with an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def first_of(names: Sequence[str], most: int) -> str:
    """Return the first names with commas, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


# With a slash, or a suffix
_PATH = re.compile(r"\S+(?:/|\.\w)")


def capitalized(text: str) -> str:
    """Return a clause with a capital, unless it begins with the path of a file."""
    return text if _PATH.match(text) else f"{text[:1].upper()}{text[1:]}"


def as_sentence(text: str) -> str:
    """Return a message as a sentence of its own: with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


# How much of a word, and how many letters at its beginning, a known word must have to be suggested
_CLOSE, _BEGINNING = 0.7, 3


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the first known word that begins with ``word``, or else the closest.

    Returns "" if none is close.
    """
    import difflib

    names = list(choices)
    near = [name for name in names if len(word) >= _BEGINNING and name.startswith(word)]
    near = near or difflib.get_close_matches(word, names, n=1, cutoff=_CLOSE)
    return f" (did you mean {near[0]!r}?)" if near else ""


def flat(text: str) -> str:
    r"""Return ``text`` on one line: line breaks and the space around them become one space.

    A byte of a file's name that is no UTF-8 is written as ``\xe9``, so that different names stay different.
    """
    if _SURROGATE.search(text):
        text = _SURROGATE.sub(lambda half: _byte(ord(half[0])), text)
    if not _BREAK.search(text):
        return text
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


# Python reads the bytes 80 to FF of a name as halves of surrogate pairs; other halves are no characters
def _byte(half: int) -> str:
    return f"\\x{half - 0xDC00:02x}" if 0xDC80 <= half <= 0xDCFF else "\ufffd"


def first_line(text: object, longest: int = 200) -> str:
    """Return the first line that is not blank, cut to ``longest`` characters."""
    return str(text).strip().split("\n", 1)[0][:longest]


def shortened(text: str, longest: int) -> str:
    """Return ``text``, cut with an ellipsis if it is longer than ``longest``."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def one_line(text: str, longest: int) -> str:
    """Return ``text`` with runs of whitespace as one space, cut to ``longest`` characters."""
    return shortened(" ".join(text.split()), longest)


def as_data(text: str) -> str:
    """Return stored text for a line of an answer, so that it cannot pose as a mark of the hub or a tag of the client.

    What imitates a mark, such as ``(accepted by ada)``, is quoted, also if it has unseen characters or other forms of
    its letters. Tags that frame instructions lose their ``<``, and characters that change the direction are left out.
    """
    if not text.isascii():
        text = _DIRECTION.sub("", text)
    if "<" in text:
        text = _FRAME_TAG.sub("‹", text)
    plain = text
    if not text.isascii():
        import unicodedata

        plain = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).translate(_LOOKALIKES)
    if not _IMITATED_MARK.search(plain):
        return text
    # The mark is the only thing in quotes
    return _IMITATED_MARK.sub(lambda mark: f'"{mark[0]}"', plain.replace('"', "'"))


def as_name(text: str) -> str:
    """Return a name for the start of a line: flat, and quoted if it could be read as a reference."""
    name = flat(text)
    return f"'{name}'" if _REFERENCE.match(name) else name


def indented(text: str) -> str:
    return "\n".join(f"{INDENT}{line}".rstrip() for line in text.splitlines())


def hanging(text: str) -> str:
    if not _BREAK.search(text):
        return text
    first, *continuation = text.splitlines()
    return "\n".join([first, indented("\n".join(continuation))]) if continuation else first


def compact_json(data: object) -> str:
    """Return ``data`` as JSON on one line, also for readers that end a line at U+2028."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    return _UNSAFE_IN_JSON.sub(_escape, text)


def printable(text: str) -> str:
    r"""Return ``text`` with control and bidirectional characters escaped as ``\u001b``; JSON stays equivalent."""
    # Terminals execute them: they move the cursor, and recolour or reorder other text.
    return _UNPRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


# Spreadsheets run a cell that begins with one of these
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Line:
    def write(self, text: str) -> str:
        return text


def csv_lines(names: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the head and the rows as CSV that a spreadsheet can open; ``names`` are those of the columns."""
    import csv

    writer = csv.writer(_Line())
    yield writer.writerow(names)
    for row in rows:
        yield writer.writerow([_cell(value) for value in row])


def _cell(value: object) -> str:
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return csv_text(value)


def csv_text(value: object) -> str:
    """Return a value as the text of a cell: JSON, but for texts and null."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    from django.core.serializers.json import DjangoJSONEncoder

    return json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False).strip('"')
