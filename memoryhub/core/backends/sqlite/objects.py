"""The table of marks and the triggers of the log, in every store."""

from __future__ import annotations

from memoryhub.core.stores.schema import require_sql

META_TABLE = "CREATE TABLE IF NOT EXISTS store_meta (key text PRIMARY KEY, value text NOT NULL) WITHOUT ROWID"

_IMMUTABLE = (
    "position event_id project_id session_id turn_id stream_id stream_seq event_type event_version occurred_at "
    "actor source payload_digest chain_digest idempotency_key trace_id"
).split()

_ERASES = "NEW.payload_json IS NULL AND NEW.salt IS NULL"
_REDACTS = (
    "OLD.payload_json IS NOT NULL AND NEW.payload_json IS NOT NULL AND NEW.salt IS NOT NULL AND NEW.salt <> OLD.salt"
)

# Name and condition of each trigger; all abort. An update may only erase (payload and salt become NULL) or redact
# (both are replaced). An accidental update of the payload has no new salt; that a redaction was intended is proven by
# its event (decision 28).
LOG_TRIGGERS = {
    "raw_events_no_delete": "BEFORE DELETE ON raw_events",
    "raw_events_no_change": f"BEFORE UPDATE ON raw_events WHEN NOT (({_ERASES}) OR coalesce({_REDACTS}, 0)) OR "
    + " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in _IMMUTABLE),
    "raw_events_no_gap": "BEFORE INSERT ON raw_events WHEN NEW.position IS NOT "
    "(SELECT coalesce(max(position), 0) + 1 FROM raw_events)",
}

require_sql(
    "core",
    META_TABLE,
    "DROP TRIGGER IF EXISTS raw_events_no_change",
    *(
        f"CREATE TRIGGER IF NOT EXISTS {name} {when} BEGIN SELECT RAISE(ABORT, 'the event log is append-only'); END"
        for name, when in LOG_TRIGGERS.items()
    ),
)
