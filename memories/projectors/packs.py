"""Context packs that were sent."""

from __future__ import annotations

from memories.events import CONTEXT_PACKED, ContextPacked
from memories.models import ContextPack
from memoryhub.core import clock, rows
from memoryhub.core.projection import Event, projects


@projects(CONTEXT_PACKED)
def keep_pack(event: Event[ContextPacked]) -> None:
    """Note what was told, to whom, and from which state of the logs."""
    told = event.payload.model_dump(exclude={"packed_at"})
    rows.insert(ContextPack, id=event.position, created_at=clock.from_text(event.payload.packed_at), **told)
