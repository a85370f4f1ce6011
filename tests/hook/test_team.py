"""Hooks on a machine that works with a team's hub: a real hub in another home, and a network that goes away."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.management import call_command
from django.test import tag

from memoryhub.core import spool
from memoryhub.teams import sending
from tests.home import contents
from tests.hook import network as net
from tests.hook.client import ClaudeCode, HookTestCase, Repository, environment_of, replayed, run_hook
from tests.secrets_made import SECRETS, TEXTS
from tests.server_processes import free_port
from tests.setup.test_team import make_authority
from tests.web.server import DEADLINE_SECONDS, ROOT, Server, Shell, poll, run, serving, temporary_home

# What sends, as a hook's child process does.
_SENDER = """
from memoryhub.teams.connections import all_connections
from memoryhub.teams.sending import send_waiting
send_waiting(all_connections()[0])
"""


@tag("process")
class TeamTestCase(HookTestCase):
    """Ann's machine, a network, and a team's hub, which has a project and a token of Ann's for each test."""

    team: Path
    hub: Server
    _shell: Shell
    _numbers: Iterator[int]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.team = cls.enterClassContext(temporary_home())
        cls.hub = cls.enterClassContext(serving("--no-worker", home=cls.team))
        cls._shell = Shell(cls.team)
        cls.addClassCleanup(cls._shell.close)
        cls._numbers = itertools.count(1)

    def setUp(self) -> None:
        super().setUp()
        number = next(self._numbers)
        self.project, self.ann = f"alpha-{number}", f"ann-{number}"
        self.hub.api("POST", "projects", {"id": self.project})
        self.network = self.enterContext(net.network_to(self.hub.place))
        self.repository = Repository(self.work.parent / "source")
        self.work = self.repository.folder
        self.token = self.token_of(self.ann)

    def token_of(self, name: str, verbs: str = "write") -> str:
        words = ("--name", name, "--project", self.project, "--verbs", verbs)
        return self.run_on_team("token", "create", *words).split()[-1]

    def run_on_team(self, *words: str) -> str:
        code, output = self._shell.run(*words)
        self.assertEqual(code, 0, output)
        return output

    def join(self, token: str = "", *options: str, home: Path | None = None, folder: Path | None = None) -> None:
        with (
            mock.patch.dict(os.environ, environment_of(home or self.home)),
            mock.patch.object(sys, "stdin", io.StringIO(token or self.token)),
            contextlib.chdir(folder or self.work),
        ):
            address = ("--url", self.network.url, "--project", self.project, "--token-file", "-")
            call_command("setup", *address, *options, stdout=io.StringIO())

    def client(self, session: str = "s1", home: Path | None = None, folder: Path | None = None) -> ClaudeCode:
        return ClaudeCode(home or self.home, folder or self.work, session)

    def place(self, home: Path | None = None) -> Path:
        return next(((home or self.home) / "teams").glob(f"*/{self.project}"))

    def waiting(self) -> list[dict[str, Any]]:
        while True:
            with contextlib.suppress(FileNotFoundError):  # taken by a sender since it was listed
                texts = [path.read_text() for path in (self.place() / "spool").glob("*.jsonl*")]
                return [json.loads(line) for text in texts for line in text.splitlines()]

    def wait_for_waiting(self, count: int) -> None:
        poll(lambda: len(self.waiting()) >= count, what=f"{count} events in the spool")

    def wait_until_sent(self) -> None:
        spool.wait_for_arriving(seconds=DEADLINE_SECONDS, at=self.place() / "spool")
        poll(lambda: not any((self.place() / "spool").glob("*.jsonl*")), what="an empty spool")

    def recorded(self, event_type: str = "message.user") -> list[str]:
        """The texts of the team's events of a type."""
        events = replayed(self.team, self.project)
        return [event["payload"]["content"] for event in events if event["event_type"] == event_type]

    def status(self) -> str:
        return run("status", home=self.home)[1]

    def remember(self, content: str) -> None:
        self.hub.api("POST", f"projects/{self.project}/memories", {"title": "Port", "content": content})


