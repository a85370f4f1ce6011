"""Parse a decision record: its texts, its options, its status and its links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from decisions.events import MAX_OPTION, MAX_WHY_NOT, Alternative
from decisions.importing.links import RecordLink, links_in, named_records, without_links
from decisions.importing.outline import Outline, OutlineSection, folded, moment_of, outline_of
from decisions.importing.vocabulary import (
    BECAUSE,
    CHOSEN_MARKS,
    CHOSEN_OPTION,
    CHOSEN_WORDS,
    OPTION_COLUMNS,
    PART_OF,
    REASON_COLUMNS,
    RELATION_OF_FIELD,
    RecordPart,
    normal_name,
    status_of,
)
from decisions.models import DecisionStatus, EdgeRelation
from decisions.schemas import MAX_ALTERNATIVES, MAX_TEXT, MAX_TITLE, AlternativeInput
from memories.importing.files import split_front_matter
from memories.importing.sections import plain, split_text
from memoryhub.core.errors import Invalid
from memoryhub.core.schemas import MAX_AUTHOR
from memoryhub.core.text import flat
from memoryhub.core.validation import explain

_LISTS = ("commits", "files", "prs", "notes", "validations")
_EMPTY = ("null", "none", "n/a", "~", "-", "tbd", "[]")
_TEXTS = ("title", "context", "chosen", "rationale")
_NAMED = ("impact", "phase")
_OF_SEVERAL_LINES = ("notes", "validations")
_MARK = re.compile(r"\A(?:[*+-]|\d+[.)])[ \t]+")
_LISTED = re.compile(r"^(?:[*+-]|\d+[.)])[ \t]", re.MULTILINE)
_ALTERNATIVES: TypeAdapter[list[Alternative]] = TypeAdapter(list[AlternativeInput])


@dataclass(slots=True)
class Adr:
    """A parsed record, with the fields of a decision."""

    title: str
    context: str
    chosen: str
    rationale: str
    alternatives: list[Alternative]
    status: DecisionStatus
    decided_at: datetime | None
    author: str
    links: list[RecordLink]
    topic: str | None = None
    # Fields that only the front matter has: impact, phase and evidence.
    more: dict[str, Any] = field(default_factory=dict)


def read_adr(text: str, *, otherwise_title: str = "", ending: str = ".md") -> Adr:
    """Parse a record; a decision's own field in the front matter (``chosen: …``) overrides the body."""
    matter, body = split_front_matter(text)
    outline = outline_of(body, ending)
    status = _first(matter, outline, RecordPart.STATUS)
    fields = _body(outline)
    fields |= {name: str(matter[name]) for name in _TEXTS if name in matter}
    if not fields["chosen"].strip() and not _may_lack_choice(status):
        raise Invalid("there is no section Decision or Decision Outcome")
    return Adr(
        title=flat(fields["title"]) or otherwise_title,
        context=fields["context"],
        chosen=fields["chosen"],
        rationale=fields["rationale"],
        alternatives=_alternatives(matter.get("alternatives", fields["alternatives"])),
        status=status_of(status),
        decided_at=moment_of(_first(matter, outline, RecordPart.DATE)),
        author=_names(_first(matter, outline, RecordPart.AUTHOR)),
        links=list(dict.fromkeys(_links(matter, outline))),
        topic=flat(str(matter["topic"])) if "topic" in matter else None,
        more={name: _more(name, matter[name]) for name in (*_NAMED, *_LISTS) if matter.get(name)},
    )


def shorten(adr: Adr, path: str) -> list[str]:
    """Cut what is longer than a decision may hold, and return a sentence for each cut."""
    cuts = []
    if len(adr.title) > MAX_TITLE:
        adr.title = f"{adr.title[: MAX_TITLE - 1].rstrip()}…"
        cuts.append(f"its title has more than {MAX_TITLE} characters; the rest is left out")
    for name in ("context", "chosen", "rationale"):
        text = getattr(adr, name)
        if len(text) > MAX_TEXT:
            pointer = f"\n\n(The rest is in {path}.)"
            setattr(adr, name, split_text(text, MAX_TEXT - len(pointer))[0] + pointer)
            cuts.append(f"its {name} has {len(text):,} characters, more than {MAX_TEXT:,}; the rest is left out")
    if len(adr.alternatives) > MAX_ALTERNATIVES:
        cuts.append(f"it has {len(adr.alternatives)} alternatives; the first {MAX_ALTERNATIVES} are imported")
        del adr.alternatives[MAX_ALTERNATIVES:]
    return cuts


# A proposal may have no choice yet, nor one that was rejected, but a text without a status is no record.
def _may_lack_choice(status: str) -> bool:
    try:
        return bool(status.strip()) and status_of(status) in (DecisionStatus.PROPOSED, DecisionStatus.REJECTED)
    except Invalid:
        return False


# Texts of one line, except notes and validations.
def _more(name: str, value: Any) -> Any:
    if name not in _OF_SEVERAL_LINES and isinstance(value, list):
        return [_more(name, item) for item in value]
    return flat(value) if isinstance(value, str) and name not in _OF_SEVERAL_LINES else value


def _body(outline: Outline) -> dict[str, Any]:
    outcome = folded(outline.of(RecordPart.OUTCOME), 1)
    named = chosen_of(outcome)
    chosen, because = named or (outcome, "")
    alternatives, pros = alternatives_of(outline, chosen if named else None)
    return {
        "title": outline.title,
        "context": _joined(filter(None, [outline.preamble, *_context(outline)])),
        "chosen": chosen,
        "rationale": _joined(filter(None, [because, *_reasons(outline, bool(because)), pros])),
        "alternatives": alternatives,
    }


