"""Windows and the hub that serves them: real processes, and a hub that is killed or stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import SimpleTestCase, tag

from memoryhub.core import autostart, log
from memoryhub.core.file_locks import is_locked, try_lock, try_share_lock
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.env import SERVE_LOCK
from memoryhub.mcp import relay
from memoryhub.ops.serving.process import Running, find_running
from sessions_app.models import Session
from tests.databases import at_home
from tests.mcp.case import ProcessTestCase
from tests.mcp.client import ROOT, Process, environment, wait_until
from tests.support import StoresTestCase, forget_all_stores

# Settings of the database tests, and what would measure the hub that is killed
ON = {"MEMORY_HUB_AUTOSTART": "on"}
HEAVY = {"asyncio", "django", "mcp", "pathlib", "dataclasses", "typing", "argparse", "subprocess", "socket"}


class WhatAWindowImports(SimpleTestCase):
    def test_a_relay_imports_nothing_large(self) -> None:
        code = "import sys; from memoryhub.mcp import relay; print(*sys.modules)"
        with tempfile.TemporaryDirectory() as home:
            variables = environment(Path(home), PYTHONDEVMODE="", COVERAGE_PROCESS_CONFIG="", COVERAGE_PROCESS_START="")
            loaded = subprocess.run(
                [sys.executable, "-S", "-c", f"import sys; sys.path.append({str(ROOT)!r}); {code}"],
                env=variables, capture_output=True, text=True, check=True,
            ).stdout.split()  # fmt: skip
        self.assertEqual(HEAVY.intersection(loaded), set())


@tag("process")
class HubTestCase(ProcessTestCase, StoresTestCase):
    """Windows with a hub, which the first one starts."""

    def setUp(self) -> None:
        self.addCleanup(self.end_hub)

    def start(self, *options: str, **settings: Any) -> Process:
        return super().start(*options, **{**ON, **settings})

    def running(self) -> Running | None:
        with mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(self.home)):
            return find_running()

    def hub(self) -> int:
        """Return the process id of the hub, which must run."""
        running = self.running()
        assert running, "no hub runs"
        return running.pid

    def end_hub(self, number: int = signal.SIGKILL) -> None:
        running = self.running()
        if running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(running.pid, number)
            wait_until(lambda: self.running() is None)

    def events(self, event_type: str, *, project: str = "alpha") -> list[dict[str, Any]]:
        with at_home(self.home), use_store(project_store(project)):
            rows = [json.loads(event.payload_json or "") for event in log.events().of_type(event_type)]
        forget_all_stores()
        return rows

    def trace(self) -> Path:
        return Path(self.enterContext(tempfile.TemporaryDirectory())) / "trace"


class TheHubServesWindows(HubTestCase):
    def test_each_window_has_its_session_profile_and_folder(self) -> None:
        first = self.connect("--project", "alpha", "--session", "s-1")
        second = self.connect("--project", "beta", "--profile", "full")
        self.assertEqual(first.say("test_origin"), "mcp plain client s-1 alpha")
        self.assertEqual(second.say("test_origin"), "mcp plain client  beta")
        names = [{tool["name"] for tool in server.ask("tools/list")["result"]["tools"]} for server in (first, second)]
        self.assertLess(len(names[0]), len(names[1]))
        self.assertEqual(first.end(), (0, ""))
        self.assertEqual(second.say("test_echo", text="on"), "on")

    def test_other_settings_than_the_hubs_are_served_by_the_window_itself(self) -> None:
        self.connect().say("test_echo", text="the hub runs")
        strict = self.connect(MEMORY_HUB_TURN_POLICY="strict")
        self.assertIn("reason: no_token", strict.refusal("memory_write", title="T", content="c"))
        usual = self.connect(MEMORY_HUB_LIMITS="connections=10")
        self.assertIn("created #", usual.say("memory_write", title="Of a usual window", content="c"))

    def test_what_a_window_began_is_finished_when_it_ends(self) -> None:
        server, path = self.connect(), self.trace()
        request = server.request("tools/call", {"name": "test_slow_write", "arguments": _until(path)})
        wait_until(path.exists)
        server.process.terminate()
        path.with_name("go").touch()
        self.assertEqual([answer["id"] for answer in server.rest()], [request])
        self.assertEqual((server.wait()[0], path.read_text()), (0, "done"))


def _until(path: Path) -> dict[str, str]:
    return {"path": str(path), "until": str(path.with_name("go"))}


class AHubThatIsKilled(HubTestCase):
    def test_what_was_not_answered_is_answered_once_by_the_next_in_the_same_session(self) -> None:
        server = self.connect("--project", "killed")
        self.assertIn("created #", server.say("memory_write", title="Before", content="the kill"))
        killed = self.hub()
        os.kill(killed, signal.SIGSTOP)  # so that none is answered before
        calls = [
            server.request("tools/call", {"name": "memory_write", "arguments": {"title": f"T{n}", "content": f"c{n}"}})
            for n in range(5)
        ]
        os.kill(killed, signal.SIGKILL)
        answers = [server.receive() for _ in calls]
        self.assertEqual([answer["id"] for answer in answers], calls)
        self.assertTrue(all("created #" in answer["result"]["content"][0]["text"] for answer in answers), answers)
        self.assertNotEqual(self.hub(), killed)
        titles = [event["title"] for event in self.events("memory.written", project="killed")]
        self.assertEqual(titles, ["Before", *(f"T{n}" for n in range(5))])
        with at_home(self.home), use_store(project_store("killed")):
            self.assertEqual(Session.objects.count(), 1)
        forget_all_stores()

    def test_a_write_whose_answer_was_lost_is_not_done_again(self) -> None:
        server = self.connect()
        server.say("test_echo", text="up")
        arguments = {"title": "Committed", "content": "and the hub died before the answer"}
        request = server.request("tools/call", {"name": "test_write_and_die", "arguments": arguments})
        answer = server.receive()
        self.assertEqual(answer["id"], request)
        self.assertRegex(answer["result"]["content"][0]["text"], r"#\d+")
        titles = [event["title"] for event in self.events("memory.written")]
        self.assertEqual(titles.count("Committed"), 1)

    def test_a_question_is_asked_again_and_the_answer_to_the_first_counts_for_nothing(self) -> None:
        server = self.start()
        server.initialize(elicitation={})
        path = self.trace()
        path.write_text("x")
        call = server.request("tools/call", {"name": "test_shred", "arguments": {"path": str(path)}})
        first = server.receive()
        self.end_hub()
        again = server.receive()
        self.assertEqual((first["method"], again["method"]), ("elicitation/create", "elicitation/create"))
        self.assertNotEqual(first["id"], again["id"])
        server.send({"jsonrpc": "2.0", "id": first["id"], "result": {"action": "accept", "content": {}}})
        server.ask("ping")
        self.assertTrue(path.exists())
        server.send({"jsonrpc": "2.0", "id": again["id"], "result": {"action": "accept", "content": {}}})
        answer = server.receive()
        self.assertEqual((answer["id"], answer["result"]["content"][0]["text"]), (call, "deleted"))

    def test_a_cancelled_call_is_not_repeated(self) -> None:
        server, path = self.connect(), self.trace()
        call = server.request("tools/call", {"name": "test_wait", "arguments": _until(path)})
        wait_until(path.exists)
        server.notify("notifications/cancelled", {"requestId": call})
        server.ask("ping")
        self.end_hub()
        self.assertEqual(server.say("test_echo", text="on"), "on")
        self.assertEqual(path.read_text(), "begun\n")

    def test_a_call_that_ends_every_hub_is_given_up(self) -> None:
        server = self.connect()
        call = server.request("tools/call", {"name": "test_die", "arguments": {}})
        answer = server.receive()
        self.assertEqual(answer["id"], call)
        self.assertIn("the hub ended", answer["error"]["message"])
        self.assertEqual(server.say("test_echo", text="on"), "on")


class AHubThatIsStopped(HubTestCase):
    def test_what_runs_is_answered_and_what_waits_is_left_to_the_next(self) -> None:
        server, path = self.connect(), self.trace()
        write = server.request("tools/call", {"name": "test_slow_write", "arguments": _until(path)})
        wait_until(path.exists)
        later = server.request("tools/call", {"name": "memory_write", "arguments": {"title": "Later", "content": "c"}})
        server.ask("ping")
        os.kill(self.hub(), signal.SIGTERM)
        path.with_name("go").touch()
        received = [server.receive(), server.receive()]
        answers = {answer["id"]: answer["result"]["content"][0]["text"] for answer in received}
        self.assertEqual(answers[write], "written")
        self.assertIn("created #", answers[later])

    def test_an_idle_window_starts_none(self) -> None:
        server = self.connect()
        server.say("test_echo", text="up")
        self.end_hub(signal.SIGTERM)
        self.assertIsNone(self.running())
        self.assertEqual(server.say("test_echo", text="on"), "on")
        self.hub()
        self.assertEqual(server.end(), (0, ""))


class WithoutAHub(HubTestCase):
    def test_a_window_serves_itself_where_none_may_start(self) -> None:
        server = self.connect(MEMORY_HUB_AUTOSTART="off")
        self.assertEqual(server.say("test_echo", text="on"), "on")
        self.assertIsNone(self.running())

    def test_a_path_too_long_for_a_socket(self) -> None:
        home = self.home / ("long" * 25)
        with mock.patch.object(self.__class__, "home", home):
            server = self.connect()
            self.assertEqual(server.say("test_echo", text="on"), "on")
            self.end_hub()


class LookingForAHub(SimpleTestCase):
    def test_a_hub_that_starts_between_two_looks_is_not_started_again(self) -> None:
        variables = {"MEMORY_HUB_HOME": self.enterContext(tempfile.TemporaryDirectory()), **ON}
        looks = mock.patch("memoryhub.core.autostart.is_locked", side_effect=[False, True])
        start = mock.patch("memoryhub.core.autostart.start_in_background")
        with mock.patch.dict(os.environ, variables), looks, start as started:
            self.assertFalse(autostart.start_hub())
        started.assert_not_called()
        mark = Path(variables["MEMORY_HUB_HOME"], "run", "autostart")
        self.assertEqual(mark.read_bytes(), b"")

    def test_a_window_that_waits_asks_seldom_whether_a_hub_may_start(self) -> None:
        variables = {"MEMORY_HUB_HOME": self.enterContext(tempfile.TemporaryDirectory()), **ON}
        seconds = count()
        start = mock.patch("memoryhub.core.autostart.start_hub")
        clock = mock.patch.object(relay, "time", monotonic=lambda: next(seconds) / 100, sleep=lambda _: None)
        with mock.patch.dict(os.environ, variables), clock, start as asked:
            self.assertIsNone(relay._reach({}))
        self.assertLess(asked.call_count, 50)
        self.assertGreater(asked.call_count, 10)

    def test_a_window_waits_while_a_hub_starts_however_long_and_not_after(self) -> None:
        home = self.enterContext(tempfile.TemporaryDirectory())
        seconds = count()
        end = Path(home, "end")
        code = f"import pathlib, time\nwhile not pathlib.Path({str(end)!r}).exists(): time.sleep(0.01)"
        hub = mock.patch.object(autostart, "module_command", lambda *_: [sys.executable, "-c", code])

        def sleep(_: float) -> None:
            if next(seconds) > 100 and not end.exists():
                self.assertTrue(autostart.is_starting())
                end.touch()
                wait_until(lambda: not autostart.is_starting())

        clock = mock.patch.object(relay, "time", monotonic=lambda: next(seconds), sleep=sleep)
        with mock.patch.dict(os.environ, {"MEMORY_HUB_HOME": home, **ON}), hub, clock:
            self.assertIsNone(relay._reach({}))
        self.assertTrue(end.exists())

    def test_a_hub_without_a_socket_is_waited_for_until_it_serves(self) -> None:
        home = Path(self.enterContext(tempfile.TemporaryDirectory()))
        looks = count()

        def sleep(_: float) -> None:
            if next(looks) > 100:
                lock.write_text(json.dumps({"pid": 1, "address": "http://127.0.0.1:8321"}))

        self.enterContext(mock.patch.dict(os.environ, {"MEMORY_HUB_HOME": str(home), **ON}))
        self.enterContext(mock.patch.object(relay, "time", monotonic=lambda: next(looks), sleep=sleep))
        lock = home / SERVE_LOCK
        with lock.open("w") as held:
            self.assertTrue(try_lock(held.fileno()))
            self.assertIsNone(relay._reach({}))
        self.assertTrue(lock.read_text())

    def test_those_that_look_at_once_take_each_other_for_no_hub(self) -> None:
        home = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.dict(os.environ, MEMORY_HUB_HOME=str(home)))
        lock = home / SERVE_LOCK
        lock.write_text(json.dumps({"pid": 1, "address": "http://127.0.0.1:8321"}))  # of a hub that was killed
        with lock.open("r+") as looking:
            self.assertTrue(try_share_lock(looking.fileno()))
            self.assertEqual((is_locked(str(lock)), find_running()), (False, None))
        with lock.open("r+") as held:
            self.assertTrue(try_lock(held.fileno()))
            self.assertTrue(is_locked(str(lock)) and find_running())
