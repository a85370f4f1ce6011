"""Health of the hub: databases, read models, index, jobs."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connections, transaction
from django_q.models import Schedule

from memories.search.index import index_problem
from memoryhub.config.current_settings import config_problem
from memoryhub.core import clock, spool
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import HubError, Unavailable
from memoryhub.core.jobs import Every
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import list_projects, project_store, use_store
from memoryhub.ops.jobs.status import job_statuses, models_behind

_WELL = "ok"
_OVERDUE = timedelta(minutes=3)
# A job that was due before this process started is not late: the worker has just started too
_STARTED = time.monotonic()


@dataclass(frozen=True, slots=True)
class Health:
    findings: dict[str, str]
    # Numbers without a verdict
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return all(finding == _WELL for finding in self.findings.values())

    def described(self, *, details: bool) -> dict[str, Any]:
        parts = {"parts": self.findings, **self.figures} if details else {}
        if not self.ok:
            raise Unavailable("the hub is not healthy; send the token for details", **parts)
        return {"status": _WELL, **parts}


def check() -> Health:
    findings = {
        stores.HUB_NAME: _hub_database(),
        "settings": config_problem() or _WELL,
        "worker": _worker(),
        "jobs": _jobs(),
    }
    for project in list_projects():
        findings[f"project {project}"] = _project(project)
    return Health(findings, {"spooled": spool.count_waiting()})


# A check opens and locks every store. Callers who see only the verdict share one for some seconds.
_SHARED_SECONDS = 5.0
_checking = threading.Lock()
# The last shared check, and the time of its end
_last_check: tuple[float, Health] | None = None


def recent_check() -> Health:
    """Return a check of the last seconds; while another thread checks, the last one there is."""
    global _last_check  # noqa: PLW0603 - one for the process
    cached = _last_check
    if cached is not None and (time.monotonic() - cached[0] < _SHARED_SECONDS or _checking.locked()):
        return cached[1]
    with _checking:
        if _last_check is None or _last_check is cached:
            health = check()
            _last_check = time.monotonic(), health
        return _last_check[1]


def _hub_database() -> str:
    try:
        _touch("default")
    except Exception as error:  # noqa: BLE001 - any error is the finding
        return f"{stores.HUB_NAME}: {error}"
    return _WELL


def _worker() -> str:
    if time.monotonic() - _STARTED < _OVERDUE.total_seconds():
        return _WELL
    try:
        limit = clock.now() - _OVERDUE
        due = Schedule.objects.filter(next_run__lt=limit).exclude(repeats=0)
        late = due.order_by("next_run").first()
    except Exception as error:  # noqa: BLE001 - any error is the finding
        return f"{stores.QUEUE_NAME}: {error}"
    if late is None:
        return _WELL
    since = clock.minute(late.next_run)
    return f"job {late.name!r} is overdue since {since}; jobs run in `memory-hub serve` without --no-worker"


def _jobs() -> str:
    try:
        bad = [status for status in job_statuses() if status.job.every is Every.DAY and status.failures]
    except Exception as error:  # noqa: BLE001 - any error is the finding
        return f"the jobs: {error}"
    if not bad:
        return _WELL
    first = bad[0].failures[0]
    result = first.last.result if first.last else ""
    return f"job {bad[0].job.name!r} for {first.target.title}: {result}; see `memory-hub jobs`"


def _project(project: str) -> str:
    try:
        with use_store(project_store(project)):
            _touch(require_current_alias())
            behind = ", ".join(models_behind())
            problem = index_problem()
    except HubError as error:
        return error.message
    if behind:
        return f"read models behind the log: {behind}; run `memory-hub rebuild`"
    return problem or _WELL


# Takes the write lock without a change
def _touch(alias: str) -> None:
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        connections[alias].introspection.table_names(cursor)
