"""Search by meaning in a store. Failures become a reason in the answer, never an error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from memories.embeddings import vectors
from memories.embeddings.engine import AUTO, HOW_TO_INSTALL, NONE, Nearest, current_engine, wanted_name
from memories.schemas import Embedding
from memoryhub.config.current_settings import project_settings
from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core.errors import HubError, Unavailable
from memoryhub.core.stores.store import Scope, current_store

T = TypeVar("T")

logger = logging.getLogger(__name__)

# The name of this ranking in answers
MEANING = "meaning"
NEAREST_AT_MOST = 400


@dataclass(frozen=True, slots=True)
class Meaning:
    hits: Nearest = field(default_factory=list)
    model: str | None = None
    problem: str = ""


def nearest(question: str) -> Meaning:
    with ask_nearest(question, vectors.answering_model(), project_settings()) as answer:
        return answer()


@contextmanager
def ask_nearest(
    question: str, model: vectors.ModelInStore | None, settings: ProjectSettings
) -> Iterator[Callable[[], Meaning]]:
    """Start a search for the nearest documents; the yielded function waits for the answer and returns it.

    Args:
        question: the text.
        model: the one that answers in the current store.
        settings: of its project.
    """
    with ExitStack() as stack:
        answer = _or_reason(lambda: _start(stack, question, model, settings))
        if isinstance(answer, Meaning):
            yield lambda: answer
        else:
            yield lambda: _or_reason(answer)


def _or_reason(act: Callable[[], T]) -> T | Meaning:
    try:
        return act()
    except Unavailable as error:
        return Meaning(problem=error.message)
    except HubError:
        raise
    except Exception as error:
        logger.warning("search by meaning failed", exc_info=error)
        return Meaning(problem=f"search by meaning failed: {type(error).__name__}")


def _start(
    stack: ExitStack, question: str, model: vectors.ModelInStore | None, settings: ProjectSettings
) -> Callable[[], Meaning]:
    if current_store().scope is Scope.VIEW:
        return partial(Meaning, problem="past states have no vectors")
    if model is None:
        return partial(Meaning, problem=_why_none(settings.embedding_model))
    answer = stack.enter_context(current_engine().asking(model.index(), question, NEAREST_AT_MOST))
    return lambda: Meaning(answer(), model.model.name)


def _why_none(setting: str) -> str:
    if setting == NONE:
        return f"embedding_model is '{NONE}'; set it to '{AUTO}' to search by meaning, too"
    name = wanted_name(setting)
    if name is None:
        return f"search by meaning is not installed: {HOW_TO_INSTALL}"
    return f"no text is embedded with {name} yet; memory-hub serve embeds new ones each minute"


def renewal(settings: ProjectSettings | None = None) -> Embedding:
    try:
        model = (settings or project_settings()).embedding_model
        return Embedding.QUEUED if wanted_name(model) else Embedding.OFF
    except Unavailable:
        return Embedding.OFF


def model_name() -> str | None:
    model = vectors.answering_model()
    return model.model.name if model else None
