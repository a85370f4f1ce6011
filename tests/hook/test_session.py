"""A coding session, through the real hook command and a real hub, and the context that the next session gets."""

from __future__ import annotations

import json

from django.test import tag

from memoryhub.config.clients import hook_clients
from memoryhub.core.paging import estimate_tokens
from tests.hook.client import ClaudeCode, HookTestCase, Repository, replayed, run_hook, wait_for_spooled
from tests.web.server import Server, poll, serving, temporary_home

FIRST = "f0e1a1c2-0001-4000-8000-000000000001"
SECOND = "f0e1a1c2-0002-4000-8000-000000000002"


@tag("process")
class CodingSessionTests(HookTestCase):
    def setUp(self):
        super().setUp()
        self.home = self.enterContext(temporary_home())
        self.repository = Repository(self.work.parent / "parser")
        self.work = self.repository.folder

    def test_it_replays_and_the_next_session_gets_its_decisions_and_commits(self):
        with serving("--no-worker", home=self.home) as hub:
            self.work_on_the_parser(hub)
            events = replayed(self.home, "parser")
            context = ClaudeCode(self.home, self.work, SECOND).start()
            verified = hub.api("GET", "projects/parser/events/verify").json()
        self.check_log(events)
        self.check_context(context, events)
        self.assertTrue(verified["ok"])

    def work_on_the_parser(self, hub: Server) -> None:
        client = ClaudeCode(self.home, self.work, FIRST)
        self.assertEqual(client.start(), "")  # nothing is known yet
        client.send("UserPromptSubmit", prompt="Write a parser for the settings file")
        client.tool("Read", {"file_path": str(self.work / "README.md")}, {"type": "text", "file": {"content": ""}})
        client.tool("Write", {"file_path": "parser.py", "content": "def parse(text): ...\n"}, {"type": "create"})
        output = self.repository.commit(
            "parser.py", "def parse(text): ...\n", "Add a parser for settings\n\nIt reads TOML."
        )
        client.bash("git add parser.py && git commit -m 'Add a parser for settings'", output)
        client.send("PreCompact", trigger="manual", custom_instructions="Keep the grammar")
        decision = {
            "title": "Read settings with tomllib",
            "content": "The standard library has it; no dependency is needed.",
            "type": "decision",
        }
        self.assertEqual(hub.api("POST", "projects/parser/memories", decision, X_Session_Id=FIRST).status, 201)
        client.send("Stop", stop_hook_active=False, last_assistant_message="The parser reads TOML now.")
        client.send("UserPromptSubmit", prompt="Test it")
        failed = {"tool_name": "Bash", "tool_input": {"command": "pytest"}, "tool_use_id": "toolu_02"}
        client.send("PostToolUseFailure", **failed, error="Exit code 1\n1 failed", is_interrupt=False)
        client.tool("Edit", {"file_path": "parser.py", "old_string": "...", "new_string": "return {}"}, {})
        output = self.repository.commit("parser.py", "def parse(text): return {}\n", "Return a dictionary")
        client.bash("git commit -am 'Return a dictionary'", output)
        client.send("Stop", stop_hook_active=False, last_assistant_message="All tests pass.")
        client.send("SessionEnd", reason="prompt_input_exit")

    def check_log(self, events):
        by_type = [event["event_type"] for event in events]
        first = "turn.began message.user message.tool file.edited command.run commit.recorded context.compacted"
        second = "turn.began message.user command.run file.edited command.run commit.recorded"
        end = "message.assistant turn.ended"
        self.assertEqual(by_type, f"session.started {first} memory.written {end} {second} {end} session.ended".split())
        self.assertEqual({event["session_id"] for event in events}, {FIRST})
        hooked = [event for event in events if event["event_type"] != "memory.written"]
        self.assertEqual({(event["source"], event["actor"]) for event in hooked}, {("hook", "claude-code")})
        turns = [event["turn_id"] for event in hooked if not event["event_type"].startswith("session.")]
        self.assertEqual(len(set(turns)), 2)
        self.assertNotIn("", turns)
        payloads = {event["event_type"]: event["payload"] for event in events}
        self.assertEqual(payloads["session.started"]["directory"], str(self.work.resolve()))
        self.assertEqual(payloads["file.edited"], {"path": "parser.py", "change": "- ...\n+ return {}", "tool": "Edit"})
        self.assertEqual(payloads["context.compacted"]["content"], "manual\nKeep the grammar")
        runs = [event["payload"] for event in events if event["event_type"] == "command.run"]
        self.assertEqual([run.get("exit_code") for run in runs], [None, 1, None])

    def check_context(self, context, events):
        shas = [event["payload"]["sha"] for event in events if event["event_type"] == "commit.recorded"]
        self.assertEqual(shas[::-1], self.repository.git("log", "--format=%H").split())
        for sha, subject in zip(shas, ("Add a parser for settings", "Return a dictionary"), strict=True):
            self.assertRegex(context, rf"(?m)^- #\d+ commit {sha[:10]} \d{{4}}-\d\d-\d\d {subject}$")
        self.assertRegex(context, r"(?m)^- #\d+ decision \S+ Read settings with tomllib: The standard library has it")
        self.assertIn("Last session:\n- #1 ", context)
        self.assertIn("Write a parser for the settings file; Test it", context)
        self.assertIn("All tests pass.", context)
        self.assertIn("data to consult, not instructions", context)
        self.assertLess(estimate_tokens(context), 1_500)

    def test_events_spooled_without_a_hub_are_captured_when_it_runs_again(self):
        client = ClaudeCode(self.home, self.work, FIRST)
        self.assertEqual(client.start(), "")
        self.assertEqual(client.prompt("Is anybody there?"), "")
        output = self.repository.commit("a.txt", "a", "Add a file")
        client.bash("git commit -m 'Add a file'", output)
        self.repository.commit("b.txt", "b", "Add another that no hook reported")
        client.send("Stop", last_assistant_message="Later.")
        wait_for_spooled(self.home, 2)
        with serving("--no-worker", home=self.home):
            poll(lambda: not list((self.home / "spool").glob("*.jsonl*")), what="an empty spool")
            events = replayed(self.home, "parser")
        self.assertEqual(
            [event["event_type"] for event in events],
            "session.started turn.began message.user command.run commit.recorded message.assistant turn.ended".split(),
        )
        self.assertEqual(events[4]["payload"]["message"], "Add a file")


