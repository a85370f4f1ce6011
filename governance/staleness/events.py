"""What can happen in staleness."""

from __future__ import annotations

from memoryhub.core.projection import define_event, sets_aside
from memoryhub.core.schemas import EntityId, Payload


class ThingAffirmed(Payload):
    """Someone looked at a memory or a decision again and found that it holds."""

    entity_id: EntityId
    reason: str = ""


THING_AFFIRMED = define_event(
    "thing.affirmed", ThingAffirmed, alone=True, rollback=sets_aside("affirmations"), changes_stream=False
)
