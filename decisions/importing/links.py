"""Links between records: ``Superseded by [3. Title](0003-title.md)``, ``Amends ADR-0002``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from decisions.events import DECISION_MARKED, DECISION_RECORDED, IMPORT_KEY
from decisions.models import Decision, DecisionEdge, DecisionStatus, EdgeRelation
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.lookups import begins_with

# Stored as the reason of a mark: by it an import recognises the statuses that it set itself.
STATUS_OF_FILE = "its file says so"


# The idempotency key of a file's event: the file, the earlier decision and the content.
def key_of(path: str, *content: Any) -> str:
    return f"{_prefix_of(path)}{_digest(json.dumps(content, ensure_ascii=False, sort_keys=True))}"


def _prefix_of(path: str) -> str:
    return f"{IMPORT_KEY}{_digest(path)}:"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(slots=True)
class Imported:
    # Decision ids by the prefix of their idempotency keys, the latest last.
    versions: dict[str, list[int]] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)
    # The status that each decision's file had at the last import.
    statuses: dict[int, DecisionStatus] = field(default_factory=dict)
    # Decisions that have not been erased.
    existing: dict[int, Decision] = field(default_factory=dict)

    def versions_of(self, path: str) -> list[int]:
        return self.versions.get(_prefix_of(path), [])

    def latest(self, path: str) -> int | None:
        found = [version for version in self.versions_of(path) if version in self.existing]
        return found[-1] if found else None

    def add(self, path: str, decision_id: int, status: DecisionStatus) -> None:
        self.versions.setdefault(_prefix_of(path), []).append(decision_id)
        self.existing[decision_id] = Decision(id=decision_id, status=status)  # only these fields are used
        self.statuses[decision_id] = status


def read_imported() -> Imported:
    imported = Imported()
    recorded = RawEvent.objects.filter(begins_with("idempotency_key", IMPORT_KEY), event_type=DECISION_RECORDED.name)
    for position, key, text in recorded.order_by("position").values_list("position", "idempotency_key", "payload_json"):
        imported.versions.setdefault(key[: key.rfind(":") + 1], []).append(position)
        payload = json.loads(text or "{}")
        imported.statuses[position] = DecisionStatus(payload.get("status", DecisionStatus.ACCEPTED))
        imported.paths.add(payload.get("source", ""))
    imported.existing = {decision.id: decision for decision in Decision.objects.filter(id__in=imported.statuses)}
    _read_marks(imported)
    return imported


def _read_marks(imported: Imported) -> None:
    marked = RawEvent.objects.filter(event_type=DECISION_MARKED.name).order_by("position")
    for text in marked.values_list("payload_json", flat=True):
        payload = json.loads(text or "{}")
        if payload.get("reason") == STATUS_OF_FILE and payload["decision_id"] in imported.statuses:
            imported.statuses[payload["decision_id"]] = DecisionStatus(payload["status"])


def existing_edges(imported: Imported) -> set[tuple[int, EdgeRelation, int]]:
    ids = imported.existing
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
    """A link to another record, by its relative path or its number."""

    relation: EdgeRelation
    target: str
    # The other record is the subject: `superseded by`.
    is_backward: bool = False


def links_in(text: str, *, otherwise: EdgeRelation | None = None) -> list[Link]:
    """Return the links to other records that have a relation; ``otherwise`` is the relation of those that have none.

    A relation applies to the end of its sentence, clause or list item.
    """
    return list(dict.fromkeys(_links(text, otherwise)))


def _links(text: str, otherwise: EdgeRelation | None) -> Iterator[Link]:
    default = (otherwise, False)
    relation, is_backward = default
    for token in _TOKEN.finditer(text):
        if token["relation"]:
            relation, is_backward = _RELATIONS[" ".join(token["relation"].lower().split())]
        elif token["end"]:
            relation, is_backward = default
        elif relation and (target := _target(token)):
            yield Link(relation, target, is_backward)


# The path of a Markdown file or a number; empty for other links.
def _target(token: re.Match[str]) -> str:
    if token["number"]:
        return token["number"]
    path = token["path"].split("#")[0]
    return path if _RECORD.fullmatch(path) else ""


def without_links(text: str) -> str:
    """Return the text without the lines and list items that link to other records."""
    kept = [line for line in text.split("\n") if not links_in(line, otherwise=EdgeRelation.RELATES_TO)]
    return "\n".join(kept).strip()
