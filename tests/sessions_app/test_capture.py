"""Hook data is parsed by the clients' tables, and becomes sessions, turns, events and commits."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import SimpleTestCase

from memoryhub.config.clients import hook_clients
from memoryhub.config.hook_table import EFFECTS, HookEffect, HookTable
from memoryhub.core.errors import Invalid, NotFound
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from sessions_app import git
from sessions_app.events.client import client_events
from sessions_app.hook_parser import parse_hook
from sessions_app.models import Commit, Iteration, Session, SessionStatus, Turn, TurnStatus
from sessions_app.schemas import HookDelivery, IterationStart, SessionEnd
from sessions_app.services.capture import capture, take_delivery
from sessions_app.services.sessions import end_session
from sessions_app.services.work import start_iteration
from tests.core.test_sanitize import TOKENS
from tests.support import HubTestCase, make_git_folder

COMMON = {"session_id": "s1", "cwd": "/work/alpha"}


def parsed(event: str, client: str = "claude-code", **data: Any) -> dict[str, Any]:
    hook_event = parse_hook(client=client, event=event, data={**COMMON, **data})
    return {"type": hook_event.type, **hook_event.payload}


class ParsingTests(SimpleTestCase):
    def ran(self, tool: str, arguments: Any, *, event: str = "PostToolUse", client: str = "claude-code", **data: Any):
        return parsed(event, client, tool_name=tool, tool_input=arguments, **data)

    def test_tools_become_commands_edits_and_messages(self):
        edits = {"file_path": "a.py", "edits": [{"old_string": "a\nb", "new_string": "c"}, {"new_string": "d"}]}
        made, error = {"stdout": "built", "stderr": "warned", "exitCode": 2}, "no such folder"
        patch = "*** Begin Patch\n*** Update File: a/b c.py\n@@\n-x\n+y\n*** Add File: d.py\n+z\n*** End Patch\n"
        command = {"command": "make", "output": "built\nwarned", "exit_code": 2, "directory": "/work/alpha"}
        grep = {"tool": "Grep", "input": {"pattern": "x"}, "output": ["a"], "call_id": "t", "is_error": False}
        failed = {"event": "PostToolUseFailure", "error": error}
        response = {"llmContent": "Command: make\nOutput: no\nExit Code: 2", "returnDisplay": "no"}
        codex, gemini = {"client": "codex"}, {"client": "gemini-cli", "event": "AfterTool"}
        shell, replaced = (
            {**gemini, "tool_response": response},
            {"file_path": "a", "old_string": "x", "new_string": "y"},
        )
        edited = {"path": "a.py", "change": "- a\n- b\n+ c\n+ d", "tool": "MultiEdit"}
        for tool, arguments, data, type_, fields in (
            ("Bash", {"command": "make"}, {"tool_response": made}, "command.run", command),
            ("MultiEdit", edits, {}, "file.edited", edited),
            ("Grep", {"pattern": "x"}, {"tool_response": ["a"], "tool_use_id": "t"}, "message.tool", grep),
            ("Grep", {}, failed, "message.tool", {"output": error, "is_error": True}),
            ("apply_patch", {"command": patch}, codex, "file.edited", {"path": "a/b c.py", "change": patch}),
            ("run_shell_command", {"command": "make"}, shell, "command.run", {"exit_code": 2}),
            ("replace", replaced, gemini, "file.edited", {"change": "- x\n+ y"}),
            ("read_file", {}, {**gemini, "tool_response": {"llmContent": ["a"]}}, "message.tool", {"output": ["a"]}),
        ):  # fmt: skip
            with self.subTest(tool=tool, **data):
                event = self.ran(tool, arguments, **data)
                self.assertEqual((event["type"], {name: event[name] for name in fields}), (type_, fields))

    def test_events_without_content_are_empty(self):
        for event, type_ in (
            (parsed("UserPromptSubmit"), "message.user"),
            (parsed("PostToolUse"), "message.tool"),
            (self.ran("Edit", {}), "file.edited"),
            (self.ran("apply_patch", {"command": "no patch"}, client="codex"), "file.edited"),
        ):
            self.assertEqual(event, {"type": type_})

    def test_a_command_that_failed_has_the_exit_code_that_the_error_names(self):
        for error, code in (
            ("Exit code 1\nno rule", 1),
            ("Command exited with non-zero status code 127", 127),
            ("exit status: 3", 3),
            ("interrupted", None),
        ):
            event = self.ran("Bash", {"command": "make"}, event="PostToolUseFailure", error=error)
            self.assertEqual((event["type"], event["output"], event.get("exit_code")), ("command.run", error, code))

    def test_long_texts_are_cut_with_a_note(self):
        response = {"stdout": "x" * 1_000_000, "stderr": "the end"}
        event = self.ran("Bash", {"command": "make"}, tool_response=response)
        self.assertEqual(len(event["output"]), 8_000)
        self.assertTrue(event["output"].endswith("the end"))
        self.assertIn("characters left out", event["output"])
        deep: Any = "x"
        for _ in range(500):
            deep = [deep, {"y" * 3_000: deep}] if len(str(deep)) < 5_000 else [deep]
        event = self.ran("Odd", deep, tool_response={str(n): "z" * 99 for n in range(999)})
        self.assertLess(len(str(event)), 20_000)

    def test_unknown_names_and_a_session_without_one_are_refused(self):
        odd: list[Any] = [None, "", "  ", {}, 7]
        for session in odd:
            with self.assertRaisesRegex(Invalid, "session_id"):
                parsed("Stop", session_id=session)
        with self.assertRaises(NotFound) as caught:
            parsed("Stop", "emacs")
        self.assertEqual(caught.exception.data["known"], list(hook_clients()))
        with self.assertRaisesRegex(NotFound, "UserPromptSubmit"):
            parsed("stop")

    def test_prompts_and_answers_of_gemini_become_messages(self):
        prompt = parsed("BeforeAgent", "gemini-cli", prompt="Why?")
        self.assertEqual(prompt, {"type": "message.user", "content": "Why?"})
        answer = parsed("AfterAgent", "gemini-cli", prompt="Why?", prompt_response="Because.")
        self.assertEqual(answer, {"type": "message.assistant", "content": "Because."})

    def test_a_sub_agents_tools_are_recorded_with_its_id_and_nothing_else(self):
        event = self.ran("Bash", {"command": "make"}, client="codex", agent_id="a1")
        self.assertEqual((event["type"], event["agent_id"]), ("command.run", "a1"))
        for name in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"):
            event = parse_hook(client="codex", event=name, data={**COMMON, "agent_id": "a1", "prompt": "x"})
            self.assertEqual((event.effect, event.payload, event.answers), (HookEffect.NOTHING, {}, False))

    def test_another_client_that_runs_claude_codes_hooks_is_not_recorded_twice(self):
        recorded = {"type": "message.user", "content": "x"}
        for data, event in (
            ({"cursor_version": "3.7.21"}, {"type": ""}),
            ({"transcript_path": "/x/workspaceStorage/1f/GitHub.copilot-chat/transcripts/s1.jsonl"}, {"type": ""}),
            ({"transcript_path": "/home/ada/.claude/projects/-home-ada-vscode-copilot-chat/s1.jsonl"}, recorded),
            ({"transcript_path": "/a\0b.jsonl"}, recorded),
        ):
            with self.subTest(data):
                self.assertEqual(parsed("UserPromptSubmit", prompt="x", **data), event)

    def test_a_client_that_takes_no_context_at_prompts_gets_none(self):
        data = {"conversation_id": "s1", "prompt": "x"}
        self.assertFalse(parse_hook(client="cursor", event="beforeSubmitPrompt", data=data).answers)


class TablesTests(SimpleTestCase):
    def test_any_hook_data_fits_the_events_schema(self):
        chance = random.Random(3)
        texts, nested = [None, "", "text", "é" * 30_000], [[], {}, ["a", None, {"text": 1}], {"a": {"b": [1]}}]
        odd: list[Any] = [*texts, 0, -1, 2.5, True, *nested]
        names = "prompt tool_name tool_input tool_response error trigger cwd reason last_assistant_message".split()
        tools = ["Bash", "Edit", "MultiEdit", "Write", "replace", "run_shell_command"]
        inner = "command file_path old_string new_string edits content stdout stderr exit_code llmContent".split()
        for _ in range(700):
            client, table = chance.choice(list(hook_clients().items()))
            data: dict[str, Any] = {name: chance.choice(odd) for name in names}
            data["tool_name"] = chance.choice([*tools, data["tool_name"]])
            for name in ("tool_input", "tool_response"):
                if chance.random() < 0.7:
                    data[name] = {key: chance.choice(odd) for key in inner}
            event = chance.choice([*table.events, *table.ignored])
            parsed_event = parse_hook(client=client, event=event, data={**data, table.session: "s1"})
            if parsed_event.payload:
                client_events()[parsed_event.type].schema.model_validate(parsed_event.payload)

    def test_each_client_can_start_ask_act_stop_and_end(self):
        for name, table in hook_clients().items():
            effects = {hook.effect for hook in table.events.values()}
            # Not every client takes context before an action
            unneeded = {HookEffect.ACTION, HookEffect.APPEND, HookEffect.NOTHING}
            if name == "vscode":
                unneeded.add(HookEffect.END)
            self.assertLessEqual(set(EFFECTS.values()) - unneeded - {HookEffect.STATUS}, effects, name)

    def test_the_hook_process_reads_the_effect_that_the_table_declares(self):
        for name, table in hook_clients().items():
            in_text = HookTable(name)
            for event, hook in table.events.items():
                answers = hook.takes_context and bool(hook.effect.answer)
                self.assertEqual(in_text.event(event), (hook.effect, answers), f"{name} {event}: not the first line")
            self.assertEqual(in_text.event("Other"), (HookEffect.NOTHING, False))
            self.assertEqual(in_text.value("root"), table.root)


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

    def assert_types(self, types: str, start: int = 0) -> None:
        self.assertEqual(self.types()[start:], types.split())


class SessionsTests(CaptureTestCase):
    def test_a_prompt_ends_the_turn_before_and_begins_the_next(self):
        self.hook("UserPromptSubmit", prompt="One")
        self.hook("UserPromptSubmit", prompt="Two")
        self.assert_types("session.started turn.began message.user turn.ended turn.began message.user")
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

    def test_an_ended_session_resumes_when_its_client_continues(self):
        self.hook("SessionStart")
        self.hook("SessionEnd", reason="other")
        self.hook("UserPromptSubmit", prompt="Still here")
        session = Session.objects.get()
        self.assertEqual((session.status, session.ended_at), (SessionStatus.ACTIVE, None))
        self.assertIn("session.resumed", self.types())
        self.assert_rebuilds()

    def test_the_end_of_a_session_that_is_unknown_or_over_changes_nothing(self):
        self.hook("SessionEnd", reason="other")
        self.assertEqual(self.types(), [])
        self.hook("SessionStart")
        end_session(command=SessionEnd(session_id="s1", summary="Said by the agent"))
        self.hook("SessionEnd", reason="other")
        self.assertEqual(Session.objects.get().summary, "Said by the agent")

    def test_two_sessions_keep_their_turns_apart_and_a_stop_that_comes_again_later_ends_none(self):
        self.hook("UserPromptSubmit", prompt="One", session="s1")
        self.hook("UserPromptSubmit", prompt="Two", session="s2")
        key = self.hook("Stop", session="s1")
        open_turns = Turn.objects.filter(status=TurnStatus.OPEN).order_by("id").values_list("session_id", flat=True)
        self.assertEqual(list(open_turns), ["s2"])
        self.hook("UserPromptSubmit", prompt="Three", session="s1")
        self.hook("Stop", session="s1", key=key)
        self.assertEqual(list(open_turns.all()), ["s2", "s1"])

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

    def test_the_summary_names_files_by_their_path_in_the_project(self):
        make_git_folder(self.work)
        self.hook("SessionStart", cwd=str(self.work / "docs"))
        for path in (self.work / "a.py", self.work / "docs/b.md", Path("/etc/hosts"), Path("c.py")):
            edit = {"file_path": str(path), "old_string": "x", "new_string": "y"}
            self.hook("PostToolUse", tool_name="Edit", tool_input=edit)
        self.hook("SessionEnd", reason="logout")
        self.assertIn("Files edited: c.py; /etc/hosts; docs/b.md; a.py.", Session.objects.get().summary)

    def test_a_strict_project_is_captured_too(self):
        with mock.patch.dict(os.environ, MEMORY_HUB_TURN_POLICY="strict"):
            self.hook("UserPromptSubmit", prompt="One")
        self.assertIn("message.user", self.types())

    def test_a_gemini_session_is_captured(self):
        self.hook("SessionStart", client="gemini-cli", source="startup")
        self.hook("BeforeAgent", client="gemini-cli", prompt="Why?")
        self.hook("AfterAgent", client="gemini-cli", prompt_response="Because.")
        self.hook("SessionEnd", client="gemini-cli", reason="exit")
        self.assert_types("session.started turn.began message.user message.assistant turn.ended session.ended")
        self.assertEqual(Session.objects.get().agent, "gemini-cli")


class CommitsTests(CaptureTestCase):
    def setUp(self):
        super().setUp()
        self.git("init", "--quiet", "--initial-branch=main")
        self.hook("UserPromptSubmit", prompt="Commit it")

    def git(self, *arguments: str, **environment: str) -> str:
        command = ["git", "-C", str(self.work), "-c", "user.name=Ada", "-c", "user.email=ada@example.org", *arguments]
        return subprocess.check_output(command, text=True, env={**os.environ, **environment})

    def commit(self, message: str, *options: str, **environment: str) -> str:
        return self.git("commit", "--allow-empty", "-m", message, *options, **environment)

    def recorded(self) -> list[str]:
        return list(Commit.objects.order_by("id").values_list("message", flat=True))

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
        self.assert_types("message.user command.run message.assistant turn.ended commit.recorded", start=2)
        self.assertEqual(RawEvent.objects.exclude(turn_id="").values("turn_id").distinct().count(), 1)
        self.assertEqual(Turn.objects.get().status, TurnStatus.CLOSED)

    def test_each_commit_of_a_command_is_recorded_and_a_quiet_one_if_it_was_made_just_now(self):
        output = self.commit("First") + self.commit("Second")
        self.run_command("git commit -m First; git commit -m Second", output)
        self.commit("Quiet", "--quiet")
        self.run_command("git commit -q -m Quiet")
        self.assertEqual(self.recorded(), ["First", "Second", "Quiet"])

    def test_output_with_many_hashes_costs_a_bounded_number_of_looks(self):
        output = "".join(f"[main {number:07x}] Commit\n" for number in range(1, 500))
        with mock.patch.object(git, "read_commit", return_value=None) as read_commit:
            self.run_command("git commit -m First", output)
        self.assertLess(read_commit.call_count, 60)

    def test_a_commit_that_failed_does_not_record_an_old_one(self):
        long_ago = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - 7200))
        self.commit("Old", GIT_COMMITTER_DATE=long_ago)
        self.run_command("git commit -m New", "nothing to commit, working tree clean")
        self.assertEqual(self.recorded(), [])

    def test_a_command_that_commits_nothing_or_a_project_that_switched_it_off_records_nothing(self):
        output = self.commit("First")
        for command in ("git log", "git status; echo commit", "commit-tool --git"):
            self.run_command(command, output)
        with mock.patch.dict(os.environ, MEMORY_HUB_CAPTURE_COMMITS="false"):
            self.run_command("git commit -m First", output)
        self.assertEqual(self.recorded(), [])

    def test_a_missing_folder_or_repository_is_no_error(self):
        for place in ("/nowhere/at/all", "/"):
            self.hook("PostToolUse", tool_name="Bash", tool_input={"command": "git commit -m x"}, cwd=place)
        self.assertEqual(self.types().count("command.run"), 2)


class StateFileTests(CaptureTestCase):
    """The state file of Alfred Dev, in the forms that its orchestrator writes."""

    FIRST = {"comando": "feature", "descripcion": "Push notices", "fase_actual": "producto", "fases_completadas": []}
    DESIGNED = {"nombre": "producto", "resultado": "aprobado", "artefactos": ["prd.md"], "completada_en": "2026-02-21"}

    def write(self, state: Any, *, path: str = ".claude/alfred-dev-state.json", **data: Any) -> None:
        content = state if isinstance(state, str) else json.dumps(state)
        tool = {"file_path": str(self.work / path), "content": content}
        self.hook("PostToolUse", tool_name="Write", tool_input=tool, tool_response={}, **data)

    def iterations(self) -> list[tuple[str, str, list[str], str]]:
        rows = Iteration.objects.order_by("id")
        return [(row.command, row.phase, list(row.phases_completed), row.status) for row in rows]

    def test_a_write_begins_an_iteration_and_the_next_ones_advance_and_end_it(self):
        self.write(self.FIRST)
        self.assertEqual(self.iterations(), [("feature", "producto", [], "active")])
        second = {**self.FIRST, "fase_actual": "desarrollo", "fases_completadas": [self.DESIGNED, "arquitectura"]}
        for _ in range(2):
            self.write(second)
        self.assertEqual(self.iterations(), [("feature", "desarrollo", ["producto", "arquitectura"], "active")])
        iteration = Iteration.objects.get()
        self.assertEqual((iteration.description, iteration.artifacts), ("Push notices", ["prd.md"]))
        self.assertEqual(
            (iteration.session_id, RawEvent.objects.get(position=iteration.id).actor), ("s1", "claude-code")
        )
        done = {
            **second,
            "fase_actual": "completado",
            "fases_completadas": [self.DESIGNED, "arquitectura", "desarrollo"],
        }
        for _ in range(2):
            self.write(done)
        phases = ["producto", "arquitectura", "desarrollo"]
        self.assertEqual(self.iterations(), [("feature", "", phases, "completed")])
        self.assertEqual(self.types().count("iteration.advanced"), 4)
        self.assert_sound()

    def test_half_of_a_surrogate_pair_in_the_file_loses_no_event(self):
        with self.assertLogs("sessions_app.services.work", "WARNING"):
            self.write('{"comando": "feature", "descripcion": "\\ud800", "fase_actual": "producto"}')
        self.assertEqual(self.iterations(), [])
        self.assertIn("file.edited", self.types())

    def test_other_work_in_the_file_begins_another_iteration(self):
        self.write(self.FIRST)
        self.write({**self.FIRST, "comando": "fix", "fase_actual": "diagnóstico"})
        self.write({**self.FIRST, "comando": "fix", "fase_actual": "arreglo", "fases_completadas": ["diagnóstico"]})
        self.write({**self.FIRST, "comando": "fix", "fase_actual": "diagnóstico"})
        self.assertEqual(
            [(row[0], row[3]) for row in self.iterations()],
            [("feature", "abandoned"), ("fix", "abandoned"), ("fix", "active")],
        )

    def test_an_edit_of_a_part_is_read_from_the_file(self):
        path = self.work / ".claude/alfred-dev-state.json"
        path.parent.mkdir()
        path.write_text(json.dumps(self.FIRST))
        tool = {"file_path": ".claude/alfred-dev-state.json", "old_string": "a", "new_string": "b"}
        self.hook("PostToolUse", tool_name="Edit", tool_input=tool)
        self.assertEqual(self.iterations(), [("feature", "producto", [], "active")])
        path.unlink()
        os.mkfifo(path)
        self.hook("PostToolUse", tool_name="Edit", tool_input=tool)
        self.assertEqual((len(self.iterations()), self.types().count("file.edited")), (1, 2))

    def test_odd_files_and_those_of_other_folders_change_nothing_but_are_captured(self):
        odd = (
            "",
            "{",
            "[]",
            "[" * 100_000,
            "7",
            "null",
            '{"comando": 1, "fase_actual": ["x"]}',
            '{"comando": "feature"}',
        )
        with self.assertLogs("sessions_app.services.work", "WARNING") as logs:
            for content in odd[1:]:
                self.write(content)
            self.write(self.FIRST, path="../other/alfred-dev-state.json")
        self.write(self.FIRST, path="my-alfred-dev-state.json")
        self.assertEqual((self.iterations(), self.types().count("file.edited")), ([], len(odd) + 1))
        self.assertEqual(len(logs.output), len(odd))

    def test_a_write_on_another_machine_is_followed_from_what_was_written(self):
        tool = {"file_path": "/home/ann/app/.claude/alfred-dev-state.json", "content": json.dumps(self.FIRST)}
        data = {"session_id": "s9", "cwd": "/home/ann/app", "tool_name": "Write", "tool_input": tool}
        with use_origin(source="rest", actor="token:ann/laptop"):
            take_delivery(client="claude-code", event="PostToolUse", command=HookDelivery(data=data))
        self.assertEqual(self.iterations(), [("feature", "producto", [], "active")])

    def test_long_texts_and_secrets_are_kept_out(self):
        secret = TOKENS["npm-token"]
        phases = [{"nombre": "p" * 900, "artefactos": ["a" * 9_000, 7, secret]}, {"x": 1}, None, *map(str, range(900))]
        self.write(
            {
                "comando": "c" * 900 + "\n#1",
                "descripcion": f"Use {secret}",
                "fase_actual": "x\ny",
                "fases_completadas": phases,
            }
        )
        [(command, _, completed, _)] = self.iterations()
        self.assertEqual((len(command), len(completed[0]), len(completed)), (64, 64, 48))
        texts = json.dumps(list(RawEvent.objects.values_list("payload_json", flat=True)))
        self.assertNotIn(secret, texts)