@tag("process")
class TeamTests(TeamTestCase):
    def test_a_session_is_recorded_by_the_teams_hub_as_the_person(self) -> None:
        self.remember("The deployment listens on port 8321.")
        self.join()
        client = self.client()
        self.assertIn("8321", client.start())
        self.assertNotIn("did not answer", client.start())
        client.prompt("Make it so")
        output = self.repository.commit("a.py", "x = 1\n", "Set x")
        client.bash("git commit -am 'Set x'", output)
        client.send("Stop", last_assistant_message="Done.")
        client.send("SessionEnd", reason="other")
        self.wait_until_sent()
        events = replayed(self.team, self.project)
        own = [event for event in events if event["session_id"] == "s1"]
        self.assertEqual({(event["actor"], event["source"]) for event in own}, {(f"token:{self.ann}", "hook")})
        types = "session.started message.user command.run commit.recorded message.assistant turn.ended session.ended"
        found = [event["event_type"] for event in own]
        self.assertEqual([name for name in types.split() if name in found], types.split())
        self.assertEqual(
            [event["payload"]["message"] for event in own if event["event_type"] == "commit.recorded"], ["Set x"]
        )
        self.assertFalse((self.home / "projects").exists())
        self.assertIn("0 hook events waiting", self.status().partition("Team:")[2])

    def test_before_an_action_the_teams_hub_gives_a_line_and_nothing_is_sent_later(self) -> None:
        rule = {"title": "Packages", "kind": "guideline", "content": "Use pnpm, not npm.", "tags": ["correction"]}
        self.hub.api("POST", f"projects/{self.project}/memories", rule)
        self.join()
        self.client().prompt("Install it")
        self.assertIn("Packages: Use pnpm", self.client().before("Bash", {"command": "npm install lodash"}))
        self.wait_until_sent()
        notes = replayed(self.team, self.project)[-1]
        self.assertEqual((notes["event_type"], notes["session_id"]), ("context.packed", "s1"))
        spool_event = spool.SpooledEvent(
            id="late", at=1, client="claude-code", event="PreToolUse", project="", payload={}, window=""
        )
        spool.append(spool_event, at=self.place() / "spool")
        self.client().send("Stop", last_assistant_message="Done.")
        self.wait_until_sent()
        self.assertEqual([request.event for request in self.network.requests].count("PreToolUse"), 1)

    def test_a_folder_and_its_worktrees_send_to_the_team_unless_they_are_switched_off(self) -> None:
        self.join()
        other = Repository(self.work.parent / "private").folder
        self.client("s0", folder=other).send("Stop", last_assistant_message="Mine")
        poll(lambda: any((self.home / "spool").glob("*.jsonl")), what="the event in this machine's spool")
        self.assertEqual(self.network.requests, [])
        self.repository.commit("a", "a", "First")
        linked = self.work.parent / "linked"
        self.repository.git("worktree", "add", str(linked))
        self.client("s2", folder=linked).prompt("From the worktree")
        self.assertEqual(self.recorded(), ["From the worktree"])
        (self.work / ".memory-hub.toml").write_text("enabled = false\n")
        self.network.requests.clear()
        self.assertEqual(self.client().start(), "")
        self.client().send("Stop", last_assistant_message="Private")
        self.assertEqual((self.network.requests, self.waiting()), ([], []))

    def test_a_session_goes_where_it_began_whatever_folder_it_works_in_later(self) -> None:
        self.join()
        private = Repository(self.work.parent / "private").folder
        for session, began, later in (("s1", private, self.work), ("s2", self.work, private)):
            self.client(session, folder=began).prompt(f"{session} begins")
            self.client(session, folder=later).prompt(f"{session} goes on")
        self.wait_until_sent()
        self.assertEqual(self.recorded(), ["s2 begins", "s2 goes on"])
        own = [event for event in replayed(self.home, "private") if event["event_type"] == "message.user"]
        self.assertEqual([event["payload"]["content"] for event in own], ["s1 begins", "s1 goes on"])

    def test_the_hub_reads_no_file_that_the_event_names(self) -> None:
        transcript = self.work / "t.jsonl"
        transcript.write_text(json.dumps({"type": "assistant", "message": {"content": "of the hub's disk"}}))
        (self.work / ".memory-hub.toml").write_text('inject = "nothing of the kind"\n')
        data = {"session_id": "s1", "cwd": str(self.work), "transcript_path": str(transcript)}
        for event, more in (("SessionStart", {}), ("UserPromptSubmit", {"prompt": "Go"}), ("Stop", {})):
            answer = self.deliver(event, {"data": {**data, **more}})
            self.assertEqual(answer[0], 200, answer)
        self.assertEqual(self.recorded("message.assistant"), [])
        session = self.hub.api("GET", f"projects/{self.project}/sessions/s1").json()
        self.assertEqual(session["directory"], f"{self.ann}:{self.work}")
        self.assertNotIn(str(self.work), (self.team / "hub.db").read_bytes().decode("latin-1"))

    def deliver(self, event: str, body: Any, token: str = "", project: str = "") -> tuple[int, Any]:
        path = f"/api/v1/projects/{project or self.project}/hooks/claude-code/{event}"
        reply = self.hub.request("POST", path, body, Authorization=f"Bearer {token or self.token}")
        return reply.status, reply.json()

    def test_an_event_needs_the_right_to_write_in_its_project(self) -> None:
        self.hub.api("POST", "projects", {"id": "beta"})
        body = {"data": {"session_id": "s1", "prompt": "x"}}
        reader = self.token_of("eve", "read")
        for event, data, token, project, status in (
            ("UserPromptSubmit", body, reader, "", 403),
            ("UserPromptSubmit", body, "", "beta", 404),
            ("UserPromptSubmit", body, "", "gamma", 404),
            ("UserPromptSubmit", body, "mh_" + "x" * 52, "", 401),
            ("NoSuchEvent", body, "", "", 404),
            ("UserPromptSubmit", {"data": {}}, "", "", 422),
        ):
            with self.subTest(event, status=status, project=project):
                self.assertEqual(self.deliver(event, data, token, project)[0], status)
        self.assertEqual(replayed(self.team, self.project), [])

    def test_two_people_in_sessions_of_one_name_are_kept_apart(self) -> None:
        bob = self.home.parent / "bob"
        other = Repository(self.work.parent / "bobs").folder
        self.join()
        self.join(self.token_of("bob"), home=bob, folder=other)
        prompts = []
        for text in ("First", "Second"):
            self.client().prompt(f"{text} of Ann")
            self.client(home=bob, folder=other).prompt(f"{text} of Bob")
            prompts += [("s1", f"token:{self.ann}", f"{text} of Ann"), ("s1@bob", "token:bob", f"{text} of Bob")]
        events = [event for event in replayed(self.team, self.project) if event["event_type"] == "message.user"]
        recorded = [(event["session_id"], event["actor"], event["payload"]["content"]) for event in events]
        self.assertEqual(recorded, prompts)

    def test_no_secret_is_in_any_file_nor_on_the_wire(self) -> None:
        self.join()
        self.network.fate = net.fails
        everything = "\n".join(TEXTS.values())
        self.client().send("Stop", last_assistant_message=everything)
        self.client().send("PostToolUse", tool_name="X", tool_input=TEXTS, tool_response=everything)
        self.client().prompt(everything)
        self.wait_for_waiting(3)
        files = {path: text for path, text in contents(self.home).items() if path.name != "token"}
        sent = b"".join(request.raw for request in self.network.requests)
        self.assertIn(b"UserPromptSubmit", b"".join(files.values()))
        for name, (secret, _) in SECRETS.items():
            self.assertEqual([path for path, text in files.items() if secret.encode() in text], [], name)
            self.assertNotIn(secret.encode(), sent)
        for path in (self.home, *self.home.rglob("*")):
            self.assertEqual(path.stat().st_mode & 0o077, 0, path)


