"""Recorded inputs of each client, through the real hook process and a real hub.

``recorded/codex.jsonl`` is what Codex 0.169.0 wrote, and ``opencode.jsonl`` what the plugin wrote in OpenCode 1.18.33.
``cursor.jsonl`` and ``vscode.jsonl`` have the fields of the clients' documents.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memoryhub.config.clients import hook_clients
from tests.hook.client import HookTestCase, Repository, replayed, run_hook
from tests.web.server import serving, temporary_home

RECORDED = Path(__file__).with_name("recorded")
START, END = "session.started turn.began message.user", "message.assistant turn.ended session.ended"
EXPECTED = {
    "codex": f"{START} command.run file.edited command.run file.edited {END} "
    f"{START} message.tool command.run message.tool {END}",
    "cursor": f"{START} message.tool file.edited command.run command.run context.compacted {END}",
    "opencode": f"{START} command.run file.edited file.edited command.run message.tool {END} "
    f"{START} command.run message.tool {END}",
    "vscode": f"{START} message.tool file.edited file.edited command.run command.run context.compacted turn.ended",
}
EXIT_CODES = {"codex": [None, None, None], "cursor": [0, 3], "opencode": [0, 3, 0], "vscode": [None, 3]}


def recorded(client: str, folder: Path) -> list[tuple[str, dict[str, Any]]]:
    text = (RECORDED / f"{client}.jsonl").read_text().replace("{folder}", str(folder))
    return [(line["event"], line["input"]) for line in map(json.loads, text.splitlines())]


class RecordedClientsTests(HookTestCase):
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
        edited = [payload for payload in payloads if "change" in payload]
        self.assertEqual({Path(payload["path"]).suffix for payload in edited}, {".py"})
        self.assertIn("return", edited[-1]["change"])
        runs = [event["payload"] for event in events if event["event_type"] == "command.run"]
        self.assertIn("echo built", runs[0]["command"])
        self.assertEqual(set(runs[0]["output"].split()), {"built", "warned"})
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
