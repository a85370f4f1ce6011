"""Clients that work in an editor: what their sessions become, and what hostile ones do not."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from memoryhub.core.errors import Invalid
from memoryhub.transfer.records import LeftOutRecord, Record, SessionRecord
from memoryhub.transfer.sources import SOURCES
from sessions_app.services.past_sessions import PastCommand, PastEdit
from tests.sessions_app.test_git import Repository
from tests.transfer.test_text_sources import DATA, SourceTestCase, write_files

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value within a value of JSON."""
    places = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        places += places_in(inner, (*path, key))
    return places


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = other
    return value


class EditorSourceTestCase(SourceTestCase):
    def read(self, source: str, path: Path) -> list[Record]:
        return list(SOURCES[source].records(path))

    def listed(self, source: str, path: Path) -> list[tuple[str, str]]:
        transcripts = SOURCES[source].transcripts
        assert transcripts
        return [(transcript.key, transcript.folder) for transcript in transcripts(path)]

    def assert_survives(self, source: str, path: Path, write: Callable[[], object]) -> None:
        """Check that data which was changed at random is read, left out or refused."""
        write()
        try:
            self.listed(source, path)
            records = self.read(source, path)
        except Invalid as error:
            self.assertLess(len(error.message), 400)
            return
        for record in records:
            self.assertIsInstance(record, SessionRecord | LeftOutRecord)
            if isinstance(record, SessionRecord):
                texts = [record.purpose, record.summary, record.project, record.key]
                texts += [text for turn in record.turns for text in (turn.prompt, turn.answer)]
                self.assertTrue(all(isinstance(text, str) for text in texts))


class ClineTests(EditorSourceTestCase):
    def test_sessions_have_what_was_typed_answered_run_and_edited(self) -> None:
        folder = self.copy("cline")
        first = next(session for session in self.sessions("cline", folder) if session.key == "1795973396055_jhmvk")
        tests, retry = first.turns
        answer = "I will run the tests first.\n\nA name is wrong. I correct it.\n\n"
        self.assertEqual(tests.prompt, "Make the tests pass.")
        self.assertEqual(tests.answer, f"{answer}The tests pass: the feed calls it `height`.")
        failed, edit, passed = tests.actions
        assert isinstance(failed, PastCommand) and isinstance(passed, PastCommand)
        self.assertEqual((failed.command, failed.exit_code), ("make test", 2))
        self.assertIn("KeyError: 'tide'", failed.output)
        self.assertEqual(edit, PastEdit("gauge.py"))
        self.assertEqual(
            (passed.command, passed.exit_code, passed.output), ("make test", 0, "python3 gauge.py\n1 passed")
        )
        # The session was ended and resumed
        self.assertEqual((retry.prompt, retry.answer), ("How long does a retry wait?", "A retry waits an hour."))
        self.assert_record(
            first,
            purpose="Make the tests pass.",
            agent="cline",
            project="/srv/harbour",
            started=datetime(2026, 11, 29, 17, 29, 56, 103000, UTC),
        )

    def test_a_fork_has_only_what_followed_and_subagents_are_no_sessions(self) -> None:
        turns = {}
        for session in self.sessions("cline", self.copy("cline")):
            turns[session.key] = [(turn.prompt, turn.answer) for turn in session.turns]
        self.assertEqual(turns["1795973679029_gkcwf"], [("Thanks, and in a fork?", "Bye.")])
        prompt = "Ask a helper how many piers there are."
        answer = "Let me ask a helper.\n\nThere are nine piers."
        self.assertEqual(turns["1795973483762_rk8l2"], [(prompt, answer)])
        # A file that was attached is no part of the prompt
        prompt = "How many piers are there? See @Makefile"
        self.assertEqual(turns["1795973446097_0me1g"], [(prompt, "The retry waits an hour.")])
        self.assertEqual(len(turns), 5)

    def test_tasks_of_its_extension_are_read(self) -> None:
        folder = self.copy("cline")
        (task,) = (session for session in self.sessions("cline", folder) if session.key == "1795600000000")
        log, repair = task.turns
        question = "I look at the log.\n\nGauge 4 is stuck. Repair it?"
        self.assertEqual((log.prompt, log.answer), ("Which gauge is broken?", question))
        self.assertEqual((repair.prompt, repair.answer), ("Yes", "Gauge 4 is noted in repairs.md."))
        self.assertEqual(repair.actions, (PastEdit("repairs.md"),))
        self.assertEqual(task.project, "/srv/harbour")
        # One task, and its folder without the list of tasks
        shutil.rmtree(folder / "state")
        self.assertEqual(self.listed("cline", folder / "tasks/1795600000000"), [("1795600000000", "/srv/harbour")])

    def test_what_nobody_typed_is_no_prompt(self) -> None:
        folder = self.home / "data"
        compacted = {"role": "user", "content": "The summary.", "metadata": {"kind": "compaction_summary"}}
        messages = [
            {
                "role": "user",
                "content": '<mode_notice>plan</mode_notice><user_input mode="act">Low water?</user_input>',
            },
            {"role": "user", "content": "Be quick.", "metadata": {"kind": "completion_reminder"}},
            {"role": "user", "content": "Sorry.", "metadata": {"displayRole": "status"}},
            {"role": "user", "content": [{"type": "text", "text": "[TASK RESUMPTION] Go on."}]},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "12:31."}],
            },
            {"role": "user", "content": '<user_command slash="tides">Print the tides.</user_command>'},
            {"role": "assistant", "content": "0.8 m"},
            compacted,
        ]
        write_files(folder, {"sessions/1_a/1_a.messages.json": json.dumps({"messages": messages})})
        (session,) = self.sessions("cline", folder)
        turns = [(turn.prompt, turn.answer) for turn in session.turns]
        self.assertEqual(turns, [("Low water?", "12:31."), ("/tides", "0.8 m")])
        self.assertEqual(session.summary, "The summary.")

    def test_a_memory_bank_becomes_an_observation_for_each_section(self) -> None:
        folder = self.folder() / "harbour"
        write_files(
            folder, {"memory-bank/techContext.md": "# Stack\n\nPython 3.11.\n\n# Tests\n\nUse recorded gauges.\n"}
        )
        write_files(folder, {"memory-bank/.hidden/x.md": "Hidden."})
        Repository(folder)
        self.assertEqual(SOURCES["cline"].find(folder), [folder])
        stack, tests = self.memories("cline", folder).values()
        key = "harbour/memory-bank/techContext.md#stack"
        self.assert_record(stack, key=key, kind="observation", content="Python 3.11.", tags=("memory-bank",))
        self.assertEqual(tests.title, "memory-bank/techContext.md › Tests")

    def test_data_is_found_where_editors_keep_it(self) -> None:
        self.assertEqual(SOURCES["cline"].find(self.home), [])
        places = [
            self.home / ".cline/data",
            self.home / ".config/Cursor/User/globalStorage/saoudrizwan.claude-dev",
            self.home / "Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev",
            self.home / ".vscode-server/data/User/globalStorage/saoudrizwan.claude-dev",
            self.home / ".local/share/code-server/User/globalStorage/saoudrizwan.claude-dev",
        ]
        for place in places:
            (place / "tasks").mkdir(parents=True)
        self.assertEqual(SOURCES["cline"].find(self.home), places)
        self.assertEqual(SOURCES["roo"].find(self.home), [])


