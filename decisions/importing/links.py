"""What a record says of others: ``Superseded by [3. Title](0003-title.md)``, ``Amends ADR-0002``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from decisions.events import DECISION_MARKED, DECISION_RECORDED
from decisions.models import Decision, DecisionEdge, DecisionStatus, EdgeRelation
from memoryhub.core.models import RawEvent

_KEY = "import:adr:"
STATUS_OF_FILE = "its file says so"
"""The reason by which an import knows which statuses it has set itself."""


def key_of(path: str, *said: Any) -> str:
    """Return the idempotency key of a record's event: its file, and what it says after which decision."""
    return f"{_prefix_of(path)}{_digest(json.dumps(said, ensure_ascii=False, sort_keys=True))}"


def _prefix_of(path: str) -> str:
    return f"{_KEY}{_digest(path)}:"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(slots=True)
class Known:
    """The decisions that files became, by the paths of these."""

    versions: dict[str, list[int]] = field(default_factory=dict)
    """By what the key of their events begins with; the latest last."""
    paths: set[str] = field(default_factory=set)
    statuses: dict[int, DecisionStatus] = field(default_factory=dict)
    """What the file of each has said last."""
    there: dict[int, Decision] = field(default_factory=dict)
    """Those that have not been erased."""

    def versions_of(self, path: str) -> list[int]:
        """Return the decisions that a file became, the latest last."""
        return self.versions.get(_prefix_of(path), [])

    def latest(self, path: str) -> int | None:
        """Return the decision that a file is now, if it is any."""
        found = [each for each in self.versions_of(path) if each in self.there]
        return found[-1] if found else None

    def add(self, path: str, decision_id: int, status: DecisionStatus) -> None:
        """Note what a file has become."""
        self.versions.setdefault(_prefix_of(path), []).append(decision_id)
        self.there[decision_id] = Decision(id=decision_id, status=status)  # no more of it is asked for
        self.statuses[decision_id] = status


def read_known() -> Known:
    """Return what was brought in before."""
    known = Known()
    recorded = RawEvent.objects.filter(event_type=DECISION_RECORDED.name, idempotency_key__startswith=_KEY)
    for position, key, text in recorded.order_by("position").values_list("position", "idempotency_key", "payload_json"):
        known.versions.setdefault(key[: key.rfind(":") + 1], []).append(position)
        payload = json.loads(text or "{}")
        known.statuses[position] = DecisionStatus(payload.get("status", DecisionStatus.ACCEPTED))
        known.paths.add(payload.get("source", ""))
    known.there = {each.id: each for each in Decision.objects.filter(id__in=known.statuses)}
    _read_marks(known)
    return known


def _read_marks(known: Known) -> None:
    marked = RawEvent.objects.filter(event_type=DECISION_MARKED.name).order_by("position")
    for text in marked.values_list("payload_json", flat=True):
        payload = json.loads(text or "{}")
        if payload.get("reason") == STATUS_OF_FILE and payload["decision_id"] in known.statuses:
            known.statuses[payload["decision_id"]] = DecisionStatus(payload["status"])


def edges_there(known: Known) -> set[tuple[int, EdgeRelation, int]]:
    """Return the edges between what was brought in."""
    ids = known.there
    found = DecisionEdge.objects.filter(from_id__in=ids, to_id__in=ids).values_list("from_id", "relation", "to_id")
    return {(start, EdgeRelation(relation), end) for start, relation, end in found}


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
