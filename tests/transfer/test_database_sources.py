"""Tools that keep their memory in a database: what their files become, and what hostile ones do not."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import tracemalloc
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from memoryhub.core.errors import Invalid
from memoryhub.transfer.records import LeftOutRecord, MemoryRecord
from memoryhub.transfer.sources import SOURCES, databases
from memoryhub.transfer.sources.reading import time_of
from tests.pages import SIZE, page_map
from tests.transfer.test_text_sources import DATA, LINK, SourceTestCase

FILES = {
    "mcp-memory-service": DATA / "mcp-memory-service" / "sqlite_vec.db",
    "claude-mem": DATA / "claude-mem" / "claude-mem.db",
    "engram": DATA / "engram" / "engram.db",
}
COLUMNS = "content_hash, content, tags, memory_type"
ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS id, x AS content FROM r"


class DatabaseTestCase(SourceTestCase):
    def execute(self, path: Path, script: str, statement: str = "", rows: Iterable[tuple[Any, ...]] = ()) -> Path:
        """Run a script in a database, then a statement for each row; return the path."""
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(script)
            connection.executemany(statement, rows)
        return path

    def memory_table(self, *rows: tuple[Any, ...], values: str = "?, ?, '', 'note'") -> Path:
        """Return a database of MCP Memory Service with rows of an id and a text."""
        script = f"CREATE TABLE memories ({COLUMNS});"
        return self.execute(self.home / "rows.db", script, f"INSERT INTO memories VALUES ({values})", rows)

    def move_to_home(self, source: str) -> Path:
        return Path(shutil.copy(FILES[source], self.home / f"{source}.db"))


class RecordTests(DatabaseTestCase):
    def test_mcp_memory_service(self) -> None:
        source, path = "mcp-memory-service", FILES["mcp-memory-service"]
        feed, metres, gauge, berths, pilots = self.memories(source, path).values()
        title = "The tide feed allows 30 requests a minute, and answers 429 for an hour afterwards."
        self.assert_record(feed, kind="knowledge", type="reference", tags=("tide", "limits"), title=title)
        assert feed.created
        self.assertEqual(feed.created.date().isoformat(), "2026-11-23")
        self.assert_record(metres, kind="knowledge", type="decision")
        self.assertEqual((gauge.project, berths.tags, pilots.tags), ("harbour", ("berths", "weekly"), ()))
        self.assertEqual(self.reasons(source, path), ["it was deleted there", "vectors, which are made again"])

    def test_claude_mem(self) -> None:
        path = FILES["claude-mem"]
        first, second = self.sessions("claude-mem", path)
        self.assert_record(first, key="0f1e2d3c-0000-4000-8000-00000000000a", project="harbour")
        prompts = [turn.prompt for turn in first.turns]
        self.assertEqual(prompts, ["Why does the tide import fail?", "Wait an hour after a 429."])
        self.assertIn("Learned: The feed refuses for an hour", first.summary)
        self.assertEqual((len(second.turns), second.summary), (1, ""))
        bug, metres, gauge, orders = self.memories("claude-mem", path).values()
        self.assert_record(
            bug,
            kind="observation",
            type="note",
            session=first.key,
            tags=("problem-solution", "gotcha", "bugfix"),
            content="The feed refuses for an hour\n\nThe import stopped at the first refusal. It now waits for an hour."
            "\n\n- 30 requests a minute\n- 429 for an hour afterwards\n\n"
            "Files read: src/feed.py\nFiles changed: src/import.py",
            created=datetime(2026, 11, 20, 9, tzinfo=UTC),
        )
        self.assertEqual((metres.kind, metres.type, gauge.type), ("knowledge", "decision", "fact"))
        self.assertNotIn("old text", orders.content)

    def test_observations_of_two_claude_mem_databases_have_keys_of_their_own(self) -> None:
        tables = ("sdk_sessions", "observations", "session_summaries")
        change = "UPDATE {} SET memory_session_id = memory_session_id || '-of-the-laptop';"
        script = "PRAGMA foreign_keys = OFF;" + "".join(map(change.format, tables))
        other = self.execute(self.move_to_home("claude-mem"), script)
        keys = [self.memories("claude-mem", path).keys() for path in (FILES["claude-mem"], other)]
        self.assertEqual(([len(of_one) for of_one in keys], keys[0] & keys[1]), ([4, 4], set()))

    def test_engram_and_its_export(self) -> None:
        path, export = FILES["engram"], DATA / "engram" / "export.json"
        records, sessions = self.memories("engram", path), self.sessions("engram", path)
        self.assertEqual(list(self.memories("engram", export)), list(records))
        self.assertEqual([one.turns for one in self.sessions("engram", export)], [one.turns for one in sessions])
        harbour, pilots = sessions
        self.assert_record(
            harbour, key="s-harbour", project="harbour", summary="The tide import waits after a refusal."
        )
        self.assertEqual((len(harbour.turns), pilots.purpose), (2, "Plan the orders of the pilots"))
        kinds = [(one.kind, one.type, one.tags) for one in records.values()]
        self.assertEqual(kinds[:2], [("observation", "note", ("bugfix",)), ("knowledge", "decision", ())])
        self.assertEqual(kinds[3:], [("guideline", "", ("personal",)), ("observation", "note", ("pattern",))])
        self.assertEqual(self.reasons("engram", path), ["it only records a tool use", "it was deleted there"])

    def test_what_a_repository_shares_of_engram_is_read_by_any_of_its_names(self) -> None:
        shared = self.home / "work" / ".engram"
        (shared / "chunks").mkdir(parents=True)
        (shared / "manifest.json").write_text('{"version": 1, "chunks": [{"id": "34af86d1", "created_by": "kim"}]}')
        row = {"id": 1, "session_id": "s1", "type": "decision", "title": "Lines", "project": "harbour"}
        first = {
            **row,
            "content": "Use lines.",
            "created_at": "2026-03-29 21:16:04",
            "updated_at": "2026-03-29 21:16:04",
        }
        changed = {**first, "content": "Use short lines.", "updated_at": "2026-03-30 08:00:00"}
        other = {**first, "content": "Of another machine.", "created_at": "2026-04-01 09:00:00"}
        prompt = {"id": 1, "session_id": "s1", "content": "Which?", "project": "harbour", "created_at": "2026-03-29"}
        # Chunks have the names of their digests
        self.chunk(shared, "aa", observations=[changed], prompts=[prompt, 7])
        self.chunk(
            shared, "bb", sessions=[{"id": "s1", "project": "harbour", "summary": "Chose."}], observations=[first]
        )
        self.chunk(shared, "cc", observations=[other])
        (shared / "chunks" / "dd.jsonl.gz").write_bytes(b"\x1f\x8b no gzip")
        for path in (shared.parent, shared, shared / "chunks", shared / "manifest.json"):
            with self.subTest(path=path.name):
                memories, (session,) = self.memories("engram", path), self.sessions("engram", path)
                self.assertEqual(
                    {key: record.content for key, record in memories.items()},
                    {
                        "1@2026-03-29T21:16:04": "Use short lines.",
                        "1@2026-04-01T09:00:00": "Of another machine.",
                    },
                )
                self.assertEqual((session.summary, [turn.prompt for turn in session.turns]), ("Chose.", ["Which?"]))
                whys = [left.why.removeprefix(left.place) for left in self.left("engram", path)]
                self.assertEqual(whys, [" is damaged, or not compressed with gzip", "entries that are no rows: 1"])
        (record,) = self.memories("engram", shared / "chunks" / "aa.jsonl.gz").values()
        self.assert_record(
            record,
            created=datetime(2026, 3, 29, 21, 16, 4, tzinfo=UTC),
            updated=datetime(2026, 3, 30, 8, tzinfo=UTC),
            project="harbour",
            type="decision",
        )

    def chunk(self, folder: Path, name: str, **lists: list[Any]) -> None:
        rows = {"sessions": [], "observations": [], "prompts": [], **lists}
        (folder / "chunks" / f"{name}.jsonl.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))

    def test_exports_as_json(self) -> None:
        path = self.home / "export.json"
        observation = {
            "id": 7,
            "type": "decision",
            "title": "Lines",
            "narrative": "Use lines.",
            "created_at_epoch": 1.7e12,
        }
        prompt = {"content_session_id": "c1", "prompt_number": 1, "prompt_text": "Which?", "created_at_epoch": 1.7e12}
        lists = {"observations": [observation], "sessions": [], "summaries": [], "prompts": [prompt]}
        path.write_text(json.dumps({"exportedAt": "2026-01-03T10:00:00Z", **lists}))
        (record,), (session,) = self.memories("claude-mem", path).values(), self.sessions("claude-mem", path)
        self.assert_record(record, content="Use lines.", type="decision", created=time_of(1.7e12))
        self.assertEqual([turn.prompt for turn in session.turns], ["Which?"])
        memory = {"content": "Use lines.", "tags": ["a", "b"], "created_at": 1767434400.0, "memory_type": "decision"}
        memories = [{**memory, "content_hash": "f" * 64, "metadata": {"project": "harbour"}}, memory, None]
        path.write_text(json.dumps({"export_metadata": {"total_memories": 1}, "memories": memories}))
        records = list(self.memories("mcp-memory-service", path).values())
        self.assertEqual([record.content for record in records], ["Use lines."] * 2)
        created = datetime(2026, 1, 3, 10, tzinfo=UTC)
        self.assert_record(records[0], tags=("a", "b"), project="harbour", type="decision", created=created)
        self.assertEqual(self.reasons("mcp-memory-service", path), ["entries that are no memories: 1"])
        entry = {"id": "1", "memory": "Use lines.", "user_id": "maya", "created_at": "2026-01-03T10:00:00Z"}
        path.write_text(json.dumps({"memories": [entry], "relations": [{"source": "a"}]}))
        self.assert_record(self.memories("mem0", path)["1"], content="Use lines.", tags=("maya",), created=created)
        self.assertEqual(self.reasons("mem0", path), ["relations of its graph: 1"])

    def test_the_answer_to_another_tools_export_says_what_it_is_and_what_would_do(self) -> None:
        path = self.home / "export.json"
        path.write_text(json.dumps({"exportedAt": "", "observations": [{"id": 1}]}))
        for source, looks in (("mcp-memory-service", "looks like one of claude-mem"), ("mem0", "it has no list")):
            with self.assertRaises(Invalid) as refused:
                list(SOURCES[source].records(path))
            self.assertIn(looks, refused.exception.message)
            self.assertIn(f"; `import {source}` takes ", refused.exception.message)
        for source, file in (("engram", "engram.db"), ("claude-mem", "claude-mem.db")):
            self.assert_refused(source, self.home, f"has no {file}: it has export.json")

    def test_times(self) -> None:
        for same_day in (1_715_000_000, 1_715_000_000_000, "2024-05-06 07:08:09", "2024-05-06T07:08:09.123Z"):
            self.assertEqual(str(time_of(same_day))[:10], "2024-05-06")
        for value in (0, -1, 1e300, float("nan"), True, None, b"2024", "soon", "0001-01-01T00:00:00+14:00"):
            self.assertIsNone(time_of(value), value)


class HostileTests(DatabaseTestCase):
    def test_what_is_no_sound_database_of_the_tool_gets_one_sentence(self) -> None:
        names = ("memories", "sdk_sessions", "observations", "session_summaries", "user_prompts", "sessions")
        views = "".join(f"CREATE VIEW {name} AS {ENDLESS};" for name in ("memories", "observations", "sessions"))
        path = self.home / "cut.db"
        for source, original in FILES.items():
            raw = original.read_bytes()
            for content, why in (
                (bytes(range(256)) * 64, ""),
                (raw[: len(raw) // 2], "is cut off"),
                (raw[:50], "no SQLite database" if source != "engram" else ""),
                (raw[:4096] + b"\xee" * (len(raw) - 4096), "can't read"),
            ):
                path.write_bytes(content)
                self.assert_refused(source, path, why)
            for script, why in (
                ("CREATE TABLE books (id INTEGER, title TEXT)", "it has no table"),
                (views, "it has no table"),
                ("".join(f"CREATE TABLE {name} (other INTEGER);" for name in names), "has no"),
            ):
                path.unlink()
                self.assert_refused(source, self.execute(path, script), why)
            self.assert_refused(source, self.home / "nix.db")

    def test_values_of_other_types_are_left_out_and_text_that_is_no_utf8_is_read(self) -> None:
        source, columns = "mcp-memory-service", f"{COLUMNS}, metadata, created_at, deleted_at"
        rows = [
            ("a", b"\xff\xfe", None, None, None, None, None),
            (b"\x00", "text", None, None, None, None, None),
            ("c", "kept", 12, b"x", "[" * 100_000, "never", None),
            ("d", "\ufffd" * 3, "x,y", "unknown", '{"project": 3}', 1e300, None),
            ("e", None, None, None, None, None, None),
        ]
        script, statement = f"CREATE TABLE memories ({columns});", "INSERT INTO memories VALUES (?, ?, ?, ?, ?, ?, ?)"
        path = self.execute(self.home / "odd.db", script, statement, rows)
        records = self.memories(source, path)
        dated = [(key, record.created, record.project) for key, record in records.items()]
        self.assertEqual(dated, [("c", None, ""), ("d", None, "")])
        self.assertEqual(len(self.left(source, path)), 4)
        latin = self.memory_table(("a", b"R\xf8mte"), values="?, CAST(? AS TEXT), '', 'note'")
        self.assertEqual(self.memories(source, latin)["a"].content, "R\ufffdmte")

    def test_tables_that_would_run_something_are_refused(self) -> None:
        engram = "CREATE TABLE user_prompts (id AS (hex(zeroblob(99))), session_id, content, created_at);"
        engram += "CREATE TABLE sessions (id, project); CREATE TABLE observations (id);"
        tool = "mcp-memory-service"
        for source, script, why in (
            (tool, f"CREATE VIRTUAL TABLE memories USING fts5({COLUMNS});", "it has no table memories"),
            (tool, f"CREATE TABLE memories ({COLUMNS}, RowId AS (hex(zeroblob(9))));", "computed column RowId"),
            (tool, f"CREATE TABLE memories ({COLUMNS}, other AS (hex(content)));", "computed column other"),
            ("engram", engram, "computed column id"),
        ):
            path = self.execute(self.home / "computed.db", script)
            self.assert_refused(source, path, why)
            path.unlink()

    def test_a_small_file_does_not_hold_endless_rows(self) -> None:
        path = self.memory_table(*((str(number), "x" * 500) for number in range(1_000)))
        self.assertEqual(len(self.memories("mcp-memory-service", path)), 1_000)
        raw = bytearray(path.read_bytes())
        root = (page_map(path)["memories"][0] - 1) * SIZE
        pointers = range(root + 12, root + 12 + 2 * raw[root + 4], 2)
        first, *cells = (root + int.from_bytes(raw[at : at + 2]) for at in pointers)
        for cell in cells:  # every child is the first one
            raw[cell : cell + 4] = raw[first : first + 4]
        path.write_bytes(raw)
        self.assert_refused("mcp-memory-service", path, "2nd reference to page")

    def test_rows_are_read_one_at_a_time_and_huge_values_left_out(self) -> None:
        path = self.memory_table(("a", "x"), ("b", "\0" * (9 * 2**20)))
        self.execute(path, "INSERT INTO memories VALUES ('huge', hex(zeroblob(8000000)), '', '');")
        statement = "INSERT INTO memories VALUES (?, hex(zeroblob(2000000)), '', '')"
        self.execute(path, "", statement, [("c",)] * 12)
        records = SOURCES["mcp-memory-service"].read(path)
        next(records)
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        lengths = [len(record.content) for record in records if isinstance(record, MemoryRecord)]
        self.assertEqual(lengths, [4_000_000] * 12)
        self.assertLess(tracemalloc.get_traced_memory()[1], 20_000_000)

    def test_a_session_has_at_most_so_many_prompts(self) -> None:
        for source in ("engram", "claude-mem"):
            path = self.move_to_home(source)
            counts = [len(session.turns) for session in self.sessions(source, path)]
            with self.subTest(source), patch.object(databases, "MAX_GROUP", 1):
                self.assertEqual({len(session.turns) for session in self.sessions(source, path)}, {1})
                cut = [why for why in self.reasons(source, path) if why.startswith("prompts after the first 1: ")]
                self.assertEqual(sum(int(why.rpartition(" ")[2]) for why in cut), sum(counts) - len(counts))
            with self.subTest(source), patch.object(databases, "MAX_CHARACTERS", 10):
                self.assertIn(f"prompts after the first 0: {max(counts)}", self.reasons(source, path))

    def test_a_log_that_is_a_link_is_not_copied(self) -> None:
        path = self.move_to_home("engram")
        (self.home / "other").write_bytes(b"x" * 100)
        path.with_name("engram.db-wal").symlink_to(self.home / "other")
        with patch.object(shutil, "copyfile", side_effect=AssertionError):
            self.assertEqual(len(self.read("engram", path)), len(self.read("engram", FILES["engram"])))

    def test_a_database_in_use_is_read_and_nothing_is_written_beside_it(self) -> None:
        texts = {"mcp-memory-service": ("memories", "content"), "claude-mem": ("observations", "narrative")}
        for source in FILES:
            path = self.move_to_home(source)
            table, column = texts.get(source, ("observations", "content"))
            with self.subTest(source=source), closing(sqlite3.connect(path)) as tool:
                tool.execute("PRAGMA journal_mode = WAL")
                for (trigger,) in tool.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
                    tool.execute(f"DROP TRIGGER {trigger}")
                tool.execute(f"UPDATE {table} SET {column} = 'Changed'")
                tool.commit()
                with self.unchanged():
                    records = self.memories(source, path).values()
                self.assertTrue(all("Changed" in record.content for record in records))

    def test_an_export_of_another_kind_is_refused(self) -> None:
        path = self.home / "export.json"
        for text in ("[1]", "{}", '{"sessions": 1}', "[" * 100_000, "\ufeff", '{"sessions": "x", "prompts": []}'):
            path.write_text(text)
            self.assert_refused("engram", path)
        path.write_text(json.dumps({"observations": [1, {"id": 2, "content": "Kept", "type": ["x"]}]}))
        self.assertEqual([one.content for one in self.memories("engram", path).values()], ["Kept"])


class Mem0Tests(DatabaseTestCase):
    def test_the_newest_text_of_each_memory_is_taken_from_the_history(self) -> None:
        path = self.copy("mem0") / "history.db"
        with self.unchanged():
            records, left = self.memories("mem0", path), self.left("mem0", path)
        texts = [
            "The gauge at Øster Hurup reads 0.8 m at 06:12.",
            "How deep is the basin?",
            "The basin is 6 m deep at low water.",
            "Write depths in metres, never in feet.",
            "Retry after an hour when the tide feed answers 429.",
        ]
        self.assertEqual([record.content for record in records.values()], texts)
        key, created = "3a779deb-8e92-43b8-a8da-17d352b872b7", datetime(2026, 11, 23, 10, 52, 13, 415798, UTC)
        expected = MemoryRecord(key, "", texts[-1], created=created, place=f"{path}:{key}")
        self.assertEqual(replace(records[key], updated=None), expected)
        self.assertGreater(records[key].updated or created, created)
        self.assertEqual(left, [LeftOutRecord(f"{path}:2661c8a0-812a-4fbf-a520-410af303f1f2", "it was deleted there")])

    def test_an_export_has_categories_projects_and_sessions_too(self) -> None:
        path = self.copy("mem0") / "get_all.json"
        records = self.memories("mem0", path)
        self.assert_record(
            records["277c3a13-0e52-42e2-a763-ecb2b362afea"],
            title="",
            content="The gauge at Øster Hurup reads 0.8 m at 06:12.",
            tags=("maya", "gauges"),
            project="harbour",
            created=datetime(2026, 11, 23, 10, 52, 13, 383400, UTC),
            place=f"{path}:277c3a13-0e52-42e2-a763-ecb2b362afea",
        )
        basin = records["973d00cc-7f62-4825-8276-96c2f04dbcca"]
        self.assert_record(basin, tags=("maya", "pilot"), session="2026-03-01")
        self.assertLess(records.keys(), self.memories("mem0", path.with_name("history.db")).keys())

    def test_keys_stay_when_a_memory_is_edited(self) -> None:
        path = self.copy("mem0") / "history.db"
        before = self.memories("mem0", path)
        key = next(iter(before))
        rows = [("1", key, "At 0.9 m.", "UPDATE"), ("2", key, None, "NONE")]
        self.execute(path, "", "INSERT INTO history VALUES (?, ?, '', ?, ?, '', '', 0, '', '')", rows)
        after = self.memories("mem0", path)
        self.assertEqual((before.keys(), after[key].content), (after.keys(), "At 0.9 m."))

    def test_rows_of_other_types_and_messages_are_left_out(self) -> None:
        path = self.copy("mem0") / "history.db"
        self.execute(path, "INSERT INTO messages VALUES ('1', 'maya', 'user', 'How deep?', '', '')")
        rows = [(None, "Depths"), ("b", b"\xff\0"), ("c", " "), (b"\xff", 4), ("e", bytes(9_000_000))]
        values = "hex(randomblob(9)), ?, '', ?, 'ADD', 'soon', 4, 0, '', ''"
        self.execute(path, "", f"INSERT INTO history VALUES ({values})", rows)
        with self.unchanged():
            self.assertEqual(len(self.memories("mem0", path)), 5)
            _, *reasons, messages = self.reasons("mem0", path)
        self.assertEqual(messages, "messages that memories were taken from: 1")
        self.assertEqual(reasons, ["it has no id, or no text that can be read"] * 5)

    def test_pickled_vectors_are_never_read(self) -> None:
        folder = self.copy("mem0")
        vectors = folder / "qdrant/collection/mem0/storage.sqlite"
        vectors.parent.mkdir(parents=True)
        script, statement = "CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)", "INSERT INTO points VALUES (?, ?)"
        self.execute(vectors, script, statement, [("1", b"cos\nsystem\n(S'exit 1'\ntR.")])
        with self.unchanged(), patch("pickle.loads") as loads:
            for path in (vectors, folder / "qdrant", folder):
                (why,) = (left.why for left in self.left("mem0", path) if left.place == str(vectors))
                self.assertIn("its rows are pickled", why)
            self.assertEqual(len(self.memories("mem0", folder)), 5)
        loads.assert_not_called()

    def test_other_and_damaged_files_are_refused(self) -> None:
        path = self.copy("mem0") / "history.db"
        raw, export = path.read_bytes(), self.home / "export.json"
        entry = {"id": "1", "memory": "Depths in metres."}
        for file, content, why in (
            (path, raw[:9000], "is cut off"),
            (path, raw[:50], "is no SQLite database"),
            (path, raw[:4096] + b"\xff" * 8192 + raw[12288:], "can't read"),
            (path, raw.replace(b"TABLE history", b"TABLE histury"), ""),
            (export, bytes(range(256)), "is no JSON"),
            (export, json.dumps([entry]).encode("utf-16")[:-9], "is no JSON"),
            (export, json.dumps([entry]).encode()[:-9], "is no JSON"),
            (export, b"[" * 1_000_000, "is no JSON"),
            (export, b"", "is no JSON"),
            (export, b"4", "it has no list of results"),
            (export, b'{"results": {"id": "1"}}', "it has no list of results"),
            (export, b'[{"id": 1, "memory": "x"}, {"id": "2"}, [], null]', "its entries have no id and memory"),
            (export, b"[" + b"[]," * 3_000_001 + b"0]", "has more than 3,000,000 values"),
        ):
            file.write_bytes(content)
            self.assert_refused("mem0", file, why)
        with patch("memoryhub.transfer.sources.reading.MAX_FILE", 10):
            self.assert_refused("mem0", export, "is larger than")
        for schema, why in (
            ("CREATE TABLE a (b)", "it has no table history"),
            ("CREATE VIEW history AS SELECT 1 AS memory_id", "it has no table history"),
            ("CREATE TABLE history (id, memory_id, prev_value)", "its table history has no column new_memory"),
        ):
            path.unlink()
            self.assert_refused("mem0", self.execute(path, schema), why)

    def test_entries_of_an_export_that_are_none_are_left_out(self) -> None:
        path, entry = self.home / "export.json", {"id": "1", "memory": "Depths in metres."}
        entries = [entry, {**entry, "memory": "Newer.", "metadata": [], "created_at": 1e400}, None]
        path.write_bytes(json.dumps(entries).encode("utf-16"))  # as PowerShell writes it
        self.assertEqual(self.memories("mem0", path)["1"].content, "Newer.")
        why = "entries that have no id and memory, or the id of another: 2"
        self.assertEqual(self.reasons("mem0", path)[0], why)

    def test_the_usual_place_is_found_and_one_without_data_gets_one_sentence(self) -> None:
        find = SOURCES["mem0"].find
        self.assertEqual(find(Path.cwd()), [])
        place, empty = self.home / ".mem0", self.home / "empty"
        place.mkdir()
        shutil.copy(DATA / "mem0/history.db", place)
        self.assertEqual(find(Path.cwd()), [place / "history.db"])
        with patch.dict(os.environ, MEM0_DIR=str(self.home / "other")):
            self.assertEqual(find(Path.cwd()), [])
        os.mkfifo(self.home / "pipe")
        empty.mkdir()
        for path, why in (
            (self.home / "gone", "can't read"),
            (Path("\0"), "can't read"),
            (self.home / "pipe", "is not a file"),
            (empty, "has no history.db of Mem0"),
        ):
            self.assert_refused("mem0", path, why)
        (empty / "history.db").symlink_to(DATA / "mem0/history.db")
        self.assertEqual(self.reasons("mem0", empty), [LINK])