@tag("process")
class NetworkTests(TeamTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.remember("The deployment listens on port 8321.")
        self.join()

    # The network is as before, and the next hook sends what waits.
    def check_recovery(self, *texts: str) -> None:
        self.network.fate = net.passes
        self.client().prompt("After it")
        self.wait_until_sent()
        self.assertEqual(self.recorded(), [*texts, "After it"])
        self.assertNotIn("since", self.status().partition("Team:")[2])

    def test_a_hub_that_refuses_connections(self) -> None:
        port, token = free_port(), self.place() / "token"
        moved = self.home / "teams" / f"127.0.0.1_{port}" / self.project
        moved.mkdir(parents=True, mode=0o700)
        shutil.copy(token, moved / "token")
        path = self.home / "teams.toml"
        path.write_text(path.read_text().replace(self.network.url, f"http://127.0.0.1:{port}"))
        self.assertEqual(self.client().prompt("Into the void"), "")
        poll(lambda: "1 hook event waiting" in self.status(), what="the event in the status")
        self.assertIn("cannot be reached", self.status())

    def test_a_hub_that_never_answers_delays_no_client(self) -> None:
        self.client().start()
        self.network.fate = net.disappears
        # Each of them returns while the request before still waits for its answer.
        events: Any = ("SessionStart", {"session_id": "s2"}), ("UserPromptSubmit", {"prompt": "Hi"}), ("Stop", {})
        start, *later = (
            run_hook(self.home, event, self.hook_data(**fields), MEMORY_HUB_HOOK_SECONDS="") for event, fields in events
        )
        self.assertEqual((start.returncode, start.stderr), (0, b""))
        text = json.loads(start.stdout)["hookSpecificOutput"]["additionalContext"]
        self.assertRegex(text, r"did not answer in time\. This context is .* old \(\d{4}-\d\d-\d\d \d\d:\d\d UTC\)")
        self.assertIn("8321", text)
        for done in later:
            self.assert_harmless(done)
        self.wait_for_waiting(3)
        self.assertEqual({request.event for request in self.network.requests}, {"SessionStart"})

    def test_an_answer_that_is_lost_is_asked_for_again_and_recorded_once(self) -> None:
        for fate in (net.loses_answer, net.resets):
            with self.subTest(fate=fate.__name__):
                before = self.recorded()
                self.network.fate = fate
                self.client().prompt(f"Once, {fate.__name__}")
                self.assertEqual(self.recorded(), [*before, f"Once, {fate.__name__}"])
                self.wait_for_waiting(1)
                self.check_recovery(*before, f"Once, {fate.__name__}")

    def test_a_hub_that_fails_gets_the_events_later_in_their_order(self) -> None:
        self.network.fate = net.fails
        for number in range(3):
            self.client().prompt(f"Prompt {number}")
            self.client().send("Stop", last_assistant_message=f"Answer {number}")
        self.wait_for_waiting(6)
        self.assertIn("the hub answered 500", self.status())
        self.assertEqual(self.recorded(), [])
        self.check_recovery("Prompt 0", "Prompt 1", "Prompt 2")
        self.assertEqual(self.recorded("message.assistant"), [f"Answer {number}" for number in range(3)])

    def test_the_answer_of_a_slow_hub_is_kept_for_the_next_session(self) -> None:
        self.network.fate = net.is_slow
        done = run_hook(self.home, "SessionStart", self.hook_data(), MEMORY_HUB_HOOK_SECONDS="")
        self.assert_harmless(done)
        self.network.let_through.set()
        self.wait_until_sent()
        poll((self.place() / "pack.json").exists, what="the late context")
        self.network.fate = net.fails
        self.assertIn("8321", self.client("s2").start())

    def test_the_hub_of_this_machine_sends_what_waits(self) -> None:
        self.network.fate = net.fails
        self.client().prompt("While it fails")
        self.wait_for_waiting(1)
        self.network.fate = net.passes
        stop = threading.Event()
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.home)):
            thread = threading.Thread(target=sending.keep, args=[stop], kwargs={"every": 0.01})
            thread.start()
            self.wait_until_sent()
            stop.set()
            thread.join()
        self.assertEqual(self.recorded(), ["While it fails"])

    def test_a_hook_goes_on_trying_while_no_other_event_comes(self) -> None:
        self.network.fate = net.fails
        data = self.hook_data(last_assistant_message="Last")
        self.assert_harmless(run_hook(self.home, "Stop", data, MEMORY_HUB_AUTOSTART="on"))
        poll(lambda: self.network.requests, what="the first try")
        self.network.fate = net.passes
        self.wait_until_sent()
        self.assertEqual(self.recorded("message.assistant"), ["Last"])

    def test_after_a_revocation_the_person_gets_the_reason_and_a_new_token_sends_all(self) -> None:
        self.assertIn("8321", self.client().start())
        self.run_on_team("token", "revoke", self.ann)
        for session in ("s2", "s3"):
            done = run_hook(self.home, "SessionStart", self.hook_data(session_id=session))
            text = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]
            self.assertRegex(text, r"^No context from the team's hub: the hub refused the token or the project \(401")
            self.assertNotIn("8321", text)
            self.assertIn(b"refused the token or the project (401", done.stderr)
        self.assertFalse((self.place() / "pack.json").exists())
        tried = len(self.network.requests)
        done = run_hook(self.home, "UserPromptSubmit", self.hook_data(prompt="Hello"))
        self.assertEqual((done.returncode, done.stdout), (0, b""))
        self.client().send("Stop", last_assistant_message="Answer")
        self.wait_for_waiting(4)
        self.assertEqual(len(self.network.requests), tried)
        self.assertIn("4 hook events waiting; since", self.status())
        self.assertIn("refused the token", run("doctor", home=self.home)[1])
        self.token = self.token_of(f"{self.ann}-2")
        self.join()
        self.network.fate = net.fails  # which is another problem
        self.assert_harmless(run_hook(self.home, "SessionStart", self.hook_data(session_id="s4")))
        self.check_recovery("Hello")

    def test_a_refused_event_is_kept_aside_and_the_next_is_sent(self) -> None:
        self.assert_harmless(run_hook(self.home, "NoSuchEvent", self.hook_data()))
        self.check_recovery()
        [path] = (self.place() / "spool" / "rejected").glob("*.jsonl")
        self.assertIn("no known hook 'NoSuchEvent'", path.read_text())
        self.assertIn("1 were refused", self.status())
        self.assertIn("it refused 1 hook event", run("doctor", home=self.home)[1])
        self.assertEqual(self.recorded(), ["After it"])


