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
from typing import Any, ClassVar

from django.test import SimpleTestCase, tag

from memoryhub.core.secret_files import SECRET_FILES
from tests.home import run_home
from tests.torture.damaged_hub import (
    BETA,
    DEMO,
    GLOBAL,
    ORG,
    Act,
    Attacked,
    Damage,
    Hub,
    built_home,
    put_home,
    read_models,
    whole_models,
)

REBUILD = r"`memory-hub (jobs )?rebuild (--project demo|.* --project demo)"
REINDEX = r"`memory-hub (jobs )?(reindex|rebuild) --project demo"
RESTORE = r"`memory-hub restore \S+\.db --project demo"
RESTORE_HUB = r"`memory-hub restore \S+\.db --hub"
COMMAND, REMOVE, MOVE, CHMOD = "`memory-hub ", "`rm ", "`mv ", "`chmod "
ACCEPT = "`memory-hub doctor --accept-loss --project demo"
DAMAGED = "damaged|malformed"
GONE, EMPTY = "gone|missing", "empty|0 bytes|no log|ends at #0"
LOST_TAIL = "broken at #170: the log ends at #169, but #189 is anchored outside the store; its tail was cut"
OTHER_DIGEST = "digest differs from the one anchored"
LEFT = "a killed process left"


def remedied_by(repair: str, *rows: tuple[str, Act, str], **more: Any) -> tuple[Damage, ...]:
    """Return kinds of damage with one remedy, each of its name, what does it, and what `doctor` must say."""
    return tuple(Damage(name, do, says, repair, **more) for name, do, says in rows)


def sql(*statements: str) -> Act:
    return lambda at: at.sql(*statements)


def forge(*statements: str) -> Act:
    return lambda at: at.forge(*statements)


def put(content: bytes | str, place: Callable[[Attacked], Path] = Attacked.store) -> Act:
    data = content.encode() if isinstance(content, str) else content
    return lambda at: place(at).write_bytes(data)


def in_home(name: str) -> Callable[[Attacked], Path]:
    return lambda at: at.home / name


# Vectors are not in the log: the hub makes them again of the texts while it runs
_EMBEDDER = """
import time
from memories.embeddings.engine import use_engine
from memories.embeddings.following import embed_current_store
from memories.embeddings.local import LocalEngine
from memoryhub.core.stores.store import project_store, use_store
with use_store(project_store("demo")), use_engine(LocalEngine()):
    embed_current_store(until=time.monotonic() + 600)
"""


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


def _of_beta(*names: str) -> Act:
    def do(at: Attacked) -> None:
        for name in names:
            shutil.copyfile(at.home / BETA / name, at.home / DEMO / name)

    return do


def _copied_as(folder: str) -> Act:
    return lambda at: shutil.copytree(at.home / DEMO, at.home / folder)


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


def _anchor(position: int) -> Act:
    return put(f"{position} {'ab' * 32}".ljust(127) + "\n", Attacked.head)


def _page_of(name: str, *, deep: bool = False) -> Act:
    return lambda at: at.garble_page_of(name, deep=deep)


LOG_FILES = (
    *remedied_by(COMMAND,
        ("wal deleted", _lose_wal, LOST_TAIL),
        ("wal overwritten", _garble_wal, LOST_TAIL),
        loses="#189"),
    *remedied_by(REBUILD,
        ("header overwritten", lambda at: at.garble(at.store(), 0), "not a database"),
        ("schema page overwritten", lambda at: at.garble(at.store(), 0, skip=100), DAMAGED),
        by_hand=lambda at: at.succeed(_EMBEDDER), forgets=True),
    *remedied_by(RESTORE,
        ("tail of the file cut", _cut_tail, DAMAGED),
        ("page of the log changed", _page_of("raw_events", deep=True), DAMAGED),
        ("letter of a payload changed", _change_a_letter, "payload is not the one that was written")),
    *remedied_by(REBUILD,
        ("header counts free pages wrongly", lambda at: at.put_bytes(at.store(), 36, b"\0\0\0c"), DAMAGED),
        ("page of a read model changed", _page_of("memories_memory"), DAMAGED),
        ("page of an index of the log changed", _page_of("raw_events_type"), DAMAGED),
        ("page of an index of a read model changed", _page_of("memory_title"), DAMAGED),
        ("page of the full text changed", _page_of("search_fts_data"), DAMAGED),
        ("free page changed", Attacked.garble_free_page, DAMAGED)),
)  # fmt: skip

