from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

from django.test import tag

from memoryhub.core import autostart, spool
from memoryhub.core.clients import ClientEntry, connected_clients
from memoryhub.core.file_locks import try_lock
from memoryhub.core.windows import FOLDER, find_process, forget_closed, note_session, session_of, window
from memoryhub.ops.serving.process import BY_HAND, ON_DEMAND, Running, find_running
from tests.hook.client import ClaudeCode, HookTestCase, Repository, environment_of, replayed
from tests.hook.window import Window
from tests.web.server import DEADLINE_SECONDS, ROOT, poll, serving

MANAGE = str(ROOT / "manage.py")
WINDOW = str(Path(__file__).with_name("window.py"))


@tag("process")
class WithoutHubTestCase(HookTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.repository = Repository(self.work.parent / "parser")
        self.folder = self.repository.folder

    def run_command(self, *words: str) -> str:
        environment = {**environment_of(self.home), "HOME": str(self.work)}
        done = subprocess.run(
            [sys.executable, MANAGE, *words],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def types(self, session: str = "s1") -> list[str]:
        events = replayed(self.home, "parser")
        return [event["event_type"] for event in events if event["session_id"] == session]

    def running(self) -> Running | None:
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.home)):
            return find_running()


@tag("process")
class AutostartTestCase(WithoutHubTestCase):
    """A test whose clients start hubs that end when they are idle for two seconds."""

    def setUp(self) -> None:
        super().setUp()
        variables = {autostart.VARIABLE: "on", "MEMORY_HUB_IDLE_SECONDS": "2"}
        self.enterContext(mock.patch.dict(os.environ, variables))
        self.addCleanup(self.wait_until_nothing_runs)

    def wait_until_nothing_runs(self) -> None:
        poll(lambda: not self.processes(), what="the end of every process of this home")

    def processes(self) -> list[str]:
        """Return the processes that were started with this home."""
        variable, pids = f"MEMORY_HUB_HOME={self.home}".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if variable in (folder / "environ").read_bytes().split(b"\0"):
                    pids.append(folder.name)
        return pids


@tag("process")
class AnswerTests(WithoutHubTestCase):
    def test_what_a_hook_captured_is_in_the_next_context_and_in_a_search(self) -> None:
        first, second = (ClaudeCode(self.home, self.folder, name) for name in ("s1", "s2"))
        self.assertEqual(first.start(), "")
        first.send("UserPromptSubmit", prompt="Parse zebra files")
        first.send("Stop", last_assistant_message="Zebra files are parsed.")
        poll(lambda: "Parse zebra files" in self.run_command("search", "zebra"), what="the prompt in a search")
        poll(lambda: "Parse zebra files" in second.start(), what="the prompt in the next session's context")
        self.assertEqual(self.types().count("message.user"), 1)

    def test_a_folder_that_disables_the_hub_leaves_nothing_wherever_the_hook_runs(self) -> None:
        (self.folder / ".memory-hub.toml").write_text("enabled = false\n")
        client = ClaudeCode(self.home, self.folder, "s1")
        self.assertEqual(client.prompt("A private question"), "")
        self.assertFalse(self.home.exists())
        client.bash("echo private", "private")
        client.send("Stop", last_assistant_message="A private answer")
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.home)):
            spool.wait_for_arriving(seconds=DEADLINE_SECONDS)
        (self.folder / ".memory-hub.toml").unlink()
        client.prompt("Another question")
        texts = json.dumps(replayed(self.home, "parser"))
        self.assertIn("Another question", texts)
        self.assertNotIn("rivate", texts)

    def test_a_prompt_gets_its_recall_once_in_a_session(self) -> None:
        (self.folder / "notes.md").write_text("# Port of the hub\n\nThe deployment listens on port 8321.\n")
        self.run_command("import", "markdown", ".")
        client = ClaudeCode(self.home, self.folder, "s1")
        self.assertIn("8321", client.prompt("On which port does the deployment listen?"))
        client.send("Stop", last_assistant_message="On 8321.")
        self.assertEqual(client.prompt("So the deployment does listen on that port?"), "")
        self.assertIn(
            "8321", ClaudeCode(self.home, self.folder, "s2").prompt("On which port does the deployment listen?")
        )
        turns = "turn.began message.user context.packed message.assistant turn.ended turn.began message.user"
        self.assertEqual(self.types(), ["session.started", *turns.split()])


