"""Prometheus metrics, read from the stores and this process's counters on each request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import Count, Sum
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from memories.models import Memory
from memoryhub.core import counters, log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import HubError
from memoryhub.core.jobs import defined_jobs
from memoryhub.core.models import ProjectionOffset
from memoryhub.core.stores.routing import STORE_PREFIX
from memoryhub.core.stores.store import current_store, list_projects, project_store, use_store
from memoryhub.models import JobResult
from memoryhub.ops.jobs.running import last_runs
from memoryhub.ops.jobs.schedules import next_runs
from memoryhub.ops.jobs.status import models_behind
from sessions_app.models import Session, Turn

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Facts = dict[str, Any]


def render() -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Hub())
    return generate_latest(registry)


class _Hub(Collector):
    def collect(self) -> Iterable[Metric]:
        facts = {project: _facts(project) for project in list_projects()}
        up = _gauge("store_up", "Whether a project's store can be read", ["project"])
        for project, values in facts.items():
            up.add_metric([project], int(values is not None))
        yield up
        readable = {project: values for project, values in facts.items() if values}
        yield from _stores(readable)
        yield from counters.REGISTRY.collect()
        yield from _jobs()


def _jobs() -> Iterator[Metric]:
    labels = ["job", "store"]
    well = _gauge("job_ok", "Whether the last run of a job for a store succeeded", labels)
    ended = _gauge("job_ended_timestamp_seconds", "When the last run of a job for a store ended", labels)
    due = _gauge("job_due_timestamp_seconds", "When a job is due next", ["job"])
    names = {job.name for job in defined_jobs()}
    for (job, store), run in sorted(last_runs().items()):
        if job not in names:  # it was removed
            continue
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
            return {
                "events": log.head()[0],
                "memories": Memory.objects.live().count(),
                "sessions": _counts(Session),
                "turns": {"open": 0, "closed": 0, "incomplete": 0, **_counts(Turn)},
                "turn_events": Turn.objects.aggregate(events=Sum("event_count"))["events"] or 0,
                "bytes": sum(stores.sizes(current_store()).values()),
                "lags": _lags(),
            }
    except HubError:
        return None


def _lags() -> dict[str, int]:
    head, _ = log.head()
    lags = {"read models": max(models_behind().values(), default=0)}
    for projector, position in ProjectionOffset.objects.values_list("projector", "position"):
        lags[projector] = head - position
    return lags


def _counts(model: type[Session | Turn]) -> dict[str, int]:
    return dict(model.objects.order_by("status").values_list("status").annotate(count=Count("pk")))


def _stores(facts: dict[str, Facts]) -> Iterator[Metric]:
    yield _plain_metrics(_gauge("events", "Events in a project's log", ["project"]), facts, "events")
    yield _plain_metrics(_gauge("memories", "Memories that are not deleted", ["project"]), facts, "memories")
    yield _plain_metrics(_gauge("store_bytes", "Size of a project's store with its WAL", ["project"]), facts, "bytes")
    yield _labelled(_gauge("sessions", "Sessions by status", ["project", "status"]), facts, "sessions")
    yield _labelled(_gauge("turns", "Turns by status", ["project", "status"]), facts, "turns")
    appended = CounterMetricFamily(f"{counters.PREFIX}turn_events", "Events appended in turns", labels=["project"])
    yield _plain_metrics(appended, facts, "turn_events")
    lag = _gauge("projection_lag_events", "Events that a projector has not applied yet", ["project", "projector"])
    yield _labelled(lag, facts, "lags")
    completion = _gauge("turn_completion_ratio", "Closed turns among ended turns", ["project"])
    for project, values in facts.items():
        closed = values["turns"]["closed"]
        over = closed + values["turns"]["incomplete"]
        if over:
            completion.add_metric([project], closed / over)
    yield completion


def _gauge(name: str, text: str, labels: list[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(counters.PREFIX + name, text, labels=labels)


def _plain_metrics(family: CounterMetricFamily | GaugeMetricFamily, facts: dict[str, Facts], fact: str) -> Metric:
    for project, values in facts.items():
        family.add_metric([project], values[fact])
    return family


def _labelled(family: GaugeMetricFamily, facts: dict[str, Facts], fact: str) -> Metric:
    for project, values in facts.items():
        for label, value in values[fact].items():
            family.add_metric([project, label], value)
    return family
