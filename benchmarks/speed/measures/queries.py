"""Queries over four scopes, and the lineage of a long chain of decisions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.speed import corpus, scoped
from benchmarks.speed.bench import SizedBench
from benchmarks.speed.figures import Figure, Unit
from benchmarks.speed.processes import StdioClient
from benchmarks.speed.timing import interleave, seconds_of
from decisions import edges, selectors, services
from decisions.schemas import DecisionGet, DecisionRecord
from memories.query import query
from memories.schemas.query import MemoryQuery
from memoryhub.core import log
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import store as stores
from memoryhub.core.stores.store import GLOBAL_STORE, StoreId, folder_of, org_store, project_store, use_store

_LABELS = {
    "guidelines": "guidelines by tag",
    "related": "tools of the project",
    "text": "text in all scopes",
    "security": "global guidelines by tag",
}


def measure_queries(sized: SizedBench) -> Iterator[Figure]:
    """Yield the latency of each example query.

    Raises:
        RuntimeError: a query found nothing.
    """
    store, org = project_store(f"bench-query-{sized.size}"), org_store(f"bench-query-{sized.size}")
    _empty_global()
    done = [0]

    def progress(count: int) -> None:
        done[0] += count
        sized.progress("filling four scopes", done[0], sized.size)

    scoped.fill(store, org, sized.size, progress)
    acts = [_asking(store, example) for example in scoped.examples(store.name).values()]
    for name, amount in zip(_LABELS, interleave(sized.samples.searches, *acts), strict=True):
        yield Figure(f"query.{name}", f"query {_LABELS[name]}", Unit.MILLISECONDS, amount, sized.size)


# The global store is shared by the runs at all sizes.
def _empty_global() -> None:
    stores.forget(GLOBAL_STORE)
    shutil.rmtree(folder_of(GLOBAL_STORE), ignore_errors=True)


def _asking(store: StoreId, example: dict[str, Any]) -> Any:
    command = MemoryQuery.model_validate(example)
    return lambda: seconds_of(_ask, store, command)


def _ask(store: StoreId, command: MemoryQuery) -> None:
    with use_store(store), use_origin(session_id=scoped.SESSION):
        if not query(command=command).results:
            raise RuntimeError(f"nothing was found for {command.model_dump_json(exclude_defaults=True)}")


# A chain has as many decisions as the store has memories, up to this number.
MAX_DEPTH = 10_000
_BATCH = 500
_MANY = 100


def measure_lineage(sized: SizedBench) -> Iterator[Figure]:
    """Yield the latency of three reads of a long chain: its head, one decision, its lineage.

    Raises:
        RuntimeError: the chain's head is not its last decision.
    """
    store = project_store(f"bench-lineage-{sized.size}")
    ids = _fill(sized, store)
    with StdioClient(sized.bench.home, "--project", store.name) as client:
        client.open()
        acts = _acts(store, ids, client)
        amounts = interleave(sized.samples.searches, *acts.values())
    for (name, label), amount in zip(acts, amounts, strict=True):
        yield Figure(f"lineage.{name}", label, Unit.MILLISECONDS, amount, len(ids))
    stores.forget(store)


def _fill(sized: SizedBench, store: StoreId) -> list[int]:
    ids: list[int] = []
    depth = min(sized.size, MAX_DEPTH)
    with use_store(store, create=True):
        while len(ids) < depth:
            with log.transaction():
                ids += _record(ids, min(_BATCH, depth - len(ids)))
            sized.progress("recording a chain of decisions", len(ids), depth)
    return ids


def _record(before: list[int], count: int) -> list[int]:
    ids = before[-1:]
    for number in range(len(before), len(before) + count):
        text = corpus.arguments(number)
        command = DecisionRecord(title=text["title"], chosen=text["content"], supersedes=ids[-1:])
        ids.append(services.record_decision(command=command).id)
    return ids[len(before[-1:]) :]


def _acts(store: StoreId, ids: list[int], client: StdioClient) -> dict[tuple[str, str], Callable[[], float]]:
    first, middle = ids[0], ids[len(ids) // 2]
    spread = ids[:: max(1, len(ids) // _MANY)][:_MANY]
    whole = {"ids": [middle], "lineage": True}

    def heads() -> None:
        if any(found != ids[-1:] for found in edges.heads(spread).values()):
            raise RuntimeError(f"the chain that ends with #{ids[-1]} has another head")

    def get(**arguments: object) -> None:
        selectors.get_decisions(command=DecisionGet.model_validate(arguments))

    return {
        ("heads", f"heads of {_MANY} decisions in a chain"): lambda: _timed(store, heads),
        ("get", "a chain's first decision, and its head"): lambda: _timed(store, lambda: get(ids=[first])),
        ("whole", "lineage of the middle of a chain"): lambda: _timed(store, lambda: get(**whole)),
        ("stdio", "the same through stdio"): lambda: seconds_of(client.call, "decision_get", whole),
    }


def _timed(store: StoreId, act: Callable[[], None]) -> float:
    with use_store(store):
        return seconds_of(act)
