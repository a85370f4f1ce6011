"""What an evaluation asks, and what the right answers are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memoryhub.core.stores.store import StoreId


@dataclass(frozen=True, slots=True)
class Question:
    """A question to one store, with the ids of the documents that answer it."""

    store: StoreId
    text: str
    answers: frozenset[int]
    category: str
    half: int
    """0 or 1: every other question of a store. What is tuned on one half must hold on the other."""
    sessions: frozenset[str] = frozenset()
    """The sessions that the answers are in; empty where documents have none."""


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Stores that were filled, and what to ask them."""

    key: str
    label: str
    documents: int
    questions: Sequence[Question]
