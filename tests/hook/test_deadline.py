"""A session's start waits one second for a team's hub, then gets the last pack. The clock of these tests is a fake."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from pathlib import Path
from typing import Any
from unittest import mock

from django.test import SimpleTestCase

from memoryhub.client.hook import front, team
from memoryhub.client.hook.post import Event
from memoryhub.client.setup.team import connect, parse_address
from memoryhub.teams import sending
from memoryhub.teams.connections import Connection
from tests.home import run_home

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
