"""Rewrite a store without what was deleted, and look for what is left.

The server keeps no statistics of the columns that hold texts (``objects``), so a text is in its tables alone, and in
what ``unproven`` names.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from django.db import DatabaseError

from memoryhub.core import ids
from memoryhub.core.backends.postgresql.copies import remove_dead_drafts
from memoryhub.core.backends.postgresql.locations import Direct, current_schema, direct, quote
from memoryhub.core.stores import rows
from memoryhub.core.stores.store_id import StoreId, current_store
from memoryhub.core.text import counted

logger = logging.getLogger(__name__)

# Characters; shorter texts occur everywhere by chance
_SHORTEST = 5
# How long a rewrite may wait for those who read a table: all others wait behind it
_WAIT_SECONDS = 2.0
# How long it waits for older transactions to end, which keeps nobody waiting
_OLDER_SECONDS = 5.0
_POLL_SECONDS = 0.05
_CANCEL_WAITING = (
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
    "WHERE wait_event_type = 'Lock' AND pid <> pg_backend_pid() AND strpos(query, %s) > 0"
)
# The numbers in the detail of ``"table": found … removable, … nonremovable row versions``, in whatever language
_KEPT_ROWS = re.compile(r"\d+")
_HOLDERS = """
SELECT format('a transaction of %s in the database %s is open since %s', usename, datname, xact_start::timestamp(0))
    FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    AND backend_type IN ('client backend', 'walsender')
UNION ALL SELECT format('the transaction %s is prepared', gid) FROM pg_prepared_xacts
UNION ALL SELECT format('the replication slot %s needs them', slot_name) FROM pg_replication_slots
    WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL
LIMIT 5
"""
_TABLES = (
    "SELECT relname FROM pg_class WHERE relkind = 'r' "
    "AND relnamespace = quote_ident(current_schema())::regnamespace ORDER BY 1"
)
_COLUMNS = (
    "SELECT attname, atttypid = 'bytea'::regtype FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 "
    "AND NOT attisdropped AND atttypid IN ('text'::regtype, 'jsonb'::regtype, 'bytea'::regtype)"
)
_STATISTICS = (
    "SELECT DISTINCT tablename FROM pg_stats WHERE schemaname = current_schema() "
    "AND strpos(concat(most_common_vals::text, histogram_bounds::text), %s) > 0"
)


def rewrite() -> bool:
    store = current_store()
    mark = f"/* {ids.random_bytes(8).hex()} */"
    try:
        _await_older(direct(store))
        with _cancelled_if_it_waits(direct(store), mark):
            unwiped = [table for table in rows.column(_TABLES) if not _rewrite(store, table, mark)]
        copies = remove_dead_drafts(store)
        # A data file of the server is written, and that of a table before the rewrite removed, at a checkpoint. Only a
        # few roles may ask for one; the server makes one every few minutes.
        with suppress(DatabaseError):
            direct(store).alone("CHECKPOINT")
    except DatabaseError as error:
        logger.warning("deleted text of %s could not be wiped from its tables: %s", store.name, error)
        return False
    if unwiped:
        why = "; ".join(holder for (holder,) in direct(store).rows(_HOLDERS))
        why = why or "the server keeps them for a transaction that has ended by now"
        logger.warning("deleted text of %s is still in %s, because %s", store.name, ", ".join(unwiped), why)
    if copies:
        logger.warning("deleted text of %s may still be in the unfinished copies %s", store.name, ", ".join(copies))
    return not unwiped and not copies


# Transactions of all databases of the server count: what VACUUM itself may see keeps the rows that they may see
def _await_older(server: Direct) -> None:
    ((now,),) = server.rows("SELECT pg_snapshot_xmax(pg_current_snapshot())")
    deadline = time.monotonic() + _OLDER_SECONDS
    while server.rows("SELECT pg_snapshot_xmin(pg_current_snapshot()) < %s::xid8", [now]) == [(True,)]:
        if time.monotonic() > deadline:
            return  # the rows that are kept for it are counted
        time.sleep(_POLL_SECONDS)


# False if rows stay that were deleted: the server keeps those that the oldest open transaction might read
def _rewrite(store: StoreId, table: str, mark: str) -> bool:
    name = f"{quote(current_schema())}.{quote(table)}"
    notices = direct(store).notices(f"VACUUM (FULL, VERBOSE) {name} {mark}")
    direct(store).alone(f"ANALYZE {name}")
    counts = [match[0] for notice in notices if (match := _KEPT_ROWS.match(notice))]
    return bool(counts) and all(int(count) == 0 for count in counts)  # no count: the server has skipped the table


# VACUUM runs in no transaction, so ``SET LOCAL lock_timeout`` can't precede it; behind a pooler only the text of a
# statement says which server process runs it.
@contextmanager
def _cancelled_if_it_waits(server: Direct, mark: str) -> Iterator[None]:
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(_WAIT_SECONDS):
            try:
                server.rows(_CANCEL_WAITING, [mark])
            except DatabaseError as error:
                logger.warning("whether the rewrite of a table waits could not be asked: %s", error)

    watcher = threading.Thread(target=watch, name="wipe-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()


def still_in(texts: Collection[str], *, wiped: bool) -> list[str]:
    spellings: set[str] = set()
    for text in texts:
        spellings |= {text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    spellings = {spelling for spelling in spellings if len(spelling) >= _SHORTEST}
    places = [f"the table {table}" for table in rows.column(_TABLES) if _has_any(table, spellings)]
    if not wiped:
        places.append("deleted rows of the server's data files")
    tables: set[str] = set()
    for spelling in spellings:
        tables.update(rows.column(_STATISTICS, [spelling]))
    return [*places, *(f"the server's statistics of the table {table}" for table in sorted(tables))]


def _has_any(table: str, spellings: Collection[str]) -> bool:
    conditions = ["false"]
    for name, is_bytes in rows.fetch(_COLUMNS, [quote(table)]):
        if is_bytes:
            conditions.append(f"position(convert_to(%s, 'UTF8') IN {quote(name)}) > 0")
        else:
            conditions.append(f"strpos({quote(name)}::text, %s) > 0")
    sql = f"SELECT 1 FROM {quote(table)} WHERE {' OR '.join(conditions)} LIMIT 1"
    return any(rows.fetch(sql, [spelling] * (len(conditions) - 1)) for spelling in spellings)


def unproven() -> list[tuple[str, str]]:
    places = [
        (
            "the server's write-ahead log",
            "the server overwrites it at later checkpoints, which only its administrator can see",
        ),
        ("base backups and dumps of the server", "delete those from before the redaction, and make new ones"),
    ]
    if rows.fetch("SHOW archive_mode")[0][0] != "off":
        places.append(("the archive of the write-ahead log", "delete the segments from before the redaction"))
    if replicas := rows.fetch("SELECT count(*) FROM pg_stat_replication")[0][0]:
        places.append(
            (counted(replicas, "replica"), "each removes the text when it has replayed the redaction; see its lag")
        )
    return places


def keep(stop: threading.Event) -> None:
    stop.wait()