# Sections of unknown kind become part of the context, under their headings.
def _context(outline: Outline) -> Iterator[str]:
    yield folded(outline.of(RecordPart.CONTEXT), 1)
    for piece in outline.of(RecordPart.OTHER):
        yield folded([piece], 0)
    for piece in outline.of(RecordPart.OPTIONS):
        if len(piece.headings) == 1 and (_has_table(piece) or not _LISTED.search(piece.text)):
            yield folded([piece], 0)


# A table of options says more than the alternatives hold
def _has_table(piece: OutlineSection) -> bool:
    return bool(option_rows(piece.text))


# The rationale and the consequences, these with headings unless they are all there is.
def _reasons(outline: Outline, has_because: bool) -> Iterator[str]:  # noqa: FBT001
    yield from (folded([piece], len(piece.headings)) for piece in outline.of(RecordPart.RATIONALE))
    pieces = outline.of(RecordPart.CONSEQUENCES)
    has_siblings = has_because or outline.of(RecordPart.RATIONALE) or len({_last(piece) for piece in pieces}) > 1
    for piece in pieces:
        yield f"### {_last(piece)}\n\n{piece.text}" if has_siblings else piece.text
    for piece in outline.of(RecordPart.LINKS):
        if text := without_links(piece.text):
            yield f"### {_last(piece)}\n\n{text}"


def _last(piece: OutlineSection) -> str:
    return piece.headings[-1]


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(texts)


def _alternatives(options: Any) -> list[Alternative]:
    if isinstance(options, list):
        options = [_shortened(option) for option in options]
    try:
        return _ALTERNATIVES.validate_python(options)
    except ValidationError as error:
        raise Invalid(f"alternatives: {explain(error)}") from error


def _shortened(option: Any) -> Any:
    if not isinstance(option, dict):
        return option
    limits = {"option": MAX_OPTION, "why_not": MAX_WHY_NOT}
    return {
        name: f"{value[: limits[name] - 1]}…"
        if isinstance(value, str) and len(value) > limits.get(name, len(value))
        else value
        for name, value in option.items()
    }


# A short field: from the front matter, the fields above the first heading, or its own section.
def _first(matter: dict[str, Any], outline: Outline, part: RecordPart) -> str:
    named = (value for name, value in matter.items() if PART_OF.get(normal_name(name)) is part)
    for value in (*named, outline.meta.get(part)):
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value or "")
        if text.strip() and text.strip().lower() not in _EMPTY:
            return text
    return folded(outline.of(part), 1)


# Names in a sentence, or one an item
def _names(text: str) -> str:
    items = [plain(_MARK.sub("", line.strip())) for line in text.split("\n") if line.strip()]
    is_list = len(items) > 1 and all(_MARK.match(line.strip()) for line in text.split("\n") if line.strip())
    return flat((", " if is_list else " ").join(items))[:MAX_AUTHOR]


# Only declared links: prose may mention other records without a relation.
def _links(matter: dict[str, Any], outline: Outline) -> Iterator[RecordLink]:
    for status in (
        str(matter.get("status", "")),
        outline.meta.get(RecordPart.STATUS, ""),
        folded(outline.of(RecordPart.STATUS), 1),
    ):
        yield from links_in(status)
    for name, value in matter.items():
        if relation := RELATION_OF_FIELD.get(normal_name(name)):
            yield from named_records(value, relation[0], is_backward=relation[1])
    if "links" in matter:
        yield from links_in("\n\n".join(map(str, matter["links"])))
        return
    yield from links_in(outline.preamble)
    for piece in outline.of(RecordPart.LINKS):
        yield from links_in(piece.text, otherwise=EdgeRelation.RELATES_TO)


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
_CHOSEN_MARK = re.compile(rf"\s*[(\[（]\W*(?:{CHOSEN_MARKS})\b[^()]*[)\]）]", re.IGNORECASE)
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
    after_label = outcome[head.end() :]
    quoted = _QUOTED.match(after_label) or _BARE.match(after_label)
    if quoted is None:
        return None
    chosen = _unlinked(next(filter(None, quoted.groups()))).removesuffix("**")
    after = after_label[quoted.end() :]
    return chosen, after[end.end() :].strip() if (end := _BECAUSE.match(after)) else after.strip()


def alternatives_of(outline: Outline, chosen: str | None) -> tuple[list[dict[str, str]], str]:
    """Return the alternatives (``option``, ``why_not``), and the text about the chosen option."""
    reasons = list(_reasons_by_option(outline))
    pieces = [piece for piece in outline.of(RecordPart.OPTIONS) if len(piece.headings) == 1]
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
    match = _CHOSEN_LABEL.match(plain(folded(outline.of(RecordPart.OUTCOME), 1)[:300]))
    return match[1].lower() if match else ""


def _label_of(option: str) -> str:
    match = _LABEL.match(plain(option))
    return next(filter(None, match.groups())).lower() if match else ""


def _is_chosen(option: str, why_not: str) -> bool:
    return bool(_CHOSEN_MARK.search(option) or _IS_CHOSEN.match(why_not.split("\n", maxsplit=1)[0]))


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
def _reasons_by_option(outline: Outline) -> Iterator[tuple[str, str]]:
    named: dict[str, list[OutlineSection]] = {}
    for piece in outline.of(RecordPart.PROS, RecordPart.OPTIONS):
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
def _option_number(option: str | None, names: Sequence[str]) -> int | None:
    if option is None:
        return None
    key, keys = _key(option), [_key(name) for name in names]
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