class RooTests(EditorSourceTestCase):
    def test_a_task_becomes_a_session_and_a_subtask_does_not(self) -> None:
        folder = self.copy("roo")
        key = "0197a3c1-5b1e-7c44-9d0a-3f2b6a1c8e01"
        self.assertEqual(self.listed("roo", folder), [(key, "/srv/harbour")])
        (session,) = self.sessions("roo", folder)
        answer = "I will run the tests first.\n\nThe tests pass: the feed calls it `height`."
        turns = [
            ("Make the tests pass.", answer),
            ("How long does a retry wait?", "Which feed do you mean?"),
            ("The tide feed.", "A retry waits an hour."),
        ]
        self.assertEqual([(turn.prompt, turn.answer) for turn in session.turns], turns)
        failed, edit, passed = session.turns[0].actions
        assert isinstance(failed, PastCommand) and isinstance(passed, PastCommand)
        self.assertEqual((failed.exit_code, passed.exit_code, edit), (2, 0, PastEdit("gauge.py")))
        self.assertEqual(failed.output, "Traceback (most recent call last):\nKeyError: 'tide'")
        self.assert_record(session, summary="The tests were repaired.", agent="roo", project="/srv/harbour")
        self.assertEqual(session.started, session.turns[0].began_at)

    def test_without_an_index_each_task_says_what_it_is(self) -> None:
        folder = self.copy("roo")
        (folder / "tasks/_index.json").unlink()
        self.assertEqual([folder for _, folder in self.listed("roo", folder)], ["/srv/harbour"])

    def test_kilo_code_has_the_same_files(self) -> None:
        (session,) = self.sessions("kilo", self.copy("roo"))
        self.assertEqual((session.agent, len(session.turns)), ("kilo", 3))


class HostileTaskTests(EditorSourceTestCase):
    def test_broken_files_links_and_pipes_are_left_out(self) -> None:
        secret = self.folder() / "secret.json"
        secret.write_text(json.dumps([{"type": "say", "say": "task", "text": "secret"}]))
        tasks = self.home / "data/tasks"
        contents = {"1": "[" * 100_000, "2": '[{"say": "task"', "3": "x", "4": "\0" * 100, "5": '{"a": 1}', "6": "[]"}
        write_files(tasks, {f"{name}/ui_messages.json": text for name, text in contents.items()})
        (tasks / "7").mkdir()
        (tasks / "7/ui_messages.json").symlink_to(secret)
        (tasks / "8").mkdir()
        os.mkfifo(tasks / "8/ui_messages.json")
        (tasks / "9").symlink_to(secret.parent)
        with self.unchanged():
            records = self.read("cline", tasks.parent)
        self.assertEqual([record for record in records if not isinstance(record, LeftOutRecord)], [])
        self.assertEqual(len(records), 9)

    def test_a_place_without_tasks_gets_one_sentence(self) -> None:
        for source in ("cline", "roo", "kilo"):
            for path in (self.folder(), self.home / "nowhere", Path("\0")):
                self.assert_refused(source, path, "has no tasks of")

    @given(st.data())
    def test_files_that_were_changed_at_random_are_read_or_left_out(self, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(["cline", "roo"]))
        file = data.draw(st.sampled_from(sorted((DATA / source).rglob("*.json"))))
        value = json.loads(file.read_text())
        for _ in range(data.draw(st.integers(1, 3))):
            value = replaced(value, data.draw(st.sampled_from(places_in(value))), data.draw(VALUES))
        folder = self.folder() / source
        shutil.copytree(DATA / source, folder)
        changed = folder / file.relative_to(DATA / source)
        self.assert_survives(source, folder, lambda: changed.write_text(json.dumps(value)))
