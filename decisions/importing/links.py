"""What a record says of others: ``Superseded by [3. Title](0003-title.md)``, ``Amends ADR-0002``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from decisions.models import EdgeRelation

_FORWARD = {
    EdgeRelation.SUPERSEDES: ("supersedes", "supercedes", "replaces", "obsoletes"),
    EdgeRelation.REFINES: ("refines", "amends", "clarifies", "extends", "updates"),
    EdgeRelation.DEPENDS_ON: ("depends on", "requires", "builds on"),
    EdgeRelation.CONFLICTS_WITH: ("conflicts with", "contradicts"),
    EdgeRelation.RELATES_TO: ("relates to", "related to", "see also"),
}
_BACKWARD = {
    EdgeRelation.SUPERSEDES: ("superseded by", "superceded by", "replaced by", "obsoleted by"),
    EdgeRelation.REFINES: ("refined by", "amended by", "clarified by", "extended by", "updated by"),
    EdgeRelation.DEPENDS_ON: ("required by",),
}
_RELATIONS = {
    phrase: (relation, is_backward)
    for is_backward, phrases in ((False, _FORWARD), (True, _BACKWARD))
    for relation, names in phrases.items()
    for phrase in names
}
_TOKEN = re.compile(
    r"!?\[(?:[^\[\]\\]|\\.)*\]\(\s*<?(?P<path>[^()\s<>]+)>?[^()]*\)"
    rf"|\b(?P<relation>{'|'.join(phrase.replace(' ', chr(92) + 's+') for phrase in _RELATIONS)})\b"
    r"|\bADR[-_ ]?#?(?P<number>\d{1,6})\b"
    r"|(?P<end>;|\.(?=\s|\Z)|\n\s*\n|\n(?=\s*[*+-]\s))",
    re.IGNORECASE,
)
_RECORD = re.compile(r"[^:?#]+\.(?:md|markdown|mdx)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Link:
    """How a record stands to another, which is named by its path from here or by its number."""

    relation: EdgeRelation
    target: str
    is_backward: bool = False
    """Whether the other stands so to this one: ``superseded by``."""


def links_in(text: str, *, otherwise: EdgeRelation | None = None) -> list[Link]:
    """Return the links to other records that a text gives with a relation, or has without one where ``otherwise`` is.

    A relation counts to the end of its sentence, clause or list item.
    """
    return list(dict.fromkeys(_links(text, otherwise)))


def _links(text: str, otherwise: EdgeRelation | None) -> Iterator[Link]:
    nothing = (otherwise, False)
    relation, is_backward = nothing
    for token in _TOKEN.finditer(text):
        if token["relation"]:
            relation, is_backward = _RELATIONS[" ".join(token["relation"].lower().split())]
        elif token["end"]:
            relation, is_backward = nothing
        elif relation and (target := _target(token)):
            yield Link(relation, target, is_backward)


def _target(token: re.Match[str]) -> str:
    """Return what a link names: the path of a Markdown file, or a number; empty where it names something else."""
    if token["number"]:
        return token["number"]
    path = token["path"].split("#")[0]
    return path if _RECORD.fullmatch(path) else ""


def without_links(text: str) -> str:
    """Return the text without the list items and lines that link to other records, or link and say nothing more."""
    kept = [line for line in text.split("\n") if not links_in(line, otherwise=EdgeRelation.RELATES_TO)]
    return "\n".join(kept).strip()
