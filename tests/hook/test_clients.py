"""Recorded inputs of each client, through the real hook process and a real hub.

Claude Code 2.1.197, Codex 0.169.0 and Gemini CLI 0.61.0 wrote theirs, and the plugin wrote those of OpenCode 1.18.33.
``cursor.jsonl`` and ``vscode.jsonl`` have the fields of the clients' documents.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import tag

from memoryhub.client.setup import entries
from memoryhub.client.setup.document import read_document
from memoryhub.config.clients import find_client, hook_clients
from memoryhub.config.hook_table import HookEffect, HookTable
from sessions_app.hook_parser import answer_for_client
from tests.hook.client import HookTestCase, Repository, replayed, run_hook
from tests.programs import needs
from tests.web.server import serving, temporary_home

RECORDED = Path(__file__).with_name("recorded")
START, END = "session.started turn.began message.user", "message.assistant turn.ended session.ended"
EXPECTED = {
    "claude-code": f"{START} file.edited file.edited command.run command.run command.run message.tool {END}",
    "codex": f"{START} command.run file.edited command.run file.edited {END} "
    f"{START} message.tool command.run message.tool {END}",
    "cursor": f"{START} message.tool file.edited command.run command.run context.compacted {END}",
    "gemini-cli": f"{START} file.edited file.edited command.run command.run message.tool {END}",
    "opencode": f"{START} command.run file.edited file.edited command.run message.tool {END} "
    f"{START} command.run message.tool {END}",
    "vscode": f"{START} message.tool file.edited file.edited command.run command.run context.compacted turn.ended",
}
EXIT_CODES = {
    "claude-code": [None, 3, None],
    "codex": [None, None, None],
    "cursor": [0, 3],
    "gemini-cli": [None, 3],
    "opencode": [0, 3, 0],
    "vscode": [None, 3],
}


def recorded(client: str, folder: Path) -> list[tuple[str, dict[str, Any]]]:
    text = (RECORDED / f"{client}.jsonl").read_text().replace("{folder}", str(folder))
    return [(line["event"], line["input"]) for line in map(json.loads, text.splitlines())]


class RecordedClientsTests(HookTestCase):
    def test_the_path_of_the_folder_is_found_without_parsing_the_table(self):
        for client, hooks in hook_clients().items():
            self.assertEqual(HookTable(client).value("directory", "cwd"), hooks.directory)
        self.assertEqual(HookTable("unknown").value("directory", "cwd"), "cwd")

    def test_an_answer_before_an_action_has_context_and_no_decision(self) -> None:
        for client, hooks in hook_clients().items():
            for event, hook in hooks.events.items():
                if hook.effect is HookEffect.ACTION:
                    context = {"hookEventName": event, "additionalContext": "Note"}
                    self.assertEqual(answer_for_client(client, event, "Note"), {"hookSpecificOutput": context}, client)

    @tag("process")
    def test_what_each_client_reports_is_recorded(self) -> None:
        home = self.enterContext(temporary_home())
        with serving("--no-worker", home=home):
            for client, wanted in EXPECTED.items():
                with self.subTest(client=client):
                    folder = Repository(self.work.parent / client).folder
                    for event, data in recorded(client, folder):
                        self.printed(home, client, event, data)
                    events = [event for event in replayed(home, client) if event["event_type"] != "context.packed"]
                    self.assertEqual([event["event_type"] for event in events], wanted.split())
                    self.check(client, folder, events)
                    self.check_answer(home, client, folder)

    def printed(self, home: Path, client: str, event: str, data: dict[str, Any]) -> bytes:
        done = run_hook(home, event, data, client=client)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout

    def check(self, client: str, folder: Path, events: list[dict[str, Any]]) -> None:
        sessions = {data[hook_clients()[client].session] for _, data in recorded(client, folder)}
        self.assertEqual({event["session_id"] for event in events}, sessions)
        payloads = [event["payload"] for event in events]
        prompts = [event["payload"]["content"] for event in events if event["event_type"] == "message.user"]
        self.assertRegex(prompts[0], r"^.?Write a (parser|lexer).?$")
        edited = [payload for payload in payloads if "change" in payload]
        self.assertEqual({Path(payload["path"]).suffix for payload in edited}, {".py"})
        self.assertIn("return", edited[-1]["change"])
        runs = [event["payload"] for event in events if event["event_type"] == "command.run"]
        self.assertIn("echo built", runs[0]["command"])
        self.assertLessEqual({"built", "warned"}, set(runs[0]["output"].split()))
        self.assertEqual([run.get("exit_code") for run in runs], EXIT_CODES[client])
        agents = {payload.get("agent_id") for payload in payloads} - {None}
        self.assertEqual(agents, {data["agent_id"] for _, data in recorded(client, folder) if "agent_id" in data})

    def check_answer(self, home: Path, client: str, folder: Path) -> None:
        event, data = recorded(client, folder)[0]
        printed = self.printed(home, client, event, {**data, hook_clients()[client].session: "another"})
        answer = json.loads(printed)
        if client == "cursor":
            answer = {"hookSpecificOutput": {"hookEventName": event, "additionalContext": answer["additional_context"]}}
        self.assertEqual(answer["hookSpecificOutput"]["hookEventName"], event)
        self.assertIn("Write a", answer["hookSpecificOutput"]["additionalContext"])


# Stands for `memory-hub`: keeps the event and its input, and answers each prompt.
_HOOK = """
import json, sys
event, data = sys.argv[4], json.load(sys.stdin)
open(sys.argv[1], "a").write(json.dumps([event, data]) + "\\n")
is_first = open(sys.argv[1]).read().count("session.created") == 1
opening = "" if is_first else "Opening"
answers = {"chat.message": "Known: " + data.get("prompt", ""), "session.created": opening}
answers["tool.execute.before"] = "Note"
if answers.get(event):
    print(json.dumps({"hookSpecificOutput": {"additionalContext": answers[event]}}))
