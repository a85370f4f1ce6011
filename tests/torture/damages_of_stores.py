"""The table of silent damage, first part: stores, their logs and anchors."""

from __future__ import annotations

import shutil

from tests.torture.damage import BETA, DEMO, GLOBAL, ORG, Attacked, Damage

REBUILD = r"`memory-hub (jobs )?rebuild (--project demo|.* --project demo)"
DAMAGED = "damaged|malformed"
RESTORE = r"`memory-hub restore \S+\.db --project demo"
COMMAND = r"`memory-hub "
ACCEPT = "`memory-hub doctor --accept-loss --project demo"
_DEMO_FILES = ("events.db", "head")


_EMBEDDER = """
import time
from memories.embeddings.choice import use_engine
from memories.embeddings.following import embed_current_store
from memories.embeddings.local import LocalEngine
from memoryhub.core.stores.store import project_store, use_store
with use_store(project_store("demo")), use_engine(LocalEngine()):
    embed_current_store(until=time.monotonic() + 600)
"""


def _embed(at: Attacked) -> None:
    """Do what the hub does while it runs: vectors are not in the log, and are made again of the texts."""
    code, output = at.hub.python(_EMBEDDER)
    if code:
        raise AssertionError(output)


def _lose_wal(at: Attacked) -> None:
    at.write_and_die()
    at.wal().unlink()
    at.wal().with_name("events.db-shm").unlink()


def _lose_store_but_not_wal(at: Attacked) -> None:
    at.write_and_die()
    at.store().unlink()


def _garble_wal(at: Attacked) -> None:
    at.write_and_die()
    at.put_bytes(at.wal(), 0, b"\x5a" * 8192)
    at.wal().with_name("events.db-shm").unlink()


