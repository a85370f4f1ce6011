"""The table of silent damage, third part: what is beside the stores."""

from __future__ import annotations

import shutil
from pathlib import Path

from memoryhub.core.secret_files import SECRET_FILES
from tests.torture.damage import Attacked, Damage

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
