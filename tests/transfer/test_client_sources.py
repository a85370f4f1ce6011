"""Clients that keep a file or a row for each session: what their sessions become, and what hostile ones do not."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from memoryhub.transfer.importing import session_name
from memoryhub.transfer.records import LeftOutRecord, SessionRecord, Transcript
from memoryhub.transfer.sources import SOURCES
from sessions_app.services.past_sessions import PastCommand, PastEdit
from tests.transfer.test_text_sources import DATA, SourceTestCase, write_files

CLIENTS = ("codex", "gemini-cli", "qwen-code", "opencode", "copilot-cli")
RUN, UNIT = "Run the gauge check and repair what it reports", "Which unit do depths have?"
REPAIRED = "The check passes now: `depth.txt` had feet, and the gauge wants metres."
METRES = "Depths are in metres, with one decimal."
DEPTH = PastEdit("depth.txt")
NOW = "2026-11-29T12:00:00.000Z"


class ClientTestCase(SourceTestCase):
    def transcripts(self, client: str, path: Path) -> list[Transcript]:
        list_transcripts = SOURCES[client].transcripts
        assert list_transcripts
        return list(list_transcripts(path))

    def session(self, client: str, key: str, path: Path | None = None) -> SessionRecord:
        (session,) = [each for each in self.sessions(client, path or DATA / client) if each.key == key]
        return session

    def prompts(self, client: str, path: Path) -> list[list[str]]:
        return [[turn.prompt for turn in session.turns] for session in self.sessions(client, path)]

    # One session of a client in a new folder
    def write_lines(self, name: str, lines: Iterable[Any]) -> Path:
        home = self.folder()
        text = "".join(line if isinstance(line, str) else f"{json.dumps(line)}\n" for line in lines)
        write_files(home, {name: text})
        return home


class SessionTests(ClientTestCase):
    def test_a_session_that_was_resumed_is_one_with_its_commands_and_edits(self) -> None:
        keys = {
            "gemini-cli": ("d784e37b-60f0-49a7-a4d3-48f5a5d21f90", "2026-11-29T17:31:29.167Z"),
            "qwen-code": ("8b2b814c-e80c-4d2d-8391-083183d8f5c4", "2026-11-29T17:55:58.511Z"),
            "opencode": ("ses_dd7a93990ffe41bdaxyiMHFv9G", "2026-11-29T17:25:05.264Z"),
            "copilot-cli": ("eb47c0bf-eb60-4e49-8ae4-92f103e0a95f", "2026-11-29T17:24:43.539Z"),
        }
        for client, (key, started) in keys.items():
            with self.subTest(client=client):
                session = self.session(client, key)
                self.assert_record(
                    session, project="/srv/harbour", agent=client, started=datetime.fromisoformat(started)
                )
                turns = [(turn.prompt, turn.answer) for turn in session.turns]
                self.assertEqual(turns, [(RUN, REPAIRED), (UNIT, METRES)])
                failed, edit, passed = session.turns[0].actions
                assert isinstance(failed, PastCommand) and isinstance(passed, PastCommand)
                self.assertEqual((failed.command, failed.exit_code), ("sh check.sh", 3))
                self.assertEqual(failed.output.strip(), "depth.txt:1: not in metres: 12 ft")
                self.assertEqual((passed.command, passed.exit_code), ("sh check.sh", 0))
                self.assertEqual((passed.output.strip(), edit), ("depth.txt is fine", DEPTH))
                times = [session.started, session.turns[0].began_at, failed.at, session.turns[1].ended_at]
                self.assertEqual(times, sorted(filter(None, times)))

    def test_transcripts_are_listed_with_the_key_and_folder_of_their_sessions(self) -> None:
        for client in CLIENTS:
            with self.subTest(client=client):
                transcripts = self.transcripts(client, DATA / client)
                listed = {(transcript.key, transcript.folder) for transcript in transcripts}
                sessions = self.sessions(client, DATA / client)
                self.assertEqual(listed, {(session.key, session.project) for session in sessions})
                self.assertEqual(len(listed), len(sessions))
                self.assertTrue(all(transcript.size for transcript in transcripts))

    def test_a_session_has_the_name_under_which_hooks_record_it(self) -> None:
        for client in CLIENTS:
            keys = [transcript.key for transcript in self.transcripts(client, DATA / client)]
            self.assertEqual([session_name(client, key) for key in keys], keys)

    def test_sub_agents_are_part_of_the_session_that_began_them(self) -> None:
        for client in ("qwen-code", "opencode", "copilot-cli"):
            with self.subTest(client=client):
                prompts = [prompt for prompts in self.prompts(client, DATA / client) for prompt in prompts]
                self.assertIn("Let an agent count", prompts)
                self.assertNotIn("Count the pilots in the roster.", prompts)

    def test_a_fork_has_only_the_turns_after_it(self) -> None:
        forks = {
            "codex": ("01a22858-1a7b-7b81-8897-15fba82e12ec", "01a22865-b9d2-7472-bb17-cedb1a4326f7"),
            "opencode": ("ses_dd7a56f8fffeOdLJPWJhItAn4R",),
        }
        for client, keys in forks.items():
            for key in keys:
                with self.subTest(client=client, key=key):
                    self.assertEqual(
                        [turn.prompt for turn in self.session(client, key).turns], ["Who is on the roster?"]
                    )

    def test_places_are_found_by_the_variables_of_each_client(self) -> None:
        home = self.home
        variables = {
            "CODEX_HOME": "a",
            "GEMINI_CLI_HOME": "b",
            "QWEN_HOME": "c",
            "XDG_DATA_HOME": "d",
            "COPILOT_HOME": "e",
        }
        self.enterContext(patch.dict(os.environ, {name: str(home / value) for name, value in variables.items()}))
        for client in CLIENTS:
            self.assertEqual(SOURCES[client].find(home), [], client)
        write_files(
            home,
            {
                "a/sessions/x": "",
                "b/.gemini/GEMINI.md": "",
                "c/projects/x": "",
                "d/opencode/opencode.db": "",
                ".config/opencode/AGENTS.md": "",
                "e/session-state/x": "",
                ".copilot/copilot-instructions.md": "",
            },
        )
        places = {client: [str(path.relative_to(home)) for path in SOURCES[client].find(home)] for client in CLIENTS}
        self.assertEqual(
            places,
            {
                "codex": ["a"],
                "gemini-cli": ["b/.gemini"],
                "qwen-code": ["c"],
                "opencode": ["d/opencode", ".config/opencode"],
                "copilot-cli": ["e", ".copilot"],
            },
        )

    def test_a_folder_without_data_gets_one_sentence(self) -> None:
        for client in CLIENTS:
            self.assert_refused(client, self.home, "there is no data of")
            self.assert_refused(client, self.home / "none", "there is no data of")

    def test_instructions_are_guidelines_and_memories_are_observations(self) -> None:
        kinds = {
            "codex": ["guideline", "observation"],
            "gemini-cli": ["guideline", "guideline"],
            "qwen-code": ["guideline", "observation"],
            "opencode": ["guideline"],
            "copilot-cli": ["guideline", "guideline"],
        }
        for client, expected in kinds.items():
            memories = self.memories(client, DATA / client)
            self.assertEqual([memory.kind for memory in memories.values()], expected, client)
        qwen = self.memories("qwen-code", DATA / "qwen-code")["~/.qwen/projects/-srv-harbour/memory/depths.md"]
        self.assertEqual(qwen.project, "/srv/harbour")


class CodexTests(ClientTestCase):
    def codex(self, *items: Any, **meta: Any) -> Path:
        meta = {"id": "01a22854-d0c2-7b60-98da-2992380e0644", "timestamp": NOW, "cwd": "/srv/harbour", **meta}
        lines = [item if "timestamp" in item else {"timestamp": NOW, **item} for item in items]
        return self.write_lines(
            "sessions/2026/11/29/rollout-1.jsonl", [{"timestamp": NOW, "type": "session_meta", "payload": meta}, *lines]
        )

    def test_the_formats_of_earlier_versions_are_read(self) -> None:
        for key in ("01a22865-a729-7f52-a06c-0303838be751", "01a22862-9f12-74a3-8bd1-2a0c09aa0f04"):
            (turn,) = self.session("codex", key).turns
            self.assertEqual((turn.prompt, turn.answer), (RUN, REPAIRED))
            self.assertEqual([getattr(action, "exit_code", action) for action in turn.actions], [3, DEPTH, 0])
        # The lines of version 0.20 have no times, and no folder
        (turn,) = self.session("codex", "0e81910a-2575-4c78-9cf0-39033e96147a").turns
        self.assertEqual((turn.prompt, turn.answer), (RUN, REPAIRED))
        self.assertEqual(turn.began_at, datetime(2026, 11, 29, 17, 38, 5, 896000, tzinfo=UTC))
        self.assertEqual([getattr(action, "exit_code", action) for action in turn.actions], [3, 0])

    def test_the_newest_version_is_read_with_the_outcome_of_each_command(self) -> None:
        session = self.session("codex", "01a22854-d0c2-7b60-98da-2992380e0644")
        self.assertEqual([turn.prompt for turn in session.turns], [RUN, UNIT])
        runs = [action for action in session.turns[0].actions if isinstance(action, PastCommand)]
        outcomes = [(run.exit_code, run.output) for run in runs if run.command == "sh check.sh"]
        self.assertEqual(outcomes, [(3, "depth.txt:1: not in metres: 12 ft\n"), (0, "depth.txt is fine\n")])

    def test_what_the_user_did_not_type_is_no_prompt(self) -> None:
        texts = (
            "<environment_context>\n  <cwd>/srv/harbour</cwd>\n</environment_context>",
            "<user_instructions>\nShort.\n</user_instructions>",
            "# AGENTS.md instructions for /srv/harbour\n\n<INSTRUCTIONS>\nShort.\n</INSTRUCTIONS>",
            "<turn_aborted>\nStopped.\n</turn_aborted>",
            "<skill>\n<name>x</name>\n</skill>",
            "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nAdd a tide.\n",
            "<b>Bold</b> is not shown",
        )
        home = self.codex(*map(_codex_message, texts))
        self.assertEqual(self.prompts("codex", home), [["Add a tide.", "<b>Bold</b> is not shown"]])

    def test_sessions_of_sub_agents_and_of_the_client_are_left_away(self) -> None:
        prompt = _codex_message("Review it")
        for meta in (
            {"source": {"subagent": "review"}},
            {"source": {"subagent": {"thread_spawn": {"depth": 1}}}},
            {"source": "cli", "thread_source": "memory_consolidation"},
        ):
            self.assertEqual(self.read("codex", self.codex(prompt, **meta)), [], meta)
        self.assertEqual(self.prompts("codex", self.codex(prompt, source="cli", thread_source="user")), [["Review it"]])

    def test_turns_that_were_taken_back_are_left_away(self) -> None:
        undo = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 2}}
        home = self.codex(*map(_codex_message, "abc"), undo, _codex_message("d"))
        self.assertEqual(self.prompts("codex", home), [["a", "d"]])
        for count in (-1, 0, 9, 10**30):
            undo["payload"]["num_turns"] = count  # type: ignore[index]
            prompts = self.prompts("codex", self.codex(_codex_message("a"), undo, _codex_message("b")))
            self.assertEqual(prompts, [["a", "b"] if count < 1 else ["b"]])

    def test_the_summary_of_a_compaction_is_that_of_the_session(self) -> None:
        compacted = {"type": "compacted", "payload": {"message": "Depths are in metres."}}
        (session,) = self.sessions("codex", self.codex(_codex_message("a"), compacted))
        self.assertEqual(session.summary, "Depths are in metres.")

    def test_an_archived_copy_of_a_session_is_that_session(self) -> None:
        home = self.codex(_codex_message("a"))
        shutil.copytree(home / "sessions/2026/11/29", home / "archived_sessions")
        self.assertEqual(self.prompts("codex", home), [["a"]])


class GeminiTests(ClientTestCase):
    def gemini(self, *lines: Any) -> Path:
        head = {"sessionId": "s-1", "projectHash": "x", "startTime": NOW, "kind": "main"}
        return self.write_lines("tmp/harbour/chats/session-1.jsonl", [head, *lines])

    def test_a_folder_is_known_by_its_hash_as_earlier_versions_wrote_it(self) -> None:
        folder = self.home / "harbour"
        folder.mkdir()
        name = sha256(str(folder).encode()).hexdigest()
        home = self.gemini(_gemini_message("1", "a"))
        (home / "tmp/harbour").rename(home / "tmp" / name)
        self.assertEqual([each.folder for each in self.transcripts("gemini-cli", home)], [""])
        (home / "trustedFolders.json").write_text(json.dumps({str(folder): "TRUST_FOLDER"}))
        self.assertEqual([each.folder for each in self.transcripts("gemini-cli", home)], [str(folder)])
        old = self.session("gemini-cli", "9a593768-7885-4aba-8b1a-1b7b07cd2252")
        self.assertEqual((old.project, old.turns[0].answer), ("/srv/harbour", REPAIRED))

    def test_messages_that_are_written_again_count_once_and_those_taken_back_not(self) -> None:
        home = self.gemini(
            _gemini_message("1", "a"),
            _gemini_message("2", "b"),
            _gemini_message("2", "b"),
            _gemini_message("3", "c"),
            {"$rewindTo": "2"},
            {"$rewindTo": "none"},
            {"$set": {"messages": [_gemini_message("1", "a"), _gemini_message("9", "again")]}},
            _gemini_message("4", "d"),
            {"$set": {"summary": "Tides"}},
        )
        (session,) = self.sessions("gemini-cli", home)
        self.assertEqual(([turn.prompt for turn in session.turns], session.purpose), (["a", "d"], "Tides"))

    def test_what_the_user_did_not_type_is_no_prompt(self) -> None:
        texts = (
            "<session_context>\nThis is the Gemini CLI.\n</session_context>",
            "This is the Gemini CLI. We are setting up the context for our chat.\nToday is Monday.",
            "Look at @a.py\n--- Content from referenced files ---\n\nContent from @a.py:\nx\n--- End of content ---",
            "Here is the user's editor context as a JSON object.\n{}",
            "<hook_context>memory</hook_context>Go on",
            "Please continue.",
        )
        home = self.gemini(*(_gemini_message(str(number), text) for number, text in enumerate(texts)))
        self.assertEqual(self.prompts("gemini-cli", home), [["Look at @a.py", "Go on"]])

    def test_the_snapshot_of_a_compression_is_the_summary(self) -> None:
        snapshot = _gemini_message("8", "<state_snapshot>Depths are in metres.</state_snapshot>")
        home = self.gemini(_gemini_message("1", "a"), {"$set": {"messages": [snapshot]}})
        (session,) = self.sessions("gemini-cli", home)
        self.assertEqual((session.summary, len(session.turns)), ("Depths are in metres.", 1))

    def test_chats_of_sub_agents_are_left_away(self) -> None:
        home = self.gemini(_gemini_message("1", "a"))
        path = home / "tmp/harbour/chats/session-1.jsonl"
        path.write_text(path.read_text().replace('"main"', '"subagent"'))
        self.assertEqual(self.read("gemini-cli", home), [])


class QwenTests(ClientTestCase):
    def test_turns_that_were_taken_back_and_prompts_of_the_client_are_left_away(self) -> None:
        def record(name: str, text: str, **fields: Any) -> dict[str, Any]:
            message = {"role": "user", "parts": [{"text": text}]}
            return {"uuid": name, "type": "user", "timestamp": NOW, "cwd": "/srv/harbour", "message": message, **fields}

        home = self.write_lines(
            "projects/-srv-harbour/chats/s-1.jsonl",
            [
                record("1", "a", parentUuid=None),
                record("2", "b", parentUuid="1"),
                {"uuid": "3", "parentUuid": "1", "type": "system", "subtype": "rewind"},
                record("4", "c", parentUuid="3", provenance="real_user"),
                record("5", "goal", parentUuid="4", provenance="goal_runtime"),
                record("6", "side", parentUuid="4", isSidechain=True),
                {"uuid": "7", "type": "system", "subtype": "custom_title", "systemPayload": {"customTitle": "Tides"}},
            ],
        )
        (session,) = self.sessions("qwen-code", home)
        self.assertEqual(([turn.prompt for turn in session.turns], session.purpose), (["a", "c"], "Tides"))


class OpencodeTests(ClientTestCase):
    def database(self) -> Path:
        home = self.folder()
        shutil.copyfile(DATA / "opencode/opencode.db", home / "opencode.db")
        return home

    def change(self, home: Path, *statements: str) -> None:
        with closing(sqlite3.connect(home / "opencode.db", isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def test_messages_from_the_one_that_was_reverted_are_left_away(self) -> None:
        home = self.database()
        self.change(home, """UPDATE session SET revert = '{"messageID": "msg_2285a1b42001Fwrjm3VLeCGc4U"}'""")
        session = self.session("opencode", "ses_dd7a93990ffe41bdaxyiMHFv9G", home)
        self.assertEqual([turn.prompt for turn in session.turns], [RUN])

    def test_the_files_of_earlier_versions_are_read_unless_the_database_has_them(self) -> None:
        key = "ses_dd78daa24ffeDmipW6ErS86cDp"
        session = self.session("opencode", key)
        self.assertEqual([(turn.prompt, turn.answer) for turn in session.turns], [(RUN, ""), (UNIT, METRES)])
        self.assertEqual([getattr(action, "exit_code", 0) for action in session.turns[0].actions], [3])
        home = self.database()
        shutil.copytree(DATA / "opencode/storage", home / "storage")
        self.change(home, f"UPDATE session SET id = '{key}' WHERE id = 'ses_dd7a93990ffe41bdaxyiMHFv9G'")
        place = [transcript.place.name for transcript in self.transcripts("opencode", home) if transcript.key == key]
        self.assertEqual(place, ["opencode.db"])

    def test_what_the_client_adds_is_no_prompt(self) -> None:
        home = self.database()
        part = """'{"type": "text", "synthetic": true, "text": "Called the Read tool"}'"""
        self.change(home, f"UPDATE part SET data = {part} WHERE data LIKE '%Which unit%'")
        session = self.session("opencode", "ses_dd7a93990ffe41bdaxyiMHFv9G", home)
        self.assertEqual([turn.prompt for turn in session.turns], [RUN])

    def test_a_database_that_is_damaged_or_another_tool_s_is_left_out(self) -> None:
        home = self.database()
        self.change(home, "DROP TABLE part")
        self.assertEqual(
            {record.why.partition(" is no ")[2] for record in self.left("opencode", home)},
            {"database of OpenCode: it has no table part"},
        )
        self.change(home, "ALTER TABLE session RENAME TO another")
        (left,) = self.left("opencode", home)
        self.assertIn("it has no table session", left.why)
        (home / "opencode.db").write_text("no database")
        self.assertEqual(len(self.left("opencode", home)), 1)


class CopilotTests(ClientTestCase):
    def test_messages_of_skills_and_events_that_were_taken_back_are_left_away(self) -> None:
        def event(name: str, kind: str, **data: Any) -> dict[str, Any]:
            return {"id": name, "type": kind, "timestamp": NOW, "data": data}

        start = event("0", "session.start", sessionId="s-1", context={"cwd": "/srv/harbour"})
        lines = [
            start,
            event("1", "user.message", content="a"),
            event("2", "user.message", content="skill", source="skill-pdf"),
            event("3", "user.message", content="go on", isAutopilotContinuation=True),
            event("4", "user.message", content="b"),
            event("5", "session.snapshot_rewind", upToEventId="4", eventsRemoved=1),
            event("6", "user.message", content="c"),
            event("7", "session.compaction_complete", summaryContent="Depths are in metres."),
            event("8", "session.title_changed", title="Tides"),
        ]
        home = self.write_lines("session-state/s-1/events.jsonl", lines)
        (session,) = self.sessions("copilot-cli", home)
        self.assert_record(session, key="s-1", purpose="Tides", summary="Depths are in metres.")
        self.assertEqual([turn.prompt for turn in session.turns], ["a", "c"])
        start["data"]["detachedFromSpawningParentSessionId"] = "s-0"
        self.assertEqual(self.read("copilot-cli", self.write_lines("session-state/s-1/events.jsonl", lines)), [])
        flat = self.write_lines("session-state/s-2.jsonl", lines[1:2])
        self.assertEqual([each.key for each in self.transcripts("copilot-cli", flat)], ["s-2"])


def _codex_message(text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "response_item", "payload": {"type": "message", "role": "user", "content": content}}


def _gemini_message(name: str, text: str) -> dict[str, Any]:
    return {"id": name, "timestamp": NOW, "type": "user", "content": [{"text": text}]}


# One file of each client
FILES = {
    "codex": "sessions/2026/11/29/rollout-2026-11-29T17-41-20-01a22865-a729-7f52-a06c-0303838be751.jsonl",
    "gemini-cli": "tmp/harbour/chats/session-2026-11-29T17-31-d784e37b.jsonl",
    "qwen-code": "projects/-srv-harbour/chats/8b2b814c-e80c-4d2d-8391-083183d8f5c4.jsonl",
    "copilot-cli": "session-state/eb47c0bf-eb60-4e49-8ae4-92f103e0a95f/events.jsonl",
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("9" * 5_000),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=8), values, max_size=3),
    max_leaves=6,
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a value of JSON with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _mutate(data: st.DataObject, value: Any) -> None:
    places = list(_places(value))
    for container, key in data.draw(st.lists(st.sampled_from(places), max_size=8)):
        container[key] = data.draw(VALUES)


class HostileTests(ClientTestCase):
    @settings(max_examples=40)
    @given(data=st.data())
    def test_lines_with_other_values_never_break_the_reading(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(sorted(FILES)))
        lines = [json.loads(line) for line in (DATA / client / FILES[client]).read_text().splitlines()]
        _mutate(data, lines)
        if data.draw(st.booleans()):
            lines.reverse()
        home = self.write_lines(FILES[client], lines)
        self.assert_readable(client, home)

    @settings(max_examples=20)
    @given(data=st.data())
    def test_rows_with_other_values_never_break_the_reading(self, data: st.DataObject) -> None:
        home = self.folder()
        shutil.copyfile(DATA / "opencode/opencode.db", home / "opencode.db")
        with closing(sqlite3.connect(home / "opencode.db", isolation_level=None)) as connection:
            for table in ("message", "part"):
                rows = dict(connection.execute(f"SELECT rowid, data FROM {table}").fetchall())
                values = list(map(json.loads, rows.values()))
                _mutate(data, values)
                for number, value in zip(rows, values, strict=True):
                    connection.execute(f"UPDATE {table} SET data = ? WHERE rowid = ?", [json.dumps(value), number])
            for column in ("title", "directory", "time_created", "time_updated", "revert"):
                text = json.dumps(data.draw(VALUES))
                connection.execute(f"UPDATE session SET {column} = ? WHERE parent_id IS NULL", [text])
        self.assert_readable("opencode", home)

    def assert_readable(self, client: str, home: Path) -> None:
        self.transcripts(client, home)
        for record in self.read(client, home):
            self.assertIsInstance(record, SessionRecord | LeftOutRecord)
            if isinstance(record, SessionRecord):
                self.assertTrue(all(turn.prompt for turn in record.turns))

    def test_links_pipes_deep_and_endless_lines_are_left_out(self) -> None:
        for client, name in FILES.items():
            with self.subTest(client=client):
                home = self.write_lines(name, ["[" * 100_000 + "\n", "{" * 9 + "\n", "x" * 5_000_000 + "\n"])
                file = home / name
                self.assertIn("it has no turns", self.reasons(client, home))
                file.unlink()
                os.mkfifo(file)
                self.assertEqual(self.sessions(client, home), [])
                file.unlink()
                file.symlink_to("/dev/zero")
                self.assertEqual(self.sessions(client, home), [])
