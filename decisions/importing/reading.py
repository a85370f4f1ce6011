"""Parse a decision record: its texts, its options, its status and its links."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
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

_LISTS = ("commits", "files", "prs", "notes", "validations", "checks")
_EMPTY = ("null", "none", "n/a", "~", "-", "tbd", "[]")
_TEXTS = ("title", "context", "chosen", "rationale")
_NAMED = ("impact", "phase")
_OF_SEVERAL_LINES = ("notes", "validations")
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
    if name not in _OF_SEVERAL_LINES and isinstance(value, str):
        return flat(value)
    return value


def _body(outline: Outline) -> dict[str, Any]:
    outcome = folded(outline.of(RecordPart.OUTCOME), 1)
    choice = chosen_of(outcome)
    chosen, because = choice or (outcome, "")
    alternatives, pros = alternatives_of(outline, chosen if choice else None)
    return {
        "title": outline.title,
        "context": "\n\n".join(filter(None, [outline.preamble, *_context(outline)])),
        "chosen": chosen,
        "rationale": "\n\n".join(filter(None, [because, *_reasons(outline, has_because=bool(because)), pros])),
        "alternatives": alternatives,
    }


# Sections of unknown kind become part of the context, under their headings.
def _context(outline: Outline) -> Iterator[str]:
    yield folded(outline.of(RecordPart.CONTEXT), 1)
    for section in outline.of(RecordPart.OTHER):
        yield folded([section], 0)
    for section in outline.of(RecordPart.OPTIONS):
        # A table of options says more than the alternatives hold
        if len(section.headings) == 1 and (option_rows(section.text) or not _LIST_ITEM.search(section.text)):
            yield folded([section], 0)


# The rationale and the consequences, these with headings unless they are all there is.
def _reasons(outline: Outline, *, has_because: bool) -> Iterator[str]:
    rationale = outline.of(RecordPart.RATIONALE)
    yield from (folded([section], len(section.headings)) for section in rationale)
    consequences = outline.of(RecordPart.CONSEQUENCES)
    headings = {section.headings[-1] for section in consequences}
    has_siblings = has_because or rationale or len(headings) > 1
    for section in consequences:
        yield f"### {section.headings[-1]}\n\n{section.text}" if has_siblings else section.text
    for section in outline.of(RecordPart.LINKS):
        if text := without_links(section.text):
            yield f"### {section.headings[-1]}\n\n{text}"


def _alternatives(options: Any) -> list[Alternative]:
    if isinstance(options, list):
        options = list(map(_shortened, options))
    try:
        return _ALTERNATIVES.validate_python(options)
    except ValidationError as error:
        raise Invalid(f"alternatives: {explain(error)}") from error


def _shortened(option: Any) -> Any:
    if not isinstance(option, dict):
        return option
    shortened = dict(option)
    for name, limit in (("option", MAX_OPTION), ("why_not", MAX_WHY_NOT)):
        value = option.get(name)
        if isinstance(value, str) and len(value) > limit:
            shortened[name] = f"{value[: limit - 1]}…"
    return shortened


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
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    is_list = len(lines) > 1 and all(map(_LIST_ITEM.match, lines))
    separator = ", " if is_list else " "
    return flat(separator.join(plain(_LIST_ITEM.sub("", line)) for line in lines))[:MAX_AUTHOR]


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
# At the start of a line
_LIST_ITEM = re.compile(r"^(?:[*+-]|\d+[.)])[ \t]+", re.MULTILINE)
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
    because = _BECAUSE.match(after)
    if because:
        after = after[because.end() :]
    return chosen, after.strip()


def alternatives_of(outline: Outline, chosen: str | None) -> tuple[list[dict[str, str]], str]:
    """Return the alternatives (``option``, ``why_not``), and the text about the chosen option."""
    choices = _choices(outline)
    reason = ""
    number = _option_number(chosen, [option for option, _ in choices])
    if number is not None:
        reason = choices.pop(number)[1]
    # `Adopt Option (c)`: the label of the chosen option in the first sentence of the outcome
    chosen_label = _CHOSEN_LABEL.match(plain(folded(outline.of(RecordPart.OUTCOME), 1)[:300]))
    label = chosen_label[1].lower() if chosen_label else ""
    alternatives = []
    for option, why_not in choices:
        if option and not _is_chosen(option, why_not) and (not label or _label_of(option) != label):
            name = plain(option) if option.startswith("**") else option
            alternatives.append({"option": name, "why_not": why_not})
    return alternatives, reason


# Options with their reasons: of tables, else of lists and headings, else of paragraphs
def _choices(outline: Outline) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    listed: list[str] = []
    paragraphs: list[tuple[str, str]] = []
    for section in outline.of(RecordPart.OPTIONS):
        if len(section.headings) == 1:
            rows += option_rows(section.text)
            listed += _items(section.text)
            paragraphs += _LEAD.findall(section.text)
    if rows:
        return rows
    reasons = list(_reasons_by_option(outline))
    if not reasons and not listed:
        reasons = [(name, why.strip()) for name, why in paragraphs]
    if reasons or not listed:
        options = listed or [name for name, _ in reasons]
        return [(option, _take_reason(reasons, option)) for option in options]
    return list(map(_split_option, listed))


def _label_of(option: str) -> str:
    match = _LABEL.match(plain(option))
    return (match[1] or match[2]).lower() if match else ""


def _is_chosen(option: str, why_not: str) -> bool:
    return bool(_CHOSEN_MARK.search(option) or _IS_CHOSEN.match(why_not.split("\n", maxsplit=1)[0]))


def _table_cells(row: str) -> list[str]:
    return [_unlinked(plain(cell.strip())) for cell in _CELL.split(row)]


def option_rows(text: str) -> list[tuple[str, str]]:
    """Return the options of a Markdown table with their reasons; none if it has no column of options."""
    rows = [_table_cells(row) for row in _ROW.findall(text)]
    if len(rows) < 3 or not _RULE.fullmatch("|".join(rows[1])):
        return []
    head = [normal_name(cell) for cell in rows[0]]
    if head[0] not in OPTION_COLUMNS.split("|") or len(head) < 2:
        return []
    reason = next((column for column, name in enumerate(head) if column and name in REASON_COLUMNS.split("|")), None)
    options = []
    for option, *cells in rows[2:]:
        if not option:
            continue
        if reason is not None and reason <= len(cells):
            options.append((option, cells[reason - 1]))
        else:  # `Pros: simple; Cons: late`
            parts = (f"{name}: {cell}" for name, cell in zip(rows[0][1:], cells, strict=False) if cell)
            options.append((option, "; ".join(parts)))
    return options


# Options with a heading of their own, and the text below it.
def _reasons_by_option(outline: Outline) -> Iterator[tuple[str, str]]:
    by_name: dict[str, list[OutlineSection]] = {}
    for section in outline.of(RecordPart.PROS, RecordPart.OPTIONS):
        if len(section.headings) > 1:
            by_name.setdefault(section.headings[1], []).append(section)
    for name, sections in by_name.items():
        yield name, folded(sections, 2)


# Items of the outermost list, each on one line.
def _items(text: str) -> Iterator[str]:
    item: list[str] = []
    for line in [*text.split("\n"), ""]:
        starts = _LIST_ITEM.match(line)
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
def _take_reason(reasons: list[tuple[str, str]], option: str) -> str:
    number = _option_number(option, [name for name, _ in reasons])
    return "" if number is None else reasons.pop(number)[1]


# Equal names match first, then a name that starts with the other.
def _option_number(option: str | None, names: Sequence[str]) -> int | None:
    key = _option_key(option or "")
    if not key:
        return None
    keys = list(map(_option_key, names))
    if key in keys:
        return keys.index(key)
    for number, name in enumerate(keys):
        if name and key.startswith(name):
            return number
    for number, name in enumerate(keys):
        if name.startswith(key):
            return number
    return None


def _option_key(name: str) -> str:
    return _NUMBERED.sub("", plain(name)).lower().strip(" .\"'")


# `Redis — another process to run`: option and reason on one line.
def _split_option(option: str) -> tuple[str, str]:
    name, *why_not = _DASH.split(option, maxsplit=1)
    if _LABEL.fullmatch(name.strip()) and len(option) <= _MAX_NAME:
        return option, ""
    parts = _COLON.fullmatch(option)
    if parts and len(parts[1]) < len(name):
        return plain(parts[1]), parts[2]
    if why_not:
        return plain(name), why_not[0]
    return name, ""
