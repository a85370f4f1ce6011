"""Tools that keep their memory in SQLite: what their own files become, and what hostile ones do not."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import tracemalloc
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from unittest import mock

from django.test import SimpleTestCase

from governance.imports.undo import preview_undo, undo_import
from memoryhub.core.errors import Invalid
from memoryhub.core.log import table_digests
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import LeftOut, MemoryRecord, Record, Report, SessionRecord
from memoryhub.transfer.sources import SOURCES, databases
from memoryhub.transfer.sources.databases import moment_of
from tests.pages import SIZE, page_map
from tests.support import HubTestCase

DATA = Path(__file__).parent / "data"
FILES = {
    "mcp-memory-service": DATA / "mcp-memory-service" / "sqlite_vec.db",
    "claude-mem": DATA / "claude-mem" / "claude-mem.db",
    "engram": DATA / "engram" / "engram.db",
}
ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS id, x AS content FROM r"


def read(name: str, path: Path | None = None) -> list[Record]:
    return list(SOURCES[name].read(path or FILES[name]))


def memories(records: list[Record]) -> list[MemoryRecord]:
    return [record for record in records if isinstance(record, MemoryRecord)]


def sessions(records: list[Record]) -> list[SessionRecord]:
    return [record for record in records if isinstance(record, SessionRecord)]


def left_out(records: list[Record]) -> list[str]:
    return [record.why for record in records if isinstance(record, LeftOut)]


class RecordTests(SimpleTestCase):
    def test_mcp_memory_service(self) -> None:
        found = read("mcp-memory-service")
        feed, metres, gauge, berths, pilots = memories(found)
        self.assertEqual((feed.kind, feed.type, feed.tags), ("knowledge", "reference", ("tide", "limits")))
        self.assertEqual(
            feed.title, "The tide feed allows 30 requests a minute, and answers 429 for an hour afterwards."
        )
        self.assertEqual((metres.kind, metres.type), ("knowledge", "decision"))
        self.assertEqual((gauge.project, berths.tags, pilots.tags), ("harbour", ("berths", "weekly"), ()))
        assert feed.created
        self.assertEqual(feed.created.date().isoformat(), "2026-11-23")
        self.assertEqual(left_out(found), ["it was deleted there", "vectors, which are made again"])

    def test_claude_mem(self) -> None:
        found = read("claude-mem")
        first, second = sessions(found)
        self.assertEqual((first.key, first.project), ("0f1e2d3c-0000-4000-8000-00000000000a", "harbour"))
        prompts = [turn.prompt for turn in first.turns]
        self.assertEqual(prompts, ["Why does the tide import fail?", "Wait an hour after a 429."])
        self.assertIn("Learned: The feed refuses for an hour", first.summary)
        self.assertEqual((len(second.turns), second.summary), (1, ""))
        bug, metres, gauge, orders = memories(found)
        self.assertEqual((bug.kind, bug.type, bug.session), ("observation", "note", first.key))
        self.assertEqual(bug.tags, ("problem-solution", "gotcha", "bugfix"))
        self.assertEqual(
            bug.content,
            "The feed refuses for an hour\n\nThe import stopped at the first refusal. It now waits for an hour.\n\n"
            "- 30 requests a minute\n- 429 for an hour afterwards\n\n"
            "Files read: src/feed.py\nFiles changed: src/import.py",
        )
        self.assertEqual(bug.created, datetime(2026, 11, 20, 9, tzinfo=UTC))
        self.assertEqual((metres.kind, metres.type, gauge.type), ("knowledge", "decision", "fact"))
        self.assertNotIn("old text", orders.content)

    def test_observations_of_two_claude_mem_databases_have_keys_of_their_own(self) -> None:
        folder = self.enterContext(TemporaryDirectory())
        other = Path(shutil.copy(FILES["claude-mem"], folder))
        with closing(sqlite3.connect(other)) as tool:
            tool.execute("PRAGMA foreign_keys = OFF")
            for table in ("sdk_sessions", "observations", "session_summaries"):
                tool.execute(f"UPDATE {table} SET memory_session_id = memory_session_id || '-of-the-laptop'")
            tool.commit()
        keys = [{one.key for one in memories(read("claude-mem", path))} for path in (FILES["claude-mem"], other)]
        self.assertEqual([len(found) for found in keys], [4, 4])
        self.assertEqual(keys[0] & keys[1], set())

    def test_engram_and_its_export(self) -> None:
        found = read("engram")
        exported = read("engram", DATA / "engram" / "export.json")
        self.assertEqual([one.key for one in memories(exported)], [one.key for one in memories(found)])
        self.assertEqual([one.turns for one in sessions(exported)], [one.turns for one in sessions(found)])
        harbour, pilots = sessions(found)
        self.assertEqual((harbour.key, harbour.project, len(harbour.turns)), ("s-harbour", "harbour", 2))
        self.assertEqual(harbour.summary, "The tide import waits after a refusal.")
        self.assertEqual(pilots.purpose, "Plan the orders of the pilots")
        kinds = [(one.kind, one.type, one.tags) for one in memories(found)]
        self.assertEqual(kinds[:2], [("observation", "note", ("bugfix",)), ("knowledge", "decision", ())])
        self.assertEqual(kinds[3:], [("guideline", "", ("personal",)), ("observation", "note", ("pattern",))])
        self.assertEqual(left_out(found), ["it only records a tool use", "it was deleted there"])

    def test_times(self) -> None:
        cases: dict[object, str] = {
            1_700_000_000: "2023-11-14",
            1_700_000_000_000: "2023-11-14",
            "2024-05-06 07:08:09": "2024-05-06",
            "2024-05-06T07:08:09.123Z": "2024-05-06",
        }
        for given, expected in cases.items():
            found = moment_of(given)
            assert found
            self.assertEqual(found.date().isoformat(), expected)
        for given in (0, -1, 1e300, float("nan"), True, None, b"2024", "soon", "0001-01-01T00:00:00+14:00"):
            self.assertIsNone(moment_of(given), given)


class HostileTests(SimpleTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    def database(self, name: str, script: str, rows: dict[str, list[tuple[Any, ...]]] | None = None) -> Path:
        path = self.folder / name
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(script)
            for sql, values in (rows or {}).items():
                connection.executemany(sql, values)
        return path

    def refused(self, source: str, path: Path) -> str:
        with self.assertRaises(Invalid) as refusal:
            read(source, path)
        self.assertNotIn("\n", refusal.exception.message)
        return refusal.exception.message

    def test_what_is_no_database_of_the_tool_gets_one_sentence(self) -> None:
        for source, original in FILES.items():
            raw = original.read_bytes()
            binary, cut, short = (self.folder / f"{source}-{name}.db" for name in ("binary", "cut", "short"))
            binary.write_bytes(bytes(range(256)) * 64)
            cut.write_bytes(raw[: len(raw) // 2])
            short.write_bytes(raw[:50])
            other = self.database(f"{source}-other.db", "CREATE TABLE books (id INTEGER, title TEXT)")
            views = "".join(f"CREATE VIEW {name} AS {ENDLESS};" for name in ("memories", "observations", "sessions"))
            endless = self.database(f"{source}-endless.db", views)
            columns = self.database(
                f"{source}-columns.db",
                "".join(f"CREATE TABLE {name} (other INTEGER);" for name in self.TABLES),
            )
            for path, why in {
                self.folder / "nix.db": "",
                binary: "",
                cut: "is cut off",
                short: "no SQLite database" if source != "engram" else "",
                other: "it has no table",
                endless: "it has no table",
                columns: "has no",
            }.items():
                with self.subTest(source=source, path=path.name):
                    self.assertIn(why, self.refused(source, path))

    TABLES: ClassVar = ("memories", *("sdk_sessions", "observations", "session_summaries", "user_prompts"), "sessions")

    def test_a_damaged_page_gets_one_sentence(self) -> None:
        for source, original in FILES.items():
            path = self.folder / f"{source}.db"
            raw = bytearray(original.read_bytes())
            raw[4096:] = b"\xee" * (len(raw) - 4096)
            path.write_bytes(raw)
            with self.subTest(source=source):
                self.assertIn("can't read", self.refused(source, path))

    def test_values_of_other_types_are_left_out(self) -> None:
        schema = "CREATE TABLE memories (content_hash, content, tags, memory_type, metadata, created_at, deleted_at);"
        rows = [
            ("a", b"\xff\xfe", None, None, None, None, None),
            (b"\x00", "text", None, None, None, None, None),
            ("c", "kept", 12, b"x", "[" * 100_000, "never", None),
            ("d", "\ufffd" * 3, "x,y", "unknown", '{"project": 3}', 1e300, None),
            ("e", None, None, None, None, None, None),
        ]
        path = self.database("odd.db", schema, {"INSERT INTO memories VALUES (?, ?, ?, ?, ?, ?, ?)": rows})
        found = read("mcp-memory-service", path)
        self.assertEqual([one.key for one in memories(found)], ["c", "d"])
        self.assertEqual([(one.created, one.project) for one in memories(found)], [(None, ""), (None, "")])
        self.assertEqual(len(left_out(found)), 4)

    def test_text_that_is_no_utf8_is_readable(self) -> None:
        schema = "CREATE TABLE memories (content_hash, content, tags, memory_type);"
        path = self.database("latin.db", schema)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("INSERT INTO memories VALUES ('a', CAST(? AS TEXT), '', 'note')", [b"R\xf8mte"])
        self.assertEqual(memories(read("mcp-memory-service", path))[0].content, "R\ufffdmte")

    def test_tables_that_would_run_something_are_refused(self) -> None:
        columns = "content_hash, content, tags, memory_type"
        cases = {
            "a virtual table": (f"CREATE VIRTUAL TABLE memories USING fts5({columns});", "it has no table memories"),
            "a row number": (
                f"CREATE TABLE memories ({columns}, RowId AS (hex(zeroblob(9))));",
                "computed column RowId",
            ),
            "a computed column": (
                f"CREATE TABLE memories ({columns}, other AS (hex(content)));",
                "computed column other",
            ),
        }
        for name, (script, why) in cases.items():
            path = self.database(f"{name}.db", script)
            with self.subTest(name):
                self.assertIn(why, self.refused("mcp-memory-service", path))
        script = "CREATE TABLE user_prompts (id AS (hex(zeroblob(99))), session_id, content, created_at);"
        path = self.database(
            "order.db", script + "CREATE TABLE sessions (id, project); CREATE TABLE observations (id);"
        )
        self.assertIn("computed column id", self.refused("engram", path))

    def test_a_small_file_does_not_hold_endless_rows(self) -> None:
        path = self.database("bomb.db", "CREATE TABLE memories (content_hash, content, tags, memory_type);")
        with closing(sqlite3.connect(path)) as connection, connection:
            rows = ((str(number), "x" * 500) for number in range(1_000))
            connection.executemany("INSERT INTO memories VALUES (?, ?, '', '')", rows)
        self.assertEqual(len(memories(read("mcp-memory-service", path))), 1_000)
        raw = bytearray(path.read_bytes())
        root = (page_map(path)["memories"][0] - 1) * SIZE
        first, *cells = (
            root + int.from_bytes(raw[at : at + 2]) for at in range(root + 12, root + 12 + 2 * raw[root + 4], 2)
        )
        for cell in cells:  # every child is the first one
            raw[cell : cell + 4] = raw[first : first + 4]
        path.write_bytes(raw)
        self.assertIn("2nd reference to page", self.refused("mcp-memory-service", path))

    def test_rows_are_read_one_at_a_time(self) -> None:
        path = self.database("rows.db", "CREATE TABLE memories (content_hash, content, tags, memory_type);")
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executemany(
                "INSERT INTO memories VALUES (?, ?, '', '')", [("a", "x"), ("b", "\0" * (9 * 2**20))]
            )
            connection.executemany("INSERT INTO memories VALUES (?, hex(zeroblob(2000000)), '', '')", [("c",)] * 12)
        records = SOURCES["mcp-memory-service"].read(path)
        next(records)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        lengths = [len(record.content) for record in records if isinstance(record, MemoryRecord)]
        self.assertEqual(lengths, [4_000_000] * 12)
        self.assertLess(tracemalloc.get_traced_memory()[1], 20_000_000)

    def test_a_session_has_at_most_so_many_prompts(self) -> None:
        for source, original in (("engram", FILES["engram"]), ("claude-mem", FILES["claude-mem"])):
            path = Path(shutil.copy(original, self.folder / f"{source}.db"))
            before = read(source, path)
            session = max(sessions(before), key=lambda one: len(one.turns))
            beyond = sum(len(one.turns) - 1 for one in sessions(before))
            with self.subTest(source), mock.patch.object(databases, "MAX_GROUP", 1):
                after = read(source, path)
                self.assertEqual({len(one.turns) for one in sessions(after)}, {1})
                cut = [why for why in left_out(after) if why.startswith("prompts after the first 1: ")]
                self.assertEqual(sum(int(why.rpartition(" ")[2]) for why in cut), beyond)
            with self.subTest(source), mock.patch.object(databases, "MAX_CHARACTERS", 10):
                cut = left_out(read(source, path))
                self.assertIn(f"prompts after the first 0: {len(session.turns)}", cut)

    def test_a_log_that_is_a_link_is_not_copied(self) -> None:
        path = Path(shutil.copy(FILES["engram"], self.folder / "engram.db"))
        (self.folder / "other").write_bytes(b"x" * 100)
        path.with_name("engram.db-wal").symlink_to(self.folder / "other")
        with mock.patch.object(shutil, "copyfile", side_effect=AssertionError):
            self.assertEqual(len(read("engram", path)), len(read("engram")))

    def test_a_huge_value_is_left_out(self) -> None:
        path = self.database("huge.db", "CREATE TABLE memories (content_hash, content, tags, memory_type);")
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("INSERT INTO memories VALUES ('a', hex(zeroblob(8000000)), '', 'note')")
        self.assertEqual(memories(read("mcp-memory-service", path)), [])

    def test_a_database_in_use_is_read_and_nothing_is_written_beside_it(self) -> None:
        texts = {"mcp-memory-service": ("memories", "content"), "claude-mem": ("observations", "narrative")}
        for source, original in FILES.items():
            path = Path(shutil.copy(original, self.folder / f"{source}.db"))
            table, column = texts.get(source, ("observations", "content"))
            with self.subTest(source=source), closing(sqlite3.connect(path)) as tool:
                tool.execute("PRAGMA journal_mode = WAL")
                for (trigger,) in tool.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
                    tool.execute(f"DROP TRIGGER {trigger}")
                tool.execute(f"UPDATE {table} SET {column} = 'Changed'")
                tool.commit()
                before = self.listing()
                found = memories(read(source, path))
                self.assertTrue(all("Changed" in one.content for one in found))
                self.assertEqual(self.listing(), before)

    def listing(self) -> dict[str, tuple[int, int]]:
        return {entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(self.folder)}

    def test_an_export_of_another_kind_is_refused(self) -> None:
        for text in ("[1]", "{}", '{"sessions": 1}', "[" * 100_000, "\ufeff", '{"sessions": "x", "prompts": []}'):
            path = self.folder / "export.json"
            path.write_text(text)
            self.refused("engram", path)
        path.write_text(json.dumps({"observations": [1, {"id": 2, "content": "Kept", "type": ["x"]}]}))
        self.assertEqual([one.content for one in memories(read("engram", path))], ["Kept"])


class ImportTests(HubTestCase):
    def test_imports_add_nothing_when_repeated_and_are_undone_whole(self) -> None:
        self.enterContext(self.store("alpha", actor="maya", source="cli"))
        for source, path in FILES.items():
            with self.subTest(source=source):
                before = table_digests()
                report = self.bring(source, path)
                again = self.bring(source, path)
                self.assertEqual((again.changes, again.unchanged), (0, report.created))
                assert report.batch
                undo_import(batch_id=report.batch, token=preview_undo(report.batch).token)
                self.assertEqual(table_digests(), before)

    def bring(self, source: str, path: Path) -> Report:
        (report,) = Importer(source, "alpha", is_only=True).run(SOURCES[source].read(path), place=str(path))
        return report
