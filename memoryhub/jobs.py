"""What the worker does by itself, and when."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from django_q.models import Schedule

from memories.embeddings.following import embed_current_store
from memories.uses.drain import count_uses
from memoryhub.checks import check_stores
from memoryhub.core.counter_files import fold_ended
from memoryhub.core.errors import HubError
from memoryhub.core.origin import use_origin
from memoryhub.core.stores import GLOBAL_STORE, StoreId, list_orgs, list_projects, org_store, project_store, use_store
from sessions_app.services import end_idle_sessions
from sessions_app.services.turns import expire_turns

logger = logging.getLogger(__name__)

EMBED_SECONDS = 40.0
"""So long one run embeds; what is left waits for the next, so that other jobs have their turn."""

_JOBS = {
    "embed texts": ("memoryhub.jobs.embed_texts", Schedule.MINUTES),
    "expire turns": ("memoryhub.jobs.expire_open_turns", Schedule.MINUTES),
    "end idle sessions": ("memoryhub.jobs.end_sessions", Schedule.HOURLY),
    "count uses": ("memoryhub.jobs.count_memory_uses", Schedule.HOURLY),
    "fold counters": ("memoryhub.jobs.fold_counters", Schedule.HOURLY),
    "verify stores": ("memoryhub.jobs.verify_stores", Schedule.DAILY),
}


def install_schedules() -> None:
    """Make the schedules that are missing; those that are there keep their times."""
    for name, (function, often) in _JOBS.items():
        defaults = {"func": function, "schedule_type": often, "minutes": 1 if often == Schedule.MINUTES else None}
        Schedule.objects.get_or_create(name=name, defaults=defaults)


def verify_stores() -> dict[str, str]:
    """Walk the chain of every store, and return the findings by store."""
    with use_origin(source="job", actor="verify_stores"):
        return {check.store: check.finding for check in check_stores()}


def expire_open_turns() -> dict[str, int | str]:
    """Mark the turns whose time has run out as incomplete, and return how many there were by project."""
    return _in_each_project("expire_turns", expire_turns)


def embed_texts() -> dict[str, int | str]:
    """Embed what was written since the last time; return what was done in each store, or why it could not be."""
    ends = time.monotonic() + EMBED_SECONDS
    stores = {**{project: project_store(project) for project in list_projects()}, **_shared_stores()}
    return _in_each(stores, "embed_texts", lambda: embed_current_store(until=ends))


def end_sessions() -> dict[str, int | str]:
    """End the sessions that were left open, and return how many there were by project."""
    return _in_each_project("end_idle_sessions", end_idle_sessions)


def count_memory_uses() -> dict[str, int | str]:
    """Fold the notes of what was read into the logs, and return how many uses there were by store."""
    return {
        **_in_each_project("count_uses", count_uses),
        **_in_each(_shared_stores(), "count_uses", count_uses),
    }


def fold_counters() -> int:
    """Fold the counts of processes that have ended into one file, and return how many there were."""
    return fold_ended()


def _shared_stores() -> dict[str, StoreId]:
    """Return the stores that are no project's, by their names."""
    shared = [*map(org_store, list_orgs()), *([GLOBAL_STORE] if GLOBAL_STORE.path.exists() else [])]
    return {store.alias.partition(":")[2]: store for store in shared}


def _in_each_project(actor: str, work: Callable[[], int]) -> dict[str, int | str]:
    """Return the projects in which ``work`` did something, or why it could not; one that fails stops no other."""
    return _in_each({project: project_store(project) for project in list_projects()}, actor, work)


def _in_each(stores: dict[str, StoreId], actor: str, work: Callable[[], int | str]) -> dict[str, int | str]:
    outcomes: dict[str, int | str] = {}
    for name, store in stores.items():
        try:
            with use_store(store), use_origin(source="job", actor=actor):
                outcomes[name] = work()
        except HubError as error:
            logger.warning("%s in %s: %s", actor, store.alias, error)
            outcomes[name] = error.message
    return {name: outcome for name, outcome in outcomes.items() if outcome}
