"""No secret in hook data is in any file of the home, with and without a running hub."""

from __future__ import annotations

from typing import Any

from tests.home import contents
from tests.hook.client import HookTestCase, replayed, run_hook, wait_for_spooled
from tests.secrets_made import SECRETS, TEXTS
from tests.web.server import poll, serving, temporary_home


class SecretsTests(HookTestCase):
    def setUp(self):
        super().setUp()
        self.home = self.enterContext(temporary_home())

    def send_all(self) -> int:
        """Send each secret in a prompt, a command, its output, an edit and an unknown tool's input."""
        everything = "\n".join(TEXTS.values())
        events: list[tuple[str, dict[str, Any]]] = [
            ("UserPromptSubmit", {"prompt": everything}),
            ("PostToolUse", _tool("Bash", {"command": everything}, {"stdout": everything, "stderr": everything})),
            ("PostToolUse", _tool("Write", {"file_path": "a.env", "content": everything}, {})),
            ("PostToolUse", _tool("mcp__db__connect", {"password": SECRETS["password"][0], **TEXTS}, [TEXTS])),
            ("Stop", {"last_assistant_message": everything}),
            ("SessionEnd", {"reason": "other"}),
        ]
        for event, fields in events:
            done = run_hook(self.home, event, self.hook_data(**fields))
            self.assert_harmless(done)
        return len(events)

    def assert_nowhere(self) -> None:
        files = contents(self.home)
        self.assertGreater(len(files), 2)
        for name, (secret, _) in SECRETS.items():
            found = [path.name for path, content in files.items() if secret.encode() in content]
            self.assertEqual(found, [], name)

    def test_with_a_hub(self):
        with serving("--no-worker", home=self.home):
            self.send_all()
            self.assert_nowhere()
            self.assertEqual(len({event["event_type"] for event in replayed(self.home, "alpha")}), 9)

    def test_without_a_hub_and_after_it_has_drained_the_spool(self):
        count = self.send_all()
        wait_for_spooled(self.home, count - 1)  # the prompt is captured at once
        self.assert_nowhere()
        with serving("--no-worker", home=self.home):
            poll(lambda: not list((self.home / "spool").glob("*.jsonl*")), what="an empty spool")
            self.assert_nowhere()
            self.assertEqual(len({event["event_type"] for event in replayed(self.home, "alpha")}), 9)


def _tool(name: str, given: Any, response: Any) -> dict[str, Any]:
    return {"tool_name": name, "tool_input": given, "tool_response": response}
