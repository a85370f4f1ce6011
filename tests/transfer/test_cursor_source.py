"""Cursor's sessions: in its editor's database, and in the files of its agent."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from memoryhub.transfer.records import LeftOutRecord, SessionRecord
from memoryhub.transfer.sources import SOURCES
from sessions_app.services.past_sessions import PastCommand, PastEdit
from tests.transfer.test_editor_sources import VALUES, EditorSourceTestCase
from tests.transfer.test_text_sources import DATA, write_files

NEW = "7d1c1f0e-9a3b-4c55-8d21-3f2b6a1c8e01"
OLDER = "2b8e7d14-6a90-4f3c-b1d2-7a9e5c4d3b02"
OLDEST = "9c550c1f-3d1e-4a7b-9c55-0c1f6f1f2a03"
SAID = "c4d3b02e-0000-4a7b-9c55-0c1f6f1f2a04"
STORED = "d14e5c4d-0000-4a7b-9c55-0c1f6f1f2a05"
# An editor that is running: what it has written last is in the log only
EDITOR = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = wal")
connection.execute("UPDATE cursorDiskKV SET value = ? WHERE key = ?", sys.argv[2:])
print("written", flush=True)
sys.stdin.readline()
"""


class CursorTestCase(EditorSourceTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.user = self.home / ".config/Cursor/User"
        self.agent = self.home / ".cursor"
        self.database = self.user / "globalStorage/state.vscdb"

    def install(self) -> None:
        shutil.copytree(DATA / "cursor/User", self.user)
        shutil.copytree(DATA / "cursor/agent", self.agent)

    def put(self, key: str, value: object) -> None:
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute("INSERT INTO cursorDiskKV VALUES (?, ?)", [key, value])

    def session(self, path: Path, key: str) -> SessionRecord:
        return next(session for session in self.sessions("cursor", path) if session.key == key)


class CursorEditorTests(CursorTestCase):
    def test_sessions_have_what_was_typed_answered_run_and_edited(self) -> None:
        self.install()
        session = self.session(self.user, NEW)
        tests, retry = session.turns
        answer = "I will run the tests first.\n\nThe tests pass: the feed calls it `height`."
        self.assertEqual((tests.prompt, tests.answer), ("Make the tests pass.", answer))
        failed, edit, passed = tests.actions
        assert isinstance(failed, PastCommand) and isinstance(passed, PastCommand)
        self.assertEqual((failed.command, failed.exit_code, failed.output), ("make test", 2, "KeyError: 'tide'"))
        self.assertEqual(edit, PastEdit("gauge.py"))
        self.assertEqual((passed.exit_code, passed.output), (0, "1 passed"))
        self.assertEqual((retry.prompt, retry.answer), ("How long does a retry wait?", "A retry waits an hour."))
        began = datetime(2026, 11, 25, 9, 46, 40, tzinfo=UTC)
        self.assertEqual((tests.began_at, retry.began_at), (began, began + timedelta(minutes=1)))
        self.assert_record(session, purpose="Repair of the tests", agent="cursor", project="/srv/harbour")

    def test_sessions_of_older_versions_are_read(self) -> None:
        self.install()
        older, oldest = self.session(self.user, OLDER), self.session(self.user, OLDEST)
        (turn,) = older.turns
        self.assertEqual(
            (turn.prompt, turn.answer, older.project), ("How deep is the basin?", "Nine metres.", "/srv/harbour")
        )
        # Its messages have no times
        self.assertEqual((turn.began_at, turn.ended_at), (older.started, older.started))
        (turn,) = oldest.turns
        self.assertEqual((turn.prompt, turn.answer), ("Which berth is free?", "Berth 4."))

    def test_the_list_names_folders_and_leaves_out_subagents_and_empty_tabs(self) -> None:
        self.install()
        folders = {NEW: "/srv/harbour", OLDER: "/srv/harbour", OLDEST: ""}
        self.assertEqual(dict(self.listed("cursor", self.user)), folders)
        transcripts = SOURCES["cursor"].transcripts
        assert transcripts
        newest = max(transcripts(self.user), key=lambda transcript: transcript.changed)
        self.assertEqual((newest.key, newest.place), (NEW, self.database))
        self.assertGreater(newest.size, 2_000)

    def test_a_database_of_a_running_editor_is_read_whole_without_a_copy(self) -> None:
        self.install()
        bubble = json.dumps({"type": 2, "text": "A retry waits two hours."})
        command = [sys.executable, "-c", EDITOR, str(self.database), bubble, f"bubbleId:{NEW}:a9"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as editor:
            assert editor.stdin and editor.stdout
            self.assertEqual(editor.stdout.readline(), "written\n")
            with self.unchanged(), patch("memoryhub.transfer.sources.databases.MAX_COPY", 0):
                session = self.session(self.user, NEW)
            editor.stdin.write("\n")
        self.assertEqual(session.turns[-1].answer, "A retry waits two hours.")

    def test_the_rules_of_the_user_are_a_guideline(self) -> None:
        self.install()
        self.assertEqual(self.memories("cursor", self.user), {})
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute("INSERT INTO ItemTable VALUES ('aicontext.personalContext', 'Answer in Danish. ')")
        (rules,) = self.memories("cursor", self.user).values()
        self.assert_record(rules, key="user-rules", content="Answer in Danish.", kind="guideline")

    def test_broken_rows_leave_the_other_sessions(self) -> None:
        self.install()
        self.put("composerData:", b"\xff")
        self.put("composerData:deep", "[" * 100_000)
        self.put("composerData:types", json.dumps({"conversation": "x", "fullConversationHeadersOnly": [1, {}, None]}))
        self.put("bubbleId:types:1", "{}")
        self.put("bubbleId:", "{}")
        self.put("composerData:huge", '{"conversation": "' + "x" * 9_000_000 + '"}')
        self.put("bubbleId:huge:1", "{}")
        with self.unchanged():
            records = self.read("cursor", self.user)
        keys = [record.key for record in records if isinstance(record, SessionRecord)]
        self.assertCountEqual(keys, [NEW, OLDER, OLDEST])
        reasons = {record.why for record in records if isinstance(record, LeftOutRecord)}
        self.assertEqual(reasons, {"it has no turns"})

    def test_a_schema_that_computes_is_refused(self) -> None:
        for statement in (
            "CREATE VIEW cursorDiskKV AS SELECT 1 AS key, 2 AS value",
            "CREATE TABLE cursorDiskKV (key TEXT, value AS (key || key))",
            "CREATE TABLE cursorDiskKV (name TEXT)",
            "CREATE TABLE other (key TEXT)",
        ):
            self.database.unlink(missing_ok=True)
            self.database.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.database)) as connection, connection:
                connection.execute(statement)
            self.assert_refused("cursor", self.user)

    @given(st.data())
    def test_rows_that_were_changed_at_random_are_read_or_left_out(self, data: st.DataObject) -> None:
        self.user = self.folder() / "User"
        self.database = self.user / "globalStorage/state.vscdb"
        shutil.copytree(DATA / "cursor/User", self.user)
        table = data.draw(st.sampled_from(["cursorDiskKV", "composerHeaders"]))
        with closing(sqlite3.connect(self.database)) as connection, connection:
            texts = dict(connection.execute(f"SELECT rowid, value FROM {table}").fetchall())
            number = data.draw(st.sampled_from(sorted(texts)))
            value = json.loads(texts[number])
            value[data.draw(st.sampled_from([*value]) if value else st.just("text"))] = data.draw(VALUES)
            text = json.dumps(value)
            connection.execute(f"UPDATE {table} SET value = ? WHERE rowid = ?", [text, number])
        self.assert_survives("cursor", self.user, lambda: None)

    @given(st.integers(0, 36_863), st.binary(min_size=1, max_size=40))
    def test_a_database_that_was_damaged_at_random_is_read_or_refused(self, at: int, noise: bytes) -> None:
        user = self.folder() / "User"
        shutil.copytree(DATA / "cursor/User", user)
        with (user / "globalStorage/state.vscdb").open("r+b") as file:
            file.seek(at)
            file.write(noise)
        self.assert_survives("cursor", user, lambda: None)


