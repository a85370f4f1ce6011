"""What is known of redactions: the event that tells of one, and what stands in the place of what it took out."""

from __future__ import annotations

import json

from pydantic import Field

from memoryhub.core import rows
from memoryhub.core.event_types import TurnRule, define_governance_event
from memoryhub.core.schemas import Payload, Sha256


class PayloadRedacted(Payload):
    """Text was taken out of payloads: what stands there now has a salt and a digest of its own."""

    digests: dict[int, Sha256] = Field(min_length=1)
    """By position, that of the payload which stands there now; the chain goes on over the digest from before."""
    what: str
    """By what the text was found: a rule, or what the person called it; never the text."""
    reason: str = ""


PAYLOAD_REDACTED = define_governance_event(
    "payload.redacted", PayloadRedacted, label="Payload redacted", turn=TurnRule.OPTIONAL, removes_text=True
)

_TOLD = (
    "SELECT json_extract(payload_json, '$.digests') FROM {database}.raw_events {hint} "
    "WHERE event_type = 'payload.redacted' AND payload_json IS NOT NULL ORDER BY position"
)


def redacted_digests(database: str = "main", *, use_index: bool = True) -> dict[int, str]:
    """Return the digest that each redacted payload must have now, by position.

    Args:
        database: the name of the store in the current connection.
        use_index: off to read the log alone; a damaged index may lack an event.
    """
    found: dict[int, str] = {}
    for (digests,) in rows.fetch(_TOLD.format(database=database, hint="" if use_index else "NOT INDEXED")):
        found |= {int(position): digest for position, digest in json.loads(digests).items()}
    return found
