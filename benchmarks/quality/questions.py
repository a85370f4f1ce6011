from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memoryhub.core.stores.store import StoreId


@dataclass(frozen=True, slots=True)
class Question:
    store: StoreId
    text: str
    answers: frozenset[int]
    category: str
    # 0 or 1, alternating: tune on one half, verify on the other
    half: int
    # Sessions of the answers, if documents have sessions
    sessions: frozenset[str] = frozenset()
    # Questions of one group are alike, so intervals are over groups; a question without one is its own
    group: str = ""


@dataclass(frozen=True, slots=True)
class QuestionSet:
    key: str
    label: str
    documents: int
    questions: Sequence[Question]
