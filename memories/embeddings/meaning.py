"""Asking a store by meaning, for searches: never an error, but an answer or the reason why there is none."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from memories.embeddings import vectors
from memories.embeddings.choice import current_engine, wanted_name
from memories.embeddings.engine import Nearest
from memories.schemas import Embedding
from memories.search.blend import Answered, Asked, Ranker, define_ranker
from memoryhub.config.project_settings import project_settings
from memoryhub.core.errors import HubError, Unavailable
from memoryhub.core.stores import rows
from memoryhub.core.stores.dialect import IDS
from memoryhub.core.stores.store import Scope, current_store

T = TypeVar("T")

logger = logging.getLogger(__name__)

NEAREST_AT_MOST = 400


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is nearest to a question, by which model; and the reason, where nobody could say."""

    hits: Nearest = field(default_factory=list)
    model: str | None = None
    problem: str = ""


def nearest(question: str) -> Meaning:
    """Return the documents of the current store whose texts are nearest to a question."""
    with ask_nearest(question) as answer:
        return answer()


@contextmanager
def ask_nearest(question: str) -> Iterator[Callable[[], Meaning]]:
    """Ask which documents of the current store are nearest; what is yielded waits for the answer and returns it.

    Whoever holds the model works on it until then, beside what is done inside the block.
    """
    with ExitStack() as stack:
        begun = _or_reason(lambda: _begun(stack, question))
        yield (lambda: begun) if isinstance(begun, Meaning) else (lambda: _or_reason(begun))


def _or_reason(act: Callable[[], T]) -> T | Meaning:
    """Return what ``act`` does, or the reason why it could not."""
    try:
        return act()
    except Unavailable as error:
        return Meaning(problem=error.message)
    except HubError:
        raise
    except Exception as error:
        logger.warning("search by meaning failed", exc_info=error)
        return Meaning(problem=f"search by meaning failed: {type(error).__name__}")


def _begun(stack: ExitStack, question: str) -> Callable[[], Meaning]:
    if current_store().scope is Scope.VIEW:
        return partial(Meaning, problem="there are no vectors of a past moment")
    model = vectors.answering()
    if model is None:
        return partial(Meaning, problem=_why_none())
    answer = stack.enter_context(current_engine().asking(model.index(), question, NEAREST_AT_MOST))
    return lambda: Meaning(answer(), model.model.name)


def _why_none() -> str:
    """Return why a store has no vectors; nothing, where none are wanted."""
    name = wanted_name(project_settings().embedding_model)
    return f"nothing is embedded by {name} yet" if name else ""


def renewal() -> Embedding:
    """Return what becomes of the vector of a text that was just written."""
    try:
        return Embedding.QUEUED if wanted_name(project_settings().embedding_model) else Embedding.OFF
    except Unavailable:
        return Embedding.OFF


def model_name() -> str | None:
    """Return the name of the model that answers in the current store."""
    model = vectors.answering()
    return model.model.name if model else None


MEANING = "meaning"

_WEIGHT = 0.5
"""Measured for the bundled model; docs/internals/retrieval.md has the figures."""
_ALONE = 0.3
"""Texts that have nothing to do with each other are near 0."""
_GOOD = 0.4
_ALONE_AT_MOST = 50


@contextmanager
def ask_meaning(asked: Asked) -> Iterator[Callable[[], Answered]]:
    """Ask for the documents nearest to the question that meet its conditions, with their cosines."""
    with ask_nearest(asked.question) as answer:
        yield lambda: _passing(asked, answer())


def _passing(asked: Asked, found: Meaning) -> Answered:
    if not found.hits:
        return Answered(problem=found.problem, asked=found.model is not None)
    ids = json.dumps([each for each, _ in found.hits])
    where = " AND ".join([f"d.id IN {IDS}", *asked.conditions])
    passing = rows.fetch(f"SELECT d.id FROM memories_searchdocument d WHERE {where}", [ids, *asked.parameters])
    allowed = {document_id for (document_id,) in passing}
    return Answered([hit for hit in found.hits if hit[0] in allowed])


define_ranker(Ranker(MEANING, ask_meaning, weight=_WEIGHT, good=_GOOD, alone=_ALONE, alone_at_most=_ALONE_AT_MOST))
