from __future__ import annotations

import math

from benchmarks.quality.questions import QuestionSet
from memories.embeddings.following import embed_current_store
from memoryhub.core.stores.store import use_store


def embed(questions: QuestionSet) -> None:
    """Embed every document of a set's stores in this process.

    Raises:
        Unavailable: the configured model is not available.
    """
    for store in dict.fromkeys(question.store for question in questions.questions):
        with use_store(store):
            embed_current_store(until=math.inf)
