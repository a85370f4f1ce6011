from __future__ import annotations

from functools import partial
from typing import Literal

from pydantic import Field

from memories.events import MEMORIES
from memories.validity.models import CheckOutcome
from memoryhub.core.events.event_types import Retention, define_event
from memoryhub.core.events.rollback import sets_aside
from memoryhub.core.permissions import Act
from memoryhub.core.schemas import DerivedName, EventRef, GitSha, Payload, Sha256


class CheckAllowed(Payload):
    """A person allowed one command of an entry to run."""

    entity_id: EventRef
    # ``Check.digest``
    digest: Sha256
    # A keyed digest: a permission does not hold in another hub, whose log has this event too
    seal: Sha256
    text: str = Field(min_length=1)


class CheckRan(Payload):
    entity_id: EventRef
    digest: Sha256
    text: str = Field(min_length=1)
    # Empty: the entry or the file has this check no longer, so its result counts no more
    outcome: CheckOutcome | Literal[""]
    # The file of tests that has it; empty for a check of the entry's own
    file: DerivedName = Field("", max_length=300)
    exit_code: int | None = None
    seconds: float = 0.0
    # HEAD of the working tree
    commit: GitSha | Literal[""] = ""
    # Why it failed, and the last lines of its output
    lines: list[str] = Field(default_factory=list)


_define = partial(
    define_event,
    group=MEMORIES,
    retention=Retention.WITH_STREAM,
    rollback=sets_aside("checks", "Checks allowed and run", order=215),
    changes_stream=False,
    alone=True,
    own_icon="dot",
)

CHECK_ALLOWED = _define("check.allowed", CheckAllowed, label="Check allowed", act=Act.GOVERN, is_local=True)
CHECK_RAN = _define("check.ran", CheckRan, label="Check ran")