class CursorAgentTests(CursorTestCase):
    def test_transcripts_become_sessions_and_subagents_do_not(self) -> None:
        shutil.copytree(DATA / "cursor/agent", self.agent)
        self.assertEqual([key for key, _ in self.listed("cursor", self.agent)], [NEW, SAID, STORED])
        session = self.session(self.agent, SAID)
        (turn,) = session.turns
        self.assertEqual((turn.prompt, turn.answer), ("When is low water?", "I look at the table.\n\nAt 12:31."))
        self.assertEqual(turn.actions, (PastEdit("notes.md"),))
        self.assertEqual((turn.began_at, session.project), (datetime(2026, 11, 26, 9, 2, tzinfo=UTC), "/srv/harbour"))

    def test_a_store_without_a_transcript_is_read_in_its_order(self) -> None:
        shutil.copytree(DATA / "cursor/agent", self.agent)
        session = self.session(self.agent, STORED)
        (turn,) = session.turns
        self.assertEqual((turn.prompt, turn.answer), ("Build the charts.", "I build them.\n\nThe charts are built."))
        failed, edit, passed = turn.actions
        assert isinstance(failed, PastCommand) and isinstance(passed, PastCommand)
        self.assertEqual((failed.exit_code, edit, passed.exit_code), (2, PastEdit("Makefile"), 0))
        self.assert_record(session, purpose="Charts", project="/srv/harbour")

    def test_what_the_editor_has_is_not_read_again(self) -> None:
        self.install()
        self.assertEqual(SOURCES["cursor"].find(self.home), [self.user, self.agent])
        self.assertEqual([key for key, _ in self.listed("cursor", self.agent)], [SAID, STORED])

    def test_the_folder_is_found_by_the_name_of_the_project(self) -> None:
        work = self.home / "my-work" / "har.bour"
        work.mkdir(parents=True)
        (self.home / "my" / "work-har").mkdir(parents=True)
        for folder in (work, self.home / "gone"):
            name = re.sub(r"[^A-Za-z0-9]+", "-", str(folder)).strip("-")
            line = json.dumps({"role": "user", "message": {"content": [{"type": "text", "text": "Low water?"}]}})
            write_files(self.agent, {f"projects/{name}/agent-transcripts/{folder.name}.jsonl": line})
        self.assertCountEqual(self.listed("cursor", self.agent), [("har.bour", str(work)), ("gone", "")])

    def test_broken_stores_and_transcripts_are_left_out(self) -> None:
        shutil.copytree(DATA / "cursor/agent", self.agent)
        (store,) = self.agent.glob(f"chats/*/{STORED}/store.db")
        for content in (b"", b"SQLite format 3\0", b"x" * 5_000, store.read_bytes()[:9_000]):
            store.write_bytes(content)
            (record,) = (record for record in self.read("cursor", self.agent) if isinstance(record, LeftOutRecord))
            self.assertEqual(record.place, str(store))
        write_files(self.agent, {"projects/x/agent-transcripts/1.jsonl": "[" * 100_000})
        self.assertIn("it has no turns", self.reasons("cursor", self.agent))

    def test_a_place_without_sessions_gets_one_sentence(self) -> None:
        for path in (self.folder(), self.home / "nowhere", Path("\0")):
            self.assert_refused("cursor", path, "has no sessions of Cursor")
