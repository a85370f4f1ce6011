"""Every kind of silent damage is named by `doctor`, and what it proposes brings everything back.

Each row of the tables is one test: a home is copied and damaged, `doctor` must say what is wrong and propose a remedy,
the remedy is run as it is printed, and then `verify`, `doctor` and a comparison with the home that was never damaged
must hold."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from django.test import SimpleTestCase, tag

from memoryhub.core.secret_files import SECRET_FILES
from tests.home import run_home
from tests.torture.damaged_hub import (
    BETA,
    DEMO,
    GLOBAL,
    ORG,
    Attacked,
    Damage,
    Hub,
    built_home,
    put_home,
    read_models,
    whole_models,
)

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
        lambda at: at.sql("CREATE TRIGGER more AFTER INSERT ON raw_events BEGIN DELETE FROM memories_relation; END"),
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


REINDEX = r"`memory-hub (jobs )?(reindex|rebuild) --project demo"
_A_MEMORY = "(SELECT max(id) FROM memories_memory WHERE deleted_at IS NULL)"

READ_MODELS = (
    Damage(
        "memory's row changed",
        lambda at: at.sql(f"UPDATE memories_memory SET content = 'forged' WHERE id = {_A_MEMORY}"),
        "memories_memory",
        REBUILD,
    ),
    Damage(
        "memory's row deleted",
        lambda at: at.sql("DELETE FROM memories_memory WHERE id = (SELECT min(id) FROM memories_memory)"),
        "memories_memory",
        REBUILD,
    ),
    Damage(
        "memory's row added",
        lambda at: at.sql(
            "CREATE TEMP TABLE one AS SELECT * FROM memories_memory LIMIT 1",
            "UPDATE one SET id = 9999, topic_key = 'forged', content = 'forged'",
            "INSERT INTO memories_memory SELECT * FROM one",
        ),
        "memories_memory",
        REBUILD,
    ),
    Damage(
        "decision's status forged",
        lambda at: at.sql("UPDATE decisions_decision SET status = 'active' WHERE status = 'superseded'"),
        "decisions_decision",
        REBUILD,
    ),
    Damage(
        "decisions' edges deleted",
        lambda at: at.sql("DELETE FROM decisions_decisionedge"),
        "decisions_decisionedge",
        REBUILD,
    ),
    Damage(
        "session's row changed",
        lambda at: at.sql("UPDATE sessions_app_session SET summary = 'forged' WHERE id = 3 OR 1"),
        "sessions_app_session",
        REBUILD,
    ),
    Damage("tags deleted", lambda at: at.sql("DELETE FROM memories_memorytag"), "memories_memorytag", REBUILD),
    Damage("relations deleted", lambda at: at.sql("DELETE FROM memories_relation"), "memories_relation", REBUILD),
    Damage(
        "search documents deleted",
        lambda at: at.sql("DELETE FROM memories_searchdocument WHERE id < 100"),
        "memories_searchdocument|search index",
        REINDEX,
    ),
    Damage(
        "words deleted from the full text",
        lambda at: at.sql("DELETE FROM search_fts WHERE rowid < 100"),
        "full-text|search_fts",
        REINDEX,
    ),
    Damage(
        "words changed in the full text",
        lambda at: at.sql("INSERT OR REPLACE INTO search_fts (rowid, title, body) VALUES (165, 'forged', 'forged')"),
        "full-text|search_fts",
        REINDEX,
    ),
    Damage("full-text index dropped", lambda at: at.sql("DROP TABLE search_fts"), "full-text", REINDEX),
    Damage("index of a read model dropped", lambda at: at.sql("DROP INDEX memory_title"), "memory_title", REBUILD),
    Damage(
        "table of a read model dropped", lambda at: at.sql("DROP TABLE decisions_artifactlink"), "artifactlink", REBUILD
    ),
    Damage(
        "list of migrations emptied", lambda at: at.sql("DELETE FROM django_migrations"), "django_migrations", REBUILD
    ),
)


REMOVE = "`rm "
_RESTORE_HUB = r"`memory-hub restore \S+\.db --hub"


def _empty(name: str) -> Damage:
    def do(at: Attacked) -> None:
        (at.home / name).write_bytes(b"")

    return Damage(f"{name} of 0 bytes", do, f"{name}: the file is empty", REMOVE, by_hand=_make_secrets)


def _shorten(name: str) -> Damage:
    def do(at: Attacked) -> None:
        (at.home / name).write_text("abc\n")

    says = f"{name}: the file holds 3 characters"
    return Damage(f"{name} of three letters", do, says, REMOVE, by_hand=_make_secrets)


def _make_secrets(at: Attacked) -> None:
    """Do what the next start of `memory-hub serve` does, as `doctor` says; only what was removed is made."""
    missing = [name for name in SECRET_FILES if not (at.home / name).exists()]
    code, output = at.hub.python(
        "from memoryhub.core.secret_files import SECRET_FILES, read_or_create_secret as make\n"
        "for name in SECRET_FILES: make(name)"
    )
    if code or not missing:
        raise AssertionError(output or "the remedy removed no secret file")


def _text_in_place_of(path: Path) -> None:
    path.write_text("no database " * 999)


def _other_database(at: Attacked) -> None:
    (at.home / "hub.db").unlink()
    shutil.copyfile(at.home / "jobs.db", at.home / "hub.db")


def _event_in_template(at: Attacked) -> None:
    at.sql(
        f"ATTACH DATABASE '{at.store()}' AS demo",
        "INSERT INTO main.raw_events SELECT * FROM demo.raw_events ORDER BY position LIMIT 1",
        path=at.template(),
    )


def _backup_of_another(at: Attacked) -> None:
    shutil.copyfile(at.backup("project-beta"), at.backup())


def _garbage_in_spool(at: Attacked) -> None:
    folder = at.home / "spool"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "2026-01-01.jsonl").write_bytes(b"\xff\xfe no event\n" + b'{"id": 5}\n')
    (folder / "2026-01-01.jsonl").chmod(0o600)


def _drain(at: Attacked) -> None:
    code, output = at.hub.python("from memoryhub.ops.serving.drain import drain; assert drain().rejected == 2")
    if code:
        raise AssertionError(output)
    shutil.rmtree(at.home / "spool" / "rejected")


def _config(text: str) -> Damage:
    def do(at: Attacked) -> None:
        (at.home / "config.toml").write_text(text)
        (at.home / "config.toml").chmod(0o600)

    def repair(at: Attacked) -> None:
        (at.home / "config.toml").write_text('search_mode = "auto"\n')

    name = f"config.toml holds {text.partition(' ')[0]!r}"
    return Damage(name, do, "config.toml", "fix it|repair it|remove it", by_hand=repair)


def _damaged_vectors(at: Attacked) -> None:
    (path,) = (at.store().parent / "index").glob("*.bin")
    at.put_bytes(path, 200, b"\x5a" * 64)


SECRETS = (
    _empty("token"),
    _shorten("token"),
    _empty("redaction.key"),
    _shorten("redaction.key"),
    _empty("secret_key"),
    Damage("token is a symbolic link", lambda at: at.link(at.home / "token"), "token.* symbolic link", "`mv "),
)

MODES = (
    Damage("home that others may read", lambda at: at.home.chmod(0o755), "other users of this machine", "`chmod "),
    Damage(
        "secret that others may read", lambda at: (at.home / "token").chmod(0o644), "other users.* token", "`chmod "
    ),
    Damage("store that others may write", lambda at: at.store().chmod(0o666), "other users.*events.db", "`chmod "),
)

DATABASES = (
    Damage("page of hub.db changed", lambda at: at.garble(at.home / "hub.db", 1), "hub.db: the file", _RESTORE_HUB),
    Damage("hub.db of 0 bytes", lambda at: (at.home / "hub.db").write_bytes(b""), "hub.db: .*empty", _RESTORE_HUB),
    Damage(
        "text file in hub.db's place", lambda at: _text_in_place_of(at.home / "hub.db"), "hub.db: .*not a", _RESTORE_HUB
    ),
    Damage("hub.db missing", lambda at: (at.home / "hub.db").unlink(), "hub.db: .*(gone|missing)", _RESTORE_HUB),
    Damage("another database in hub.db's place", _other_database, "hub.db: .*not the hub's", _RESTORE_HUB),
    Damage("page of jobs.db changed", lambda at: at.garble(at.home / "jobs.db", 1), "jobs.db: the file", REMOVE),
    Damage(
        "text file in jobs.db's place", lambda at: _text_in_place_of(at.home / "jobs.db"), "jobs.db: .*not a", REMOVE
    ),
    Damage("jobs.db of 0 bytes", lambda at: (at.home / "jobs.db").write_bytes(b""), "jobs.db", REMOVE),
    Damage("jobs.db missing", lambda at: (at.home / "jobs.db").unlink(), "jobs.db: .*missing", "`memory-hub jobs`"),
    Damage("hub.db is a symbolic link", lambda at: at.link(at.home / "hub.db"), "hub.db is a symbolic", "`mv "),
    Damage("page of the template changed", lambda at: at.garble(at.template(), 5), "template", REMOVE),
    Damage("text file in the template's place", lambda at: _text_in_place_of(at.template()), "template", REMOVE),
    Damage("template of 0 bytes", lambda at: at.template().write_bytes(b""), "template", REMOVE),
    Damage("template with an event", _event_in_template, "template", REMOVE),
)

BACKUPS = (
    Damage(
        "page of a backup changed",
        lambda at: at.garble_page_of("raw_events", deep=True, path=at.backup()),
        "backup .*malformed|damaged",
        REMOVE,
    ),
    Damage("backup of 0 bytes", lambda at: at.backup().write_bytes(b""), "backup .*", REMOVE),
    Damage("text file in a backup's place", lambda at: _text_in_place_of(at.backup()), "backup .*not a", REMOVE),
    Damage("backup of another store", _backup_of_another, "backup .*of 'beta'", REMOVE),
    Damage("page of the hub's backup changed", lambda at: at.garble(at.backup("hub"), 1), "backup .*damaged", REMOVE),
    Damage(
        "backups missing", lambda at: shutil.rmtree(at.home / "backups"), "there is no backup", "`memory-hub backup`"
    ),
)

BESIDE = (
    Damage("garbage in the spool", _garbage_in_spool, "2 lines", "memory-hub serve", by_hand=_drain),
    _config("turn_policy = = broken\n"),
    _config("serch_mode = 'auto'\n"),
    Damage("vector index changed", _damaged_vectors, "vector index", "`rm |`memory-hub jobs reindex"),
    Damage(
        "link that leads nowhere", lambda at: (at.home / "notes").symlink_to("nowhere"), "notes is a symbolic", REMOVE
    ),
    Damage(
        "draft of a store left",
        lambda at: at.leave("projects/demo/.events.db.{pid}.12345"),
        "a killed process left",
        REMOVE,
    ),
    Damage(
        "draft of a backup left",
        lambda at: at.leave("backups/project-demo/.20260101T000000000Z.db.{pid}.draft"),
        "a killed process left",
        REMOVE,
    ),
    Damage(
        "draft of a view left",
        lambda at: at.leave("cache/views/.draft-0123456789-{pid}-12345", folder=True),
        "a killed process left",
        "`rm -r ",
    ),
    Damage(
        "draft of a vector index left",
        lambda at: at.leave("projects/demo/index/.vectors-1.bin.{pid}.140000"),
        "a killed process left",
        REMOVE,
    ),
)

FILES = (*SECRETS, *MODES, *DATABASES, *BACKUPS, *BESIDE)


OPTIONS = {DEMO: "--project demo", BETA: "--project beta", ORG: "--org acme", GLOBAL: "--global"}
_FINDING = re.compile(r"^(?P<says>\S.*)\n  repair: (?P<repair>.*)$", re.MULTILINE)
_COMMANDS = re.compile(r"(, then )?`((?:memory-hub|rm|mv|cp|chmod) [^`]+)`")
_NO_REMEDY = ("memory-hub serve", "memory-hub doctor", "memory-hub verify")


@dataclass(frozen=True, slots=True)
class Found:
    says: str
    repair: str

    @property
    def commands(self) -> list[str]:
        """The first command of the remedy that changes anything, and those that it says to run then."""
        found = [(then, text) for then, text in _COMMANDS.findall(self.repair) if _changes_anything(text)]
        return [text for number, (then, text) in enumerate(found) if not number or then]


def _changes_anything(command: str) -> bool:
    return "--accept-loss" in command or not command.startswith(_NO_REMEDY)


@tag("attack")
class DamageTestCase(SimpleTestCase):
    hub: ClassVar[Hub]
    older: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.older = built_home().parent / "older"
        folder = Path(tempfile.mkdtemp(prefix="damage-", dir=run_home()))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.hub = Hub(folder / "home")

    def attack(self, damage: Damage) -> None:
        put_home(self.hub.home)
        at = Attacked(self.hub, self.older)
        damage.do(at)
        found = self.doctor()
        self.assert_named(found, damage)
        self.repair(found)
        if damage.by_hand:
            damage.by_hand(at)
        self.assert_whole(damage)

    def doctor(self) -> list[Found]:
        code, output = self.hub.run("doctor")
        self.assertNotIn("Traceback", output)
        found = [Found(*match.groups()) for match in _FINDING.finditer(output)]
        self.assertEqual(code, 15 if found else 0, output)
        return found

    def assert_named(self, found: Sequence[Found], damage: Damage) -> None:
        named = [each for each in found if re.search(damage.says, each.says)]
        self.assertTrue(named, f"doctor does not say {damage.says!r}; it says {found}")
        repairs = " | ".join(each.repair for each in named)
        self.assertRegex(repairs, damage.repair)
        if damage.loses:
            self.assertIn(damage.loses, " ".join(each.says for each in named))

    def repair(self, found: Sequence[Found]) -> None:
        for command in dict.fromkeys(command for each in found for command in each.commands):
            if command.startswith("memory-hub "):
                _, output = self.hub.run(*shlex.split(command)[1:])
                self.assertNotIn("Traceback", output, command)
            else:
                subprocess.run(["sh", "-c", command], check=True, stdin=subprocess.DEVNULL)

    def assert_whole(self, damage: Damage) -> None:
        code, output = self.hub.run("verify", *OPTIONS[damage.store].split())
        self.assertEqual(code, 0, output)
        self.assertEqual(self.doctor(), [])
        for folder, option in OPTIONS.items():
            if damage.loses and folder == damage.store:
                code, output = self.hub.run("rebuild", *option.split())
                self.assertEqual(code, 0, output)
            else:
                self.assert_same(folder, damage)

    def assert_same(self, folder: str, damage: Damage) -> None:
        whole, mended = dict(whole_models(folder)), read_models(self.hub.home / folder / "events.db")
        is_damaged = folder == damage.store
        if damage.forgets and is_damaged:
            digests = [row for row in whole["store_meta"] if row[0].startswith("secret:")]
            self.assertNotEqual(digests, [])
            whole["store_meta"] = [row for row in whole["store_meta"] if row not in digests]
        if damage.accepted and is_damaged:
            added = [row for row in mended["raw_events"] if row not in whole["raw_events"]]
            self.assertEqual([row.count("log.loss_accepted") for row in added], [1])
            mended["raw_events"] = [row for row in mended["raw_events"] if row not in added]
        self.assertEqual([name for name in whole if whole[name] != mended.get(name)], [], folder)


def _test_of(damage: Damage) -> Callable[[DamageTestCase], None]:
    def test(self: DamageTestCase) -> None:
        self.attack(damage)

    return test


def _tests(*tables: Sequence[Damage]) -> Callable[[type[DamageTestCase]], type[DamageTestCase]]:
    def add(case: type[DamageTestCase]) -> type[DamageTestCase]:
        for damage in (damage for table in tables for damage in table):
            name = f"test_{re.sub(r'[^a-z0-9]+', '_', damage.name.lower()).strip('_')}"
            if hasattr(case, name):
                raise ValueError(f"two rows of the table are called {damage.name!r}")
            setattr(case, name, _test_of(damage))
        return case

    return add


@_tests(LOG_FILES)
@tag("attack")
class LogFileTests(DamageTestCase):
    pass


@_tests(REPLACED_STORES, ANCHORS)
@tag("attack")
class ReplacedStoreTests(DamageTestCase):
    pass


@_tests(LOG_ROWS, READ_MODELS)
@tag("attack")
class RowTests(DamageTestCase):
    pass


@_tests(SECRETS, MODES, DATABASES, BACKUPS, BESIDE)
@tag("attack")
class FileTests(DamageTestCase):
    def test_a_home_that_is_whole_has_no_finding(self) -> None:
        put_home(self.hub.home)
        self.assertEqual(self.doctor(), [])
