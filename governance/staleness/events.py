"""What can happen in staleness."""

from __future__ import annotations

from memoryhub.core.event_types import GOVERNANCE, Retention, define_event
from memoryhub.core.rollback import sets_aside
from memoryhub.core.schemas import EntityId, Payload


class ThingAffirmed(Payload):
    """Someone looked at a memory or a decision again and found that it holds."""

    entity_id: EntityId
    reason: str = ""


THING_AFFIRMED = define_event(
    "thing.affirmed",
    ThingAffirmed,
    label="Thing affirmed",
    group=GOVERNANCE,
    retention=Retention.WITH_STREAM,
    rollback=sets_aside("affirmations", "Memories and decisions affirmed", order=210),
    changes_stream=False,
    alone=True,
)
