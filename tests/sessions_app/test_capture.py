"""Hook events become sessions, turns, events and commits."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any
from unittest import mock

from memoryhub.core import log
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from sessions_app import git
from sessions_app.hook_parser import parse_hook
from sessions_app.models import Commit, Session, SessionStatus, Turn, TurnStatus
from sessions_app.schemas import IterationStart, SessionEnd
from sessions_app.services.capture import capture
from sessions_app.services.iterations import start_iteration
from sessions_app.services.sessions import end_session
from tests.support import HubTestCase


class CaptureTestCase(HubTestCase):
    def setUp(self):
        super().setUp()
        self.work = self.home / "work"
        self.work.mkdir()
        self.enterContext(self.store("alpha"))
        self.count = 0

    def hook(self, event: str, *, key: str = "", session: str = "s1", client: str = "claude-code", **data: Any) -> str:
        self.count += 1
        key = key or f"hook-{self.count}"
        hook_event = parse_hook(client=client, event=event, data={"session_id": session, "cwd": str(self.work), **data})
        with use_origin(source="hook", actor=client):
            capture(event=hook_event, idempotency_key=key)
        return key

    def run_command(self, command: str, stdout: str = "") -> None:
        self.hook("PostToolUse", tool_name="Bash", tool_input={"command": command}, tool_response={"stdout": stdout})

    def types(self) -> list[str]:
        return [event.event_type for event in RawEvent.objects.order_by("position")]

    def git(self, *arguments: str, **environment: str) -> str:
        identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=self.work,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **environment},
        )
        return done.stdout


class SessionsTests(CaptureTestCase):
    def test_a_prompt_ends_the_turn_before_and_begins_the_next(self):
        self.hook("UserPromptSubmit", prompt="One")
        self.hook("UserPromptSubmit", prompt="Two")
        self.assertEqual(
            self.types(),
            "session.started turn.began message.user turn.ended turn.began message.user".split(),
        )
        states = list(Turn.objects.order_by("id").values_list("status", "event_count"))
        self.assertEqual(states, [(TurnStatus.CLOSED, 1), (TurnStatus.OPEN, 1)])

    def test_each_event_once_whatever_comes_twice(self):
        steps: list[tuple[str, dict[str, Any]]] = [
            ("SessionStart", {"source": "startup"}),
            ("UserPromptSubmit", {"prompt": "One"}),
            ("PostToolUse", {"tool_name": "Bash", "tool_input": {"command": "ls"}}),
            ("PreCompact", {"trigger": "auto"}),
            ("Stop", {"last_assistant_message": "Done"}),
            ("UserPromptSubmit", {"prompt": "Two"}),
            ("Stop", {}),
            ("SessionEnd", {"reason": "clear"}),
            ("SessionStart", {"source": "resume"}),
        ]
        for event, data in steps:
            key = self.hook(event, **data)
            before = self.types()
            self.hook(event, key=key, **data)
            self.assertEqual(self.types(), before, event)

    def test_a_stop_that_comes_again_later_does_not_end_the_next_turn(self):
        self.hook("UserPromptSubmit", prompt="One")
        key = self.hook("Stop")
        self.hook("UserPromptSubmit", prompt="Two")
        self.hook("Stop", key=key)
        self.assertEqual(Turn.objects.filter(status=TurnStatus.OPEN).count(), 1)

    def test_an_ended_session_resumes_when_its_client_continues(self):
        self.hook("SessionStart")
        self.hook("SessionEnd", reason="other")
        self.hook("UserPromptSubmit", prompt="Still here")
        session = Session.objects.get()
        self.assertEqual((session.status, session.ended_at), (SessionStatus.ACTIVE, None))
        self.assertIn("session.resumed", self.types())
        self.assertTrue(all(report.before == report.after for report in log.rebuild().tables))

    def test_the_end_of_a_session_that_is_unknown_or_over_changes_nothing(self):
        self.hook("SessionEnd", reason="other")
        self.assertEqual(self.types(), [])
        self.hook("SessionStart")
        end_session(command=SessionEnd(session_id="s1", summary="Said by the agent"))
        self.hook("SessionEnd", reason="other")
        self.assertEqual(Session.objects.get().summary, "Said by the agent")

    def test_two_sessions_keep_their_turns_apart(self):
        self.hook("UserPromptSubmit", prompt="One", session="s1")
        self.hook("UserPromptSubmit", prompt="Two", session="s2")
        self.hook("Stop", session="s1")
        left = list(Turn.objects.filter(status=TurnStatus.OPEN).values_list("session_id", flat=True))
        self.assertEqual(left, ["s2"])

    def test_the_summary_lists_prompts_files_and_commands(self):
        self.hook("UserPromptSubmit", prompt="Mend\nthe parser")
        edit = {"file_path": "a.py", "old_string": "x", "new_string": "y"}
        self.hook("PostToolUse", tool_name="Edit", tool_input=edit)
        self.run_command("make test")
        self.hook("Stop", last_assistant_message="It works. " * 200)
        self.hook("SessionEnd", reason="logout")
        summary = Session.objects.get().summary
        self.assertTrue(summary.startswith("Prompts: Mend the parser.\nFiles edited: a.py.\nCommands run: 1.\n"))
        self.assertTrue(summary.endswith("Ended by the client: logout."))
        self.assertLess(len(summary), 1_000)

    def test_a_strict_project_is_captured_too(self):
        with mock.patch.dict(os.environ, MEMORY_HUB_TURN_POLICY="strict"):
            self.hook("UserPromptSubmit", prompt="One")
        self.assertIn("message.user", self.types())

    def test_a_gemini_session_is_captured(self):
        self.hook("SessionStart", client="gemini-cli", source="startup")
        self.hook("BeforeAgent", client="gemini-cli", prompt="Why?")
        self.hook("AfterAgent", client="gemini-cli", prompt_response="Because.")
        self.hook("SessionEnd", client="gemini-cli", reason="exit")
        self.assertEqual(
            self.types(),
            "session.started turn.began message.user message.assistant turn.ended session.ended".split(),
        )
        self.assertEqual(Session.objects.get().agent, "gemini-cli")


class CommitsTests(CaptureTestCase):
    def setUp(self):
        super().setUp()
        self.git("init", "--quiet", "--initial-branch=main")
        self.hook("UserPromptSubmit", prompt="Commit it")

    def commit(self, message: str, *options: str, **environment: str) -> str:
        return self.git("commit", "--allow-empty", "-m", message, *options, **environment)

    def test_a_commit_is_recorded_in_its_turn_and_iteration(self):
        iteration = start_iteration(command=IterationStart(command="feature"))
        self.run_command("git add -A && git commit -m First", self.commit("First"))
        commit = Commit.objects.get()
        self.assertEqual((commit.message, commit.iteration_id), ("First", iteration.id))
        event = RawEvent.objects.get(position=commit.id)
        self.assertEqual((event.session_id, event.turn_id), ("s1", Turn.objects.get().turn_id))

    def test_an_event_that_comes_while_git_is_read_is_captured_after_the_command(self):
        output = self.commit("First")
        read_commit = git.read_commit

        def read_slowly(folder, sha):
            self.hook("Stop", last_assistant_message="Committed")
            return read_commit(folder, sha)

        with mock.patch.object(git, "read_commit", read_slowly):
            self.run_command("git commit -m First", output)
        self.assertEqual(
            self.types()[2:],
            "message.user command.run message.assistant turn.ended commit.recorded".split(),
        )
        self.assertEqual(RawEvent.objects.exclude(turn_id="").values("turn_id").distinct().count(), 1)
        self.assertEqual(Turn.objects.get().status, TurnStatus.CLOSED)

    def test_each_commit_of_a_command_is_recorded(self):
        output = self.commit("First") + self.commit("Second")
        self.run_command("git commit -m First; git commit -m Second", output)
        self.assertEqual(list(Commit.objects.order_by("id").values_list("message", flat=True)), ["First", "Second"])

    def test_output_with_many_hashes_costs_a_bounded_number_of_looks(self):
        output = "".join(f"[main {number:07x}] Commit\n" for number in range(1, 500))
        with mock.patch.object(git, "read_commit", return_value=None) as read_commit:
            self.run_command("git commit -m First", output)
        self.assertLess(read_commit.call_count, 60)

    def test_a_quiet_commit_is_recorded_if_it_was_made_just_now(self):
        self.commit("Quiet", "--quiet")
        self.run_command("git commit -q -m Quiet")
        self.assertEqual(Commit.objects.get().message, "Quiet")

    def test_a_commit_that_failed_does_not_record_an_old_one(self):
        long_ago = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - 7200))
        self.commit("Old", GIT_COMMITTER_DATE=long_ago)
        self.run_command("git commit -m New", "nothing to commit, working tree clean")
        self.assertEqual(Commit.objects.count(), 0)

    def test_a_command_that_commits_nothing_records_nothing(self):
        output = self.commit("First")
        for command in ("git log", "git status; echo commit", "commit-tool --git"):
            self.run_command(command, output)
        self.assertEqual(Commit.objects.count(), 0)

    def test_a_project_can_switch_it_off(self):
        output = self.commit("First")
        with mock.patch.dict(os.environ, MEMORY_HUB_CAPTURE_COMMITS="false"):
            self.run_command("git commit -m First", output)
        self.assertEqual(Commit.objects.count(), 0)

    def test_a_missing_folder_or_repository_is_no_error(self):
        for place in ("/nowhere/at/all", "/"):
            self.hook("PostToolUse", tool_name="Bash", tool_input={"command": "git commit -m x"}, cwd=place)
        self.assertEqual(self.types().count("command.run"), 2)
