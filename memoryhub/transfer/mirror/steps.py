"""The steps of a mirror, and the report of those that a run took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import ValidationError

from memoryhub.core.errors import HubError, Locked, Unavailable
from memoryhub.core.validation import explain
from memoryhub.transfer.mirror.files import Skipped


class Did(StrEnum):
    """What a step does."""

    # In the folder
    WRITTEN = "written"
    REMOVED = "removed"
    # In the store
    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"
    RESTORED = "restored"
    CONFLICT = "conflict"
    # They are equal already
    READ = "read"
    # The file stays as it is, and so does the store
    LEFT = "left"


@dataclass(slots=True)
class Step:
    did: Did
    path: str
    act: Callable[[Step], None]
    why: str = ""


@dataclass(slots=True)
class Report:
    folder: str
    steps: list[Step] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        counted = Counter(step.did for step in self.steps)
        return {did.value: counted[did] for did in Did if counted[did]}


def left_step(path: str, why: str) -> Step:
    return Step(Did.LEFT, path, _nothing, why)


def _nothing(step: Step) -> None:
    pass


def try_step(step: Step) -> str:
    """Do a step; return why it could not be done, or ""."""
    try:
        step.act(step)
    except (Locked, Unavailable):  # the same for all steps
        raise
    except HubError as error:
        return error.message
    except ValidationError as error:
        return explain(error)
    except Skipped as error:
        return str(error)
    except OSError as error:
        return f"can't use {error.filename}: {error.strerror}"
    return ""
