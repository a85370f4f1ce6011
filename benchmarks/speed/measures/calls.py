"""Writes, searches and packs through the interfaces."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.speed import corpus
from benchmarks.speed.bench import Door, SizedBench
from benchmarks.speed.figures import BARE, Figure, Unit
from benchmarks.speed.processes import StdioClient
from benchmarks.speed.timing import CPU, WALL, WARM_UP, Clock, interleave, seconds_by, seconds_of
from memories.embeddings import vectors
from memories.embeddings.engine import AUTO, ModelId, RemoteEngine, wanted_name
from memories.embeddings.vectors import Text
from memories.schemas.query import DEFAULT_TOKENS
from memoryhub.core import log
from memoryhub.core.errors import Unavailable
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import use_store
from memoryhub.management.bench import ANSWER_SECONDS
from memoryhub.ops.serving.embedding import run_model

_LABELS = {
    "service": "in the service",
    "cpu": "in the service, CPU time",
    "stdio": "through stdio",
    "rest": "through REST",
}
# ``cpu`` is the service, measured in CPU time.
DOORS = tuple(_LABELS)


def measure_writes(sized: SizedBench, *, door: str) -> Iterator[Figure]:
    sized.progress(f"writes {_LABELS[door]}", 0, 1)
    clock = CPU if door == "cpu" else WALL
    with sized.door(door) as way:
        hub, bare = interleave(sized.samples.writes, lambda: _write(way, sized, clock), lambda: _follow(sized, clock))
    with use_store(sized.store):
        sized.twin.check()
    label = f"write {_LABELS[door]}"
    yield Figure(f"write.{door}", label, Unit.MILLISECONDS, hub, sized.size, bare, BARE)


def _write(way: Door, sized: SizedBench, clock: Clock) -> float:
    return seconds_by(clock, way.write, corpus.arguments(sized.next_index()))


def _follow(sized: SizedBench, clock: Clock) -> float:
    with use_store(sized.store):
        return sized.twin.follow(clock)


def measure_searches(sized: SizedBench, *, door: str) -> Iterator[Figure]:
    sized.progress(f"searches {_LABELS[door]}", 0, 1)
    questions = _questions(sized)
    asked, ranked = iter(questions), iter(questions)
    clock = CPU if door == "cpu" else WALL
    with sized.door(door) as way:
        hub, bare = interleave(
            sized.samples.searches,
            lambda: seconds_by(clock, way.search, next(asked)),
            lambda: sized.twin.search(next(ranked), clock),
        )
    label = f"search {_LABELS[door]}"
    yield Figure(f"search.{door}", label, Unit.MILLISECONDS, hub, sized.size, bare, BARE)


def _questions(sized: SizedBench) -> list[str]:
    count = sized.samples.searches + WARM_UP
    return [corpus.question(sized.size * number // count) for number in range(count)]


_AT_ONCE = 5_000
_POLL_SECONDS = 0.2
_READY_SECONDS = 600.0
_MADE = "SELECT id FROM memories_searchdocument WHERE id > %s ORDER BY id LIMIT %s"


def measure_hybrid(sized: SizedBench) -> Iterator[Figure]:
    """Yield the latency of ``memory_search`` by words and meaning, over the bare ranking by words.

    Yields nothing if the packages that run a model are not installed.

    Raises:
        RuntimeError: a search did not use embeddings.
    """
    name = wanted_name(AUTO)
    if name is None:
        return
    questions = _questions(sized)
    asked, ranked = iter(questions), iter(questions)
    # A job of the hub, whose settings name no model, would drop the vectors
    with (
        sized.bench.rest.paused(),
        run_model(),
        _with_vectors(sized, _described(name)),
        _client(sized) as client,
    ):
        hub, bare = interleave(
            sized.samples.searches,
            lambda: seconds_of(client.search, next(asked)),
            lambda: sized.twin.search(next(ranked)),
        )
        if not _goes_by_meaning(client):
            raise RuntimeError("a search did not use embeddings")
    yield Figure("search.hybrid", "search by words and meaning, stdio", Unit.MILLISECONDS, hub, sized.size, bare, BARE)


def _described(name: str) -> ModelId:
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return RemoteEngine().describe(name)
        except Unavailable:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_SECONDS)


@contextmanager
def _with_vectors(sized: SizedBench, model: ModelId) -> Iterator[None]:
    with use_store(sized.store):
        index = vectors.begin(model)
        done = 0
        for ids in _documents():
            vectors.save(index, _made_up(ids, model.dimensions), up_to=log.head()[0])
            done += len(ids)
            sized.progress("vectors", done, sized.size)
        vectors.complete(index)
    try:
        yield
    finally:
        with use_store(sized.store):
            vectors.drop_all()


def _documents() -> Iterator[list[int]]:
    last = 0
    while ids := [document_id for (document_id,) in rows.fetch(_MADE, [last, _AT_ONCE])]:
        yield ids
        last = ids[-1]


def _made_up(ids: list[int], dimensions: int) -> dict[Text, tuple[float, bytes]]:
    import numpy as np

    from memories.embeddings.local import quantized

    some = np.random.default_rng(ids[0]).standard_normal((len(ids), dimensions), np.float32)
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    return {
        Text(document_id, str(document_id)): packed for document_id, packed in zip(ids, quantized(some), strict=True)
    }


@contextmanager
def _client(sized: SizedBench) -> Iterator[StdioClient]:
    with StdioClient(sized.bench.home, "--project", sized.store.name, meaning=True) as client:
        client.open()
        deadline = time.monotonic() + _READY_SECONDS
        while not _goes_by_meaning(client):
            if time.monotonic() > deadline:
                raise RuntimeError("the vector index was not ready in time")
            time.sleep(_POLL_SECONDS)
        yield client


def _goes_by_meaning(client: StdioClient) -> bool:
    answer = json.loads(client.call("memory_search", {"query": corpus.question(0), "limit": 1, "format": "json"}))
    mode: str = answer["meta"]["mode"]
    return mode == "hybrid"


def measure_packs(sized: SizedBench) -> Iterator[Figure]:
    """Yield the latency of ``memory_context``, each time on another subject, so that no pack is cached.

    Raises:
        RuntimeError: a pack is empty or over its token limit.
    """
    sized.progress("context packs", 0, 1)
    subjects = iter(_questions(sized))
    with StdioClient(sized.bench.home, "--project", sized.store.name) as client:
        client.open()
        (amount,) = interleave(sized.samples.searches, lambda: seconds_of(_pack, client, next(subjects)))
    yield Figure("pack.stdio", "context pack on a subject, through stdio", Unit.MILLISECONDS, amount, sized.size)


def _pack(client: StdioClient, subject: str) -> None:
    text = client.call("memory_context", {"query": subject})
    if "\n- #" not in text or estimate_tokens(text) > DEFAULT_TOKENS:
        raise RuntimeError(f"the pack on {subject!r} has {estimate_tokens(text)} tokens: {text[:200]}")
