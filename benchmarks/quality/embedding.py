"""Embedding what an evaluation wrote, in this process: no hub runs beside it."""

from __future__ import annotations

import math

from benchmarks.quality.questions import QuestionSet
from memories.embeddings.following import embed_current_store
from memoryhub.core.stores.store import use_store


def embed(questions: QuestionSet) -> None:
    """Embed every document of a set's stores.

    Raises:
        Unavailable: the model that the settings name can't be had.
    """
    for store in dict.fromkeys(question.store for question in questions.questions):
        with use_store(store):
            embed_current_store(until=math.inf)