@tag("process")
class TlsTests(TeamTestCase):
    def test_a_hub_with_the_teams_own_authority_is_trusted_where_the_person_names_it(self) -> None:
        authority = make_authority(self.home.parent)
        certificate = self.home.parent / "server.pem"
        self.network = self.enterContext(net.network_to(self.hub.place, certificate=certificate))
        self.join()
        self.assertEqual(self.client().prompt("To a stranger"), "")
        self.wait_for_waiting(1)
        self.assertEqual(self.network.requests, [])
        poll(lambda: "is not trusted" in self.status(), what="the reason in the status")
        data = self.hook_data(last_assistant_message="Yes")
        self.assert_harmless(run_hook(self.home, "Stop", data, SSL_CERT_FILE=str(authority)))
        self.wait_until_sent()
        self.join(self.token, "--ca-file", str(authority))
        self.client().prompt("To the team")
        self.wait_until_sent()
        self.assertEqual(self.recorded(), ["To a stranger", "To the team"])


@tag("process")
class ManyEventsTests(TeamTestCase):
    COUNT = 200
    # Of these, as many are from real hooks; the others are spooled as the hook does.
    HOOKS = 30

    def test_each_event_is_recorded_once_and_in_order_whoever_is_killed(self) -> None:
        self.join()
        self.network.fate = net.fails
        for number in range(self.HOOKS):
            self.send(f"Event {number}")
            if number % 10 == 0:
                self.kill_a_hook(f"Killed {number}")
        self.wait_for_waiting(self.HOOKS)
        at = max(kept["at"] for kept in self.waiting())
        for number in range(self.HOOKS, self.COUNT):
            payload = self.hook_data(error=f"Event {number}")
            event: Any = {"id": f"hook-{number}", "client": "claude-code", "event": "StopFailure", "payload": payload}
            spool.append(spool.SpooledEvent(at=at + number, **event), at=self.place() / "spool")
        self.network.fate = net.passes
        self.network.requests.clear()
        self.kill_a_sender(after=40)
        self.kill_the_hub(after=80)
        self.kill_a_sender(after=120)
        self.kill_a_sender(after=160)
        poll(self.is_sent_by_another_sender, what="an empty spool")
        texts = self.recorded("note.added")
        wanted = [f"Event {number}" for number in range(self.COUNT)]
        self.assertEqual([text for text in texts if text.startswith("Event")], wanted)
        self.assertEqual(len(texts), len(set(texts)))
        self.assertEqual(self.waiting(), [])

    # A failure of the client is an event that is recorded, and spooled by the hook's child.
    def send(self, text: str) -> None:
        self.assert_harmless(run_hook(self.home, "StopFailure", self.hook_data(error=text)))

    def kill_a_hook(self, text: str) -> None:
        command = [sys.executable, str(ROOT / "manage.py"), "hook", "claude-code", "StopFailure"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment_of(self.home)) as process:
            assert process.stdin
            process.stdin.write(json.dumps(self.hook_data(error=text)).encode())
            process.stdin.close()
            process.kill()

    def start_sender(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", _SENDER], cwd=ROOT, env=environment_of(self.home))

    def is_sent_by_another_sender(self) -> bool:
        self.start_sender().wait(DEADLINE_SECONDS)
        return not self.waiting()

    def kill_a_sender(self, *, after: int) -> None:
        while len(self.network.requests) < after:  # one that is refused for a moment ends by itself
            with self.start_sender() as sender:
                poll(lambda: len(self.network.requests) >= after or sender.poll() is not None, what="progress")
                sender.kill()

    def kill_the_hub(self, *, after: int) -> None:
        with self.start_sender() as sender:
            poll(lambda: len(self.network.requests) >= after or sender.poll() is not None, what="progress")
            self.hub.process.kill()
        type(self).hub = self.enterContext(serving("--no-worker", home=self.team))
        self.network.host, self.network.port = self.hub.place
