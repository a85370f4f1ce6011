"""Outline of a record: title, fields above the first heading, and sections by kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from decisions.importing.links import links_in
from decisions.models import DecisionStatus
from memories.importing.sections import Section, parse_document
from memoryhub.core import clock
from memoryhub.core.errors import Invalid

_COMMENT = re.compile(r"(^(`{3,}|~{3,}).*?^\2[^\n]*$)|<!--.*?-->", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"\A(?:adr[-_ #]*\d+\s*[.:)–—-]?|\d+\s*[.:)–—-])\s+", re.IGNORECASE)
_META = re.compile(
    r"(?:[*+-][ \t]+)?[*_]*(status|date|deciders|decision[- ]?makers|authors?|owners?)[*_]*[ \t]*:[*_]*[ \t]*(.*)",
    re.IGNORECASE,
)
_OTHER_FIELD = re.compile(r"[*+-][ \t]|[*_]*[A-Z][\w ]{0,30}:")


class Part(StrEnum):
    STATUS = "status"
    DATE = "date"
    AUTHOR = "author"
    CONTEXT = "context"
    OPTIONS = "options"
    PROS = "pros"
    OUTCOME = "outcome"
    RATIONALE = "rationale"
    CONSEQUENCES = "consequences"
    LINKS = "links"
    OTHER = "other"


_NAMES = {
    Part.STATUS: "status",
    Part.DATE: "date",
    Part.AUTHOR: "deciders|decision makers|author|authors",
    Part.CONTEXT: "context|context and problem statement|problem|problem statement|background|issue|motivation",
    Part.OPTIONS: "considered options|options considered|alternatives considered|considered alternatives|alternatives|"
    "options",
    Part.PROS: "pros and cons of the options|pros and cons",
    Part.OUTCOME: "decision|decision outcome|outcome|resolution|solution",
    Part.RATIONALE: "rationale|justification|reasons|reasoning|argument",
    Part.CONSEQUENCES: "consequences|positive consequences|negative consequences|implications|confirmation|validation|"
    "compliance",
    Part.LINKS: "links|more information|related decisions|related adrs|references|see also",
}
_PART_OF = {name: part for part, names in _NAMES.items() for name in names.split("|")}


@dataclass(frozen=True, slots=True)
class Piece:
    """The text under one heading, with the headings from its part's down."""

    part: Part
    headings: tuple[str, ...]
    text: str


@dataclass(slots=True)
class Outline:
    title: str = ""
    # Fields above the first heading, such as `Status: accepted`, by name.
    meta: dict[str, str] = field(default_factory=dict)
    preamble: str = ""
    pieces: list[Piece] = field(default_factory=list)

    def of(self, *parts: Part) -> list[Piece]:
        return [piece for piece in self.pieces if piece.part in parts]


def outline_of(body: str) -> Outline:
    """Parse a record without its front matter; comments are dropped."""
    text = _COMMENT.sub(lambda match: match[1] or "", body)
    sections = parse_document(text, ".md").sections
    outline = Outline(title=_title(sections))
    for section in sections:
        names = section.headings[1:] if section.headings[:1] == (outline.title,) else section.headings
        if names:
            outline.pieces.append(Piece(_part(names), names, section.text))
        else:
            outline.meta, outline.preamble = _meta(section.text)
    outline.title = _NUMBER.sub("", outline.title)
    return outline


# The first heading, unless it is a standard section.
def _title(sections: Iterable[Section]) -> str:
    first = next((section.headings[0] for section in sections if section.headings), "")
    return "" if _name(first) in _PART_OF else first


# Rationale and consequences below the outcome are parts of their own.
def _part(names: tuple[str, ...]) -> Part:
    part = _PART_OF.get(_name(names[0]), Part.OTHER)
    if part is Part.OUTCOME and len(names) > 1:
        below = _PART_OF.get(_name(names[1]))
        return below if below in (Part.RATIONALE, Part.CONSEQUENCES) else part
    return part


def _name(heading: str) -> str:
    return " ".join(re.sub(r"\(.*?\)|[^a-z ]", " ", heading.lower()).split())


# A field ends at the next field or an empty line; the other lines are the preamble.
def _meta(text: str) -> tuple[dict[str, str], str]:
    meta: dict[str, str] = {}
    rest: list[str] = []
    key = ""
    for line in text.split("\n"):
        match = _META.fullmatch(line.strip())
        if match:
            key = match[1].lower()
            meta[key] = match[2].strip()
        elif key and line.strip() and not _OTHER_FIELD.match(line):
            meta[key] += f"\n{line.strip()}"
        else:
            key = ""
            rest.append(line)
    return meta, "\n".join(rest).strip()


def folded(pieces: Iterable[Piece], depth: int) -> str:
    """Join the texts of pieces, with the headings below ``depth``."""
    return "\n\n".join(_with_headings(pieces, depth))


def _with_headings(pieces: Iterable[Piece], depth: int) -> Iterator[str]:
    for piece in pieces:
        if len(piece.headings) > depth:
            yield f"{'#' * min(max(len(piece.headings) + 1, 3), 6)} {piece.headings[-1]}"
        yield piece.text


_STATUSES = {
    DecisionStatus.SUPERSEDED: "superseded superceded replaced obsoleted",
    DecisionStatus.DEPRECATED: "deprecated obsolete retired",
    DecisionStatus.REJECTED: "rejected declined withdrawn abandoned",
    DecisionStatus.PROPOSED: "proposed proposal draft pending wip rfc open review",
    DecisionStatus.ACCEPTED: "accepted approved agreed decided done implemented active adopted final",
}
_LINKED = re.compile(r"(?<!!)\[[^\[\]]*\]\([^()]*\)")
_DATE_FORMS = ("%Y/%m/%d", "%d.%m.%Y", "%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y")
_ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?![\dT])")


def status_of(text: str) -> DecisionStatus:
    """Parse a status; one that is empty or only names other records is accepted."""
    words = re.findall(r"[a-z]+", _LINKED.sub(" ", text).lower())
    if DecisionStatus.SUPERSEDED in map(_status_of_word, words):
        return DecisionStatus.SUPERSEDED
    named = [status for word in words if (status := _status_of_word(word))]
    if named:
        return named[0]
    if not words or links_in(text):
        return DecisionStatus.ACCEPTED
    raise Invalid(f"status {text.strip()[:60]!r} is unknown; use one of {', '.join(DecisionStatus)}")


def _status_of_word(word: str) -> DecisionStatus | None:
    return next((status for status, words in _STATUSES.items() if word in words.split()), None)


def moment_of(text: str) -> datetime | None:
    """Parse a date or time; a date is midnight UTC, an empty text None."""
    date = text.strip().strip("*_`")
    if not date:
        return None
    day = _ISO_DAY.match(date)
    for form in ("", *_DATE_FORMS):
        try:
            return _read(day[0] if day else date, form)
        except ValueError:
            continue
    raise Invalid(f"date {date[:60]!r} is not a date; write it as 2026-11-20")


def _read(text: str, form: str) -> datetime:
    return datetime.strptime(text, form).replace(tzinfo=UTC) if form else clock.from_text(text)
