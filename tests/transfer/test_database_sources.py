"""Tools that keep their memory in a database or as notes: what their files become, and what hostile ones do not."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from unittest import mock
from unittest.mock import patch

from governance.imports.undo import preview_undo, undo_import
from memoryhub.core.log import table_digests
from memoryhub.transfer.importing import Importer
from memoryhub.transfer.records import LeftOut, MemoryRecord, Record, Report, SessionRecord
from memoryhub.transfer.sources import SOURCES, databases
from memoryhub.transfer.sources.databases import moment_of
from tests.pages import SIZE, page_map
from tests.support import HubTestCase
from tests.transfer.test_text_sources import DATA, SourceTestCase

FILES = {
    "mcp-memory-service": DATA / "mcp-memory-service" / "sqlite_vec.db",
    "claude-mem": DATA / "claude-mem" / "claude-mem.db",
    "engram": DATA / "engram" / "engram.db",
}
_LINK = "a link, which may lead out of the folder, or not a file"
ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x AS id, x AS content FROM r"


def read(name: str, path: Path | None = None) -> list[Record]:
    return list(SOURCES[name].read(path or FILES[name]))


def memories(records: list[Record]) -> list[MemoryRecord]:
    return [record for record in records if isinstance(record, MemoryRecord)]


def sessions(records: list[Record]) -> list[SessionRecord]:
    return [record for record in records if isinstance(record, SessionRecord)]


def left_out(records: list[Record]) -> list[str]:
    return [record.why for record in records if isinstance(record, LeftOut)]


class RecordTests(SourceTestCase):
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


class HostileTests(SourceTestCase):
    def setUp(self) -> None:
        self.place = self.folder()

    def database(self, name: str, script: str, rows: dict[str, list[tuple[Any, ...]]] | None = None) -> Path:
        path = self.place / name
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(script)
            for sql, values in (rows or {}).items():
                connection.executemany(sql, values)
        return path

    def test_what_is_no_database_of_the_tool_gets_one_sentence(self) -> None:
        for source, original in FILES.items():
            raw = original.read_bytes()
            binary, cut, short = (self.place / f"{source}-{name}.db" for name in ("binary", "cut", "short"))
            binary.write_bytes(bytes(range(256)) * 64)
            cut.write_bytes(raw[: len(raw) // 2])
            short.write_bytes(raw[:50])
            other = self.database(f"{source}-other.db", "CREATE TABLE books (id INTEGER, title TEXT)")
            views = "".join(f"CREATE VIEW {name} AS {ENDLESS};" for name in ("memories", "observations", "sessions"))
            endless = self.database(f"{source}-endless.db", views)
            columns = self.database(
                f"{source}-columns.db", "".join(f"CREATE TABLE {name} (other INTEGER);" for name in self.TABLES)
            )
            for path, why in {
                self.place / "nix.db": "",
                binary: "",
                cut: "is cut off",
                short: "no SQLite database" if source != "engram" else "",
                other: "it has no table",
                endless: "it has no table",
                columns: "has no",
            }.items():
                self.assert_refused(source, path, why)

    TABLES: ClassVar = ("memories", *("sdk_sessions", "observations", "session_summaries", "user_prompts"), "sessions")

    def test_a_damaged_page_gets_one_sentence(self) -> None:
        for source, original in FILES.items():
            path = self.place / f"{source}.db"
            raw = bytearray(original.read_bytes())
            raw[4096:] = b"\xee" * (len(raw) - 4096)
            path.write_bytes(raw)
            self.assert_refused(source, path, "can't read")

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
            self.assert_refused("mcp-memory-service", path, why)
        script = "CREATE TABLE user_prompts (id AS (hex(zeroblob(99))), session_id, content, created_at);"
        path = self.database(
            "order.db", script + "CREATE TABLE sessions (id, project); CREATE TABLE observations (id);"
        )
        self.assert_refused("engram", path, "computed column id")

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
        self.assert_refused("mcp-memory-service", path, "2nd reference to page")

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
            path = Path(shutil.copy(original, self.place / f"{source}.db"))
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
        path = Path(shutil.copy(FILES["engram"], self.place / "engram.db"))
        (self.place / "other").write_bytes(b"x" * 100)
        path.with_name("engram.db-wal").symlink_to(self.place / "other")
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
            path = Path(shutil.copy(original, self.place / f"{source}.db"))
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
        return {entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns) for entry in os.scandir(self.place)}

    def test_an_export_of_another_kind_is_refused(self) -> None:
        for text in ("[1]", "{}", '{"sessions": 1}', "[" * 100_000, "\ufeff", '{"sessions": "x", "prompts": []}'):
            path = self.place / "export.json"
            path.write_text(text)
            self.assert_refused("engram", path)
        path.write_text(json.dumps({"observations": [1, {"id": 2, "content": "Kept", "type": ["x"]}]}))
        self.assertEqual([one.content for one in memories(read("engram", path))], ["Kept"])


class NoteToolTestCase(SourceTestCase):
    def setUp(self) -> None:
        self.home = self.folder()
        self.enterContext(patch.dict(os.environ, HOME=str(self.home)))

    def copy(self, data: str) -> Path:
        return Path(shutil.copytree(DATA / data, self.home / "copy" / Path(data).name))

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        before = self.files()
        yield
        self.assertEqual(self.files(), before)

    def files(self) -> dict[Path, int]:
        return {path: path.lstat().st_mtime_ns for path in (self.home, *self.home.rglob("*"))}


class BasicMemoryTests(NoteToolTestCase):
    def test_notes_become_memories_with_their_relations(self) -> None:
        folder = self.copy("basic-memory/harbour")
        os.utime(folder / "Harbour/Tide gauge.md", (1_772_352_000, 1_772_352_000))
        records = self.memories("basic-memory", folder)
        self.assertEqual(
            records["harbour:harbour/tide-gauge"],
            MemoryRecord(
                key="harbour:harbour/tide-gauge",
                title="Tide gauge",
                content="# Tide gauge\n\nThe gauge at Øster Hurup reads the level each minute.\n\n## Observations\n"
                "- [fact] Reads 0.8 m at 06:12 #level (after the repair)\n"
                "- [technique] Retry after an hour when the feed answers 429 #feed\n\n"
                "## Relations\n- depends_on [[Tide feed]]\n- part_of [[Berths]]\n- relates to [[Pier 9]]",
                type="note",
                tags=("gauges", "harbour", "level", "feed"),
                project="harbour",
                created=datetime(2026, 3, 1, 8, tzinfo=UTC),
                relations=(("depends_on", "harbour:harbour/tide-feed"), ("related_to", "harbour:harbour/berths")),
                place=str(folder / "Harbour/Tide gauge.md"),
            ),
        )
        self.assertEqual(
            {
                key: (record.type, record.relations)
                for key, record in records.items()
                if key != "harbour:harbour/tide-gauge"
            },
            {
                "harbour:harbour/berths": (
                    "note",
                    (("related_to", "harbour:harbour/tide-gauge"), ("related_to", "harbour:harbour/tide-feed")),
                ),
                "harbour:harbour/tide-feed": ("reference", (("related_to", "harbour:harbour/tide-gauge"),)),
                "harbour:harbour/decisions/metres-not-feet": ("decision", (("related_to", "harbour:harbour/berths"),)),
            },
        )
        self.assertEqual(
            self.left("basic-memory", folder), [LeftOut(str(folder), "links to notes that are not in this project: 2")]
        )

    def test_relations_are_list_items_with_one_word_or_quotes(self) -> None:
        folder = self.project(
            {
                "a.md": "- supersedes [[B]] (since May)\n- 'applies to' [[B|shown]]\n* derived_from [[b]] and prose\n"
                "- see also [[c#part]]\n- [fact] in [[Notes/c.md]]\n- conflicts_with [[pilots::notes/c]]\n"
                "`[[B]]` [[A]] [[gone]]",
                "b.md": "B",
                "Notes/c.md": "C",
            }
        )
        self.assertEqual(
            self.memories("basic-memory", folder)["pilots:a"].relations,
            (
                ("supersedes", "pilots:b"),
                ("applies_to", "pilots:b"),
                ("conflicts_with", "pilots:Notes/c"),
                ("related_to", "pilots:b"),
                ("related_to", "pilots:Notes/c"),
            ),
        )

    def test_keys_stay_when_a_note_is_edited_moved_and_renamed(self) -> None:
        folder = self.copy("basic-memory/harbour")
        before = self.memories("basic-memory", folder)
        file = folder / "Harbour/Tide feed.md"
        file.write_text(file.read_text().replace("title: Tide feed", "title: Feed").replace("an hour", "a day"))
        file.rename(folder / "Feed.md")
        after = self.memories("basic-memory", folder)
        self.assertEqual(before.keys(), after.keys())
        feed = after["harbour:harbour/tide-feed"]
        self.assertEqual((feed.title, "Retry after a day." in feed.content), ("Feed", True))

    def test_a_long_note_becomes_a_memory_for_each_section(self) -> None:
        folder = self.project(
            {"a.md": f"{'x ' * 40_000}\n\n# Tides\n\n{'y ' * 20_000}[[b]]", "b.md": "# B\n\n- in [[a]]"}
        )
        records = self.memories("basic-memory", folder)
        self.assertEqual(
            [(key, record.title, record.relations) for key, record in records.items()],
            [
                ("pilots:a", "a", (("related_to", "pilots:b"),)),
                ("pilots:a#tides", "a › Tides", ()),
                ("pilots:b", "b", (("related_to", "pilots:a"),)),
            ],
        )

    def test_projects_are_found_in_the_settings(self) -> None:
        find, config = SOURCES["basic-memory"].find, self.home / ".basic-memory" / "config.json"
        config.parent.mkdir()
        self.assertEqual(find(), [])
        for name in ("basic-memory", "notes/inner", "old"):
            (self.home / name).mkdir(parents=True)
            (self.home / name / "a.md").write_text("Depths.")
        main, notes, inner, old = (self.home / name for name in ("basic-memory", "notes", "notes/inner", "old"))
        projects = {
            "north": {"path": str(notes)},
            "inner": {"path": str(inner)},
            "old": str(old),
            "gone": {"path": "/x"},
        }
        config.write_text(json.dumps({"projects": projects}))
        self.assertEqual(find(), [main, notes, inner, old])
        self.assertEqual(
            [list(self.memories("basic-memory", path)) for path in find()], [["main:a"], [], ["inner:a"], ["old:a"]]
        )
        (inner / "below").mkdir()
        (inner / "below" / "b.md").write_text("Berths.")
        self.assertEqual(list(self.memories("basic-memory", inner / "below")), ["inner:below/b"])
        for hostile in (
            b"\xff\0",
            b"[" * 100_000,
            b"[]",
            b'{"projects": {"a": {"path": 4}, "b": {"path": "\\u0000"}}}',
        ):
            config.write_bytes(hostile)
            self.assertEqual(find(), [main])
        with patch.dict(os.environ, BASIC_MEMORY_HOME=str(old), XDG_CONFIG_HOME=str(self.home)):
            self.assertEqual(find(), [old])

    def test_hostile_notes_are_left_out_with_the_reason(self) -> None:
        folder = self.project({"a.md": "Depths."})
        cases = {
            "binary": (bytes(range(256)), "it is binary, or its text is not in UTF-8"),
            "another encoding": ("Depths".encode("utf-16"), "it is binary, or its text is not in UTF-8"),
            "huge": (b"x" * (2 * 2**20 + 1), "it is larger than 2 MB"),
            "deep": (b"---\na: " + b"[" * 5000 + b"\n---\nx", "its front matter is nested too deeply"),
            "a listing": (b"# x\n\n" + b"y" * 50 + b"\n" * 2 + b"# x\n\ny\n" * 20_000, "it has 20,001 headings"),
            "empty": (b"---\ntitle: x\n---\n", "it has no text"),
            "a copy": (b"---\npermalink: a\n---\nDepths", "it has the permalink of a.md"),
        }
        for case, (content, why) in cases.items():
            (folder / "b.md").write_bytes(content)
            with self.subTest(case=case), self.unchanged():
                (left,) = self.left("basic-memory", folder)
                self.assertRegex(left.why, f"^{why}")
                self.assertEqual(list(self.memories("basic-memory", folder)), ["pilots:a"])

    def test_front_matter_that_expands_and_long_lines_are_read_as_they_are(self) -> None:
        bomb = "---\na: &a [x, x]\nb: &b [*a, *a]\ntags: *b\ntitle: [1]\ntype: !!python/object:os.system\n---\nDepths."
        folder = self.project({"a.md": bomb, "b.md": f"- a [[{'b' * 900_000}\n- a [[b]]{' ' * 900_000}x"})
        records = self.memories("basic-memory", folder)
        self.assertEqual((records["pilots:a"].content, records["pilots:a"].type), ("Depths.", "note"))
        self.assertLess(len(str(records["pilots:a"])), 1_000)
        self.assertIn("pilots:b", records)

    def test_links_out_of_the_folder_and_pipes_are_not_read(self) -> None:
        folder = self.project({"a.md": "Depths."})
        (self.home / "secret.md").write_text("secret")
        (folder / "b.md").symlink_to(self.home / "secret.md")
        (folder / "elsewhere").symlink_to(self.home)
        os.mkfifo(folder / "pipe.md")
        with self.unchanged():
            self.assertEqual(list(self.memories("basic-memory", folder)), ["pilots:a"])
            self.assertEqual({left.why for left in self.left("basic-memory", folder)}, {_LINK})

    def test_a_place_without_notes_of_the_tool_gets_one_sentence(self) -> None:
        (self.home / "other").mkdir()
        (self.home / "other" / "a.md").write_text("Depths.")
        for path in (self.home / "gone", self.home / "other" / "a.md", Path("\0")):
            self.assert_refused("basic-memory", path, "is not a folder; name a project of Basic Memory")
        for path in (self.home / "other", self.home):
            self.assert_refused("basic-memory", path, "has no notes of Basic Memory; see `import obsidian`")

    def project(self, notes: dict[str, str]) -> Path:
        """Return the folder of a project that the tool knows."""
        folder = self.home / "notes"
        (self.home / ".basic-memory").mkdir()
        config = {"projects": {"pilots": {"path": str(folder)}}}
        (self.home / ".basic-memory" / "config.json").write_text(json.dumps(config))
        for name, text in notes.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return folder


class Mem0Tests(NoteToolTestCase):
    def test_the_newest_text_of_each_memory_is_taken_from_the_history(self) -> None:
        path = self.copy("mem0") / "history.db"
        with self.unchanged():
            records = self.memories("mem0", path)
            left = self.left("mem0", path)
        self.assertEqual(
            [record.content for record in records.values()],
            [
                "The gauge at Øster Hurup reads 0.8 m at 06:12.",
                "How deep is the basin?",
                "The basin is 6 m deep at low water.",
                "Write depths in metres, never in feet.",
                "Retry after an hour when the tide feed answers 429.",
            ],
        )
        self.assertEqual(
            records["3a779deb-8e92-43b8-a8da-17d352b872b7"],
            MemoryRecord(
                key="3a779deb-8e92-43b8-a8da-17d352b872b7",
                title="",
                content="Retry after an hour when the tide feed answers 429.",
                created=datetime(2026, 11, 23, 10, 52, 13, 415798, UTC),
                place=f"{path}:3a779deb-8e92-43b8-a8da-17d352b872b7",
            ),
        )
        self.assertEqual(left, [LeftOut(f"{path}:2661c8a0-812a-4fbf-a520-410af303f1f2", "it was deleted there")])

    def test_an_export_has_categories_projects_and_sessions_too(self) -> None:
        path = self.copy("mem0") / "get_all.json"
        records = self.memories("mem0", path)
        self.assertEqual(
            records["277c3a13-0e52-42e2-a763-ecb2b362afea"],
            MemoryRecord(
                key="277c3a13-0e52-42e2-a763-ecb2b362afea",
                title="",
                content="The gauge at Øster Hurup reads 0.8 m at 06:12.",
                tags=("maya", "gauges"),
                project="harbour",
                created=datetime(2026, 11, 23, 10, 52, 13, 383400, UTC),
                place=f"{path}:277c3a13-0e52-42e2-a763-ecb2b362afea",
            ),
        )
        basin = records["973d00cc-7f62-4825-8276-96c2f04dbcca"]
        self.assertEqual((basin.tags, basin.session), (("maya", "pilot"), "2026-03-01"))
        self.assertLess(records.keys(), self.memories("mem0", path.with_name("history.db")).keys())

    def test_keys_stay_when_a_memory_is_edited(self) -> None:
        path = self.copy("mem0") / "history.db"
        before = self.memories("mem0", path)
        key = next(iter(before))
        self.execute(path, f"INSERT INTO history VALUES ('1', '{key}', '', 'At 0.9 m.', 'UPDATE', '', '', 0, '', '')")
        self.execute(path, f"INSERT INTO history VALUES ('2', '{key}', '', NULL, 'NONE', '', '', 0, '', '')")
        after = self.memories("mem0", path)
        self.assertEqual(before.keys(), after.keys())
        self.assertEqual(after[key].content, "At 0.9 m.")

    def test_rows_of_other_types_and_messages_are_left_out(self) -> None:
        path = self.copy("mem0") / "history.db"
        self.execute(path, "INSERT INTO messages VALUES ('1', 'maya', 'user', 'How deep?', '', '')")
        for values in (
            "NULL, '', 'Depths'",
            "'b', '', x'ff00'",
            "'c', '', ' '",
            "x'ff', '', 4",
            "'e', '', zeroblob(9000000)",
        ):
            self.execute(
                path, f"INSERT INTO history VALUES (hex(randomblob(9)), {values}, 'ADD', 'soon', 4, 0, '', '')"
            )
        with self.unchanged():
            self.assertEqual(len(self.memories("mem0", path)), 5)
            *rows, messages = self.left("mem0", path)
        self.assertEqual(messages.why, "messages that memories were taken from: 1")
        self.assertEqual([left.why for left in rows[1:]], ["it has no id, or no text that can be read"] * 5)

    def test_pickled_vectors_are_never_read(self) -> None:
        folder = self.copy("mem0")
        (folder / "qdrant/collection/mem0").mkdir(parents=True)
        vectors = folder / "qdrant/collection/mem0/storage.sqlite"
        self.execute(vectors, "CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
        pickled = b"cos\nsystem\n(S'exit 1'\ntR.".hex()
        self.execute(vectors, f"INSERT INTO points VALUES ('1', x'{pickled}')")
        with self.unchanged(), patch("pickle.loads") as loads:
            for path in (vectors, folder / "qdrant", folder):
                (left,) = (left for left in self.left("mem0", path) if left.place == str(vectors))
                self.assertIn("its rows are pickled", left.why)
            self.assertEqual(len(self.memories("mem0", folder)), 5)
        loads.assert_not_called()

    def test_other_and_damaged_databases_are_refused(self) -> None:
        path = self.copy("mem0") / "history.db"
        raw = path.read_bytes()
        cases = {
            raw[:9000]: "is cut off",
            raw[:50]: "is no SQLite database",
            raw[:4096] + b"\xff" * 8192 + raw[12288:]: "can't read",
            raw.replace(b"TABLE history", b"TABLE histury"): "",
        }
        for content, why in cases.items():
            path.write_bytes(content)
            self.assert_refused("mem0", path, why)
        for schema, why in {
            "CREATE TABLE a (b)": "it has no table history",
            "CREATE VIEW history AS SELECT 1 AS memory_id": "it has no table history",
            "CREATE TABLE history (id, memory_id, prev_value)": "its table history has no column new_memory",
        }.items():
            path.unlink()
            self.execute(path, schema)
            with self.unchanged():
                self.assert_refused("mem0", path, why)

    def test_other_and_damaged_json_is_refused(self) -> None:
        path = self.home / "export.json"
        entry = {"id": "1", "memory": "Depths in metres."}
        cases = {
            bytes(range(256)): "is no JSON",
            json.dumps([entry]).encode("utf-16"): "is no JSON",
            json.dumps([entry]).encode()[:-9]: "is no JSON",
            b"[" * 1_000_000: "is no JSON",
            b"": "is no JSON",
            b"4": "it has no list of results",
            b'{"results": {"id": "1"}}': "it has no list of results",
            b'[{"id": 1, "memory": "x"}, {"id": "2"}, [], null]': "its entries have no id and memory",
        }
        for content, why in cases.items():
            path.write_bytes(content)
            with self.unchanged():
                self.assert_refused("mem0", path, why)
        path.write_text(json.dumps([entry, {**entry, "memory": "Newer.", "metadata": [], "created_at": 1e400}, None]))
        self.assertEqual(self.memories("mem0", path)["1"].content, "Newer.")
        self.assertEqual(self.left("mem0", path)[0].why, "entries that have no id and memory, or the id of another: 2")
        path.write_text("[" + "[]," * 3_000_001 + "0]")
        self.assert_refused("mem0", path, "has more than 3,000,000 values")
        with patch("memoryhub.transfer.sources.reading.MAX_FILE", 10):
            self.assert_refused("mem0", path, "is larger than")

    def test_a_place_without_data_gets_one_sentence(self) -> None:
        os.mkfifo(self.home / "pipe")
        (self.home / "empty").mkdir()
        for path, why in {
            self.home / "gone": "can't read",
            Path("\0"): "can't read",
            self.home / "pipe": "is not a file",
            self.home / "empty": "has no history.db of Mem0",
        }.items():
            self.assert_refused("mem0", path, why)
        (self.home / "empty" / "history.db").symlink_to(DATA / "mem0/history.db")
        (left,) = self.read("mem0", self.home / "empty")
        assert isinstance(left, LeftOut)
        self.assertEqual(left.why, "a link, which may lead out of the folder")

    def test_the_usual_place_is_found(self) -> None:
        self.assertEqual(SOURCES["mem0"].find(), [])
        place = self.home / ".mem0"
        place.mkdir()
        shutil.copy(DATA / "mem0/history.db", place)
        self.assertEqual(SOURCES["mem0"].find(), [place / "history.db"])
        with patch.dict(os.environ, MEM0_DIR=str(self.home / "other")):
            self.assertEqual(SOURCES["mem0"].find(), [])

    def execute(self, path: Path, statement: str) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)


class NoteImportTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="maya", source="cli"))
        self.top = Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    def report(self, source: str, path: Path) -> Report:
        (report,) = Importer(source, "alpha", is_only=True).run(SOURCES[source].read(path), place=str(path))
        return report

    def test_imports_of_changes_are_undone_one_after_the_other(self) -> None:
        folder = Path(shutil.copytree(DATA / "basic-memory/harbour", self.top / "harbour"))
        digests, batches = [table_digests()], []
        for _ in range(2):
            batches.append(self.report("basic-memory", folder).batch or 0)
            digests.append(table_digests())
            file = folder / "Harbour/Berths.md"
            file.write_text(f"{file.read_text()}\nBerth 11 is new.")
        for batch, before in zip(reversed(batches), (digests[1], digests[0]), strict=True):
            plan = undo_import(batch_id=batch, token=preview_undo(batch).token)
            self.assertEqual((plan.kept, table_digests()), ([], before))

    def test_relations_that_form_a_cycle_there_become_related_to(self) -> None:
        for name, other in (("a", "b"), ("b", "a")):
            (self.top / f"{name}.md").write_text(f"---\npermalink: {name}\n---\n- depends_on [[{other}]]")
        report = self.report("basic-memory", self.top)
        self.assertEqual((report.created, report.relations), (2, 2))

    def test_what_no_text_can_hold_is_left_out(self) -> None:
        path = self.top / "export.json"
        entries = {"1": "\ud800", "\ud800\n": "Depths.", "3": "x" * 100_001, "4": "Berths."}
        path.write_text(json.dumps([{"id": key, "memory": text} for key, text in entries.items()]))
        report = self.report("mem0", path)
        self.assertEqual((report.created, report.left_out_count), (1, 3))
