"""Asking every question: of each stage what it ranks, of the whole search what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.quality.questions import Question, QuestionSet
from benchmarks.quality.scores import DEEPEST, Means, Scored, means, score
from benchmarks.quality.stages import Stage
from benchmarks.speed.figures import Amount, latency
from memories.schemas import MemorySearch
from memories.search import engine
from memories.search.parsed_query import parse
from memories.search.pipeline import Pipeline
from memories.selectors import search
from memoryhub.core.stores.store import use_store

Progress = Callable[[str, int, int], None]
_EVERY = 50


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one stage found of one set."""

    stage: Stage
    all: Means
    halves: tuple[Means, Means]
    categories: dict[str, Means]


@dataclass(frozen=True, slots=True)
class Cost:
    """What an answer of ten hits takes."""

    milliseconds: Amount
    tokens: float


@dataclass(frozen=True, slots=True)
class SetResult:
    """Everything that was measured of one set."""

    set: QuestionSet
    stages: list[StageResult]
    cost: Cost


def evaluate(questions: QuestionSet, stages: Sequence[Stage], progress: Progress = lambda *_: None) -> SetResult:
    """Ask every question of the set at every stage, and once more through the whole search."""
    measured = [_stage(questions, stage, progress) for stage in stages]
    return SetResult(questions, measured, _cost(questions, progress))


def _stage(questions: QuestionSet, stage: Stage, progress: Progress) -> StageResult:
    scored: list[Scored] = []
    for done, question in enumerate(questions.questions):
        if done % _EVERY == 0:
            progress(f"{questions.label}: {stage.label}", done, len(questions.questions))
        scored.append(score(question, ranked(question, stage.pipeline, others=stage.others)))
    categories = list(dict.fromkeys(each.question.category for each in scored))
    return StageResult(
        stage,
        means(scored),
        (_of_half(scored, 0), _of_half(scored, 1)),
        {name: means([each for each in scored if each.question.category == name]) for name in categories},
    )


def _of_half(scored: Sequence[Scored], half: int) -> Means:
    return means([each for each in scored if each.question.half == half])


def ranked(question: Question, pipeline: Pipeline, *, others: bool = False) -> list[tuple[int, str]]:
    """Return the ids and sessions of what answers a question, best first."""
    with use_store(question.store):
        found = engine.rank(parse(question.text), pipeline=pipeline, others=others)
        ids = [each for each, _ in found.hits]
        documents = engine.documents_of(ids)
    return [(each, documents[each]["session_id"]) for each in ids]


def _cost(questions: QuestionSet, progress: Progress) -> Cost:
    seconds, tokens = [], []
    for done, question in enumerate(questions.questions):
        if done % _EVERY == 0:
            progress(f"{questions.label}: the whole search", done, len(questions.questions))
        with use_store(question.store):
            started = time.perf_counter()
            listing = search(command=MemorySearch(query=question.text, limit=DEEPEST))
            seconds.append(time.perf_counter() - started)
        tokens.append(listing.meta.estimated_tokens)
    return Cost(latency(seconds), sum(tokens) / len(tokens))
