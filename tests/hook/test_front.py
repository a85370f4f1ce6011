"""The hook command without a hub, and with one that misbehaves: it never fails and never delays."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
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
from memoryhub.client.hook.post import Event
from memoryhub.client.setup.team import connect, parse_address
from memoryhub.teams import sending
from memoryhub.teams.connections import Connection
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
    def test_an_event_waits_in_a_private_file_with_its_time_and_an_id_of_its_own(self):
        before = time.time_ns() // 1_000_000
        for number in (1, 2):
            self.assert_harmless(run_hook(self.home, "Stop", self.hook_data(last_assistant_message=f"Answer {number}")))
        first, second = wait_for_spooled(self.home, 2)
        self.assertEqual(first["client"], "claude-code")
        self.assertEqual(first["event"], "Stop")
        self.assertEqual(first["payload"]["last_assistant_message"], "Answer 1")
        self.assertLessEqual(before, first["at"])
        self.assertNotEqual(first["id"], second["id"])
        for path in (self.home, *self.home.rglob("*")):
            self.assertEqual(path.stat().st_mode & 0o077, 0, path)

    def test_invalid_json_is_dropped_with_one_line(self):
        for content in (b"", b"   ", b"nonsense", b'"text"', b"[1]", b"\xff\xfe", b"{"):
            self.assertFalse(front._is_object(content), content)
        self.assert_harmless(run_hook(self.home, "Stop", b"nonsense"), message="not a JSON object")
        self.assertFalse((self.home / "spool").exists())

    def test_lines_that_only_look_like_json_are_counted_without_content(self):
        self.assert_harmless(run_hook(self.home, "Stop", b'{"prompt": hunter2}'))
        rejected = self.home / "spool" / "rejected" / "unreadable.jsonl"
        poll(lambda: rejected.exists() and rejected.read_text(), what="the count of it")
        self.assertNotIn("hunter2", rejected.read_text())
        self.assertEqual(spooled(self.home), [])

    def test_an_invalid_command_line_prints_the_usage_and_harms_nothing(self):
        for arguments in ([], ["claude-code"], ["claude-code", "Stop", "more"], ["../x", "Stop"], ["a", "b c"]):
            with mock.patch.object(os, "write") as write:
                front._take(arguments)
            write.assert_called_once()
            number, line = write.call_args.args
            self.assertEqual(number, 2)
            self.assertIn(b"usage: memory-hub hook CLIENT EVENT", line)
        self.assert_harmless(run_hook(self.home, "Stop", b"{}", "more"), message="usage: memory-hub hook CLIENT EVENT")

    def test_a_project_that_is_named_is_kept_with_the_event(self):
        for options in (["--project", "beta"], ["--project=beta"]):
            self.assert_harmless(run_hook(self.home, "Stop", self.hook_data(), *options))
        self.assertEqual([line["project"] for line in wait_for_spooled(self.home, 2)], ["beta", "beta"])

    def test_a_long_event_is_cut_with_a_note(self):
        self.assert_harmless(run_hook(self.home, "Stop", self.hook_data(last_assistant_message="word " * 1_000_000)))
        text = wait_for_spooled(self.home)[0]["payload"]["last_assistant_message"]
        self.assertLess(len(text), 100_000)
        self.assertRegex(text, r"\[… \d+ characters left out …\]")

    def test_an_endless_event_is_dropped_with_one_line(self):
        huge = b'{"prompt":"' + b"x" * (33 * 1024 * 1024) + b'"}'
        self.assert_harmless(run_hook(self.home, "UserPromptSubmit", huge), message="not kept")

    def test_a_client_that_never_writes_its_event_times_out(self):
        command = [sys.executable, str(ROOT / "manage.py"), "hook", "claude-code", "Stop"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.assertEqual(process.wait(START_SECONDS), 0)
            self.assertIn(b"did not arrive in time", process.stderr.read())  # type: ignore[union-attr]

    def test_the_last_message_is_read_from_the_transcript_where_the_event_has_none(self):
        transcript = self.work / "transcript.jsonl"
        lines = [
            {"type": "user", "message": {"role": "user", "content": "Go on"}},
            {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "Done so."}]}},
            {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "tool_use", "name": "Bash"}]}},
        ]
        transcript.write_text("\n".join(map(json.dumps, lines)) + "\n")
        self.assert_harmless(run_hook(self.home, "Stop", self.hook_data(transcript_path=str(transcript))))
        self.assertEqual(wait_for_spooled(self.home)[0]["payload"]["last_assistant_message"], "Done so.")

    def test_a_home_that_cannot_be_used_harms_nothing(self):
        self.home.write_text("a file where the home should be")
        for home, message in (
            (self.home, "is not a folder; set MEMORY_HUB_HOME to a folder that you can write to"),
            (Path("relative/home"), "must be an absolute path"),
        ):
            self.assert_harmless(run_hook(home, "Stop", self.hook_data()), message=message)

    def test_the_home_is_the_one_that_all_others_find(self):
        for value in ("", "~/x", "/absolute/z"):
            with self.subTest(value=value), mock.patch.dict(os.environ, MEMORY_HUB_HOME=value):
                self.assertEqual(env.home_text(), str(env.home()))


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

    def test_a_truncated_or_invalid_answer_is_ignored(self):
        for number, answer in enumerate((b"", b"nonsense", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")):
            with self.subTest(answer=answer), socket.create_server(("127.0.0.1", 0)) as self.listener:
                self.received = b""
                with self.hub(answer):
                    self.assert_harmless(run_hook(self.home, "Stop", self.hook_data()))
                wait_for_spooled(self.home, number + 1)

    def test_events_are_spooled_when_the_hub_fails(self):
        with self.hub(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}"):
            self.assert_harmless(run_hook(self.home, "Stop", self.hook_data()))
        wait_for_spooled(self.home)

    def test_a_permanent_refusal_is_reported_and_not_spooled(self):
        body = json.dumps({"detail": "it could be one of two", "choices": ["alpha", "beta"]}).encode()
        head = f"HTTP/1.1 422 Unprocessable\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with self.hub(head + body):
            done = run_hook(self.home, "Stop", self.hook_data())
        self.assert_harmless(done, message="it could be one of two (one of: alpha, beta); the event is not kept")
        self.assertEqual(spooled(self.home), [])

    def test_without_a_sound_token_nothing_is_sent_and_the_event_waits(self):
        with self.hub(None):
            for number, content in enumerate(("", "short\n", "x" * 40 + "\r\nX-Injected: yes")):
                (self.home / "token").write_text(content)
                self.assert_harmless(run_hook(self.home, "Stop", self.hook_data()))
                wait_for_spooled(self.home, number + 1)
        self.assertEqual(self.received, b"")

    def test_another_process_on_the_port_of_a_dead_hub_receives_nothing(self):
        with self.hub(None, held=False):
            self.assert_harmless(run_hook(self.home, "Stop", self.hook_data()))
            wait_for_spooled(self.home)
        self.assertEqual(self.received, b"")


_NOW = 0.0
TOKEN = "mh_a1b2c3d4_" + "Zz9-" * 10 + "abc"


class Clock:
    """A clock that only ``select`` moves: by its timeout, or to the next time at which something arrives."""

    def __init__(self, *arrivals: float) -> None:
        self.now = _NOW
        self.arrivals = [_NOW + seconds for seconds in arrivals]

    def monotonic(self) -> float:
        return self.now

    def select(self, reading: list[int], _writing: Any, _errors: Any, timeout: float) -> tuple[list[int], ...]:
        if self.arrivals and self.arrivals[0] <= self.now + timeout:
            self.now = self.arrivals.pop(0)
            return reading, [], []
        self.now += timeout
        return [], [], []

    @property
    def waited(self) -> float:
        return self.now - _NOW


class DeadlineTestCase(SimpleTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ, {front.WAIT_VARIABLE: ""}))

    def start_clock(self, *arrivals: float) -> Clock:
        clock = Clock(*arrivals)
        self.enterContext(mock.patch.object(time, "monotonic", clock.monotonic))
        self.enterContext(mock.patch.object(select, "select", clock.select))
        return clock

    def taken(self, name: str) -> Event:
        """The event as the hook hands it over, having read it from its standard input."""
        with (
            mock.patch.object(front, "_read", return_value=b"{}"),
            mock.patch.object(front, "setitimer"),
            mock.patch.object(front, "on_signal"),
            mock.patch.object(front, "_hand_over") as hand_over,
        ):
            front._take(["claude-code", name])
        event: Event = hand_over.call_args.args[0]
        return event


class DeadlineTests(DeadlineTestCase):
    def test_a_start_and_a_prompt_wait_one_second_and_other_events_less(self) -> None:
        self.assertEqual(front.PATIENT_SECONDS, 1.0)
        self.start_clock()
        waits = {name: self.taken(name).deadline - _NOW for name in ("SessionStart", "UserPromptSubmit", "Stop")}
        self.assertEqual(waits, {"SessionStart": 1.0, "UserPromptSubmit": 1.0, "Stop": front.SECONDS})

    def test_the_variable_lengthens_the_wait_of_a_start_and_cannot_shorten_it(self) -> None:
        self.start_clock()
        for given, wanted in (("0.1", 1.0), ("5", 5.0), ("600", front.MAX_SECONDS), ("soon", 1.0)):
            with self.subTest(given=given), mock.patch.dict(os.environ, {front.WAIT_VARIABLE: given}):
                self.assertEqual(self.taken("SessionStart").deadline - _NOW, wanted)

    def test_an_answer_counts_only_if_all_of_it_is_there_at_the_deadline(self) -> None:
        for arrivals, wanted, waited in (
            ((0.25, 0.5), "pack", 0.5),
            ((0.25, 1.0), "pack", 1.0),
            ((0.25, 1.25), "", 1.0),
            ((), "", 1.0),
        ):
            with self.subTest(arrivals=arrivals), contextlib.ExitStack() as stack:
                clock = Clock(*arrivals)
                stack.enter_context(mock.patch.object(time, "monotonic", clock.monotonic))
                stack.enter_context(mock.patch.object(select, "select", clock.select))
                stack.enter_context(mock.patch.object(os, "read", side_effect=[b"pack", b""]))
                self.assertEqual(team._read_until(0, _NOW + front.PATIENT_SECONDS), wanted)
                self.assertEqual(clock.waited, waited)


class FallbackTests(DeadlineTestCase):
    """Of a machine whose team's hub has sent a pack before, and does not answer now."""

    def setUp(self) -> None:
        super().setUp()
        self.home = run_home() / f"deadline-{self.id().rpartition('.')[2][:40]}"
        self.home.mkdir()
        self.enterContext(mock.patch.dict(os.environ, {"MEMORY_HUB_HOME": str(self.home)}))
        self.connection = connect(self.home, parse_address("https://hub.example.org", "alpha"), token=TOKEN)
        self.note("pack.json", sending.Pack("The deployment listens on port 8321.", "hook-before", 0))

    def note(self, name: str, value: sending.Pack | sending.Problem) -> None:
        sending._write(Path(self.connection.place) / name, value)

    def context(self, name: str = "SessionStart") -> tuple[str, str]:
        """What the client gets from an event, and the problem that the hook returns."""
        event = self.taken(name)
        written: list[bytes] = []
        with (
            mock.patch.object(os, "fork", return_value=1),
            mock.patch.object(os, "write", side_effect=lambda _number, content: written.append(content)),
        ):
            problem = team.hand_over(event, Connection(**self.connection.fields()))
        text = b"".join(written)
        return json.loads(text)["hookSpecificOutput"]["additionalContext"] if text else "", problem

    def test_after_one_second_a_start_gets_the_last_pack_with_its_age(self) -> None:
        clock = self.start_clock()
        text, problem = self.context()
        self.assertEqual((clock.waited, problem), (1.0, ""))
        self.assertRegex(text, r"^The team's hub did not answer in time\. This context is \d+ days old")
        self.assertTrue(text.endswith("\n\nThe deployment listens on port 8321."))

    def test_a_prompt_waits_one_second_too_and_gets_nothing(self) -> None:
        clock = self.start_clock()
        self.assertEqual((self.context("UserPromptSubmit"), clock.waited), (("", ""), 1.0))

    def test_a_refused_token_gets_no_pack_but_the_reason(self) -> None:
        problem = sending.Problem("the hub refused the token or the project (401 Unauthorized)", 0, "a digest")
        self.note("problem.json", problem)
        self.start_clock()
        text, printed = self.context()
        self.assertEqual(
            text,
            "No context from the team's hub: the hub refused the token or the project (401 Unauthorized); "
            "events wait, see `memory-hub status`.",
        )
        self.assertEqual(printed, f"{problem.sentence}; events wait, see `memory-hub status`")