@tag("process")
class AutostartTests(AutostartTestCase):
    def test_the_first_client_starts_one_hub_which_ends_when_idle(self) -> None:
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.home)):
            connection = ClientEntry(os.getpid())
        with contextlib.closing(connection):
            for number in range(3):
                ClaudeCode(self.home, self.folder, f"s{number}").start()
            running = poll(self.running, what="a hub")
            self.assertEqual(running.started, ON_DEMAND)
            status = self.run_command("status")
            self.assertIn("started on demand", status)
            self.assertIn("1 connected", status)
        self.wait_until_nothing_runs()
        self.assertIn("idle for 2 s: ending", (self.home / "serve.log").read_text())
        self.assertIn("the next client starts it", self.run_command("status"))

    def test_a_hub_that_the_event_of_a_tool_starts_has_the_priority_of_its_client(self) -> None:
        ClaudeCode(self.home, self.folder, "s1").bash("ls", "notes.md")
        running = poll(self.running, what="a hub")
        self.assertEqual(os.getpriority(os.PRIO_PROCESS, running.pid), os.getpriority(os.PRIO_PROCESS, 0))

    def test_a_hub_that_is_started_by_hand_takes_over(self) -> None:
        with mock.patch.dict(os.environ, MEMORY_HUB_IDLE_SECONDS="600"):
            ClaudeCode(self.home, self.folder, "s1").start()
        poll(self.running, what="a hub")
        with serving("--no-worker", home=self.home):
            running = self.running()
            self.assertEqual(running and running.started, BY_HAND)

    def test_it_can_be_switched_off(self) -> None:
        for off in ({autostart.VARIABLE: "off"}, {}):
            self.home.mkdir(exist_ok=True)
            with mock.patch.dict(os.environ, {"MEMORY_HUB_HOME": str(self.home), **off}):
                if not off:
                    del os.environ[autostart.VARIABLE]
                    self.assertTrue(autostart.is_allowed())
                    (self.home / "config.toml").write_text("autostart = false\n")
                self.assertFalse(autostart.start_hub())


@tag("process")
class StatusTests(WithoutHubTestCase):
    def test_a_connected_client_has_its_name_and_project(self) -> None:
        command = f"{sys.executable} {MANAGE}"
        with mock.patch.dict(os.environ, environment_of(self.home)), contextlib.chdir(self.folder):
            client = Window(command, "s1")
            [before] = json.loads(self.run_command("status", "--json"))["clients"]
            client.call("memory_stats")
        [after] = json.loads(self.run_command("status", "--json"))["clients"]
        client.close()
        self.assertEqual((before["name"], before["pid"]), ("", after["pid"]))
        self.assertEqual((after["name"], after["project"]), ("window", "parser"))
        self.assertIn("0 connected", self.run_command("status"))

    def test_a_client_that_connects_while_an_old_entry_is_removed_is_counted(self) -> None:
        self.enterContext(mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.home)))
        path = self.home / "run" / "clients" / f"{os.getpid()}.json"
        path.parent.mkdir(parents=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try_lock(descriptor)

        def remove() -> None:
            path.unlink()
            os.close(descriptor)

        other = threading.Timer(0.05, remove)
        other.start()
        connection = ClientEntry(os.getpid())
        other.join()
        self.assertEqual([client.pid for client in connected_clients()], [os.getpid()])
        connection.close()
        self.assertEqual(connected_clients(), [])

    def test_setup_check_and_doctor_look_at_the_hub(self) -> None:
        self.run_command("setup", "claude-code", "--yes")
        checked = self.run_command("setup", "claude-code", "--check")
        self.assertIn("hub: not running", checked)
        self.assertIn("hooks: nothing captured yet", checked)
        listed = json.loads(self.run_command("setup", "--json"))["results"]
        self.assertEqual([facts["client"] for facts in listed if facts["status"] != "not set up"], ["claude-code"])
        ClaudeCode(self.home, self.folder, "s1").start()
        self.assertIn("hooks: last captured at", self.run_command("setup", "claude-code", "--check"))
        (self.home / "serve.log").write_text("memory-hub: hub.db is damaged.\n")
        with self.assertRaises(subprocess.CalledProcessError) as raised:
            self.run_command("doctor")
        self.assertIn("the last one that a client started ended: hub.db is damaged.", raised.exception.output)


@tag("process")
class LogTests(WithoutHubTestCase):
    def run_logging(self, then: str) -> None:
        code = f"from memoryhub.ops.serving import process as o; o.MAX_LOG_BYTES = 10_000; o.log_to_file(); {then}"
        environment = {**environment_of(self.home), "DJANGO_SETTINGS_MODULE": "memoryhub.settings_store"}
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, timeout=DEADLINE_SECONDS, check=True)

    def test_the_log_is_bounded(self) -> None:
        self.run_logging("[print('x' * 99, flush=True) for _ in range(2_000)]")
        sizes = [path.stat().st_size for path in self.home.glob("serve.log*")]
        self.assertEqual(len(sizes), 2)
        self.assertLessEqual(max(sizes), 10_000)

    def test_a_log_that_cannot_be_written_stops_nothing(self) -> None:
        self.run_logging(f"import shutil; shutil.rmtree({str(self.home)!r}); [print('x' * 99) for _ in range(20_000)]")


