"""Hook data is parsed by the clients' tables, whatever it contains."""

from __future__ import annotations

import random
from typing import Any

from django.test import SimpleTestCase

from memoryhub.client.hook.front import declared
from memoryhub.config.clients import Effect, hook_clients
from memoryhub.core.errors import Invalid, NotFound
from sessions_app.events.client import client_events
from sessions_app.hook_parser import parse_hook

COMMON = {"session_id": "s1", "cwd": "/work/alpha"}


def parsed(event: str, client: str = "claude-code", **data: Any) -> dict[str, Any]:
    found = parse_hook(client=client, event=event, data={**COMMON, **data})
    return {"type": found.type, **found.payload}


def run(**response: Any) -> dict[str, Any]:
    return parsed("PostToolUse", tool_name="Bash", tool_input={"command": "make"}, tool_response=response)


class ClaudeCodeTests(SimpleTestCase):
    def test_a_command_has_its_output_errors_and_exit_code(self):
        event = run(stdout="built", stderr="warned", exitCode=2)
        self.assertEqual(
            event,
            {
                "type": "command.run",
                "command": "make",
                "output": "built\nwarned",
                "exit_code": 2,
                "directory": "/work/alpha",
            },
        )

    def test_a_command_that_failed_has_the_exit_code_that_the_error_names(self):
        for error, code in [
            ("Exit code 1\nno rule", 1),
            ("Command exited with non-zero status code 127", 127),
            ("exit status: 3", 3),
            ("interrupted", None),
        ]:
            event = parsed("PostToolUseFailure", tool_name="Bash", tool_input={"command": "make"}, error=error)
            self.assertEqual((event["type"], event["output"], event.get("exit_code")), ("command.run", error, code))

    def test_an_edit_becomes_a_diff(self):
        given = {"file_path": "a.py", "edits": [{"old_string": "a\nb", "new_string": "c"}, {"new_string": "d"}]}
        event = parsed("PostToolUse", tool_name="MultiEdit", tool_input=given)
        self.assertEqual(
            event, {"type": "file.edited", "path": "a.py", "change": "- a\n- b\n+ c\n+ d", "tool": "MultiEdit"}
        )

    def test_other_tools_are_recorded_with_input_and_output(self):
        event = parsed(
            "PostToolUse", tool_name="Grep", tool_input={"pattern": "x"}, tool_response=["a"], tool_use_id="t"
        )
        expected = {"tool": "Grep", "input": {"pattern": "x"}, "output": ["a"], "call_id": "t", "is_error": False}
        self.assertEqual(event, {"type": "message.tool", **expected})
        failed = parsed("PostToolUseFailure", tool_name="Grep", tool_input={}, error="no such folder")
        self.assertEqual((failed["output"], failed["is_error"]), ("no such folder", True))

    def test_long_texts_are_cut_with_a_note(self):
        event = run(stdout="x" * 1_000_000, stderr="the end")
        self.assertEqual(len(event["output"]), 8_000)
        self.assertTrue(event["output"].endswith("the end"))
        self.assertIn("characters left out", event["output"])
        deep: Any = "x"
        for _ in range(500):
            deep = [deep, {"y" * 3_000: deep}] if len(str(deep)) < 5_000 else [deep]
        event = parsed(
            "PostToolUse", tool_name="Odd", tool_input=deep, tool_response={str(n): "z" * 99 for n in range(999)}
        )
        self.assertLess(len(str(event)), 20_000)

    def test_events_without_content_are_empty(self):
        self.assertEqual(parsed("UserPromptSubmit"), {"type": "message.user"})
        self.assertEqual(parsed("PostToolUse", tool_name="Edit", tool_input={}), {"type": "file.edited"})
        self.assertEqual(parsed("PostToolUse"), {"type": "message.tool"})

    def test_a_session_without_a_name_is_refused(self):
        odd: list[Any] = [None, "", "  ", {}, 7]
        for session in odd:
            with self.assertRaisesRegex(Invalid, "session_id"):
                parse_hook(client="claude-code", event="Stop", data={"session_id": session})

    def test_unknown_names_are_refused_with_the_known_ones(self):
        with self.assertRaises(NotFound) as caught:
            parse_hook(client="emacs", event="Stop", data=COMMON)
        self.assertEqual(caught.exception.data["known"], list(hook_clients()))
        with self.assertRaisesRegex(NotFound, "UserPromptSubmit"):
            parse_hook(client="claude-code", event="stop", data=COMMON)


class GeminiCliTests(SimpleTestCase):
    def test_prompts_and_answers_become_messages(self):
        prompt = parsed("BeforeAgent", "gemini-cli", prompt="Why?")
        self.assertEqual(prompt, {"type": "message.user", "content": "Why?"})
        answer = parsed("AfterAgent", "gemini-cli", prompt="Why?", prompt_response="Because.")
        self.assertEqual(answer, {"type": "message.assistant", "content": "Because."})

    def test_its_tools_are_commands_and_edits(self):
        response = {"llmContent": "Command: make\nOutput: no\nExit Code: 2", "returnDisplay": "no"}
        event = parsed(
            "AfterTool",
            "gemini-cli",
            tool_name="run_shell_command",
            tool_input={"command": "make"},
            tool_response=response,
        )
        self.assertEqual((event["type"], event["exit_code"]), ("command.run", 2))
        given = {"file_path": "a", "old_string": "x", "new_string": "y"}
        event = parsed("AfterTool", "gemini-cli", tool_name="replace", tool_input=given, tool_response={})
        self.assertEqual((event["type"], event["change"]), ("file.edited", "- x\n+ y"))
        event = parsed(
            "AfterTool",
            "gemini-cli",
            tool_name="read_file",
            tool_input={},
            tool_response={"llmContent": [{"text": "a"}]},
        )
        self.assertEqual((event["type"], event["output"]), ("message.tool", [{"text": "a"}]))