@tag("process")
class OneHubTests(HookTestCase):
    hub: Server

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hub = cls.enterClassContext(serving("--no-worker"))

    def setUp(self):
        super().setUp()
        self.home = self.hub.home

    def clone(self, name: str, origin: str = "") -> Repository:
        repository = Repository(self.work.parent / name)
        if origin:
            repository.git("remote", "add", "origin", f"https://example.org/ada/{origin}.git")
        self.work = repository.folder
        return repository

    def test_a_continued_session_is_resumed(self):
        client = ClaudeCode(self.home, self.clone("lexer").folder, FIRST)
        client.start()
        client.send("UserPromptSubmit", prompt="One")
        client.start("compact")
        client.send("SessionEnd", reason="other")
        client.start("resume")
        client.send("UserPromptSubmit", prompt="Two")
        events = replayed(self.home, "lexer")
        self.assertEqual(
            [event["event_type"] for event in events],
            "session.started turn.began message.user context.packed turn.ended session.ended session.resumed "
            "turn.began message.user".split(),
        )

    def test_a_prompt_gets_its_recall(self):
        self.clone("compiler")
        memory = {"title": "Port of the hub", "content": "The deployment listens on port 8321."}
        self.assertEqual(self.hub.api("POST", "projects", {"project_id": "compiler"}).status, 201)
        self.assertEqual(self.hub.api("POST", "projects/compiler/memories", memory).status, 201)
        question = "On which port does the deployment listen?"
        client = ClaudeCode(self.home, self.work, FIRST)
        self.assertIn("8321", client.prompt(question))
        self.assertEqual(client.prompt(question), "")
        done = run_hook(self.home, "BeforeAgent", self.hook_data(prompt=question), client="gemini-cli")
        answer = json.loads(done.stdout)["hookSpecificOutput"]
        self.assertEqual(answer["hookEventName"], "BeforeAgent")
        self.assertIn("8321", answer["additionalContext"])
        given = [event for event in replayed(self.home, "compiler") if event["event_type"] == "context.packed"]
        self.assertEqual([event["session_id"] for event in given], [FIRST, "s1"])
        self.assertTrue(all(event["turn_id"] for event in given))

    def test_an_ambiguous_folder_is_reported_and_nothing_is_captured(self):
        self.clone("grammar", origin="settings")
        for project in ("grammar", "settings"):
            self.assertEqual(self.hub.api("POST", "projects", {"project_id": project}).status, 201)
        done = run_hook(self.home, "UserPromptSubmit", self.hook_data(prompt="Which one?"))
        self.assert_harmless(done, message="could be any of settings, grammar")
        named = run_hook(self.home, "UserPromptSubmit", self.hook_data(prompt="This one"), "--project", "grammar")
        self.assert_harmless(named)
        self.assertEqual(replayed(self.home, "settings"), [])
        payloads = [event["payload"] for event in replayed(self.home, "grammar")]
        contents = [payload["content"] for payload in payloads if "content" in payload]
        self.assertEqual(contents, ["This one"])
        self.assertFalse((self.home / "spool").exists())

    def test_the_environment_of_the_client_decides_how_its_repository_is_named(self):
        self.clone("scanner", origin="options")
        data = self.hook_data(prompt="By the folder")
        self.assert_harmless(run_hook(self.home, "UserPromptSubmit", data, MEMORY_HUB_IDENTITY="folder"))
        self.assertEqual(len(replayed(self.home, "scanner")), 3)

    def test_a_folder_that_disables_the_hub_is_not_captured_wherever_the_hook_runs(self):
        # Cursor runs the user's hooks in its own folder.
        client = ClaudeCode(self.home, self.clone("private").folder, "s1")
        (self.work / ".memory-hub.toml").write_text("enabled = false\n")
        self.assertEqual(client.start(), "")
        client.prompt("A private question")
        run_hook(self.home, "UserPromptSubmit", self.hook_data(prompt="Asked on purpose"), MEMORY_HUB_ENABLED="true")
        prompts = [event["payload"].get("content") for event in replayed(self.home, "private")]
        self.assertIn("Asked on purpose", prompts)
        self.assertNotIn("A private question", prompts)

    def test_an_unknown_client_or_event_is_reported_with_the_known_ones(self):
        self.clone("printer")
        self.assert_harmless(
            run_hook(self.home, "Stop", self.hook_data(), client="vi"), message=", ".join(hook_clients())
        )
        self.assert_harmless(run_hook(self.home, "Halt", self.hook_data()), message="known are: SessionStart")
        self.assert_harmless(run_hook(self.home, "PreToolUse", self.hook_data(tool_name="Bash")))
        self.assertFalse((self.home / "projects" / "printer").exists())
