from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SetDocument:
    """A note, or a message of a session."""

    # Unique in its collection
    key: str
    text: str
    title: str = ""
    # Empty for a note
    session: str = ""
    speaker: str = ""
    # ``user`` or ``assistant``
    role: str = ""
    time: datetime | None = None
    kind: str = "observation"
    type: str = ""
    # Keys of the older documents that this one replaces
    supersedes: tuple[str, ...] = ()
    # When it stopped being true, as ISO 8601
    ended: str = ""


@dataclass(frozen=True, slots=True)
class SetQuery:
    text: str
    # Keys of the documents that answer it; none if nothing in the collection is about it
    right: frozenset[str]
    category: str
    # 0 or 1: tune on one half, verify on the other
    half: int
    # Keys of documents that must not be given as if they were right, such as outdated ones
    wrong: frozenset[str] = frozenset()
    # Why they are wrong: superseded, contradicted, foreign, branch, stale; or absent
    harm: str = ""
    # Queries of one group are alike, so intervals are over groups
    group: str = ""


@dataclass(frozen=True, slots=True)
class Collection:
    """What goes into one store."""

    name: str
    documents: Sequence[SetDocument]
    queries: Sequence[SetQuery]
    # The two who talk, the one in the user's role first
    speakers: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    key: str
    label: str
    collections: Sequence[Collection]
