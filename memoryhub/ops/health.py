"""Is the hub well: databases readable and writable, read models and index at their logs' heads, jobs done in time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import connections, transaction
from django_q.models import Schedule

from memories.search.index import index_problem
from memoryhub import env
from memoryhub.config.project_settings import config_problem
from memoryhub.core import clock
from memoryhub.core.errors import HubError, Unavailable
from memoryhub.core.jobs import Every
from memoryhub.core.stores.routing import require_current_alias
from memoryhub.core.stores.store import list_projects, project_store, use_store
from memoryhub.ops.jobs.status import job_statuses, models_behind

_WELL = "ok"
_OVERDUE = timedelta(minutes=3)
_STARTED = clock.now()
"""A job that fell due before this process started is not late yet: the worker has just started too."""


@dataclass(frozen=True, slots=True)
class Health:
    """What was found, by part: ``hub.db``, the settings, the worker, the jobs, and every project."""

    findings: dict[str, str]
    figures: dict[str, int] = field(default_factory=dict)
    """What says how it goes, without being well or not: events that wait in the spool."""

    @property
    def ok(self) -> bool:
        """Whether all is well."""
        return all(finding == _WELL for finding in self.findings.values())

    def described(self, *, details: bool) -> dict[str, Any]:
        """Return the finding as JSON data; the parts only with ``details``, as they name the projects.

        Raises:
            Unavailable: not all is well.
        """
        parts = {"parts": self.findings, **self.figures} if details else {}
        if not self.ok:
            raise Unavailable("the hub is not well; ask with the token for the parts", **parts)
        return {"status": _WELL, **parts}


def check() -> Health:
    """Look at hub.db, at what settings are read from, at the jobs, and at every project's store."""
    findings = {"hub.db": _hub_database(), "settings": config_problem() or _WELL, "worker": _worker(), "jobs": _jobs()}
    for project in list_projects():
        findings[f"project {project}"] = _project(project)
    return Health(findings, {"spooled": _spooled()})


def _hub_database() -> str:
    try:
        _touch("default")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return f"hub.db: {error}"
    return _WELL


def _worker() -> str:
    """Whether somebody does the jobs: none that is due waits for longer than a few minutes."""
    try:
        limit = clock.now() - _OVERDUE
        due = Schedule.objects.filter(next_run__lt=limit).exclude(repeats=0)
        late = None if limit < _STARTED else due.order_by("next_run").first()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return f"jobs.db: {error}"
    if late is None:
        return _WELL
    return f"job {late.name!r} is due since {clock.to_text(late.next_run)[:16]}; serve runs the jobs unless --no-worker"


def _jobs() -> str:
    """Whether what is to be done every day was done the last time, or why not."""
    try:
        bad = [each for each in job_statuses() if each.job.every is Every.DAY and each.failures]
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return f"the jobs: {error}"
    if not bad:
        return _WELL
    first = bad[0].failures[0]
    result = first.last.result if first.last else ""
    return f"job {bad[0].job.name!r} of {first.target.title}: {result}; `memory-hub jobs` says more"


def _project(project: str) -> str:
    try:
        with use_store(project_store(project)):
            _touch(require_current_alias())
            behind = ", ".join(models_behind())
            problem = index_problem()
    except HubError as error:
        return error.message
    if behind:
        return f"read models behind the log: {behind}; run rebuild"
    return problem or _WELL


def _touch(alias: str) -> None:
    """Read, and take the write lock as every transaction does, without changing anything."""
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        connections[alias].introspection.table_names(cursor)


def _spooled() -> int:
    """Return how many events of hooks wait for the hub to take them."""
    return sum(path.read_bytes().count(b"\n") for path in (env.home() / "spool").glob("*.jsonl"))
