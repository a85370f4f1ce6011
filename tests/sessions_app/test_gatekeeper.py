"""The gatekeeper: no protected write without a valid token, whatever two clients try in whatever order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

from django.test import tag
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, rule, run_state_machine_as_test
from pydantic import ValidationError

from memories.schemas import MemorySearch, MemoryWrite, Timeline
from memories.selectors import search
from memories.services import write_memory
from memories.timeline import timeline
from memoryhub.core import clock, log
from memoryhub.core.errors import ConflictError, Invalid, PreconditionFailed
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
from sessions_app import services
from sessions_app.audit import AuditReplay, replay_page
from sessions_app.models import Turn, TurnStatus
from sessions_app.schemas import EventAppend, SessionEnd, SessionStart, SettingsChange, TurnBegin, TurnEnd
from sessions_app.services import turns
from sessions_app.services.profile import change_settings
from tests.support import HubTestCase

START = datetime(2026, 11, 20, 8, tzinfo=UTC)
STRICT = SettingsChange(settings={"turn_policy": "strict"})


def append(token: str | None, **fields: object) -> int:
    command = EventAppend(ack_token=token, type="note.added", payload={"content": "so"}, **fields)
    return turns.append_event(command=command).position


class TurnsTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", source="mcp", actor="claude"))
        services.start_session(command=SessionStart(session_id="s1"))

    def begin(self, **fields: object) -> turns.NewTurn:
        return turns.begin_turn(command=TurnBegin(**{"session_id": "s1", **fields}))

    def refused(self, reason: str, call) -> str:
        head, counted = log.head(), self.rejections()
        with self.assertRaises(PreconditionFailed) as caught:
            call()
        self.assertEqual(caught.exception.data["reason"], reason)
        self.assertEqual(log.head(), head, "a refusal writes nothing")
        self.assertEqual(self.rejections(), counted + 1, "a refusal is counted")
        return caught.exception.message

    def rejections(self) -> float:
        samples = next(iter(turns.REJECTIONS.collect())).samples
        return sum(sample.value for sample in samples if sample.labels["project"] == "alpha")


class TurnTests(TurnsTestCase):
    def test_a_turn_is_begun_appended_to_and_ended(self):
        begun = self.begin(turn_id="t1")
        append(begun.ack_token)
        turn = turns.end_turn(command=TurnEnd(ack_token=begun.ack_token, summary="done"))
        self.assertEqual((turn.status, turn.event_count, turn.summary), (TurnStatus.CLOSED, 1, "done"))
        stream = RawEvent.objects.filter(stream_id="turn:s1/t1").order_by("position")
        self.assertEqual([event.stream_seq for event in stream], [1, 2, 3])
        self.assertEqual({(event.session_id, event.turn_id) for event in stream}, {("s1", "t1")})

    def test_a_token_has_128_bits_and_only_its_hash_is_stored(self):
        begun = self.begin()
        self.assertGreaterEqual(len(begun.ack_token) * 6, 128)
        for path in self.home.rglob("*"):
            if path.is_file():
                self.assertNotIn(begun.ack_token.encode(), path.read_bytes(), path)

    def test_every_refusal_names_the_precondition_and_the_next_step(self):
        first, second = self.begin(turn_id="t1"), self.begin(turn_id="t2")
        self.refused("no_token", lambda: append(None))
        self.refused("wrong_token", lambda: append("x" * 32))
        self.refused("other_turn", lambda: append(first.ack_token, turn_id="t2"))
        self.refused("other_session", lambda: append(first.ack_token, session_id="s2"))
        self.refused("no_session", lambda: turns.begin_turn(command=TurnBegin()))
        turns.end_turn(command=TurnEnd(ack_token=first.ack_token))
        self.assertIn("turn_begin", self.refused("closed", lambda: append(first.ack_token)))
        services.end_session(command=SessionEnd(session_id="s1"))
        self.refused("closed", lambda: append(second.ack_token))
        self.refused("session_ended", self.begin)

    def test_a_turn_in_a_new_session_begins_that_session(self):
        begun = self.begin(session_id="s7", turn_id="t1")
        types = RawEvent.objects.order_by("-position").values_list("event_type", flat=True)[:2]
        self.assertEqual((begun.turn.session_id, list(types)), ("s7", ["turn.began", "session.started"]))
        self.assertEqual(services.find_session(session_id="s7").status, "active")

    def test_a_token_of_another_project_opens_nothing(self):
        token = self.begin().ack_token
        with use_store(project_store("beta"), create=True):
            services.start_session(command=SessionStart(session_id="s1"))
            with self.assertRaises(PreconditionFailed) as caught:
                append(token)
        self.assertEqual(caught.exception.data["reason"], "wrong_token")

    def test_every_event_restarts_the_timeout(self):
        with clock.frozen(START):
            services.start_session(command=SessionStart(session_id="s9"))
            begun = self.begin(session_id="s9", turn_id="t")
        for minutes in (25, 50, 75):
            with clock.frozen(START + timedelta(minutes=minutes)):
                append(begun.ack_token)
        with clock.frozen(START + timedelta(minutes=75 + 31)):
            self.refused("expired", lambda: append(begun.ack_token))
            self.assertEqual(turns.expire_turns(), 1)
            self.refused("incomplete", lambda: append(begun.ack_token))
        self.assertEqual(Turn.objects.get(turn_id="t").status, TurnStatus.INCOMPLETE)

    def test_beginning_a_turn_expires_timed_out_ones_and_no_turn_begins_twice(self):
        with clock.frozen(START):
            self.begin(turn_id="old")
        self.begin(turn_id="new")
        self.assertEqual(Turn.objects.get(turn_id="old").status, TurnStatus.INCOMPLETE)
        with self.assertRaisesRegex(ConflictError, "already has a turn 'new'"):
            self.begin(turn_id="new")

    def append(self, name: str, payload: Mapping[str, object], **fields: str) -> tuple[str, dict[str, Any]]:
        """Append an event to a new turn, and return its type and payload as the log has them."""
        command = EventAppend(ack_token=self.begin().ack_token, type=name, payload=payload, **fields)
        row = RawEvent.objects.get(position=turns.append_event(command=command).position)
        self.assertEqual(row.trace_id, fields.get("trace_id", ""))
        return row.event_type, json.loads(row.payload_json or "")

    def test_misspelt_events_and_the_hubs_own_are_refused_with_the_known_ones(self):
        for name, sentence in (
            ("message.usr", "did you mean message.user?"),
            ("gate_fail", "did you mean gate.failed?"),
            ("memory.written", "is not an event type that clients append"),
            ("two words", "a word of your own such as deploy_started"),
        ):
            with self.subTest(name), self.assertRaisesRegex(Invalid, re.escape(sentence)) as caught:
                self.append(name, {})
            self.assertIn("message.user", caught.exception.data["known"])
        with self.assertRaisesRegex(
            Invalid, "payload of command.run: 'command' is required; it takes command, output[?], .*fields of your own"
        ):
            self.append("command_run", {})

    def test_payloads_keep_fields_that_their_type_does_not_name(self):
        failed = {"phase": "build", "reason": "two tests", "ghp_" + "a1B2" * 9: {"key": "AKIA" + "Q7ZX" * 4}}
        name, stored = self.append("gate_failed", failed, trace_id="4bf92f3577b34da6a3ce929d0e0e4736")
        self.assertEqual((name, stored["phase"], stored["reason"]), ("gate.failed", "build", "two tests"))
        self.assertEqual(str(stored).count("[REDACTED"), 2)
        self.assertEqual(self.append("user_approved", {"phase": "plan"}), ("user.approved", {"phase": "plan"}))
        self.assertEqual(self.append("gate_passed", {}, phase="plan"), ("gate.passed", {"phase": "plan"}))
        odd = {"content": "so", "title": {"a": 1}, "kind": ["x"], "attributes": 5}
        self.assertEqual(self.append("note.added", odd), ("note.added", odd))
        self.assertEqual([entry["title"] for entry in timeline(command=Timeline(before=1, after=0))][-1:], ["so"])
        for kind in ("note.added", "deploy_started"):
            with self.assertRaisesRegex(Invalid, "may have 100000 characters"):
                self.append(kind, {"content": "so", "more": "x" * 100_000})
        self.assert_rebuilds()

    def test_a_time_among_a_clients_own_fields_dates_nothing(self):
        self.append("phase_completed", {"phase": "plan", "started_at": "12"})
        self.append("note.added", {"content": "so", "began_at": "2001-01-01T00:00:00.000Z"})
        today = clock.to_text(clock.now())[:10]
        entries = timeline(command=Timeline(before=5, after=5))
        self.assertEqual({entry["occurred_at"][:10] for entry in entries}, {today})
        for time in ("12", "2025-13-99T00:00:00.000Z"):
            for kind in ("note.added", "message.user"):
                with self.subTest(kind=kind, time=time), self.assertRaises(Invalid):
                    self.append(kind, {"content": "so", "written_at": time})

    def test_events_of_a_clients_own_types_are_stored_under_their_name(self):
        payload = {"phase": "plan", "type": "x"}
        stored = {"type": "iteration_started", "payload": payload}
        self.assertEqual(self.append("iteration_started", payload), ("custom.recorded", stored))
        (event,) = replay_page(command=AuditReplay(type=["custom.recorded"])).results
        self.assertEqual(event["payload"]["type"], "iteration_started")

    def test_a_trace_is_one_word_and_never_one_of_the_hubs_own(self):
        for trace in ("import:7", "memory-hub demo", "x" * 65, "ghp_" + "a1B2" * 9):
            with self.subTest(trace), self.assertRaisesRegex(ValidationError, "trace_id"):
                EventAppend(type="note.added", payload={}, trace_id=trace)

    @tag("backend")
    def test_messages_are_found_with_and_without_the_index(self):
        token = self.begin().ack_token
        command = EventAppend(ack_token=token, type="message.user", payload={"content": "Why does the kettle whistle?"})
        position = turns.append_event(command=command).position
        for mode in ("auto", "basic"):
            found = search(command=MemorySearch(query="whistling kettles kettle"), mode=mode).results
            self.assertEqual([(hit["id"], hit["source"]) for hit in found], [(position, "message")])
            self.assertIn("kettle", found[0]["title"])
        self.assert_rebuilds()


class PolicyTests(TurnsTestCase):
    def write(self, title: str = "T") -> int:
        return write_memory(command=MemoryWrite(title=title, content=f"text of {title}")).id

    def test_a_strict_policy_requires_tokens_of_clients_only_and_to_end_a_session_too(self):
        self.write("under the automatic policy")
        change_settings(command=STRICT)
        end = SessionEnd(session_id="s1", summary="done")
        self.refused("no_token", self.write)
        self.refused("no_token", lambda: services.end_session(command=end))
        with use_origin(ack_token=self.begin(turn_id="t1").ack_token):
            self.assertEqual(RawEvent.objects.get(position=self.write()).turn_id, "t1")
            self.assertEqual(services.end_session(command=end).status, "completed")
        with use_origin(source="admin", actor="owner"):
            self.write("by a person")

    def test_an_unknown_setting_or_value_changes_nothing(self):
        head = log.head()
        for values in ({"colour": "red"}, {"turn_policy": "lax"}, {"ack_token_minutes": 0}):
            with self.subTest(values=values), self.assertRaises(Invalid):
                change_settings(command=SettingsChange(settings=values))
        self.assertEqual(log.head(), head)

    def test_the_environment_and_the_hubs_file_go_before_the_projects_own(self):
        change_settings(command=STRICT)
        (self.home / "config.toml").write_text('turn_policy = "auto"\n')
        self.write("by the file")
        with mock.patch.dict("os.environ", MEMORY_HUB_TURN_POLICY="strict"):
            self.refused("no_token", self.write)


class GatekeeperMachine(RuleBasedStateMachine):
    """Two clients begin, append, end, let time run out, and show each other's and old tokens."""

    tokens = Bundle("tokens")
    number = 0

    def __init__(self) -> None:
        super().__init__()
        GatekeeperMachine.number += 1
        self.store = project_store(f"gate-{self.number}")
        self.now = START
        self.open: dict[str, datetime] = {}
        self.acknowledged: list[int] = []
        with self.act("ada"):
            change_settings(command=STRICT)
            for session in ("ada", "bob"):
                services.start_session(command=SessionStart(session_id=session))

    @contextmanager
    def act(self, client: str) -> Iterator[None]:
        origin = use_origin(source="mcp", actor=client, session_id=client)
        with clock.frozen(self.now), use_store(self.store, create=True), origin:
            yield

    def is_open(self, token: str) -> bool:
        return self.open.get(token, self.now) > self.now

    def used(self, token: str) -> None:
        self.open[token] = self.now + timedelta(minutes=30)

    @rule(target=tokens, client=st.sampled_from(["ada", "bob"]))
    def begin(self, client: str) -> str:
        with self.act(client):
            token = turns.begin_turn(command=TurnBegin()).ack_token
        self.used(token)
        return token

    @rule(client=st.sampled_from(["ada", "bob"]), token=tokens)
    def append(self, client: str, token: str) -> None:
        with self.act(client):
            self.expect(token, lambda: append(token))

    @rule(client=st.sampled_from(["ada", "bob"]), token=tokens, number=st.integers(0, 5))
    def write(self, client: str, token: str, number: int) -> None:
        command = MemoryWrite(title=f"T{number}", content=f"{number}", if_exists="update")
        with self.act(client), use_origin(ack_token=token):
            before = log.head()[0]
            self.expect(token, lambda: write_memory(command=command) and log.head()[0] > before)

    def expect(self, token: str, call) -> None:
        """Check that the call succeeds exactly where the token's turn is open, and otherwise writes nothing."""
        head = log.head()
        try:
            written = call()
        except PreconditionFailed:
            assert not self.is_open(token), "an open turn was refused"
            assert log.head() == head, "a refusal wrote something"
            return
        assert self.is_open(token), "a write went through without an open turn"
        if written:
            self.used(token)
            self.acknowledged.append(log.head()[0])

    @rule(token=tokens)
    def end(self, token: str) -> None:
        with self.act("ada"), suppress(PreconditionFailed):
            turns.end_turn(command=TurnEnd(ack_token=token))
            assert self.is_open(token)
        self.open.pop(token, None)

    @rule(forged=st.text(alphabet="abcXYZ019-_", min_size=1, max_size=40))
    def forge(self, forged: str) -> None:
        with self.act("bob"):
            self.expect(forged, lambda: append(forged))

    @rule()
    def write_without(self) -> None:
        with self.act("bob"):
            self.expect("", lambda: write_memory(command=MemoryWrite(title="none", content="none")))

    @rule(minutes=st.sampled_from([1, 10, 29, 31, 90]))
    def wait(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @rule()
    def sweep(self) -> None:
        with self.act("ada"):
            turns.expire_turns()

    def teardown(self) -> None:
        """The log is only ever appended to: whatever was lost, or left a gap, at any step is so at the end."""
        with self.act("ada"):
            assert log.verify().ok
            streams: dict[str, list[int]] = {}
            for stream, number in RawEvent.objects.order_by("position").values_list("stream_id", "stream_seq"):
                streams.setdefault(stream, []).append(number)
            assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in streams.values())
            kept = set(RawEvent.objects.values_list("position", flat=True))
            assert set(self.acknowledged) <= kept
            assert log.rebuild().identical


class GatekeeperMachineTests(HubTestCase):
    def test_random_steps_never_bypass_the_gatekeeper(self):
        run_state_machine_as_test(
            GatekeeperMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
        )
