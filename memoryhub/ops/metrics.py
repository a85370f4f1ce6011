"""Prometheus metrics, read from the stores and the shared counters on each request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.db.models import Count, Sum
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from memories.models import Memory
from memoryhub.core import counters, log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import HubError
from memoryhub.core.models import ProjectionOffset
from memoryhub.core.stores.routing import STORE_PREFIX
from memoryhub.core.stores.store import current_store, list_projects, project_store, use_store
from memoryhub.models import JobResult
from memoryhub.ops.jobs.running import last_runs
from memoryhub.ops.jobs.schedules import next_runs
from memoryhub.ops.jobs.status import projection_lag
from sessions_app.models import Session, Turn
from sessions_app.services.turns import REJECTIONS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "memory_hub_"

Facts = dict[str, Any]


def render() -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Hub())
    return generate_latest(registry)


class _Hub(Collector):
    def collect(self) -> Iterable[Metric]:
        facts = {project: _facts(project) for project in list_projects()}
        sums = counters.sums()
        counted = _by_project(sums)
        up = _gauge("store_up", "Whether a project's store can be read", ["project"])
        for project, values in facts.items():
            up.add_metric([project], int(values is not None))
        yield up
        readable = {project: values for project, values in facts.items() if values}
        yield from _of_stores(readable)
        yield from _of_appends(readable, counted)
        yield from _of_counters(counted, sums.get(counters.NO_STORE, {}))
        yield from _of_jobs()


def _of_jobs() -> Iterator[Metric]:
    labels = ["job", "store"]
    well = _gauge("job_ok", "Whether the last run of a job for a store succeeded", labels)
    ended = _gauge("job_ended_timestamp_seconds", "When the last run of a job for a store ended", labels)
    due = _gauge("job_due_timestamp_seconds", "When a job is due next", ["job"])
    for (job, store), run in sorted(last_runs().items()):
        named = [job, store.removeprefix(STORE_PREFIX) or "hub"]
        well.add_metric(named, int(run.result == JobResult.OK))
        ended.add_metric(named, run.ended_at.timestamp())
    for job, at in sorted(next_runs().items()):
        due.add_metric([job], at.timestamp())
    yield from (well, ended, due)


# None if the store can't be read
def _facts(project: str) -> Facts | None:
    try:
        with use_store(project_store(project)):
            return {name: query() for name, query in _QUERIES.items()}
    except HubError:
        return None


def _turns() -> dict[str, int]:
    return {"open": 0, "closed": 0, "incomplete": 0, **_counts(Turn)}


def _counts(model: type[Session | Turn]) -> dict[str, int]:
    return dict(model.objects.order_by("status").values_list("status").annotate(count=Count("pk")))


def _turn_events() -> int:
    return Turn.objects.aggregate(events=Sum("event_count"))["events"] or 0


def _lags() -> dict[str, int]:
    head, _ = log.head()
    cursors = ProjectionOffset.objects.values_list("projector", "position")
    return {"read models": projection_lag(), **{name: head - position for name, position in cursors}}


_QUERIES: dict[str, Callable[[], Any]] = {
    "events": lambda: log.head()[0],
    "memories": lambda: Memory.objects.live().count(),
    "sessions": lambda: _counts(Session),
    "turns": _turns,
    "turn_events": _turn_events,
    "bytes": lambda: sum(stores.sizes(current_store()).values()),
    "lags": _lags,
}


def _of_stores(facts: dict[str, Facts]) -> Iterator[Metric]:
    yield _plain_metrics(_gauge("events", "Events in a project's log", ["project"]), facts, "events")
    yield _plain_metrics(_gauge("memories", "Memories that are not deleted", ["project"]), facts, "memories")
    yield _plain_metrics(_gauge("store_bytes", "Size of a project's store with its WAL", ["project"]), facts, "bytes")
    yield _labelled(_gauge("sessions", "Sessions by status", ["project", "status"]), facts, "sessions")
    yield _labelled(_gauge("turns", "Turns by status", ["project", "status"]), facts, "turns")
    lag = _gauge("projection_lag_events", "Events that a projector has not applied yet", ["project", "projector"])
    yield _labelled(lag, facts, "lags")
    completion = _gauge("turn_completion_ratio", "Closed turns among ended turns", ["project"])
    for project, values in facts.items():
        closed = values["turns"]["closed"]
        over = closed + values["turns"]["incomplete"]
        if over:
            completion.add_metric([project], closed / over)
    yield completion


def _of_appends(facts: dict[str, Facts], counted: dict[str, dict[str, float]]) -> Iterator[Metric]:
    events = CounterMetricFamily(f"{PREFIX}turn_events", "Events appended in turns", labels=["project"])
    ratio = _gauge("append_rejection_ratio", "Refused calls among all calls that append in a turn", ["project"])
    for project, values in facts.items():
        appended = values["turn_events"]
        events.add_metric([project], appended)
        refused = sum(value for _, value in _values_of(counted.get(project, {}), REJECTIONS.name))
        if appended + refused:
            ratio.add_metric([project], refused / (appended + refused))
    yield events
    yield ratio


def _of_counters(counted: dict[str, dict[str, float]], of_hub: dict[str, float]) -> Iterator[Metric]:
    for counter in counters.defined():
        if isinstance(counter, counters.Timer):
            yield _histogram(counter, counted)
        elif counter.of_hub:
            yield _counter_of_hub(counter, of_hub)
        else:
            yield _counter(counter, counted)


def _counter_of_hub(counter: counters.Counter, values: dict[str, float]) -> Metric:
    family = CounterMetricFamily(PREFIX + counter.name, counter.help, labels=[counter.label])
    for key, value in _values_of(values, counter.name):
        family.add_metric([key], value)
    return family


def _counter(counter: counters.Counter, counted: dict[str, dict[str, float]]) -> Metric:
    family = CounterMetricFamily(PREFIX + counter.name, counter.help, labels=["project", counter.label])
    for project, values in counted.items():
        for key, value in _values_of(values, counter.name):
            family.add_metric([project, key], value)
    return family


def _histogram(timer: counters.Timer, counted: dict[str, dict[str, float]]) -> Metric:
    family = HistogramMetricFamily(PREFIX + timer.name, timer.help, labels=["project", timer.label])
    for project, values in counted.items():
        sums = dict(_values_of(values, timer.name))
        for label in dict.fromkeys(key.rpartition("|")[0] for key in sums):
            family.add_metric([project, label], *_buckets(sums, label))
    return family


# Cumulative buckets of one label, and the sum of its seconds
def _buckets(sums: dict[str, float], label: str) -> tuple[list[tuple[str, float]], float]:
    total = 0.0
    buckets = []
    for bound in [*map(str, counters.BUCKETS), "+Inf"]:
        total += sums.get(f"{label}|{bound}", 0.0)
        buckets.append((bound, total))
    return buckets, sums.get(f"{label}|sum", 0.0)


def _values_of(values: dict[str, float], name: str) -> list[tuple[str, float]]:
    return [(key.removeprefix(f"{name}|"), value) for key, value in values.items() if key.startswith(f"{name}|")]


def _by_project(sums: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {
        name.removeprefix("project:"): values for name, values in sorted(sums.items()) if name.startswith("project:")
    }


def _gauge(name: str, text: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)


def _plain_metrics(family: GaugeMetricFamily, facts: dict[str, Facts], fact: str) -> Metric:
    for project, values in facts.items():
        family.add_metric([project], values[fact])
    return family


def _labelled(family: GaugeMetricFamily, facts: dict[str, Facts], fact: str) -> Metric:
    for project, values in facts.items():
        for label, value in values[fact].items():
            family.add_metric([project, label], value)
    return family