@tag("process")
class WindowTests(WithoutHubTestCase):
    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = f"{sys.executable} {MANAGE}"
        words = [sys.executable, WINDOW, command, *arguments]
        return subprocess.Popen(words, cwd=self.folder, env=environment_of(self.home), stdout=subprocess.PIPE)

    def sessions(self, *windows: subprocess.Popen[bytes]) -> list[list[str]]:
        return [json.loads(window.communicate(timeout=240)[0]) for window in windows]

    def test_two_windows_are_two_sessions_and_one_that_clears_its_own_is_in_the_next(self) -> None:
        windows = [self.start("s1"), self.start("s2"), self.start("s3", "clear", "s4")]
        self.assertEqual(self.sessions(*windows), [["s1"], ["s2"], ["s3", "s4"]])

    def test_a_session_that_was_ended_paused_or_crashed_is_resumed(self) -> None:
        for session, then, last in (
            ("s1", "end", ["session.ended", "session.resumed"]),
            ("s2", "pause", ["session.resumed"]),
        ):
            with self.subTest(then):
                self.assertEqual(self.sessions(self.start(session, then)), [[session, session]])
                types = [event["event_type"] for event in replayed(self.home, "parser")]
                self.assertEqual([name for name in types if name.startswith("session.")][-len(last) :], last)
        for then in ("crash", "resume"):
            self.assertEqual(self.sessions(self.start("s3", then)), [["s3"]])
        self.assertEqual(self.types("s3").count("session.started"), 1)

    def test_a_hub_that_was_started_by_hand_forgets_closed_windows_too(self) -> None:
        note = self.home / FOLDER / "999999999-1"
        note.parent.mkdir(parents=True)
        note.touch()
        with serving("--no-worker", home=self.home):
            poll(lambda: not note.exists(), what="the end of a closed window's note")

    def test_only_keys_of_running_processes_are_noted(self) -> None:
        own = find_process(os.getpid())
        assert own is not None
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.home)):
            for key in ("", "../x", "1-../../x", f"{own.pid}-1", "999999999-1", f"{own.pid}"):
                note_session(key, "s1")
                self.assertEqual(session_of(key), "")
            self.assertFalse((self.home / FOLDER).exists())
            note_session(own.key, "s2")
            self.assertEqual(session_of(own.key), "s2")
            note_session(own.key, "s1")
            note = self.home / FOLDER / own.key
            written = note.stat().st_ino
            note_session(own.key, "s1")
            self.assertEqual(note.stat().st_ino, written, "the same note was written again")
            drafts = [self.home / FOLDER / f".{key}.{own.pid}-1" for key in (own.key, "999999999-1")]
            for path in drafts:
                path.touch()
            forget_closed()
            self.assertEqual([path.exists() for path in drafts], [True, False])
            self.assertEqual(session_of(own.key), "s1")
            self.assertTrue(window())
