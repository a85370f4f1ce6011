"""The hook command without a hub, and with one that misbehaves: it never fails and never delays."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import SimpleTestCase

from memoryhub import env
from memoryhub.client.hook import front, team
from memoryhub.client.hook.post import ClientEvent
from memoryhub.client.setup.team import connect, parse_address
from memoryhub.teams import sending
from memoryhub.teams.connections import TeamConnection
from tests.home import run_home
from tests.hook.client import HookTestCase, environment_of, run_hook, spooled, wait_for_spooled
from tests.web.server import DEADLINE_SECONDS, ROOT, START_SECONDS, poll

# The hook, with a child that waits for the hub for longer than any test takes
_PATIENT_CHILD = """
from memoryhub.client.hook import front
front.CHILD_SECONDS = 3600.0
front.main(["claude-code", "PostToolUse"])
"""
_TOKEN = "secret-token-" * 3


class WithoutHubTests(HookTestCase):
    def test_an_event_waits_in_a_private_file_with_its_time_project_and_an_id_of_its_own(self):
        before = time.time_ns() // 1_000_000
        for number, options in enumerate((["--project", "beta"], ["--project=beta"])):
            data = self.hook_data(last_assistant_message=f"Answer {number}")
            self.assert_harmless(run_hook(self.home, "Stop", data, *options))
        first, second = wait_for_spooled(self.home, 2)
        self.assertEqual((first["client"], first["event"]), ("claude-code", "Stop"))
        self.assertEqual(first["payload"]["last_assistant_message"], "Answer 0")
        self.assertEqual([first["project"], second["project"]], ["beta", "beta"])
        self.assertLessEqual(before, first["at"])
        self.assertNotEqual(first["id"], second["id"])
        for path in (self.home, *self.home.rglob("*")):
            self.assertEqual(path.stat().st_mode & 0o077, 0, path)

    def test_the_root_that_the_client_names_is_added_to_the_event_in_any_spelling(self):
        for root in ("/work/alpha", '/a "b"/\\c', "/é/プ", "/a\nb"):
            for body in (b"{}", b' {"a": 1} ', b"{ }"):
                added = json.loads(front._with_root(body, root))
                self.assertEqual(added.pop("memory_hub_root"), root)
                self.assertEqual(added, json.loads(body))
        self.assertEqual(front._with_root(b"{}", "relative"), b"{}")

    def test_the_root_that_the_client_names_decides_and_a_plain_folder_is_not_recorded(self):
        plain = self.work.parent / "plain"
        plain.mkdir()
        data = {**self.hook_data(), "cwd": str(plain)}
        self.assert_harmless(run_hook(self.home, "SessionStart", data), message="is in no git repository")
        self.assert_harmless(run_hook(self.home, "UserPromptSubmit", {**data, "prompt": "x"}))
        self.assertFalse((self.home / "projects").exists())
        data["session_id"] = "s2"
        done = run_hook(self.home, "UserPromptSubmit", {**data, "prompt": "x"}, CLAUDE_PROJECT_DIR=str(self.work))
        self.assert_harmless(done)
        self.assertEqual([path.name for path in (self.home / "projects").iterdir()], ["alpha"])

    def test_an_event_is_kept_by_a_process_whose_folder_was_deleted(self):
        gone = self.work.parent / "gone"
        gone.mkdir()
        code = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        command = [sys.executable, "-c", code, str(ROOT / "manage.py")]
        options: Any = {"cwd": gone, "env": environment_of(self.home, PWD=str(gone)), "capture_output": True}
        data = json.dumps(self.hook_data(last_assistant_message="Kept")).encode()
        done = subprocess.run([*command, "hook", "claude-code", "Stop"], input=data, check=False, **options)
        self.assert_harmless(done)
        self.assertEqual(wait_for_spooled(self.home)[0]["payload"]["last_assistant_message"], "Kept")
        for words, answer in (
            (["search", "kept", "--project", "alpha"], "Kept"),
            (["search", "x"], "no longer exists"),
        ):
            gone.mkdir()
            done = subprocess.run([*command, *words], check=False, **options)
            self.assertIn(answer, (done.stdout + done.stderr).decode())
            self.assertNotIn(b"Traceback", done.stderr)

    def test_what_is_no_event_is_dropped_with_one_line(self):
        for content in (b"", b"   ", b"nonsense", b'"text"', b"[1]", b"\xff\xfe", b"{"):
            self.assertFalse(front._is_object(content), content)
        huge = b'{"prompt":"' + b"x" * (33 * 1024 * 1024) + b'"}'
        for content, options, message in (
            (b"nonsense", [], "not a JSON object"),
            (huge, [], "not kept"),
            (b"{}", ["more"], "usage: memory-hub hook CLIENT EVENT"),
        ):
            self.assert_harmless(run_hook(self.home, "Stop", content, *options), message=message)
        self.assertFalse((self.home / "spool").exists())
        for arguments in ([], ["claude-code"], ["claude-code", "Stop", "more"], ["../x", "Stop"], ["a", "b c"]):
            with mock.patch.object(os, "write") as write:
                front._take_event(arguments)
            write.assert_called_once()
            self.assertEqual(write.call_args.args[0], 2)
            self.assertIn(b"usage: memory-hub hook CLIENT EVENT", write.call_args.args[1])

    def test_lines_that_only_look_like_json_are_counted_without_content(self):
        self.assert_harmless(run_hook(self.home, "Stop", b'{"prompt": hunter2}'))
        rejected = self.home / "spool" / "rejected" / "unreadable.jsonl"
        poll(lambda: rejected.exists() and rejected.read_text(), what="the count of it")
        self.assertNotIn("hunter2", rejected.read_text())
        self.assertEqual(spooled(self.home), [])

    def test_a_long_event_is_cut_with_a_note(self):
        self.assert_harmless(run_hook(self.home, "Stop", self.hook_data(last_assistant_message="word " * 1_000_000)))
        text = wait_for_spooled(self.home)[0]["payload"]["last_assistant_message"]
        self.assertLess(len(text), 100_000)
        self.assertRegex(text, r"\[… \d+ characters left out …\]")

    def test_a_client_that_never_writes_its_event_times_out(self):
        command = [sys.executable, str(ROOT / "manage.py"), "hook", "claude-code", "Stop"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.assertEqual(process.wait(START_SECONDS), 0)
            self.assertIn(b"did not arrive in time", process.stderr.read())  # type: ignore[union-attr]

    def test_the_last_message_is_read_from_the_transcript_where_the_event_has_none(self):
        transcript = self.work / "transcript.jsonl"
        parts = ({"type": "text", "text": "Done so."}, {"type": "tool_use", "name": "Bash"})
        lines = [{"type": "assistant", "message": {"role": "assistant", "content": [part]}} for part in parts]
        transcript.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        self.assert_harmless(run_hook(self.home, "Stop", self.hook_data(transcript_path=str(transcript))))
        self.assertEqual(wait_for_spooled(self.home)[0]["payload"]["last_assistant_message"], "Done so.")

    def test_a_home_that_cannot_be_used_harms_nothing(self):
        self.home.write_text("a file where the home should be")
        for home, message in (
            (self.home, "is not a folder; set MEMORY_HUB_HOME to a folder that you can write to"),
            (Path("relative/home"), "must be an absolute path"),
        ):
            self.assert_harmless(run_hook(home, "Stop", self.hook_data()), message=message)
        for text in ("", "~/x", "/absolute/z"):
            with self.subTest(home=text), mock.patch.dict(os.environ, MEMORY_HUB_HOME=text):
                self.assertEqual(env.home_text(), str(env.home()))


class ImportTests(SimpleTestCase):
    def test_with_a_hub_a_hook_imports_nothing_that_takes_long(self) -> None:
        program = "import sys; from memoryhub.client.hook import front; print(*sys.modules)"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-S", "-c", program], check=True, capture_output=True, text=True, env=environment
        )
        slow = {"contextlib", "enum", "functools", "json", "pathlib", "re", "socket", "threading", "tomllib", "typing"}
        self.assertEqual(slow.intersection(done.stdout.split()), set())


class WithBadHubTests(HookTestCase):
    def setUp(self):
        super().setUp()
        self.home.mkdir(mode=0o700)
        (self.home / "token").write_text(f"{_TOKEN}\n")
        self.listener = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        self.received = b""
        self.arrived = threading.Event()

    @contextmanager
    def hub(self, answer: bytes | None, *, held: bool = True) -> Iterator[None]:
        """Something that listens where a hub says it does; with None it never answers."""
        with (self.home / "serve.lock").open("w+") as lock:
            if held:
                fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write(json.dumps({"pid": 1, "address": f"http://127.0.0.1:{self.listener.getsockname()[1]}"}))
            lock.flush()
            thread = threading.Thread(target=self._serve, args=[answer])
            thread.start()
            try:
                yield
            finally:
                self.listener.shutdown(socket.SHUT_RDWR)  # wakes who still waits for a caller
                thread.join()

    def _serve(self, answer: bytes | None) -> None:
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        with contextlib.ExitStack() as stack:
            stack.enter_context(connection)
            while b"}" not in self.received and (part := connection.recv(65536)):
                self.received += part
            if answer is None:
                self.connection = connection
                self.addCleanup(stack.pop_all().close)
            else:
                connection.sendall(answer)
        self.arrived.set()

    def check_received(self, key: str) -> None:
        self.assertIn(f"Idempotency-Key: {key}\r\n".encode(), self.received)
        self.assertIn(f"Authorization: Bearer {_TOKEN}\r\n".encode(), self.received)

    def test_without_an_answer_the_event_is_spooled_under_the_same_key(self):
        with self.hub(None):
            self.assert_harmless(run_hook(self.home, "Stop", self.hook_data(), MEMORY_HUB_HOOK_SECONDS=""))
            kept = wait_for_spooled(self.home)[0]
            self.assertTrue(self.arrived.wait(DEADLINE_SECONDS))
        self.check_received(kept["id"])

    def test_after_a_tool_the_client_waits_for_no_answer_and_the_event_is_kept_if_none_comes(self):
        """Neither for the process nor for its pipes, which ``run`` reads to their end; a child goes on waiting."""
        data = json.dumps(self.hook_data(tool_name="Bash", tool_input={"command": "ls"})).encode()
        environment = environment_of(self.home, MEMORY_HUB_HOOK_SECONDS="")
        command = [sys.executable, "-c", _PATIENT_CHILD]
        with self.hub(None):
            done = subprocess.run(
                command, check=False, input=data, capture_output=True, env=environment, cwd=ROOT, timeout=START_SECONDS
            )
            self.assert_harmless(done)
            self.assertTrue(self.arrived.wait(DEADLINE_SECONDS))
            with self.assertRaises(BlockingIOError):  # the child has not hung up
                self.connection.recv(1, socket.MSG_DONTWAIT)
            self.assertEqual(spooled(self.home), [])
            self.connection.close()
            kept = wait_for_spooled(self.home)[0]
        self.check_received(kept["id"])

    def test_an_event_is_spooled_when_the_answer_is_truncated_or_invalid_or_the_hub_fails(self):
        head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"
        answers = (b"", b"nonsense", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", head)
        for number, answer in enumerate(answers):
            with self.subTest(answer=answer), socket.create_server(("127.0.0.1", 0)) as self.listener:
                self.received = b""
                with self.hub(answer):
                    self.assert_harmless(run_hook(self.home, "Stop", self.hook_data()))
                wait_for_spooled(self.home, number + 1)

    def test_a_permanent_refusal_is_reported_and_not_spooled(self):
        body = json.dumps({"detail": "it could be one of two", "choices": ["alpha", "beta"]}).encode()
        head = f"HTTP/1.1 422 Unprocessable\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with self.hub(head + body):
            done = run_hook(self.home, "Stop", self.hook_data())
        self.assert_harmless(done, message="it could be one of two (one of: alpha, beta); the event is not kept")
        self.assertEqual(spooled(self.home), [])

    def test_before_an_action_nothing_is_kept_or_said_without_an_answer(self) -> None:
        data = self.hook_data(tool_name="Bash", tool_input={"command": "ls"})
        self.assert_harmless(run_hook(self.home, "PreToolUse", data))
        self.assert_harmless(run_hook(self.home, "StatusLine", data))
        refusal = b'HTTP/1.1 422 Unprocessable\r\nContent-Length: 14\r\n\r\n{"detail":"x"}'
        for answer in (None, b"", refusal, b"HTTP/1.1 204 No Content\r\n\r\n"):
            listener = socket.create_server(("127.0.0.1", 0))
            with self.subTest(answer=answer), listener as self.listener, self.hub(answer):
                self.assert_harmless(run_hook(self.home, "PreToolUse", data, MEMORY_HUB_HOOK_SECONDS=""))
        self.assertEqual(spooled(self.home), [])

    def test_without_a_sound_token_or_a_hub_that_lives_nothing_is_sent_and_the_event_waits(self):
        tokens = (("", True), ("short\n", True), ("x" * 40 + "\r\nX-Injected: yes", True), (_TOKEN, False))
        for number, (token, is_alive) in enumerate(tokens):
            (self.home / "token").write_text(token)
            with self.subTest(token=token), socket.create_server(("127.0.0.1", 0)) as self.listener:
                with self.hub(None, held=is_alive):
                    self.assert_harmless(run_hook(self.home, "Stop", self.hook_data()))
                    wait_for_spooled(self.home, number + 1)
                self.assertEqual(self.received, b"")


class Clock:
    """A clock that only ``select`` moves: by its timeout, or to the next time at which something arrives."""

    def __init__(self, *arrivals: float) -> None:
        self.now = 0.0
        self.arrivals = list(arrivals)

    def monotonic(self) -> float:
        return self.now

    def select(self, reading: list[int], _writing: Any, _errors: Any, timeout: float) -> tuple[list[int], ...]:
        if self.arrivals and self.arrivals[0] <= self.now + timeout:
            self.now = self.arrivals.pop(0)
            return reading, [], []
        self.now += timeout
        return [], [], []


class DeadlineTests(SimpleTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ, {front.WAIT_VARIABLE: ""}))
        self.set_clock()

    def set_clock(self, *arrivals: float) -> None:
        self.clock = Clock(*arrivals)
        self.enterContext(mock.patch.object(time, "monotonic", self.clock.monotonic))
        self.enterContext(mock.patch.object(select, "select", self.clock.select))

    def event(self, name: str) -> ClientEvent:
        """Return the event as the hook hands it over, having read it from its standard input."""
        with (
            mock.patch.object(front, "_read_input", return_value=b"{}"),
            mock.patch.multiple(front, setitimer=mock.DEFAULT, on_signal=mock.DEFAULT),
            mock.patch.object(front, "_hand_over") as hand_over,
        ):
            front._take_event(["claude-code", name])
        event: ClientEvent = hand_over.call_args.args[0]
        return event

    def test_a_start_and_a_prompt_wait_one_second_or_longer_and_other_events_less(self) -> None:
        for name, variable, seconds in (
            ("SessionStart", "", 1.0),
            ("UserPromptSubmit", "", 1.0),
            ("Stop", "", front.SECONDS),
            ("PreToolUse", "", front.SECONDS),
            ("StatusLine", "", front.SECONDS),
            ("SessionStart", "0.1", 1.0),
            ("SessionStart", "5", 5.0),
            ("SessionStart", "600", front.MAX_SECONDS),
            ("SessionStart", "soon", 1.0),
        ):
            with self.subTest(name, variable=variable), mock.patch.dict(os.environ, {front.WAIT_VARIABLE: variable}):
                self.assertEqual(self.event(name).deadline, seconds)

    def test_an_answer_counts_only_if_all_of_it_is_there_at_the_deadline(self) -> None:
        for arrivals, text, waited in (
            ((0.25, 0.5), "pack", 0.5),
            ((0.25, 1.0), "pack", 1.0),
            ((0.25, 1.25), "", 1.0),
            ((), "", 1.0),
        ):
            self.set_clock(*arrivals)
            with self.subTest(arrivals=arrivals), mock.patch.object(os, "read", side_effect=[b"pack", b""]):
                self.assertEqual(team._read_until(0, front.PATIENT_SECONDS), text)
                self.assertEqual(self.clock.now, waited)

    def test_after_one_second_a_start_gets_the_last_pack_with_its_age_and_a_prompt_nothing(self) -> None:
        home = run_home() / "deadline"
        home.mkdir()
        self.enterContext(mock.patch.dict(os.environ, {"MEMORY_HUB_HOME": str(home)}))
        token = "mh_a1b2c3d4_" + "Zz9-" * 10 + "abc"
        connection = connect(home, parse_address("https://hub.example.org", "alpha"), token=token)
        pack = sending.CachedPack("The deployment listens on port 8321.", "hook-before", 0)
        sending._write_json(Path(connection.place) / "pack.json", pack)
        problem = sending.SendingProblem("the hub refused the token or the project (401 Unauthorized)", 0, "a digest")
        refused = (
            "No context from the team's hub: the hub refused the token or the project (401 Unauthorized); events wait"
        )
        for name, note, pattern in (
            (
                "SessionStart",
                None,
                r"^The team's hub did not answer in time\. .* is \d+ days old[^$]*\n\nThe deployment",
            ),
            ("UserPromptSubmit", None, "^$"),
            ("SessionStart", problem, f"^{re.escape(refused)}, see `memory-hub status`.$"),
        ):
            with self.subTest(name, note=note):
                if note:
                    sending._write_json(Path(connection.place) / "problem.json", note)
                self.set_clock()
                event = self.event(name)
                with mock.patch.object(os, "fork", return_value=1), mock.patch.object(os, "write") as write:
                    printed = team.hand_over(event, TeamConnection(**connection.fields()))
                text = b"".join(call.args[1] for call in write.call_args_list)
                context = json.loads(text)["hookSpecificOutput"]["additionalContext"] if text else ""
                self.assertRegex(context, pattern)
                if note:
                    self.assertEqual(printed, f"{problem.sentence}; events wait, see `memory-hub status`")
                else:
                    self.assertEqual((printed, self.clock.now), ("", 1.0))
