"""The table of marks and the triggers of the log, in every store."""

from __future__ import annotations

from memoryhub.core.backends.log_rules import ERASES, IMMUTABLE, REDACTS
from memoryhub.core.stores.schema import require_sql

META_TABLE = "CREATE TABLE IF NOT EXISTS store_meta (key text PRIMARY KEY, value text NOT NULL) WITHOUT ROWID"

# Name and condition of each trigger; all abort.
LOG_TRIGGERS = {
    "raw_events_no_delete": "BEFORE DELETE ON raw_events",
    "raw_events_no_change": f"BEFORE UPDATE ON raw_events WHEN NOT (({ERASES}) OR coalesce({REDACTS}, 0)) OR "
    + " OR ".join(f"NEW.{column} IS NOT OLD.{column}" for column in IMMUTABLE),
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