REPLACED_STORES = (
    *remedied_by(RESTORE,
        ("older store put back", lambda at: at.replace_with_older("events.db"), r"ends at #163, but #169"),
        ("older store put back with its anchor", lambda at: at.replace_with_older("events.db", "head"),
         r"ends at #163.*backup.*#169"),
        ("store of 0 bytes", put(b""), EMPTY),
        ("store missing", lambda at: at.store().unlink(), GONE),
        ("folder of a store missing", lambda at: shutil.rmtree(at.store().parent), GONE),
        ("directory in a store's place", _directory, "unavailable|directory|no file"),
        ("text file in a store's place", put("no log " * 999), "not a database"),
        ("store of another project in place", _of_beta("events.db"), "the log is of 'beta'"),
        ("folder of another project in place", _of_beta("events.db", "head"), "the log is of 'beta'")),
    *remedied_by(RESTORE,
        ("store missing beside its write-ahead log", _lose_store_but_not_wal, GONE),
        loses="gone"),
    *remedied_by("remove|mv|rm",
        ("store copied under another id", _copied_as("projects/copied"), "the log is of 'demo'"),
        ("store copied under a name that is no id", _copied_as("projects/Demo (copy)"),
         r"Demo \(copy\).* is not a valid store id")),
    Damage("symbolic link in a store's place", lambda at: at.link(at.store()), "symbolic link", "`memory-hub restore"),
    Damage("store of a newer version",
        sql("INSERT INTO django_migrations (app, name, applied) VALUES ('memories', '0099_later', '2099-01-01')",
            "UPDATE store_meta SET value = 'of a later version' WHERE key = 'fingerprint'"),
        "newer Memory Hub", "upgrade", by_hand=_upgrade),
    *remedied_by(r"restore \S+ --org acme",
        ("store of an organisation missing", lambda at: at.store(ORG).unlink(), GONE),
        store=ORG),
    *remedied_by(r"restore \S+ --global",
        ("global store of 0 bytes", put(b"", lambda at: at.store(GLOBAL)), EMPTY),
        store=GLOBAL),
)  # fmt: skip

ANCHORS = (
    *remedied_by(ACCEPT,
        ("anchor deleted", lambda at: at.head().unlink(), "the file `head` .*, which shows a cut tail, is missing"),
        ("anchor emptied", put(b"", Attacked.head), "`head`.* missing"),
        accepted=True),
    *remedied_by(COMMAND,
        ("anchor overwritten", put(b"\xff" * 128, Attacked.head), "anchor|`head`"),
        ("anchor of another store", lambda at: shutil.copyfile(at.head(BETA), at.head()), OTHER_DIGEST),
        ("anchor behind the log with another digest", _anchor(50), OTHER_DIGEST)),
    *remedied_by(COMMAND,
        ("anchor ahead of the log", _anchor(999), "ends at #169, but #999"),
        loses="#999"),
)  # fmt: skip