class OtherClientsTests(SimpleTestCase):
    def test_a_sub_agents_tools_are_recorded_with_its_id_and_nothing_else(self):
        tool = {"tool_name": "Bash", "tool_input": {"command": "make"}, "agent_id": "a1"}
        event = parsed("PostToolUse", "codex", **tool)
        self.assertEqual((event["type"], event["agent_id"]), ("command.run", "a1"))
        for name in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"):
            found = parse_hook(client="codex", event=name, data={**COMMON, "agent_id": "a1", "prompt": "x"})
            self.assertEqual((found.effect, found.payload, found.answers), (Effect.NOTHING, {}, False))

    def test_another_client_that_runs_claude_codes_hooks_is_not_recorded_twice(self):
        transcript = "/x/workspaceStorage/1f/GitHub.copilot-chat/transcripts/s1.jsonl"
        for foreign in ({"cursor_version": "3.7.21"}, {"transcript_path": transcript}):
            data = {**COMMON, "prompt": "x", **foreign}
            found = parse_hook(client="claude-code", event="UserPromptSubmit", data=data)
            self.assertEqual((found.effect, found.payload), (Effect.NOTHING, {}))

    def test_a_folder_that_is_named_like_another_client_is_recorded(self):
        transcript = "/home/ada/.claude/projects/-home-ada-vscode-copilot-chat/s1.jsonl"
        data = {**COMMON, "prompt": "x", "transcript_path": transcript}
        self.assertEqual(
            parse_hook(client="claude-code", event="UserPromptSubmit", data=data).payload, {"content": "x"}
        )

    def test_a_transcript_path_that_no_file_can_have_is_ignored(self):
        found = parse_hook(client="claude-code", event="Stop", data={**COMMON, "transcript_path": "/a\0b.jsonl"})
        self.assertEqual((found.effect, found.payload), (Effect.STOP, {}))

    def test_a_patch_names_its_first_file(self):
        patch = "*** Begin Patch\n*** Update File: a/b c.py\n@@\n-x\n+y\n*** Add File: d.py\n+z\n*** End Patch\n"
        event = parsed("PostToolUse", "codex", tool_name="apply_patch", tool_input={"command": patch})
        self.assertEqual((event["type"], event["path"], event["change"]), ("file.edited", "a/b c.py", patch))
        odd = parsed("PostToolUse", "codex", tool_name="apply_patch", tool_input={"command": "no patch"})
        self.assertEqual(odd, {"type": "file.edited"})

    def test_a_client_that_takes_no_context_at_prompts_gets_none(self):
        data = {"conversation_id": "s1", "prompt": "x"}
        self.assertFalse(parse_hook(client="cursor", event="beforeSubmitPrompt", data=data).answers)


class TablesTests(SimpleTestCase):
    def test_any_hook_data_fits_the_events_schema(self):
        chance = random.Random(3)
        odd: list[Any] = [
            None,
            "",
            "text",
            "é" * 300_000,
            0,
            -1,
            2.5,
            True,
            [],
            {},
            ["a", None, {"text": 1}],
            {"a": {"b": [1]}},
        ]
        names = "prompt tool_name tool_input tool_response error trigger cwd reason last_assistant_message".split()
        tools = ["Bash", "Edit", "MultiEdit", "Write", "replace", "run_shell_command"]
        inner = "command file_path old_string new_string edits content stdout stderr exit_code llmContent".split()
        for _ in range(2_000):
            client, table = chance.choice(list(hook_clients().items()))
            data: dict[str, Any] = {name: chance.choice(odd) for name in names}
            data["tool_name"] = chance.choice([*tools, data["tool_name"]])
            for name in ("tool_input", "tool_response"):
                if chance.random() < 0.7:
                    data[name] = {key: chance.choice(odd) for key in inner}
            found = parse_hook(
                client=client, event=chance.choice([*table.events, *table.ignored]), data={**data, table.session: "s1"}
            )
            if found.payload:
                client_events()[found.type].schema.model_validate(found.payload)

    def test_each_client_can_start_ask_act_stop_and_end(self):
        for name, table in hook_clients().items():
            effects = {hook.effect for hook in table.events.values()}
            unneeded = {Effect.APPEND, Effect.NOTHING, *([Effect.END] if name == "vscode" else [])}
            self.assertLessEqual(set(Effect) - unneeded, effects, name)

    def test_the_hook_process_reads_the_effect_that_the_table_declares(self):
        for name, table in hook_clients().items():
            for event, hook in table.events.items():
                answers = hook.takes_context and hook.effect in ("start", "prompt")
                self.assertEqual(declared(name, event), (hook.effect, answers), f"{name} {event}: not the first line")
            self.assertEqual(declared(name, "Other"), ("", False))
