"""A coding session, through the real hook command and a real hub, and the context that the next session gets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.test import tag

from memoryhub.config.clients import hook_clients
from memoryhub.core.paging import estimate_tokens
from memoryhub.core.session_places import FOLDER
from tests.home import contents
from tests.hook.client import ClaudeCode, HookTestCase, Repository, replayed, run_hook, wait_for_spooled
from tests.secrets_made import SECRETS, TEXTS
from tests.web.server import Server, poll, serving, temporary_home

FIRST = "f0e1a1c2-0001-4000-8000-000000000001"
SECOND = "f0e1a1c2-0002-4000-8000-000000000002"


@tag("process")
class WithoutHubTests(HookTestCase):
    def setUp(self):
        super().setUp()
        self.home = self.enterContext(temporary_home())

    @contextmanager
    def drained(self) -> Iterator[None]:
        with serving("--no-worker", home=self.home):
            poll(lambda: not list((self.home / "spool").glob("*.jsonl")), what="an empty spool")
            yield

    def test_events_spooled_without_a_hub_are_captured_when_it_runs_again(self):
        repository = Repository(self.work.parent / "parser")
        client = ClaudeCode(self.home, repository.folder, FIRST)
        self.assertEqual(client.start(), "")
        self.assertEqual(client.prompt("Is anybody there?"), "")
        output = repository.commit("a.txt", "a", "Add a file")
        client.bash("git commit -m 'Add a file'", output)
        repository.commit("b.txt", "b", "Add another that no hook reported")
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

    def test_no_secret_is_in_any_file_before_and_after_a_hub_has_drained_the_spool(self):
        count = send_secrets(self)
        wait_for_spooled(self.home, count - 1)  # the prompt is captured at once
        assert_no_secret(self)
        with serving("--no-worker", home=self.home):
            poll(lambda: not list((self.home / "spool").glob("*.jsonl*")), what="an empty spool")
            assert_no_secret(self)
            self.assertEqual(len({event["event_type"] for event in replayed(self.home, "alpha")}), 9)


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
        # Tests share the home and the names of sessions, which begin in another project in each of them
        shutil.rmtree(self.home / FOLDER, ignore_errors=True)

    def clone(self, name: str, origin: str = "") -> Repository:
        repository = Repository(self.work.parent / name)
        if origin:
            repository.git("remote", "add", "origin", f"https://example.org/ada/{origin}.git")
        self.work = repository.folder
        return repository

    def test_a_session_replays_and_the_next_one_gets_its_decisions_and_commits(self):
        repository = self.clone("parser")
        self.work_on_the_parser(repository)
        events = replayed(self.home, "parser")
        self.check_log(events)
        self.check_context(ClaudeCode(self.home, self.work, SECOND).start(), events, repository)
        self.assertTrue(self.hub.api("GET", "projects/parser/events/verify").json()["ok"])

    def test_a_command_and_an_edit_get_a_line_and_are_recorded_once_used(self) -> None:
        self.clone("notes")
        client = ClaudeCode(self.home, self.work, "s1")
        self.assertEqual(client.prompt("Install lodash"), "")
        rule = {"title": "Packages", "kind": "guideline", "content": "Use pnpm, not npm.", "tags": ["correction"]}
        self.assertEqual(self.hub.api("POST", "projects/notes/memories", rule).status, 201)
        line = client.before("Bash", {"command": "npm install lodash"})
        self.assertRegex(line, r"^Memory Hub note #\d+ \(data to consult, not instructions\): #\d+ Packages: Use pnpm")
        self.assertEqual(client.before("Bash", {"command": "npm install lodash"}), "")
        self.assertEqual(client.before("Read", {"file_path": "a.json"}), "")
        other = ClaudeCode(self.home, self.work, "s2")
        edit = {"file_path": str(self.work / "package.json"), "content": "npm run build"}
        self.assertIn("Packages: Use pnpm", other.before("Write", edit))
        by_type = [event["event_type"] for event in replayed(self.home, "notes")]
        self.assertNotIn("command.run", by_type)
        self.assertEqual(by_type.count("context.packed"), 2)

    def test_the_status_line_tells_what_the_session_was_given_and_what_waits(self) -> None:
        self.clone("status")
        client = ClaudeCode(self.home, self.work, "s3")
        self.assertEqual(client.status_line(), "")
        self.assertFalse((self.home / FOLDER).exists())  # where the session begins is not decided yet
        self.assertEqual(client.prompt("Install lodash"), "")
        rule = {"title": "Packages", "kind": "guideline", "content": "Use pnpm, not npm.", "tags": ["correction"]}
        self.assertEqual(self.hub.api("POST", "projects/status/memories", rule).status, 201)
        self.assertEqual(client.status_line(), "")
        self.assertIn("pnpm", client.before("Bash", {"command": "npm install lodash"}))
        self.assertEqual(client.status_line(), "1 note")
        before = len(replayed(self.home, "status"))
        self.assertEqual(client.status_line(), "1 note")
        self.assertEqual(len(replayed(self.home, "status")), before)

    def work_on_the_parser(self, repository: Repository) -> None:
        client = ClaudeCode(self.home, self.work, FIRST)
        self.assertEqual(client.start(), "")  # nothing is known yet
        client.send("UserPromptSubmit", prompt="Write a parser for the settings file")
        client.tool("Read", {"file_path": str(self.work / "README.md")}, {"type": "text", "file": {"content": ""}})
        client.tool("Write", {"file_path": "parser.py", "content": "def parse(text): ...\n"}, {"type": "create"})
        output = repository.commit("parser.py", "def parse(text): ...\n", "Add a parser for settings\n\nIt reads TOML.")
        client.bash("git add parser.py && git commit -m 'Add a parser for settings'", output)
        client.send("PreCompact", trigger="manual", custom_instructions="Keep the grammar")
        decision = {
            "title": "Read settings with tomllib",
            "content": "The standard library has it.",
            "type": "decision",
        }
        self.assertEqual(self.hub.api("POST", "projects/parser/memories", decision, X_Session_Id=FIRST).status, 201)
        client.send("Stop", stop_hook_active=False, last_assistant_message="The parser reads TOML now.")
        client.send("UserPromptSubmit", prompt="Test it")
        failed = {"tool_name": "Bash", "tool_input": {"command": "pytest"}, "tool_use_id": "toolu_02"}
        client.send("PostToolUseFailure", **failed, error="Exit code 1\n1 failed", is_interrupt=False)
        client.tool("Edit", {"file_path": "parser.py", "old_string": "...", "new_string": "return {}"}, {})
        output = repository.commit("parser.py", "def parse(text): return {}\n", "Return a dictionary")
        client.bash("git commit -am 'Return a dictionary'", output)
        client.send("Stop", stop_hook_active=False, last_assistant_message="All tests pass.")
        client.send("SessionEnd", reason="prompt_input_exit")

    def check_log(self, events: list[dict[str, Any]]):
        by_type = [event["event_type"] for event in events]
        first = "turn.began message.user message.tool file.edited command.run commit.recorded context.compacted"
        second = "turn.began message.user context.packed command.run file.edited command.run commit.recorded"
        end = "message.assistant turn.ended"
        # Its client reported the compaction, and started no session after it: the next prompt is answered with the pack
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

    def check_context(self, context: str, events: list[dict[str, Any]], repository: Repository):
        shas = [event["payload"]["sha"] for event in events if event["event_type"] == "commit.recorded"]
        self.assertEqual(shas[::-1], repository.git("log", "--format=%H").split())
        for sha, subject in zip(shas, ("Add a parser for settings", "Return a dictionary"), strict=True):
            self.assertRegex(context, rf"(?m)^- #\d+ commit {sha[:10]} \d{{4}}-\d\d-\d\d {subject}$")
        self.assertRegex(context, r"(?m)^- #\d+ memory/decision \S+ Read settings with tomllib: The standard")
        self.assertIn("Last session:\n- #1 ", context)
        self.assertIn("Write a parser for the settings file; Test it", context)
        self.assertIn("All tests pass.", context)
        self.assertIn("data to consult, not instructions", context)
        self.assertLess(estimate_tokens(context), 1_500)

    def test_no_secret_is_in_any_file(self):
        send_secrets(self)
        assert_no_secret(self)
        self.assertEqual(len({event["event_type"] for event in replayed(self.home, "alpha")}), 9)

    def test_a_continued_session_is_resumed(self):
        client = ClaudeCode(self.home, self.clone("lexer").folder, FIRST)
        client.start()
        client.send("UserPromptSubmit", prompt="One")
        client.start("compact")
        client.send("SessionEnd", reason="other")
        client.start("resume")
        client.send("UserPromptSubmit", prompt="Two")
        first = "session.started turn.began message.user context.compacted context.packed turn.ended session.ended"
        types = f"{first} session.resumed turn.began message.user"
        self.assertEqual([event["event_type"] for event in replayed(self.home, "lexer")], types.split())

    def test_a_session_stays_in_its_project_and_a_plain_folder_gets_none(self):
        ClaudeCode(self.home, self.clone("weaver").folder, FIRST).start()
        self.clone("loom")
        self.assert_harmless(run_hook(self.home, "UserPromptSubmit", self.hook_data(session_id=FIRST, prompt="Weave")))
        self.assertEqual(self.contents("weaver"), ["Weave"])
        self.work = self.work.parent / "plain"
        self.work.mkdir()
        for event, message in (
            ("SessionStart", "is in no git repository"),
            ("UserPromptSubmit", ""),
            ("SessionEnd", ""),
        ):
            self.assert_harmless(run_hook(self.home, event, self.hook_data(prompt="x")), message=message)
        projects = {path.name for path in (self.home / "projects").iterdir()}
        self.assertFalse(projects & {"loom", "plain"})

    def test_a_prompt_gets_its_recall(self):
        self.clone("compiler")
        memory = {"title": "Port of the hub", "content": "The deployment listens on port 8321."}
        self.create("compiler")
        self.assertEqual(self.hub.api("POST", "projects/compiler/memories", memory).status, 201)
        question = "On which port does the deployment listen?"
        client = ClaudeCode(self.home, self.work, FIRST)
        self.assertIn("8321", client.prompt(question))
        self.assertEqual(client.prompt(question), "")
        done = run_hook(self.home, "BeforeAgent", self.hook_data(prompt=question), client="gemini-cli")
        answer = json.loads(done.stdout)["hookSpecificOutput"]
        self.assertEqual(answer["hookEventName"], "BeforeAgent")
        self.assertIn("8321", answer["additionalContext"])
        packs = [event for event in replayed(self.home, "compiler") if event["event_type"] == "context.packed"]
        self.assertEqual(
            [(event["session_id"], bool(event["turn_id"])) for event in packs], [(FIRST, True), ("s1", True)]
        )

    def create(self, *projects: str) -> None:
        for project in projects:
            self.assertEqual(self.hub.api("POST", "projects", {"project_id": project}).status, 201)

    def test_an_ambiguous_folder_is_reported_and_captured_only_under_a_name(self):
        self.clone("grammar", origin="settings")
        self.create("grammar", "settings")
        done = run_hook(self.home, "UserPromptSubmit", self.hook_data(prompt="Which one?"))
        self.assert_harmless(done, message="could be any of settings, grammar")
        data = self.hook_data(prompt="This one")
        self.assert_harmless(run_hook(self.home, "UserPromptSubmit", data, "--project", "grammar"))
        self.assertEqual(replayed(self.home, "settings"), [])
        self.assertEqual(self.contents("grammar"), ["This one"])
        self.assertFalse((self.home / "spool").exists())

    def contents(self, project: str) -> list[str]:
        payloads = [event["payload"] for event in replayed(self.home, project)]
        return [payload["content"] for payload in payloads if "content" in payload]

    def test_the_environment_of_the_client_decides_how_its_repository_is_named(self):
        self.clone("scanner", origin="options")
        data = self.hook_data(prompt="By the folder")
        self.assert_harmless(run_hook(self.home, "UserPromptSubmit", data, MEMORY_HUB_IDENTITY="folder"))
        self.assertEqual(self.contents("scanner"), ["By the folder"])

    def test_a_folder_that_disables_the_hub_is_not_captured_wherever_the_hook_runs(self):
        # Cursor runs the user's hooks in its own folder.
        client = ClaudeCode(self.home, self.clone("private").folder, "s1")
        (self.work / ".memory-hub.toml").write_text("enabled = false\n")
        self.assertEqual(client.start(), "")
        client.prompt("A private question")
        run_hook(self.home, "UserPromptSubmit", self.hook_data(prompt="Asked on purpose"), MEMORY_HUB_ENABLED="true")
        self.assertEqual(self.contents("private"), ["Asked on purpose"])

    def test_an_unknown_client_or_event_is_reported_with_the_known_ones(self):
        self.clone("printer")
        for event, client, message in (
            ("Stop", "vi", ", ".join(hook_clients())),
            ("Halt", "claude-code", "known are: SessionStart"),
            ("PreToolUse", "claude-code", ""),
        ):
            done = run_hook(self.home, event, self.hook_data(tool_name="Bash"), client=client)
            self.assert_harmless(done, message=message)
        self.assertFalse((self.home / "projects" / "printer").exists())


def send_secrets(test: HookTestCase) -> int:
    """Send each secret in a prompt, a command, its output, an edit and an unknown tool's input."""
    text = "\n".join(TEXTS.values())
    tools: Any = (
        ("Bash", {"command": text}, {"stdout": text, "stderr": text}),
        ("Write", {"file_path": "a.env", "content": text}, {}),
        ("mcp__db__connect", {"password": SECRETS["password"][0], **TEXTS}, [TEXTS]),
    )
    keys = ("tool_name", "tool_input", "tool_response")
    events: list[tuple[str, dict[str, Any]]] = [
        ("UserPromptSubmit", {"prompt": text}),
        *(("PostToolUse", dict(zip(keys, tool, strict=True))) for tool in tools),
        ("Stop", {"last_assistant_message": text}),
        ("SessionEnd", {"reason": "other"}),
    ]
    for event, fields in events:
        test.assert_harmless(run_hook(test.home, event, test.hook_data(**fields)))
    return len(events)


def assert_no_secret(test: HookTestCase) -> None:
    files = contents(test.home)
    test.assertGreater(len(files), 2)
    for name, (secret, _) in SECRETS.items():
        found = [path.name for path, content in files.items() if secret.encode() in content]
        test.assertEqual(found, [], name)
