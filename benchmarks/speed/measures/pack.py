from __future__ import annotations

from collections.abc import Iterator

from benchmarks.speed import corpus
from benchmarks.speed.bench import SizedBench
from benchmarks.speed.figures import Figure, Unit
from benchmarks.speed.stdio import StdioClient
from benchmarks.speed.timing import WARM_UP, interleave, seconds_of
from memories.schemas.query import DEFAULT_TOKENS
from memoryhub.core.paging import estimate_tokens


def measure_packs(sized: SizedBench) -> Iterator[Figure]:
    """Yield the latency of ``memory_context``, each time on another subject, so that no pack is cached.

    Raises:
        RuntimeError: a pack is empty or over its token limit.
    """
    sized.progress("context packs", 0, 1)
    count = sized.samples.searches + WARM_UP
    subjects = iter([corpus.question(sized.size * number // count) for number in range(count)])
    with StdioClient(sized.bench.home, "--project", sized.store.name) as client:
        client.open()
        (amount,) = interleave(sized.samples.searches, lambda: seconds_of(_pack, client, next(subjects)))
    yield Figure("pack.stdio", "context pack on a subject, through stdio", Unit.MILLISECONDS, amount, sized.size)


def _pack(client: StdioClient, subject: str) -> None:
    text = client.call("memory_context", {"query": subject})
    if "\n- #" not in text or estimate_tokens(text) > DEFAULT_TOKENS:
        raise RuntimeError(f"the pack on {subject!r} has {estimate_tokens(text)} tokens: {text[:200]}")
