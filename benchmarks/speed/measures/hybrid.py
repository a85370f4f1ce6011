"""Searches by words and meaning, while the process with the embedding model runs.

The questions are embedded by the real model. The store's vectors are random, because embedding every text would take
hours, and the cost of a comparison does not depend on its numbers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.speed import corpus, processes
from benchmarks.speed.bench import SizedBench
from benchmarks.speed.figures import BARE, Figure, Unit
from benchmarks.speed.stdio import StdioClient
from benchmarks.speed.timing import WARM_UP, interleave, seconds_of
from memories.embeddings import vectors
from memories.embeddings.engine import AUTO, ModelId, RemoteEngine, wanted_name
from memories.embeddings.vectors import Text
from memoryhub.core import log
from memoryhub.core.errors import Unavailable
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import use_store
from memoryhub.ops.serving.process import EMBEDDING, Child

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
    count = sized.samples.searches + WARM_UP
    questions = [corpus.question(sized.size * number // count) for number in range(count)]
    asked, ranked = iter(questions), iter(questions)
    with _model_running(), _with_vectors(sized, _described(name)), _client(sized) as client:
        hub, bare = interleave(
            sized.samples.searches,
            lambda: seconds_of(client.search, next(asked)),
            lambda: sized.twin.search(next(ranked)),
        )
        if not _goes_by_meaning(client):
            raise RuntimeError("a search did not use embeddings")
    yield Figure("search.hybrid", "search by words and meaning, stdio", Unit.MILLISECONDS, hub, sized.size, bare, BARE)


@contextmanager
def _model_running() -> Iterator[None]:
    process = Child(EMBEDDING)
    try:
        yield
    finally:
        process.stop(grace=5.0)


def _described(name: str) -> ModelId:
    deadline = time.monotonic() + processes.ANSWER_SECONDS
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
        found = vectors.begin(model)
        done = 0
        for ids in _documents():
            vectors.save(found, _made_up(ids, model.dimensions), up_to=log.head()[0])
            done += len(ids)
            sized.progress("vectors", done, sized.size)
        vectors.complete(found)
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
