"""What the triggers of the log allow, for every database."""

from __future__ import annotations

IMMUTABLE = (
    "position event_id project_id session_id turn_id stream_id stream_seq event_type event_version occurred_at "
    "actor source payload_digest chain_digest idempotency_key trace_id"
).split()

# An update may only erase (payload and salt become NULL) or redact (both are replaced). An accidental update of the
# payload has no new salt; that a redaction was intended is proven by its event (decision 28).
ERASES = "NEW.payload_json IS NULL AND NEW.salt IS NULL"
REDACTS = (
    "OLD.payload_json IS NOT NULL AND NEW.payload_json IS NOT NULL AND NEW.salt IS NOT NULL AND NEW.salt <> OLD.salt"
)