LOG_ROWS = (
    *remedied_by(RESTORE,
        ("event updated", forge("UPDATE raw_events SET actor = 'mallory' WHERE position = 40"), "broken at #40"),
        ("event deleted", forge("DELETE FROM raw_events WHERE position = 40"), "#40"),
        ("event inserted", _insert_event, "broken at #170"),
        ("last events deleted", forge("DELETE FROM raw_events WHERE position > 150"), "ends at #150, but #169"),
        ("last events deleted and the anchor set back", _cut_log_and_anchor,
         r"ends at #150, but #16\d is in the read models"),
        ("gap in the positions",
         forge("UPDATE raw_events SET position = position + 5 WHERE position = (SELECT max(position) FROM raw_events)"),
         "broken at #169: it is missing"),
        ("chain recomputed after forging", Attacked.forge_with_new_chain, OTHER_DIGEST),
        ("chain and anchor recomputed after forging", _forge_with_new_anchor,
         "#169 is not the event that the backup"),
        ("payload erased without an event",
         sql("UPDATE raw_events SET payload_json = NULL, salt = NULL WHERE position = 165"),
         "#165: its payload is missing, and no event")),
    *remedied_by(REBUILD,
        ("trigger that empties tables",
         sql("CREATE TRIGGER more AFTER INSERT ON raw_events BEGIN DELETE FROM memories_relation; END"),
         "trigger more was added"),
        ("triggers dropped", lambda at: at.forge(triggers=False),
         "the log can be changed: its triggers are missing"),
        ("trigger without effect",
         sql("DROP TRIGGER raw_events_no_delete",
             "CREATE TRIGGER raw_events_no_delete BEFORE DELETE ON raw_events BEGIN SELECT 1; END"),
         "trigger raw_events_no_delete was changed")),
)  # fmt: skip

_A_MEMORY = "(SELECT max(id) FROM memories_memory WHERE deleted_at IS NULL)"

READ_MODELS = (
    *remedied_by(REBUILD,
        ("memory's row changed", sql(f"UPDATE memories_memory SET content = 'forged' WHERE id = {_A_MEMORY}"),
         "memories_memory"),
        ("memory's row deleted",
         sql("DELETE FROM memories_memory WHERE id = (SELECT min(id) FROM memories_memory)"), "memories_memory"),
        ("memory's row added",
         sql("CREATE TEMP TABLE one AS SELECT * FROM memories_memory LIMIT 1",
             "UPDATE one SET id = 9999, topic_key = 'forged', content = 'forged'",
             "INSERT INTO memories_memory SELECT * FROM one"),
         "memories_memory"),
        ("decision's status forged",
         sql("UPDATE decisions_decision SET status = 'active' WHERE status = 'superseded'"), "decisions_decision"),
        ("decisions' edges deleted", sql("DELETE FROM decisions_decisionedge"), "decisions_decisionedge"),
        ("session's row changed", sql("UPDATE sessions_app_session SET summary = 'forged' WHERE id = 3 OR 1"),
         "sessions_app_session"),
        ("tags deleted", sql("DELETE FROM memories_memorytag"), "memories_memorytag"),
        ("relations deleted", sql("DELETE FROM memories_relation"), "memories_relation"),
        ("index of a read model dropped", sql("DROP INDEX memory_title"), "index memory_title is missing"),
        ("table of a read model dropped", sql("DROP TABLE decisions_artifactlink"),
         "table decisions_artifactlink is missing"),
        ("list of migrations emptied", sql("DELETE FROM django_migrations"), "django_migrations")),
    *remedied_by(REINDEX,
        ("search documents deleted", sql("DELETE FROM memories_searchdocument WHERE id < 100"),
         "memories_searchdocument|search index"),
        ("words deleted from the full text", sql("DELETE FROM search_fts WHERE rowid < 100"),
         "full-text|search_fts"),
        ("words changed in the full text",
         sql("INSERT OR REPLACE INTO search_fts (rowid, title, body) VALUES (167, 'forged', 'forged')"),
         "full-text|search_fts"),
        ("full-text index dropped", sql("DROP TABLE search_fts"), "the full-text index is missing")),
)  # fmt: skip

_TEXT = "no database " * 999


def _make_secrets(at: Attacked) -> None:
    """Do what the next start of `memory-hub serve` does, as `doctor` says; only what was removed is made."""
    assert not all((at.home / name).exists() for name in SECRET_FILES), "the remedy removed no secret file"
    at.succeed(
        "from memoryhub.core.secret_files import SECRET_FILES, read_or_create_secret as make\n"
        "for name in SECRET_FILES: make(name)"
    )


