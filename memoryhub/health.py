"""Is the hub well: every database readable and writable, and the read models at their logs' heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connections, models, transaction

from memories.events import MEMORY_REVISED, MEMORY_WRITTEN
from memories.models import MemoryVersion
from memoryhub.core import rows
from memoryhub.core.errors import HubError, Unavailable
from memoryhub.core.projection import EventType
from memoryhub.core.routing import require_current_alias
from memoryhub.core.stores import list_projects, project_store, use_store
from sessions_app.events import COMMIT_RECORDED, SESSION_STARTED
from sessions_app.models import Commit, Session

_MADE_FROM: dict[type[models.Model], tuple[EventType[Any], ...]] = {
    MemoryVersion: (MEMORY_WRITTEN, MEMORY_REVISED),
    Session: (SESSION_STARTED,),
    Commit: (COMMIT_RECORDED,),
}
"""Read models whose last row is the last event of these types."""

_WELL = "ok"


@dataclass(frozen=True, slots=True)
class Health:
    """What was found, by part: ``hub.db``, and every project."""

    findings: dict[str, str]

    @property
    def ok(self) -> bool:
        """Whether all is well."""
        return all(finding == _WELL for finding in self.findings.values())

    def described(self, *, details: bool) -> dict[str, Any]:
        """Return the finding as JSON data; the parts only with ``details``, as they name the projects.

        Raises:
            Unavailable: not all is well.
        """
        parts = {"parts": self.findings} if details else {}
        if not self.ok:
            raise Unavailable("the hub is not well; ask with the token for the parts, or run doctor", **parts)
        return {"status": _WELL, **parts}


def check() -> Health:
    """Look at hub.db and at every project's store."""
    findings = {"hub.db": _hub_database()}
    for project in list_projects():
        findings[f"project {project}"] = _project(project)
    return Health(findings)


def _hub_database() -> str:
    try:
        _touch("default")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
        return f"hub.db: {error}"
    return _WELL


def _project(project: str) -> str:
    try:
        with use_store(project_store(project)):
            _touch(require_current_alias())
            behind = [model._meta.model_name for model in _MADE_FROM if _is_behind(model)]
    except HubError as error:
        return error.message
    return f"read models behind the log: {', '.join(map(str, behind))}; run rebuild" if behind else _WELL


def _touch(alias: str) -> None:
    """Read, and take the write lock as every transaction does, without changing anything."""
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM sqlite_master")


def _is_behind(model: type[models.Model]) -> bool:
    names = [each.name for each in _MADE_FROM[model]]
    marks = ", ".join(["%s"] * len(names))
    written = rows.fetch(
        f"SELECT max(position) FROM raw_events WHERE event_type IN ({marks}) AND payload_json IS NOT NULL", names
    )
    projected = model._default_manager.aggregate(last=models.Max("pk"))["last"]
    return bool(written[0][0] != projected)
