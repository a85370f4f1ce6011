"""How far the read models are behind their log: not at all, as each write applies its projectors, or one is broken."""

from __future__ import annotations

from typing import Any

from django.db import models

from memories.events import MEMORY_REVISED, MEMORY_WRITTEN
from memories.models import MemoryVersion
from memoryhub.core import rows
from memoryhub.core.event_types import EventType
from sessions_app.events import COMMIT_RECORDED, SESSION_STARTED
from sessions_app.events.iterations import ITERATION_STARTED
from sessions_app.events.turns import TURN_BEGAN
from sessions_app.models import Commit, Iteration, Session, Turn

_MADE_FROM: dict[type[models.Model], tuple[EventType[Any], ...]] = {
    MemoryVersion: (MEMORY_WRITTEN, MEMORY_REVISED),
    Session: (SESSION_STARTED,),
    Turn: (TURN_BEGAN,),
    Iteration: (ITERATION_STARTED,),
    Commit: (COMMIT_RECORDED,),
}
"""Read models whose rows are, one for one, the events of these types."""


def models_behind() -> dict[str, int]:
    """Return for each read model that lacks its last events, how many it lacks; one that is ahead counts as one."""
    lags = {str(model._meta.model_name): _lag(model) for model in _MADE_FROM}
    return {name: lag for name, lag in lags.items() if lag}


def projection_lag() -> int:
    """Return how many events the furthest read model is behind."""
    return max(models_behind().values(), default=0)


def _lag(model: type[models.Model]) -> int:
    names = [each.name for each in _MADE_FROM[model]]
    of_these = f"event_type IN ({', '.join(['%s'] * len(names))}) AND payload_json IS NOT NULL"
    last = model._default_manager.aggregate(last=models.Max("pk"))["last"] or 0
    missing, known = rows.fetch(
        f"SELECT (SELECT count(*) FROM raw_events WHERE {of_these} AND position > %s), "
        f"EXISTS (SELECT 1 FROM raw_events WHERE {of_these} AND position = %s)",
        [*names, last, *names, last],
    )[0]
    lag: int = missing
    return lag if known or not last else max(lag, 1)
