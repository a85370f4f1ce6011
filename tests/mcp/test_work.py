from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.mcp.client import McpTestCase, Server

ROOT = Path(__file__).resolve().parents[2]


class StrictClientTests(McpTestCase):
    def setUp(self) -> None:
        self.server = self.connect(MEMORY_HUB_TURN_POLICY="strict")

    def begin(self, turn: str) -> str:
        answer = self.server.say("turn_begin", turn_id=turn)
        found = re.search(r"ack_token=(\S+)", answer)
        assert found, answer
        return found[1]

    def test_a_clients_whole_piece_of_work(self) -> None:
        say = self.server.say
        self.assertIn("reason: no_token", say("memory_write", title="T", content="x"))
        self.assertIn("reason: no_session", say("turn_begin"))
        self.assertIn("session work active", say("session_start", session_id="work", purpose="try turns"))
        token = self.begin("t1")
        self.assertIn("created #", say("memory_write", title="T", content="x", ack_token=token))
        approval = {"type": "user_approved", "payload": {"subject": "the plan"}, "ack_token": token}
        self.assertIn("user.approved to turn t1", say("event_append", **approval))
        self.assertIn("known: command.run", say("event_append", type="mind.read", payload={}, ack_token=token))
        self.work_in_an_iteration(token)
        self.assertRegex(say("turn_end", ack_token=token, summary="done"), r"turn t1 closed .* \d+ events: done")
        self.assertIn("reason: closed", say("turn_end", ack_token=token))
        self.pause_and_end()

    def work_in_an_iteration(self, token: str) -> None:
        say = self.server.say
        self.assertIn("feature active", say("iteration_start", command="feature", description="x", ack_token=token))
        self.assertIn("now: build", say("iteration_advance", phase="build", ack_token=token))
        sha = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
        given = {"sha": sha.strip()[:12]} if sha else {"sha": "a" * 40, "message": "m", "committed_at": "2026-11-20"}
        self.assertRegex(say("commit_record", **given, ack_token=token), r"#\d+ [0-9a-f]{10} .* iteration=#\d+")
        self.assertIn("completed", say("iteration_complete", outcome="it works", ack_token=token))
        shown = say("iteration_get")
        self.assertIn("outcome: it works", shown)
        self.assertIn("iteration.advanced build", shown)

    def pause_and_end(self) -> None:
        say = self.server.say
        self.assertIn("paused", say("session_pause", session_id="work"))
        self.assertIn("reason: session_ended", say("turn_begin", session_id="work"))
        self.assertIn("active", say("session_resume", session_id="work"))
        self.assertIn("reason: no_token", say("session_end", summary="tried"))
        self.assertIn("completed", say("session_end", summary="tried", ack_token=self.begin("t2")))
        self.assertIn("session work completed", say("session_list"))


class AutomaticTurnTests(McpTestCase):
    def test_a_client_that_knows_no_turns_has_them_all_the_same(self) -> None:
        server = self.connect()
        server.say("memory_write", title="first", content="one")
        server.say("memory_write", title="second", content="two")
        events = server.say("memory_timeline", before=20)
        self.assertEqual(
            [events.count(name) for name in ("session.started", "turn.began", "memory.written")], [1, 1, 2]
        )
        server.end()
        after = self.connect().say("memory_timeline", before=20)
        self.assertIn("turn.ended", after)

    def test_reading_opens_no_turn(self) -> None:
        server = self.connect_to("other")
        server.say("memory_search", query="anything")
        self.assertIn("no events yet", server.say("memory_timeline"))

    def test_a_call_that_is_refused_or_changes_nothing_opens_no_turn(self) -> None:
        server = self.connect_to("refused")
        self.assertIn("not_found", server.say("memory_update", id=99, content="x"))
        self.assertIn("invalid", server.say("memory_write", title="T", content="x", related_chunks="no list"))
        self.assertIn("not_found", server.say("memory_conflict_resolve", id=99, resolution="keep_a"))
        self.assertIn("no events yet", server.say("memory_timeline"))
        server.say("memory_write", title="T", content="x")
        events = server.say("audit_replay").splitlines()
        self.assertEqual([line.split()[2] for line in events[:3]], ["session.started", "turn.began", "memory.written"])

    def test_a_first_write_to_another_store_opens_the_turn_in_the_projects_own(self) -> None:
        server = self.connect_to("elsewhere")
        self.assertIn("created", server.say("memory_write", title="T", content="for all", scope="global"))
        events = server.say("audit_replay").splitlines()
        self.assertEqual([line.split()[2] for line in events[:2]], ["session.started", "turn.began"])

    def test_a_write_after_a_pause_resumes_the_session(self) -> None:
        server = self.connect_to("paused")
        server.say("memory_write", title="first", content="one")
        self.assertIn("paused", server.say("session_pause"))
        server.say("memory_write", title="second", content="two")
        self.assertRegex(server.say("session_list"), r"active")
        events = [line.split()[2] for line in server.say("audit_replay").splitlines()]
        self.assertEqual(events.count("session.started"), 1)
        self.assertEqual(events[4:8], ["session.paused", "session.resumed", "turn.began", "memory.written"])

    def connect_to(self, home: str) -> Server:
        return self.connect("--project", home)