def _other_database(at: Attacked) -> None:
    (at.home / "hub.db").unlink()
    shutil.copyfile(at.home / "jobs.db", at.home / "hub.db")


def _event_in_template(at: Attacked) -> None:
    at.sql(
        f"ATTACH DATABASE '{at.store()}' AS demo",
        "INSERT INTO main.raw_events SELECT * FROM demo.raw_events ORDER BY position LIMIT 1",
        path=at.template(),
    )


def _put_private(name: str, content: bytes) -> Act:
    def do(at: Attacked) -> None:
        (at.home / name).parent.mkdir(mode=0o700, exist_ok=True)
        (at.home / name).write_bytes(content)
        (at.home / name).chmod(0o600)

    return do


def _drain(at: Attacked) -> None:
    at.succeed("from memoryhub.ops.serving.drain import drain; assert drain().rejected == 2")
    shutil.rmtree(at.home / "spool" / "rejected")


def _damaged_vectors(at: Attacked) -> None:
    (path,) = (at.store().parent / "index").glob("*.bin")
    at.put_bytes(path, 200, b"\x5a" * 64)


def _left(path: str, *, folder: bool = False) -> Act:
    return lambda at: at.leave(path, folder=folder)


SECRETS = (
    *remedied_by(REMOVE,
        *((f"{name} of 0 bytes", put(b"", in_home(name)), f"{name}: the file is empty") for name in SECRET_FILES),
        *((f"{name} of three letters", put("abc\n", in_home(name)), f"{name}: the file holds 3 characters")
          for name in SECRET_FILES),
        ("token of other characters", put(b"\xff" * 43, in_home("token")),
         "token: .*characters that are not allowed"),
        by_hand=_make_secrets),
    Damage("token is a symbolic link", lambda at: at.link(at.home / "token"), "token.* symbolic link", MOVE),
)  # fmt: skip

MODES = remedied_by(
    CHMOD,
    ("home that others may read", lambda at: at.home.chmod(0o755), "other users of this machine"),
    ("secret that others may read", lambda at: (at.home / "token").chmod(0o644), "other users.* token"),
    ("store that others may write", lambda at: at.store().chmod(0o666), "other users.*events.db"),
)

DATABASES = (
    *remedied_by(RESTORE_HUB,
        ("page of hub.db changed", lambda at: at.garble(at.home / "hub.db", 1), "hub.db: the file"),
        ("hub.db of 0 bytes", put(b"", in_home("hub.db")), "hub.db: .*empty"),
        ("text file in hub.db's place", put(_TEXT, in_home("hub.db")), "hub.db: .*not a"),
        ("hub.db missing", lambda at: (at.home / "hub.db").unlink(), "hub.db: .*(gone|missing)"),
        ("another database in hub.db's place", _other_database, "hub.db: .*not the hub's")),
    *remedied_by(REMOVE,
        ("page of jobs.db changed", lambda at: at.garble(at.home / "jobs.db", 1), "jobs.db: the file"),
        ("text file in jobs.db's place", put(_TEXT, in_home("jobs.db")), "jobs.db: .*not a"),
        ("jobs.db of 0 bytes", put(b"", in_home("jobs.db")), "jobs.db"),
        ("page of the template changed", lambda at: at.garble(at.template(), 5), "template"),
        ("text file in the template's place", put(_TEXT, Attacked.template), "template"),
        ("template of 0 bytes", put(b"", Attacked.template), "template"),
        ("template with an event", _event_in_template, "template")),
    Damage("jobs.db missing", lambda at: (at.home / "jobs.db").unlink(), "jobs.db: .*missing", "`memory-hub jobs`"),
    Damage("hub.db is a symbolic link", lambda at: at.link(at.home / "hub.db"), "hub.db is a symbolic", MOVE),
)  # fmt: skip

