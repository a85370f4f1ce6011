"""Cross-reference queries of a hub in four scopes, through the service."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

from benchmarks.speed import scoped
from benchmarks.speed.bench import SizedBench
from benchmarks.speed.figures import Figure, Unit
from benchmarks.speed.timing import interleave, seconds_of
from memories.query import query
from memories.schemas.query import MemoryQuery
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
