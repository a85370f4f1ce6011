from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from decisions.events import Alternative
from decisions.importing.links import Link, links_in, without_links
from decisions.importing.options import alternatives_of, chosen_of
from decisions.importing.outline import Outline, Part, Piece, folded, moment_of, outline_of, status_of
from decisions.models import DecisionStatus, EdgeRelation
from decisions.schemas import Alternatives
from memories.importing.files import split_front_matter
from memoryhub.core.errors import Invalid
from memoryhub.core.schemas import MAX_AUTHOR
from memoryhub.core.text import flat
from memoryhub.core.validation import explain

_AUTHORS = ("decision-makers", "deciders", "decision makers", "decisionmakers", "author", "authors", "owner", "owners")
_LISTS = ("commits", "files", "prs", "notes", "validations")
_TEXTS = ("title", "context", "chosen", "rationale")
_NAMED = ("impact", "phase")
_OF_SEVERAL_LINES = ("notes", "validations")
_ALTERNATIVES: TypeAdapter[list[Alternative]] = TypeAdapter(Alternatives)


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
    links: list[Link]
    topic: str | None = None
    # Fields that only the front matter has: impact, phase and evidence.
    more: dict[str, Any] = field(default_factory=dict)


def read_adr(text: str, *, otherwise_title: str = "") -> Adr:
    """Parse a record; a decision's own field in the front matter (``chosen: …``) overrides the body."""
    matter, body = split_front_matter(text)
    outline = outline_of(body)
    status = _first(matter, outline, ("status",), Part.STATUS)
    fields = _body(outline)
    fields |= {name: str(matter[name]) for name in _TEXTS if name in matter}
    if not fields["chosen"].strip() and not _is_proposal(status):
        raise Invalid("there is no section Decision or Decision Outcome")
    return Adr(
        title=flat(fields["title"]) or otherwise_title,
        context=fields["context"],
        chosen=fields["chosen"],
        rationale=fields["rationale"],
        alternatives=_alternatives(matter.get("alternatives", fields["alternatives"])),
        status=status_of(status),
        decided_at=moment_of(_first(matter, outline, ("date",), Part.DATE)),
        author=flat(_first(matter, outline, _AUTHORS, Part.AUTHOR))[:MAX_AUTHOR],
        links=list(dict.fromkeys([*links_in(status), *_links(matter, outline)])),
        topic=flat(str(matter["topic"])) if "topic" in matter else None,
        more={name: _more(name, matter[name]) for name in (*_NAMED, *_LISTS) if matter.get(name)},
    )


# A proposal may have no choice yet, but a text without both is no record.
def _is_proposal(status: str) -> bool:
    try:
        return bool(status.strip()) and status_of(status) is DecisionStatus.PROPOSED
    except Invalid:
        return False


# Texts of one line, except notes and validations.
def _more(name: str, given: Any) -> Any:
    if name not in _OF_SEVERAL_LINES and isinstance(given, list):
        return [_more(name, item) for item in given]
    return flat(given) if isinstance(given, str) and name not in _OF_SEVERAL_LINES else given


def _body(outline: Outline) -> dict[str, Any]:
    outcome = folded(outline.of(Part.OUTCOME), 1)
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
    yield folded(outline.of(Part.CONTEXT), 1)
    for piece in outline.of(Part.OTHER):
        yield folded([piece], 0)
    for piece in outline.of(Part.OPTIONS):
        if len(piece.headings) == 1 and not re.search(r"^(?:[*+-]|\d+[.)])[ \t]", piece.text, re.MULTILINE):
            yield folded([piece], 0)


# The rationale and the consequences, these with headings unless they are all there is.
def _reasons(outline: Outline, has_because: bool) -> Iterator[str]:  # noqa: FBT001
    yield from (folded([piece], len(piece.headings)) for piece in outline.of(Part.RATIONALE))
    pieces = outline.of(Part.CONSEQUENCES)
    others = has_because or outline.of(Part.RATIONALE) or len({_last(piece) for piece in pieces}) > 1
    for piece in pieces:
        yield f"### {_last(piece)}\n\n{piece.text}" if others else piece.text
    for piece in outline.of(Part.LINKS):
        if rest := without_links(piece.text):
            yield f"### {_last(piece)}\n\n{rest}"


def _last(piece: Piece) -> str:
    return piece.headings[-1]


def _joined(texts: Iterable[str]) -> str:
    return "\n\n".join(texts)


def _alternatives(given: Any) -> list[Alternative]:
    try:
        return _ALTERNATIVES.validate_python(given)
    except ValidationError as error:
        raise Invalid(f"alternatives: {explain(error)}") from error


# A short field: from the front matter, the fields above the first heading, or its own section.
def _first(matter: dict[str, Any], outline: Outline, names: tuple[str, ...], part: Part) -> str:
    for fields in (matter, outline.meta):
        given = next((fields[name] for name in names if fields.get(name)), None)
        if given:
            return ", ".join(map(str, given)) if isinstance(given, list) else str(given)
    return folded(outline.of(part), 1)


# Only declared links: prose may mention other records without a relation.
def _links(matter: dict[str, Any], outline: Outline) -> Iterator[Link]:
    if "links" in matter:
        yield from links_in("\n\n".join(map(str, matter["links"])))
        return
    yield from links_in(outline.preamble)
    for piece in outline.of(Part.LINKS):
        yield from links_in(piece.text, otherwise=EdgeRelation.RELATES_TO)