BACKUPS = (
    *remedied_by(REMOVE,
        ("page of a backup changed", lambda at: at.garble_page_of("raw_events", deep=True, path=at.backup()),
         "backup .*malformed|damaged"),
        ("backup of 0 bytes", put(b"", Attacked.backup), "backup .*"),
        ("text file in a backup's place", put(_TEXT, Attacked.backup), "backup .*not a"),
        ("backup of another store", lambda at: shutil.copyfile(at.backup("project-beta"), at.backup()),
         "backup .*of 'beta'"),
        ("page of the hub's backup changed", lambda at: at.garble(at.backup("hub"), 1), "backup .*damaged")),
)  # fmt: skip

BESIDE = (
    Damage("garbage in the spool", _put_private("spool/2026-01-01.jsonl", b'\xff\xfe no event\n{"id": 5}\n'),
        "2 lines", "memory-hub serve", by_hand=_drain),
    *remedied_by("fix it|repair it|remove it",
        ("config.toml that is no TOML", _put_private("config.toml", b"turn_policy = = broken\n"), "config.toml"),
        ("config.toml with an unknown name", _put_private("config.toml", b"serch_mode = 'auto'\n"), "config.toml"),
        by_hand=put('search_mode = "auto"\n', in_home("config.toml"))),
    Damage("vector index changed", _damaged_vectors, "vector index", "`rm |`memory-hub jobs reindex"),
    *remedied_by(REMOVE,
        ("link that leads nowhere", lambda at: (at.home / "notes").symlink_to("nowhere"), "notes is a symbolic"),
        ("draft of a store left", _left("projects/demo/.events.db.{pid}.12345"), LEFT),
        ("draft of a backup left", _left("backups/project-demo/.20260101T000000000Z.db.{pid}.draft"), LEFT),
        ("draft of a vector index left", _left("projects/demo/index/.vectors-1.bin.{pid}.140000"), LEFT)),
    *remedied_by("`rm -r ",
        ("draft of a view left", _left("cache/views/.draft-0123456789-{pid}-12345", folder=True), LEFT)),
)  # fmt: skip

OPTIONS = {DEMO: "--project demo", BETA: "--project beta", ORG: "--org acme", GLOBAL: "--global"}
_FINDING = re.compile(r"^(?P<says>\S.*)\n  repair: (?P<repair>.*)$", re.MULTILINE)
_COMMANDS = re.compile(r"(, then )?`((?:memory-hub|rm|mv|cp|chmod) [^`]+)`")
_NO_REMEDY = ("memory-hub serve", "memory-hub doctor", "memory-hub verify")


@dataclass(frozen=True, slots=True)
class Finding:
    says: str
    repair: str

    @property
    def commands(self) -> list[str]:
        """The first command of the remedy that changes anything, and those that it says to run then."""
        commands = [(then, text) for then, text in _COMMANDS.findall(self.repair) if _changes_anything(text)]
        return [text for number, (then, text) in enumerate(commands) if not number or then]


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

    def doctor(self) -> list[Finding]:
        code, output = self.hub.run("doctor")
        self.assertNotIn("Traceback", output)
        found = [Finding(*match.groups()) for match in _FINDING.finditer(output)]
        self.assertEqual(code, 15 if found else 0, output)
        return found

    def assert_named(self, found: Sequence[Finding], damage: Damage) -> None:
        named = [each for each in found if re.search(damage.says, each.says)]
        self.assertTrue(named, f"doctor does not say {damage.says!r}; it says {found}")
        repairs = " | ".join(each.repair for each in named)
        self.assertRegex(repairs, damage.repair)
        if damage.loses:
            self.assertIn(damage.loses, " ".join(each.says for each in named))

    def repair(self, found: Sequence[Finding]) -> None:
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


def _tests(*tables: Sequence[Damage]) -> Callable[[type[DamageTestCase]], type[DamageTestCase]]:
    def add(case: type[DamageTestCase]) -> type[DamageTestCase]:
        for damage in (damage for table in tables for damage in table):
            name = f"test_{re.sub(r'[^a-z0-9]+', '_', damage.name.lower()).strip('_')}"
            assert not hasattr(case, name), f"two rows of the table are called {damage.name!r}"

            def test(self: DamageTestCase, damage: Damage = damage) -> None:
                self.attack(damage)

            setattr(case, name, test)
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
