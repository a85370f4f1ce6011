"""Counts and times of what leaves no event, in this process since its start."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from memoryhub.core.stores.routing import STORE_PREFIX, current_alias

PREFIX = "memory_hub_"
# Without the figures of Python and of the process, which the default registry has
REGISTRY = CollectorRegistry()
# Upper bounds of the histograms, in seconds
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_PROJECT_PREFIX = f"{STORE_PREFIX}project:"

disable_created_metrics()  # type: ignore[no-untyped-call]


def new_counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(PREFIX + name, text, labels, registry=REGISTRY)


def new_timer(name: str, text: str, *labels: str) -> Histogram:
    return Histogram(PREFIX + name, text, labels, registry=REGISTRY, buckets=_BUCKETS)


def project_label() -> str:
    """Return the project of the current store, or "" in another store and outside of stores."""
    return (current_alias() or "").partition(_PROJECT_PREFIX)[2]
