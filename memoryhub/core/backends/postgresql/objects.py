"""The table of marks and the triggers of the log, in every store."""

from __future__ import annotations

from memoryhub.core.backends.log_rules import ERASES, IMMUTABLE, REDACTS
from memoryhub.core.stores import rows
from memoryhub.core.stores.schema import after_ensuring, require_sql

META_TABLE = 'CREATE TABLE IF NOT EXISTS store_meta (key text COLLATE "C" PRIMARY KEY, value text COLLATE "C" NOT NULL)'

_REFUSE = """
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the event log is append-only' USING ERRCODE = 'integrity_constraint_violation';
END
$$
"""
_REFUSE_GAP = """
CREATE OR REPLACE FUNCTION refuse_gap() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    expected bigint;
BEGIN
    EXECUTE format('SELECT coalesce(max(position), 0) + 1 FROM %I.raw_events', TG_TABLE_SCHEMA) INTO expected;
    IF NEW.position <> expected THEN
        RAISE EXCEPTION 'the event log is append-only' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END
$$
"""
_CHANGED = " OR ".join(f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in IMMUTABLE)

# Name, event, and what follows it, of each trigger
LOG_TRIGGERS = {
    "raw_events_no_delete": "BEFORE DELETE ON raw_events FOR EACH ROW EXECUTE FUNCTION refuse_change()",
    "raw_events_no_change": "BEFORE UPDATE ON raw_events FOR EACH ROW "
    f"WHEN (NOT (({ERASES}) OR coalesce({REDACTS}, false)) OR {_CHANGED}) EXECUTE FUNCTION refuse_change()",
    "raw_events_no_gap": "BEFORE INSERT ON raw_events FOR EACH ROW EXECUTE FUNCTION refuse_gap()",
}

require_sql(
    "core",
    META_TABLE,
    _REFUSE,
    _REFUSE_GAP,
    *(f"CREATE OR REPLACE TRIGGER {name} {rest}" for name, rest in LOG_TRIGGERS.items()),
)

# Columns whose values are words of the hub or keys, by which the server plans its queries
_PLANNED = (
    "actor event_type kind link_type relation review scope session_id source status stream_id turn_id type"
).split()
_FORGET_TEXTS = f"""
DO $$
DECLARE
    found record;
BEGIN
    FOR found IN
        SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relkind = 'r' AND c.relnamespace = quote_ident(current_schema())::regnamespace AND a.attnum > 0
            AND NOT a.attisdropped AND a.atttypid IN ('text'::regtype, 'bytea'::regtype)
            AND coalesce(a.attstattarget, -1) <> 0 AND a.attname NOT IN ({", ".join(f"'{name}'" for name in _PLANNED)})
    LOOP
        EXECUTE format('ALTER TABLE %I ALTER COLUMN %I SET STATISTICS 0', found.relname, found.attname);
    END LOOP;
END
$$
"""


# Texts in statistics would outlive a redaction: dead rows of ``pg_statistic`` stay in the server's own table
@after_ensuring
def keep_texts_out_of_statistics() -> None:
    rows.execute(_FORGET_TEXTS)
