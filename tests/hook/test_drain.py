"""The spool is drained once, in order, however often that is cut short."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import tag

from memoryhub.client.hook.front import _TooLateError
from memoryhub.core import log, spool
from memoryhub.core.errors import Locked
from memoryhub.core.models import RawEvent
from memoryhub.core.stores.store import list_projects
from memoryhub.core.windows import FOLDER, find_process
from memoryhub.ops.serving import drain
from memoryhub.ops.serving.drain import Drained
from sessions_app.hook_parser import place_event
from sessions_app.models import Session, Turn
from sessions_app.services.capture import capture_spooled
from sessions_app.spooled import cleaning
from tests.home import UNMEASURED
from tests.support import HubTestCase, forget_all_stores, make_git_folder
from tests.web.server import ROOT, poll

EVENTS = int(os.environ.get("MEMORY_HUB_TEST_EVENTS", "300"))
START = 1_790_000_000_000
# Drains once for each line, in a process of its own that is killed after so many seconds; prints how each ended
_DRAINERS = """
import django, os, signal, sys, time
django.setup()
from memoryhub.ops.serving import drain
while line := sys.stdin.readline():
    child = os.fork()
    if child == 0:
        drain.drain()
        os._exit(0)
    if line.strip():
        time.sleep(float(line))
        os.kill(child, signal.SIGKILL)
    os.write(1, f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\\n".encode())
"""

_VICTIM = """
import django, os, signal
django.setup()
from memoryhub.core import spool
from memoryhub.ops.serving import drain
real = drain.{place}
def fatal(event, *more, **options):
    if event.payload["content"] == {prompt!r}:
        before = os.stat(spool.folder() / spool.ATTEMPTS).st_size
        while os.stat(spool.folder() / spool.ATTEMPTS).st_size == before:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return real(event, *more, **options)
drain.{place} = fatal
drain.drain()
"""

# Spools events as hooks do: WHO COUNT
_HOOKS = """
import sys
from memoryhub.core import spool
who, count = sys.argv[1], int(sys.argv[2])
for number in range(count):
    data = {"session_id": f"s-{who}", "prompt": f"marmaladeish {who}-{number}"}
    event = {"client": "claude-code", "event": "UserPromptSubmit", "project": "alpha", "payload": data}
    spool.append(spool.SpooledEvent(id=f"{who}-{number}", at=number, **event))
"""


class DrainTestCase(HubTestCase):
    def setUp(self):
        super().setUp()
        logging.getLogger("memoryhub.ops.serving.drain").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("memoryhub.ops.serving.drain").setLevel, logging.NOTSET)
        for project in ("alpha", "beta"):
            make_git_folder(self.home / "work" / project)

    def keep(self, number: int, *, event: str = "UserPromptSubmit", project: str = "alpha", **fields: object) -> None:
        session = "s1" if project == "alpha" else project
        folder = str(self.home / "work" / project)
        data = {"session_id": session, "cwd": folder, "prompt": f"Question {number}", **fields}
        event_id = f"{project}-{number}"
        spool.append(
            spool.SpooledEvent(id=event_id, at=START + number, client="claude-code", event=event, payload=data)
        )

    def prompts(self, project: str = "alpha") -> list[str]:
        with self.store(project):
            events = RawEvent.objects.filter(event_type="message.user").order_by("position")
            return [json.loads(event.payload_json)["content"] for event in events]

    def questions(self, *numbers: int) -> list[str]:
        return [f"Question {number}" for number in numbers]

    def waiting(self) -> list[str]:
        return sorted(path.name for path in spool.folder().glob("*.jsonl*"))


class DrainTests(DrainTestCase):
    @tag("backend")
    def test_hundreds_of_events_are_captured_once_in_the_order_in_which_they_happened(self):
        numbers = list(range(EVENTS))
        random.Random(7).shuffle(numbers)
        for number in numbers:
            self.keep(number)
        self.assertEqual(drain.drain(), Drained(captured=EVENTS))
        self.assertEqual(self.prompts(), self.questions(*range(EVENTS)))
        self.assertEqual(self.waiting(), [])
        self.keep(1)  # once more
        drain.drain()
        self.assertEqual(drain.drain(), Drained())
        self.assertEqual(len(self.prompts()), EVENTS)
        with self.store():
            self.assertEqual(Turn.objects.count(), EVENTS)
            self.assertTrue(log.verify().ok)

    @tag("backend")
    def test_an_event_is_dated_when_it_happened_but_the_times_of_the_log_never_go_back(self):
        for number in (5, 1):
            self.keep(number)
            drain.drain()
        with self.store():
            times = [event.occurred_at for event in RawEvent.objects.order_by("position")]
        self.assertEqual(times[0], "2026-09-21T14:13:20.005Z")
        self.assertEqual(times, sorted(times))

    def test_broken_lines_are_set_aside_and_the_rest_captured_in_the_project_of_its_folder(self):
        self.keep(1)
        self.keep(2, event="Unheard")
        self.keep(3, session_id="")
        self.keep(4, cwd="relative", session_id="s4")
        self.keep(5, project="beta")
        with next(spool.folder().glob("*.jsonl")).open("a") as file:
            file.write('nonsense\n{"id": 1}\n[]\n{"id":"x","at":1,"client":"c","event":"e","payload":7}\n')
        self.assertEqual(drain.drain(), Drained(captured=2, rejected=7))
        self.assertEqual((self.prompts(), self.prompts("beta")), (self.questions(1), self.questions(5)))
        lines = [line for path in (spool.folder() / "rejected").iterdir() for line in path.read_text().splitlines()]
        self.assertEqual([bool(json.loads(line)["reason"]) for line in lines], [True] * 7)
        self.assertEqual(self.waiting(), [])

    def test_an_exception_in_one_event_does_not_block_the_others(self):
        for number in range(3):
            self.keep(number)

        def faulty(event: Any, kept: Any) -> None:
            if kept.id == "alpha-1":
                raise KeyError("a fault")
            capture_spooled(event, kept)

        with mock.patch("memoryhub.ops.serving.drain.capture_spooled", faulty):
            self.assertEqual(drain.drain(), Drained(captured=2, rejected=1))
        self.assertEqual(self.prompts(), self.questions(0, 2))

    def test_a_folder_that_cannot_be_resolved_does_not_block_the_others(self):
        loop = self.home / "work" / "loop"
        loop.symlink_to(loop)
        (self.home / "work" / "pointer").mkdir()
        (self.home / "work" / "pointer" / ".git").write_text(f"gitdir: {loop}\n")
        self.keep(1, project="loop")
        self.keep(2)
        self.keep(3, project="pointer")
        self.assertEqual(drain.drain(), Drained(captured=1))
        self.assertEqual((self.prompts(), list_projects()), (self.questions(2), ["alpha"]))

    def test_a_note_of_a_window_that_cannot_be_written_rejects_no_event(self):
        process = find_process(os.getpid())
        assert process is not None
        (self.home / "run").mkdir(exist_ok=True)
        (self.home / FOLDER).touch()  # no folder, as on a full disk
        for number in range(2):
            data = {"session_id": "s1", "prompt": f"Question {number}"}
            fields: Any = {
                "client": "claude-code",
                "event": "UserPromptSubmit",
                "project": "alpha",
                "window": process.key,
            }
            spool.append(spool.SpooledEvent(id=f"hook-{number}", at=START + number, payload=data, **fields))
        with self.assertLogs("sessions_app.services.capture", logging.WARNING):
            self.assertEqual(drain.drain(), Drained(captured=2))
        self.assertEqual(self.prompts(), self.questions(0, 1))

    def test_an_event_whose_project_cannot_be_found_does_not_block_the_others(self):
        faults = (
            (KeyError("x"), Drained(captured=1, rejected=1)),
            (OSError(errno.EACCES, "not allowed"), Drained(captured=1, rejected=1)),
            (OSError(errno.EMFILE, "too many open files"), Drained(captured=1, postponed=1)),
        )

        def failing(first, fault, event, **options):
            if event.payload["content"] == first:
                raise fault
            return place_event(event, **options)

        for number, (fault, expected) in enumerate(faults):
            self.keep(2 * number)
            self.keep(2 * number + 1)
            with mock.patch.object(drain, "place_event", partial(failing, f"Question {2 * number}", fault)):
                self.assertEqual(drain.drain(), expected)
        self.assertEqual(drain.drain(), Drained(captured=1))
        self.assertEqual(self.prompts(), self.questions(1, 3, 5, 4))

    def test_a_project_that_cannot_be_opened_keeps_its_events_in_order_and_delays_no_other(self):
        for number, project in enumerate(["alpha", "beta", "alpha"]):
            self.keep(number, project=project)
        with self.store():
            path = self.home / "projects" / "alpha" / "events.db"
        database = path.read_bytes()
        forget_all_stores()
        path.write_bytes(b"no database" * 1000)
        for extra in path.parent.glob("events.db-*"):
            extra.unlink()
        self.assertEqual(drain.drain(), Drained(captured=1, postponed=2))
        self.assertEqual(self.prompts("beta"), self.questions(1))
        self.keep(3)
        self.assertEqual(drain.drain(), Drained(postponed=3))
        forget_all_stores()
        path.write_bytes(database)
        self.assertEqual(drain.drain(), Drained(captured=3))
        self.assertEqual(self.prompts(), self.questions(0, 2, 3))

    @tag("process")
    def test_an_event_at_which_two_processes_were_killed_is_set_aside_and_the_others_arrive(self):
        for place in ("place_event", "capture_spooled"):
            with self.subTest(place):
                project = place.replace("_", "-")
                make_git_folder(self.home / "work" / project)
                for number in range(3):
                    self.keep(number, project=project)
                for _ in range(2):
                    self.assertEqual(self.killed_at(place, "Question 1"), -signal.SIGKILL)
                self.assertEqual(drain.drain(), Drained(captured=2, rejected=1))
                self.assertEqual(self.prompts(project), self.questions(0, 2))
                self.assertFalse((spool.folder() / spool.ATTEMPTS).exists())
        reasons = [json.loads(path.read_text())["reason"] for path in (spool.folder() / "rejected").glob("*.jsonl")]
        self.assertEqual(reasons, ["two processes were killed while they handled it"] * 2)

    def test_an_event_at_which_one_process_was_killed_is_captured(self):
        for number in range(2):
            self.keep(number)
        self.assertEqual(self.killed_at("place_event", "Question 0"), -signal.SIGKILL)
        self.assertEqual(self.killed_at("capture_spooled", "Question 1"), -signal.SIGKILL)
        self.assertEqual(drain.drain(), Drained(captured=2))
        self.assertEqual(self.prompts(), self.questions(0, 1))

    def test_a_command_of_another_project_neither_dies_of_an_event_nor_forgets_who_did(self):
        self.keep(0, project="beta")
        for drained in (Drained(postponed=1), Drained(rejected=1)):
            self.assertEqual(self.killed_at("capture_spooled", "Question 0"), -signal.SIGKILL)
            self.assertEqual(drain.drain(project="alpha"), drained)

    def killed_at(self, place: str, prompt: str) -> int:
        """Drain in a process that is killed at an event, as for its use of memory; return how it ended."""
        code = _VICTIM.format(place=place, prompt=prompt)
        return subprocess.run([sys.executable, "-c", code], env=_environment(), check=False).returncode

    def test_what_a_hook_out_of_time_or_a_locked_store_or_another_drainer_leaves_is_captured_later(self):
        self.assertEqual(drain.drain(), Drained())  # without a spool nothing is created
        self.assertEqual((spool.folder().exists(), list_projects()), (False, []))
        for number in range(3):
            self.keep(number)
        ends = [KeyError("a fault"), None, _TooLateError]
        with mock.patch.object(drain, "capture_spooled", side_effect=ends), self.assertRaises(_TooLateError):
            drain.drain()
        with mock.patch.object(log, "transaction", side_effect=Locked("locked by another process")):
            self.assertEqual(drain.drain(), Drained(postponed=3))
        with spool.only_taker() as alone:
            self.assertTrue(alone)
            self.assertEqual(drain.drain(), Drained())
        self.assertEqual(drain.drain(), Drained(captured=3))
        self.assertEqual(self.prompts(), self.questions(0, 1, 2))

    def test_events_are_counted_while_another_process_drains_them(self):
        self.keep(1)
        self.keep(2)
        read = Path.read_bytes

        def drained_before(path: Path) -> bytes:
            drain.drain()
            return read(path)

        with mock.patch.object(Path, "read_bytes", drained_before):
            self.assertEqual(spool.count_waiting(), 0)


@tag("process")
class DrainAmongOthersTests(DrainTestCase):
    def hooks(self, processes: int, count: int) -> list[subprocess.Popen[bytes]]:
        command = [sys.executable, "-c", _HOOKS]
        return [subprocess.Popen([*command, str(who), str(count)], env=_environment()) for who in range(processes)]

    def test_events_appended_while_spool_files_are_removed_are_not_lost(self):
        hooks = self.hooks(4, 200)
        ids: list[str] = []

        def taken() -> bool:
            running = any(process.poll() is None for process in hooks)
            with spool.only_taker() as alone:
                for path in spool.take() if alone else []:
                    events, broken = spool.read(path)
                    self.assertEqual(broken, [])
                    ids.extend(event.id for event in events)
                    spool.finish(path, waiting=[], broken=[])
            return not running

        poll(taken, what="the hooks' end")
        self.assertEqual(sorted(ids), sorted(f"{who}-{n}" for who in range(4) for n in range(200)))
        self.assertEqual([process.returncode for process in hooks], [0] * 4)

    def test_cleaned_while_hooks_append_and_the_hub_drains_no_event_is_lost(self):
        hooks = self.hooks(3, 100)
        cleaned = 0
        with self.drainers() as drainers, self.store():
            assert drainers.stdout
            while any(process.poll() is None for process in hooks) or self.waiting():
                print("", file=drainers.stdin, flush=True)
                cleaned += self.clean()
                self.assertEqual(int(drainers.stdout.readline()), 0)
            for number in range(5):
                self.keep(number, prompt="marmaladeish last")
            self.assertEqual(self.clean(), 5)
        self.assertEqual([line for line in spool.each_line() if "marmaladeish" in line], [])
        self.assertEqual(drain.drain().captured, 5)
        prompts = [prompt.partition(" ")[2] for prompt in self.prompts()]
        self.assertEqual(sorted(prompts[:-5]), sorted(f"{who}-{number}" for who in range(3) for number in range(100)))
        self.assertEqual(sum(prompt.startswith("[word]") for prompt in self.prompts()), cleaned + 5)
        self.assertEqual([process.returncode for process in hooks], [0] * 3)

    def test_killed_at_any_moment_nothing_is_lost_and_nothing_comes_twice(self):
        chance = random.Random(11)
        kept = kills = 0
        with self.drainers() as drainers:
            assert drainers.stdout
            while self.waiting() or kills < 6:
                if not self.waiting():  # a machine that was done before it was killed is given more
                    for number in range(kept, kept + 300):
                        self.keep(number)
                    kept += 300
                print(chance.uniform(0.005, 0.12) if kills < 8 else "", file=drainers.stdin, flush=True)
                ended = int(drainers.stdout.readline())
                self.assertIn(ended, (0, -signal.SIGKILL))
                kills += ended == -signal.SIGKILL
        self.assertEqual(self.prompts(), self.questions(*range(kept)))
        with self.store():
            self.assertTrue(log.verify().ok)
            self.assertEqual(Session.objects.count(), 1)

    def clean(self) -> int:
        with cleaning() as clean:
            return len(clean(_without_the_word).lines)

    def drainers(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _DRAINERS]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment())


def _environment() -> dict[str, str]:
    django = {"PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "memoryhub.settings"}
    return {**os.environ, **UNMEASURED, **django}


def _without_the_word(value: Any) -> tuple[Any, list[str]]:
    text = json.dumps(value)
    return json.loads(text.replace("marmaladeish", "[word]")), ["marmaladeish"] * text.count("marmaladeish")
