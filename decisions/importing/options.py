"""The options of a record: the chosen one and the alternatives."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from decisions.importing.outline import Outline, Piece, folded
from decisions.importing.vocabulary import (
    BECAUSE,
    CHOSEN_MARKS,
    CHOSEN_OPTION,
    CHOSEN_WORDS,
    OPTION_COLUMNS,
    REASON_COLUMNS,
    Part,
    normal_name,
)
from memories.importing.sections import plain

_CHOSEN = re.compile(rf"\A[*_]*(?:{CHOSEN_OPTION})[*_]*[ \t]*[:：][*_]*\s*", re.IGNORECASE)
_QUOTED = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|„([^“”\n]+)[“”]|«\s*([^»\n]+?)\s*»|「([^」\n]+)」|\*\*([^*\n]+)\*\*")
_BECAUSE = re.compile(rf"[ \t]*[,;.:–—，。-]?\s*(?:(?:{BECAUSE})[,:，：]?\s*)?", re.IGNORECASE)
_BARE = re.compile(rf"(.+?)(?=,?\s+(?:{BECAUSE})|，(?:{BECAUSE})|\.?\s*(?:\n\s*\n|\Z))", re.IGNORECASE | re.DOTALL)
_ITEM = re.compile(r"(?:[*+-]|\d+[.)])[ \t]+")
_LINKED = re.compile(r"\A\[([^\[\]]+)\]\([^()]*\)\Z")
_ROW = re.compile(r"^[ \t]*\|(.+)\|[ \t]*$", re.MULTILINE)
_CELL = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"[ \t:|-]+")
# `Lifecycle hooks (chosen)`, or `**Chosen**` instead of the reason against it
_IS_CHOSEN = re.compile(rf"\W*(?:{CHOSEN_WORDS})\b|\W*n/a\W+chosen", re.IGNORECASE)
_MARK = re.compile(rf"\s*[(\[（]\W*(?:{CHOSEN_MARKS})\b[^()]*[)\]）]", re.IGNORECASE)
_NUMBERED = re.compile(
    r"\A(?:(?:option|alternative|opción|variante|方案|選択肢)\s*)?(?:\d+|[A-Z])\s*[.:)：–—-]\s+", re.IGNORECASE
)
# A paragraph for each option: `**Redis.** Another process to run.`
_LEAD = re.compile(
    r"^(?:\*\*|__)([^*_\n]+?)[.:]?(?:\*\*|__)[.:]?[ \t]+(.+?)(?=\n(?:\*\*|__)|\Z)", re.MULTILINE | re.DOTALL
)
_LABEL = re.compile(
    r"(?:(?:option|alternative)\s+)?\(([a-z]|\d+)\)|(?:option|alternative)\s+([a-z]|\d+)\b", re.IGNORECASE
)
_CHOSEN_LABEL = re.compile(
    r"(?:we\s+)?(?:will\s+)?(?:adopt|choose|chose|select|selected|use|accept|go with)\s+(?:option|alternative)\s+"
    r"\(?([a-z]|\d+)\b",
    re.IGNORECASE,
)
# An option of `Option 1 - Redis` has a name, not a reason
_MAX_NAME = 100
_COLON = re.compile(r"(?!(?:option|alternative)\b)(.{3,100}?):\s+(.{20,})", re.IGNORECASE | re.DOTALL)
_DASH = re.compile(r"\s+[—–-]\s+")


# Parses `Chosen option: "…", because …` into option and reason.
def chosen_of(outcome: str) -> tuple[str, str] | None:
    head = _CHOSEN.match(outcome)
    if head is None:
        return None
    rest = outcome[head.end() :]
    quoted = _QUOTED.match(rest) or _BARE.match(rest)
    if quoted is None:
        return None
    chosen = _unlinked(next(filter(None, quoted.groups()))).removesuffix("**")
    after = rest[quoted.end() :]
    return chosen, after[end.end() :].strip() if (end := _BECAUSE.match(after)) else after.strip()


def alternatives_of(outline: Outline, chosen: str | None) -> tuple[list[dict[str, str]], str]:
    """Return the alternatives (``option``, ``why_not``), and the text about the chosen option."""
    reasons = list(_reasons(outline))
    pieces = [piece for piece in outline.of(Part.OPTIONS) if len(piece.headings) == 1]
    rows = [row for piece in pieces for row in option_rows(piece.text)]
    listed = [option for piece in pieces for option in _items(piece.text)]
    reasons = reasons or [
        (name, why.strip()) for piece in pieces if not listed for name, why in _LEAD.findall(piece.text)
    ]
    options = listed or [name for name, _ in reasons]
    if rows:
        choices = rows
    elif reasons or not listed:
        choices = [(option, _take(reasons, option)) for option in options]
    else:
        choices = [_split(option) for option in options]
    number = _option_number(chosen, [option for option, _ in choices])
    reason = choices.pop(number)[1] if number is not None else ""
    label = _label_in(outline)
    alternatives = [
        (option, why_not)
        for option, why_not in choices
        if option and not _is_chosen(option, why_not) and (not label or _label_of(option) != label)
    ]
    return [{"option": _unmarked(option), "why_not": why_not} for option, why_not in alternatives], reason


def _unmarked(option: str) -> str:
    return plain(option) if option.startswith("**") else option


# `Adopt Option (c)`: the label of the chosen option in the first sentence of the outcome
def _label_in(outline: Outline) -> str:
    match = _CHOSEN_LABEL.match(plain(folded(outline.of(Part.OUTCOME), 1)[:300]))
    return match[1].lower() if match else ""


def _label_of(option: str) -> str:
    match = _LABEL.match(plain(option))
    return next(filter(None, match.groups())).lower() if match else ""


def _is_chosen(option: str, why_not: str) -> bool:
    return bool(_MARK.search(option) or _IS_CHOSEN.match(why_not.split("\n", maxsplit=1)[0]))


def option_rows(text: str) -> list[tuple[str, str]]:
    """Return the options of a Markdown table with their reasons; none if it has no column of options."""
    rows = [[_unlinked(plain(cell.strip())) for cell in _CELL.split(row)] for row in _ROW.findall(text)]
    if len(rows) < 3 or not _RULE.fullmatch("|".join(rows[1])):
        return []
    head = [normal_name(cell) for cell in rows[0]]
    if head[0] not in OPTION_COLUMNS.split("|") or len(head) < 2:
        return []
    reason = next((column for column, name in enumerate(head) if column and name in REASON_COLUMNS.split("|")), None)
    options = [
        (row[0], row[reason] if reason is not None and reason < len(row) else _described(rows[0], row))
        for row in rows[2:]
    ]
    return [(option, why_not) for option, why_not in options if option]


# `Pros: simple; Cons: late`, without a column of reasons
def _described(head: Sequence[str], row: Sequence[str]) -> str:
    return "; ".join(f"{name}: {cell}" for name, cell in zip(head[1:], row[1:], strict=False) if cell)


# Options with a heading of their own, and the text below it.
def _reasons(outline: Outline) -> Iterator[tuple[str, str]]:
    named: dict[str, list[Piece]] = {}
    for piece in outline.of(Part.PROS, Part.OPTIONS):
        if len(piece.headings) > 1:
            named.setdefault(piece.headings[1], []).append(piece)
    for name, pieces in named.items():
        yield name, folded(pieces, 2)


# Items of the outermost list, each on one line.
def _items(text: str) -> Iterator[str]:
    item: list[str] = []
    for line in [*text.split("\n"), ""]:
        starts = _ITEM.match(line)
        if (starts or not line.strip()) and item:
            yield _unlinked(" ".join(item))
            item = []
        if starts:
            item = [line[starts.end() :].strip()]
        elif item:
            item.append(line.strip())


def _unlinked(option: str) -> str:
    linked = _LINKED.match(option.strip())
    return linked[1] if linked else option.strip()


# Removes the reason, so that no second option gets it.
def _take(reasons: list[tuple[str, str]], option: str) -> str:
    number = _option_number(option, [name for name, _ in reasons])
    return "" if number is None else reasons.pop(number)[1]


# Equal names match first, then a name that starts with the other.
def _option_number(wanted: str | None, names: Sequence[str]) -> int | None:
    if wanted is None:
        return None
    key, keys = _key(wanted), [_key(name) for name in names]
    for is_meant in (key.__eq__, key.startswith, lambda name: name.startswith(key)):
        for number, name in enumerate(keys):
            if name and key and is_meant(name):
                return number
    return None


def _key(name: str) -> str:
    return _NUMBERED.sub("", plain(name)).lower().strip(" .\"'")


# `Redis — another process to run`: option and reason on one line.
def _split(option: str) -> tuple[str, str]:
    name, *why_not = _DASH.split(option, maxsplit=1)
    if _LABEL.fullmatch(name.strip()) and len(option) <= _MAX_NAME:
        return option, ""
    parts = _COLON.fullmatch(option)
    if parts and len(parts[1]) < len(name):
        name, why_not = parts[1], [parts[2]]
    return plain(name) if why_not else name, "".join(why_not)