"""
_OPENCODE = """
const { MemoryHub } = await import(process.argv[1])
const hooks = await MemoryHub({ directory: "/work/alpha" })
const event = (type, properties) => hooks.event({ event: { type, properties } })
const created = (id, parentID) => event("session.created", { sessionID: id, info: { id, parentID } })
const parts = [{ id: "prt_1", type: "text", text: "Write" }, { id: "prt_2", type: "file" }]
await created("ses_1")
await hooks["chat.message"]({ sessionID: "ses_1" }, { message: { id: "msg_1" }, parts })
await created("ses_2", "ses_1")
await created("ses_3", "ses_2")
await hooks["chat.message"]({ sessionID: "ses_3" }, { message: { id: "msg_2" }, parts: [] })
const call = { tool: "bash", sessionID: "ses_3", callID: "c", args: {} }
await hooks["tool.execute.before"]({ ...call, tool: "read" }, { args: {} })
await hooks["tool.execute.before"](call, { args: {} })
const result = { output: "x", metadata: { exit: 1 } }
await hooks["tool.execute.after"](call, result)
await hooks["experimental.text.complete"]({ sessionID: "ses_1" }, { text: "Done." })
const kept = { context: [] }
await hooks["experimental.session.compacting"]({ sessionID: "ses_3" }, kept)
await hooks["experimental.session.compacting"]({ sessionID: "ses_1" }, kept)
await event("session.compacted", { sessionID: "ses_1" })
await hooks["chat.message"]({ sessionID: "ses_1" }, { message: { id: "msg_4" }, parts: [] })
await event("session.idle", { sessionID: "ses_3" })
await event("session.idle", { sessionID: "ses_1" })
await event("server.connected", {})
await hooks.dispose()
console.log(JSON.stringify([...parts, result.output, kept]))
"""


@needs("node")
class OpenCodePluginTests(HookTestCase):
    def run_plugin(self, *command: str) -> list[Any]:
        client = find_client("opencode")
        assert client.hooks
        plugin = self.work / "memory-hub.mjs"
        with mock.patch.object(entries, "command_words", return_value=list(command)):
            document = entries.put_plugin(client, client.hooks, read_document(self.work / "memory-hub.js"))
        plugin.write_text(document.text)
        words = ["node", "--input-type=module", "-e", _OPENCODE, str(plugin)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(done.stderr, "")
        parts: list[Any] = json.loads(done.stdout)
        return parts

    def test_it_sends_each_event_in_order_and_adds_the_answer_to_the_prompt(self) -> None:
        hook, log = self.work / "hook.py", self.work / "log"
        hook.write_text(_HOOK)
        *parts, kept = self.run_plugin(sys.executable, str(hook), str(log))
        self.assertEqual(kept, {"context": ["Opening"]})
        added = {"id": "prt_10", "sessionID": "ses_1", "messageID": "msg_1", "type": "text", "synthetic": True}
        self.assertEqual(parts[2:], [{**added, "text": "Known: Write"}, "x\n\nNote"])
        own, sub_agent = {"session_id": "ses_1", "cwd": "/work/alpha"}, {"agent_id": "ses_3"}
        call = {"tool_name": "bash", "tool_use_id": "c", "tool_input": {}}
        response = {"tool_response": {"output": "x", "exit": 1}}
        self.assertEqual(
            [json.loads(line) for line in log.read_text().splitlines()],
            [
                ["session.created", own],
                ["chat.message", {**own, "prompt": "Write"}],
                ["tool.execute.before", {**own, **sub_agent, **call}],
                ["tool.execute.after", {**own, **sub_agent, **call, **response}],
                ["session.created", own],
                ["session.compacted", {**own, "trigger": "compacted"}],
                ["chat.message", {**own, "prompt": ""}],
                ["session.idle", {**own, "text": "Done."}],
                ["dispose", {**own, "reason": "exit"}],
            ],
        )

    def test_a_command_that_is_gone_harms_nothing(self) -> None:
        self.assertEqual(self.run_plugin("/gone/memory-hub")[2:], ["x", {"context": []}])
