"""What is so, after text was taken out."""

from __future__ import annotations

from governance.models import Redaction
from memoryhub.core import rows
from memoryhub.core.log import PAYLOAD_REDACTED, PayloadRedacted
from memoryhub.core.projection import Event, projects


@projects(PAYLOAD_REDACTED)
def keep_redaction(event: Event[PayloadRedacted]) -> None:
    """Note who took what out of how many events, and why."""
    rows.insert(
        Redaction,
        id=event.position,
        what=event.payload.what,
        reason=event.payload.reason,
        events=len(event.payload.digests),
        actor=event.actor,
        source=event.source,
        redacted_at=event.occurred_at,
    )
