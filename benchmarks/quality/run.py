from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.quality.questions import Question, QuestionSet
from benchmarks.quality.references import by_bm25, by_meaning
from benchmarks.quality.scores import DEEPEST, Interval, Means, Scored, interval, means, score
from benchmarks.quality.stages import Ranking, Stage
from benchmarks.speed.figures import Amount, latency
from memories.schemas import MemorySearch
from memories.search import engine
from memories.search.parsed_query import parse
from memories.selectors import search
from memoryhub.core.stores.store import use_store

Progress = Callable[[str, int, int], None]
_EVERY = 50


@dataclass(frozen=True, slots=True)
class StageResult:
    stage: Stage
    all: Means
    halves: tuple[Means, Means]
    categories: dict[str, Means]
    # Of R@10, and of what it gained over the stage before
    recall_interval: Interval
    gain_interval: Interval | None


@dataclass(frozen=True, slots=True)
class Cost:
    milliseconds: Amount
    tokens: float


@dataclass(frozen=True, slots=True)
class SetResult:
    set: QuestionSet
    stages: list[StageResult]
    # What the stages are compared with
    references: list[StageResult]
    cost: Cost


def evaluate(
    questions: QuestionSet,
    stages: Sequence[Stage],
    progress: Progress = lambda *_: None,
    references: Sequence[Stage] = (),
) -> SetResult:
    """Rank every question at every stage, and time the whole search."""
    scores = [_scores(questions, stage, progress) for stage in stages]
    measured = [
        _result(stage, scored, before) for stage, scored, before in zip(stages, scores, [None, *scores], strict=False)
    ]
    compared = [_result(stage, _scores(questions, stage, progress), None) for stage in references]
    return SetResult(questions, measured, compared, _cost(questions, progress))


def _scores(questions: QuestionSet, stage: Stage, progress: Progress) -> list[Scored]:
    scored: list[Scored] = []
    for done, question in enumerate(questions.questions):
        if done % _EVERY == 0:
            progress(f"{questions.label}: {stage.label}", done, len(questions.questions))
        scored.append(score(question, _found(question, stage)))
    return scored


def _result(stage: Stage, scored: Sequence[Scored], before: Sequence[Scored] | None) -> StageResult:
    categories = list(dict.fromkeys(score.question.category for score in scored))
    return StageResult(
        stage,
        means(scored),
        (_of_half(scored, 0), _of_half(scored, 1)),
        {name: means([score for score in scored if score.question.category == name]) for name in categories},
        interval(scored, lambda index: scored[index].recall_10),
        interval(scored, lambda index: scored[index].recall_10 - before[index].recall_10) if before else None,
    )


def _of_half(scored: Sequence[Scored], half: int) -> Means:
    return means([score for score in scored if score.question.half == half])


def _found(question: Question, stage: Stage) -> list[tuple[int, str]]:
    """Return the ids and sessions of the hits, best first."""
    with use_store(question.store):
        if stage.ranking is Ranking.BM25:
            ids = by_bm25(question)
        elif stage.ranking is Ranking.MEANING:
            ids = by_meaning(question)
        else:
            found = engine.rank(parse(question.text), pipeline=stage.pipeline, blended=stage.blended)
            ids = [hit for hit, _ in found.hits]
        documents = engine.documents_of(ids)
    return [(hit, documents[hit]["session_id"]) for hit in ids]


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
