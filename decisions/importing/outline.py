"""Outline of a record in Markdown or reStructuredText: title, fields above the first heading, and sections by kind."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from decisions.importing.vocabulary import PART_OF, RecordPart, normal_name
from memories.importing.sections import TextSection, split_sections
from memoryhub.core import clock
from memoryhub.core.errors import Invalid

_COMMENT = re.compile(r"(^(`{3,}|~{3,}).*?^\2[^\n]*$)|<!--.*?-->", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"\A(?:adr[-_ #]*\d+\s*[.:)–—-]?|\d+\s*[.:)–—-])\s+", re.IGNORECASE)
# `- **Status**: accepted`, `Status: accepted`, `| Status | accepted |`
_FIELD = re.compile(
    r"(?:[*+-][ \t]+)?[*_]{0,3}(?P<name>[^\W\d_][\w '’/-]{0,40}?)[*_]{0,3}[ \t]*[:：][*_]{0,3}[ \t]*(?P<value>.*)"
    r"|\|[ \t]*[*_]{0,3}(?P<head>[^\W\d_][\w '’/-]{0,40}?)[*_]{0,3}[ \t]*:?[*_]{0,3}[ \t]*\|(?P<cell>[^|]*)\|"
)
_ITEM_OR_ROW = re.compile(r"[*+-][ \t]|[ \t]*\|")


_FIELDS = (RecordPart.STATUS, RecordPart.DATE, RecordPart.AUTHOR)


@dataclass(frozen=True, slots=True)
class OutlineSection:
    """The text under one heading, with the headings from its part's down."""

    part: RecordPart
    headings: tuple[str, ...]
    text: str


@dataclass(slots=True)
class Outline:
    title: str = ""
    # Fields above the first heading, such as `Status: accepted`, by name.
    meta: dict[str, str] = field(default_factory=dict)
    preamble: str = ""
    sections: list[OutlineSection] = field(default_factory=list)

    def of(self, *parts: RecordPart) -> list[OutlineSection]:
        return [section for section in self.sections if section.part in parts]


def outline_of(body: str, ending: str = ".md") -> Outline:
    """Parse a record without its front matter; comments are dropped."""
    text = as_markdown(body) if ending == ".rst" else _COMMENT.sub(lambda match: match[1] or "", body)
    sections = split_sections(text, ending)
    outline = Outline(title=_title(sections))
    for section in sections:
        names = section.headings[1:] if section.headings[:1] == (outline.title,) else section.headings
        if names:
            outline.sections.append(OutlineSection(*_part(names), section.text))
        else:
            outline.meta, outline.preamble = _meta(section.text)
    outline.title = _NUMBER.sub("", outline.title)
    return outline


# The first heading, unless it is a standard section.
def _title(sections: Iterable[TextSection]) -> str:
    first = next((section.headings[0] for section in sections if section.headings), "")
    return "" if normal_name(first) in PART_OF else first


# Rationale and consequences below the outcome are parts of their own, and so are alternatives below any section.
def _part(names: tuple[str, ...]) -> tuple[RecordPart, tuple[str, ...]]:
    parts = [PART_OF.get(normal_name(name), RecordPart.OTHER) for name in names]
    if RecordPart.OPTIONS in parts[1:] and parts[0] in (RecordPart.RATIONALE, RecordPart.OUTCOME, RecordPart.CONTEXT):
        start = parts.index(RecordPart.OPTIONS)
        return RecordPart.OPTIONS, names[start:]
    if parts[0] is RecordPart.OUTCOME and parts[1:2] in ([RecordPart.RATIONALE], [RecordPart.CONSEQUENCES]):
        return parts[1], names
    return parts[0], names


# A field ends at the next field or an empty line; the other lines are the preamble.
def _meta(text: str) -> tuple[dict[str, str], str]:
    meta: dict[str, str] = {}
    preamble: list[str] = []
    key = ""
    for line in text.split("\n"):
        match = _FIELD.fullmatch(line.strip())
        part = PART_OF.get(normal_name((match["name"] or match["head"]) if match else ""))
        if match and part in _FIELDS:
            key = str(part)
            meta.setdefault(key, (match["value"] or match["cell"] or "").strip())
        elif key and line.strip() and not match and not _ITEM_OR_ROW.match(line):
            meta[key] += f"\n{line.strip()}"
        else:
            key = ""
            preamble.append(line)
    return meta, "\n".join(preamble).strip()


