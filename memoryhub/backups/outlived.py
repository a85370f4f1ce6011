"""What a person has taken out of a store since a backup was made of it, and whether the backup still has it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from memoryhub.backups import copying
from memoryhub.core import rows
from memoryhub.core.log.digests import payload_digest
from memoryhub.core.log.redacted import redacted_digests

_ERASED = (
    "SELECT DISTINCT value FROM raw_events, json_each(raw_events.payload_json, '$.positions') "
    "WHERE event_type = 'payload.erased' AND source <> 'job'"
)
"""What grew old is let go of as the backups do."""
_EVENTS = "SELECT position, event_id FROM raw_events WHERE position IN (SELECT value FROM json_each(%s))"
_LAST = (
    "SELECT max(occurred_at) FROM raw_events WHERE event_type = 'payload.redacted' "
    "OR (event_type = 'payload.erased' AND source <> 'job')"
)
_PAYLOADS = (
    "SELECT position, event_id, salt, payload_json FROM raw_events "
    "WHERE payload_json IS NOT NULL AND position IN (SELECT value FROM json_each(?))"
)


@dataclass(frozen=True, slots=True)
class TakenOut:
    """The positions of a store from which a person has taken text."""

    erased: frozenset[int]
    """Those whose text is gone altogether."""
    redacted: dict[int, str]
    """Those of which a part is gone, with the digest of the payload that stands there now."""
    events: dict[int, str]
    """The id of the event of each: where a log was restored and went on another way, a position is another's too."""
    last_at: str
    """When that was done last; "" for never."""

    @classmethod
    def of_current_store(cls) -> TakenOut:
        """Return what was taken out of the current store so far."""
        erased = frozenset(position for (position,) in rows.fetch(_ERASED))
        redacted = {position: digest for position, digest in redacted_digests().items() if position not in erased}
        events = dict(rows.fetch(_EVENTS, [json.dumps([*erased, *redacted])]))
        return cls(erased, redacted, events, rows.fetch(_LAST)[0][0] or "")

    def is_in(self, backup: Path, *, unread: bool = False) -> bool:
        """Whether a backup has any of it.

        Args:
            backup: a copy of the store.
            unread: what is said of one that cannot be read; by itself it has nothing to restore.
        """
        try:
            with closing(copying.connect(backup)) as connection:
                found = connection.execute(_PAYLOADS, [json.dumps([*self.erased, *self.redacted])])
                return any(self._outlives(*row) for row in found)
        except (sqlite3.Error, TypeError, ValueError):
            return unread

    def _outlives(self, position: int, event_id: str, salt: str, payload_json: str) -> bool:
        if event_id != self.events.get(position):
            return False
        return position in self.erased or payload_digest(salt, payload_json) != self.redacted[position]
