"""What the worker does by itself, and when."""

from __future__ import annotations

from django_q.models import Schedule

from memoryhub.checks import check_stores
from memoryhub.core.origin import use_origin

_DAILY = {"verify stores": "memoryhub.jobs.verify_stores"}


def install_schedules() -> None:
    """Make the schedules that are missing; those that are there keep their times."""
    for name, function in _DAILY.items():
        Schedule.objects.get_or_create(name=name, defaults={"func": function, "schedule_type": Schedule.DAILY})


def verify_stores() -> dict[str, str]:
    """Walk the chain of every store, and return the findings by store."""
    with use_origin(source="job", actor="verify_stores"):
        return {check.store: check.finding for check in check_stores()}