def _cut_tail(at: Attacked) -> None:
    with at.store().open("r+b") as file:
        file.truncate(at.store().stat().st_size // 2)


def _change_a_letter(at: Attacked) -> None:
    whole = at.store().read_bytes()
    place = whole.index(b'"content":"What demo keeps')  # as JSON, which the log alone has
    at.put_bytes(at.store(), place + len(b'"content":"'), b"w")


def _directory(at: Attacked) -> None:
    at.store().unlink()
    at.store().mkdir(mode=0o700)


def _put_store_of_beta(at: Attacked, *names: str) -> None:
    for name in names:
        shutil.copyfile(at.home / BETA / name, at.home / DEMO / name)


def _newer_version(at: Attacked) -> None:
    at.sql(
        "INSERT INTO django_migrations (app, name, applied) VALUES ('memories', '0099_later', '2099-01-01')",
        "UPDATE store_meta SET value = 'of a later version' WHERE key = 'fingerprint'",
    )


def _upgrade(at: Attacked) -> None:
    at.sql("DELETE FROM django_migrations WHERE name = '0099_later'")
    fingerprint = "(SELECT value FROM beta.store_meta WHERE key = 'fingerprint')"
    at.sql(
        f"ATTACH DATABASE '{at.store(BETA)}' AS beta",
        f"UPDATE main.store_meta SET value = {fingerprint} WHERE key = 'fingerprint'",
    )


def _insert_event(at: Attacked) -> None:
    names = (
        "event_id, project_id, session_id, turn_id, stream_id, stream_seq, event_type, event_version, occurred_at, "
        "actor, source, payload_json, salt, payload_digest, chain_digest, trace_id"
    )
    values = names.replace("event_id", "'forged'").replace("stream_id", "'memory:9999'")
    at.forge(
        f"INSERT INTO raw_events (position, {names}) SELECT position + 1, {values} FROM raw_events "
        "ORDER BY position DESC LIMIT 1"
    )


def _cut_log_and_anchor(at: Attacked) -> None:
    at.forge("DELETE FROM raw_events WHERE position > 150")
    at.anchor_head()


def _forge_with_new_anchor(at: Attacked) -> None:
    at.forge_with_new_chain()
    at.anchor_head()


_LAST = "(SELECT max(position) FROM raw_events)"

LOG_FILES = (
    Damage("wal deleted", _lose_wal, r"ends at #167, but #187", COMMAND, loses="#187"),
    Damage("wal overwritten", _garble_wal, r"ends at #167, but #187", COMMAND, loses="#187"),
    Damage("tail of the file cut", _cut_tail, DAMAGED, RESTORE),
    Damage(
        "header overwritten",
        lambda at: at.garble(at.store(), 0),
        "not a database",
        REBUILD,
        by_hand=_embed,
        forgets=True,
    ),
    Damage("header counts free pages wrongly", lambda at: at.put_bytes(at.store(), 36, b"\0\0\0c"), DAMAGED, REBUILD),
    Damage(
        "schema page overwritten",
        lambda at: at.garble(at.store(), 0, skip=100),
        DAMAGED,
        REBUILD,
        by_hand=_embed,
        forgets=True,
    ),
    Damage("page of the log changed", lambda at: at.garble_page_of("raw_events", deep=True), DAMAGED, RESTORE),
    Damage("page of a read model changed", lambda at: at.garble_page_of("memories_memory"), DAMAGED, REBUILD),
    Damage("page of an index of the log changed", lambda at: at.garble_page_of("raw_events_type"), DAMAGED, REBUILD),
    Damage("page of an index of a read model changed", lambda at: at.garble_page_of("memory_title"), DAMAGED, REBUILD),
    Damage("page of the full text changed", lambda at: at.garble_page_of("search_fts_data"), DAMAGED, REBUILD),
    Damage("free page changed", Attacked.garble_free_page, DAMAGED, REBUILD),
    Damage("letter of a payload changed", _change_a_letter, "payload is not the one that was written", RESTORE),
)

REPLACED_STORES = (
    Damage("older store put back", lambda at: at.replace_with_older("events.db"), r"ends at #161, but #167", RESTORE),
    Damage(
        "older store put back with its anchor",
        lambda at: at.replace_with_older("events.db", "head"),
        r"ends at #161.*backup.*#167",
        RESTORE,
    ),
    Damage("store of 0 bytes", lambda at: at.store().write_bytes(b""), "empty|0 bytes|no log|ends at #0", RESTORE),
    Damage("store missing", lambda at: at.store().unlink(), "gone|missing", RESTORE),
    Damage("store missing beside its write-ahead log", _lose_store_but_not_wal, "gone|missing", RESTORE, loses="gone"),
    Damage("folder of a store missing", lambda at: shutil.rmtree(at.store().parent), "gone|missing", RESTORE),
    Damage("directory in a store's place", _directory, "unavailable|directory|no file", RESTORE),
    Damage(
        "text file in a store's place", lambda at: at.store().write_text("no log " * 999), "not a database", RESTORE
    ),
    Damage(
        "store of another project in place",
        lambda at: _put_store_of_beta(at, "events.db"),
        "the log is of 'beta'",
        RESTORE,
    ),
    Damage(
        "folder of another project in place",
        lambda at: _put_store_of_beta(at, *_DEMO_FILES),
        "the log is of 'beta'",
        RESTORE,
    ),
    Damage(
        "store copied under another id",
        lambda at: shutil.copytree(at.home / DEMO, at.home / "projects/copied"),
        "the log is of 'demo'",
        "remove|mv|rm",
    ),
    Damage(
        "store copied under a name that is no id",
        lambda at: shutil.copytree(at.home / DEMO, at.home / "projects/Demo (copy)"),
        r"Demo \(copy\).* is not a valid store id",
        "mv|rm",
    ),
    Damage("symbolic link in a store's place", lambda at: at.link(at.store()), "symbolic link", "`memory-hub restore"),
    Damage("store of a newer version", _newer_version, "newer Memory Hub", "upgrade", by_hand=_upgrade),
    Damage(
        "store of an organisation missing",
        lambda at: at.store(ORG).unlink(),
        "gone|missing",
        r"restore \S+ --org acme",
        store=ORG,
    ),
    Damage(
        "global store of 0 bytes",
        lambda at: at.store(GLOBAL).write_bytes(b""),
        "empty|0 bytes|no log|ends at #0",
        r"restore \S+ --global",
        store=GLOBAL,
    ),
)

ANCHORS = (
    Damage("anchor deleted", lambda at: at.head().unlink(), "`head`.* missing", ACCEPT, accepted=True),
    Damage("anchor emptied", lambda at: at.head().write_bytes(b""), "`head`.* missing", ACCEPT, accepted=True),
    Damage("anchor overwritten", lambda at: at.head().write_bytes(b"\xff" * 128), "anchor|`head`", COMMAND),
    Damage(
        "anchor of another store",
        lambda at: shutil.copyfile(at.head(BETA), at.head()),
        "digest differs from the one anchored",
        COMMAND,
    ),
    Damage(
        "anchor ahead of the log",
        lambda at: at.head().write_text(f"999 {'ab' * 32}".ljust(127) + "\n"),
        "ends at #167, but #999",
        COMMAND,
        loses="#999",
    ),
    Damage(
        "anchor behind the log with another digest",
        lambda at: at.head().write_text(f"50 {'ab' * 32}".ljust(127) + "\n"),
        "digest differs from the one anchored",
        COMMAND,
    ),
)

LOG_ROWS = (
    Damage(
        "event updated",
        lambda at: at.forge("UPDATE raw_events SET actor = 'mallory' WHERE position = 40"),
        "broken at #40",
        RESTORE,
    ),
    Damage("event deleted", lambda at: at.forge("DELETE FROM raw_events WHERE position = 40"), "#40", RESTORE),
    Damage("event inserted", _insert_event, "broken at #168", RESTORE),
    Damage(
        "last events deleted",
        lambda at: at.forge("DELETE FROM raw_events WHERE position > 150"),
        "ends at #150, but #167",
        RESTORE,
    ),
    Damage(
        "last events deleted and the anchor set back",
        _cut_log_and_anchor,
        r"ends at #150, but #16\d is in the read models",
        RESTORE,
    ),
    Damage(
        "gap in the positions",
        lambda at: at.forge(f"UPDATE raw_events SET position = position + 5 WHERE position = {_LAST}"),
        "broken at #167: it is missing",
        RESTORE,
    ),
    Damage("chain recomputed after forging", Attacked.forge_with_new_chain, "digest differs from the one", RESTORE),
    Damage(
        "chain and anchor recomputed after forging",
        _forge_with_new_anchor,
        "#167 is not the event that the backup",
        RESTORE,
    ),
    Damage(
        "trigger that empties tables",
        lambda at: at.sql(
            "CREATE TRIGGER more AFTER INSERT ON raw_events BEGIN DELETE FROM memories_relation; END",
        ),
        "trigger.* more",
        REBUILD,
    ),
    Damage(
        "payload erased without an event",
        lambda at: at.sql("UPDATE raw_events SET payload_json = NULL, salt = NULL WHERE position = 163"),
        "#163: its payload is missing, and no event",
        RESTORE,
    ),
    Damage("triggers dropped", lambda at: at.forge(triggers=False), "triggers", REBUILD),
    Damage(
        "trigger without effect",
        lambda at: at.sql(
            "DROP TRIGGER raw_events_no_delete",
            "CREATE TRIGGER raw_events_no_delete BEFORE DELETE ON raw_events BEGIN SELECT 1; END",
        ),
        "raw_events_no_delete",
        REBUILD,
    ),
)

STORES = (*LOG_FILES, *REPLACED_STORES, *ANCHORS, *LOG_ROWS)