def folded(sections: Iterable[OutlineSection], depth: int) -> str:
    """Join the texts of sections, with the headings below ``depth``."""
    texts = []
    for section in sections:
        if len(section.headings) > depth:
            texts.append(f"{'#' * min(max(len(section.headings) + 1, 3), 6)} {section.headings[-1]}")
        texts.append(section.text)
    return "\n\n".join(texts)


_DATE_FORMS = (
    "%Y/%m/%d",
    "%d.%m.%Y",
    "%d %B %Y",
    "%d %b %Y",
    "%B %d, %Y",
    "%b %d, %Y",
    "%B %d %Y",
    "%b %d %Y",
    "%B %Y",
    "%b %Y",
)
_YEAR_MONTH_DAY = re.compile(r"(\d{4})年(\d{1,2})月(\d{1,2})日")
_ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?![\dT])")


def moment_of(text: str) -> datetime | None:
    """Parse a date or time; a date is midnight UTC, an empty text None."""
    date = text.strip().strip("*_`")
    if not date:
        return None
    if east_asian := _YEAR_MONTH_DAY.search(date):
        date = "-".join((east_asian[1], east_asian[2].zfill(2), east_asian[3].zfill(2)))
    day = _ISO_DAY.search(date)
    written_date = day[0] if day else date
    with suppress(ValueError):
        return clock.from_text(written_date)
    for form in _DATE_FORMS:
        with suppress(ValueError):
            return datetime.strptime(written_date, form).replace(tzinfo=UTC)
    raise Invalid(f"date {date[:60]!r} is not a date; write it as 2026-11-20")


# A comment or a directive with what is indented below it; the text of admonitions and code stays
_RST_COMMENT = re.compile(r"^\.\.(?:[ \t]+(?!\S+::|_)[^\n]*)?\n(?:[ \t]+[^\n]*\n|\n(?=[ \t]))*", re.MULTILINE)
_RST_CONTENTS = re.compile(
    r"^\.\.[ \t]+(?:contents|toctree|sectnum)::[^\n]*\n(?:[ \t]+[^\n]*\n|\n(?=[ \t]))*", re.MULTILINE
)
_RST_TARGET = re.compile(r"^\.\. _`?([^\n:`]+)`?:[ \t]+(\S+)[ \t]*$", re.MULTILINE)
_RST_LABEL = re.compile(r"^\.\. _[^\n:]+:[ \t]*\n", re.MULTILINE)
_RST_FIELD = re.compile(r"^:([^\n:]+):[ \t]+(?=\S)", re.MULTILINE)
_RST_EMBEDDED = re.compile(r"`([^`<]++)<([^`<>]+)>`__?")
_RST_ROLE = re.compile(r":(?:doc|ref|file):`(?:([^`<]++)<([^`<>]+)>|([^`<]+))`")
_RST_NAMED = re.compile(r"`([^`]+)`_\b|(?<![\w`.-])([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)_(?!\w)")


def as_markdown(text: str) -> str:
    """Return the text with links, fields and literals in Markdown's form, without comments and link targets."""
    targets = {" ".join(name.split()).lower(): address for name, address in _RST_TARGET.findall(text)}

    def named(match: re.Match[str]) -> str:
        name = " ".join((match[1] or match[2]).split())
        address = targets.get(name.lower())
        return f"[{name}]({address})" if address else match[0]

    def role(match: re.Match[str]) -> str:
        address = match[2] or match[3]
        return f"[{(match[1] or address).strip()}]({address if address.endswith('.rst') else f'{address}.rst'})"

    bare = _RST_CONTENTS.sub("", _RST_COMMENT.sub("", _RST_LABEL.sub("", _RST_TARGET.sub("", text))))
    linked = _RST_EMBEDDED.sub(lambda link: f"[{link[1].strip()}]({link[2]})", _RST_ROLE.sub(role, bare))
    return _RST_FIELD.sub(r"\1: ", _RST_NAMED.sub(named, linked).replace("``", "`"))
