from __future__ import annotations

from tests.api.client import RestTestCase

ALPHA = "projects/alpha"
MEMORY = {"title": "T", "content": "text"}


class WorkTests(RestTestCase):
    def begin(self) -> dict[str, str]:
        self.call("POST", f"{ALPHA}/sessions", {"session_id": "s1"}, expect=201)
        turn: dict[str, str] = self.call("POST", f"{ALPHA}/turns/begin", {"session_id": "s1"}, expect=201).data
        return turn

    def test_a_turn_is_begun_appended_to_and_ended(self) -> None:
        turn = self.begin()
        event = {"ack_token": turn["ack_token"], "type": "command_run", "payload": {"command": "make test"}}
        self.assertEqual(self.call("POST", f"{ALPHA}/turns/append", event, expect=201).data["type"], "command.run")
        ended = self.call("POST", f"{ALPHA}/turns/end", {"ack_token": turn["ack_token"]}).data
        self.assertEqual((ended["status"], ended["event_count"]), ("closed", 1))
        refused = self.call("POST", f"{ALPHA}/turns/append", event, expect=412).data
        self.assertEqual((refused["code"], refused["reason"]), ("precondition_failed", "closed"))
        listed = self.call("GET", f"{ALPHA}/turns?status=closed").data
        self.assertEqual([turn["turn_id"] for turn in listed["results"]], [turn["turn_id"]])
        self.assertNotIn("ack_token", str(listed))

    def test_strict_asks_for_the_token_in_a_header(self) -> None:
        turn = self.begin()
        self.call("PATCH", f"{ALPHA}/settings", {"settings": {"turn_policy": "strict"}})
        self.assertEqual(self.call("POST", f"{ALPHA}/memories", MEMORY, expect=412).data["reason"], "no_token")
        token = turn["ack_token"]
        self.call("POST", f"{ALPHA}/memories", MEMORY, expect=201, X_Ack_Token=token)

    def test_an_unknown_setting_is_422_and_changes_nothing(self) -> None:
        self.call("PATCH", f"{ALPHA}/settings", {"settings": {"colour": "red"}}, expect=422)
        self.assertEqual(self.call("GET", f"{ALPHA}/settings").data["turn_policy"], "auto")

    def test_returned_settings_can_be_sent_back_and_protected_ones_stay(self) -> None:
        rule = {"what": "deleted", "kind": "guideline", "after_days": "never"}
        changed = {"settings": {"retention_days": "never", "retention": [rule]}}
        answered = self.call("PATCH", f"{ALPHA}/settings", changed).data
        self.assertEqual((answered["retention_days"], answered["retention"][0]["after_days"]), ("never", "never"))
        self.assertEqual(self.call("PATCH", f"{ALPHA}/settings", {"settings": answered}).data, answered)

    def test_an_iteration_goes_through_its_phases(self) -> None:
        started = self.call("POST", f"{ALPHA}/iterations", {"command": "feature", "description": "x"}, expect=201).data
        self.call("POST", f"{ALPHA}/iterations", {"command": "fix"}, expect=409)
        path = f"{ALPHA}/iterations/{started['id']}"
        self.call("POST", f"{path}/advance", {"phase": "build"})
        advanced = self.call("POST", f"{path}/advance", {"phase": "test", "artifacts": ["a.py"]}).data
        self.assertEqual((advanced["phases_completed"], advanced["phase"]), (["build"], "test"))
        commit = {"sha": "a" * 40, "message": "Add a", "committed_at": "2026-11-20T08:00:00Z"}
        recorded = self.call("POST", f"{ALPHA}/commits/read", commit).data
        self.assertEqual(recorded["iteration_id"], started["id"])
        self.call("POST", f"{path}/complete", {"outcome": "done"})
        found = self.call("GET", f"{path}?events=2").data
        self.assertEqual((found["status"], len(found["commits"]), len(found["events"])), ("completed", 1, 2))
        self.assertEqual(found["left_out"], 3)
        self.call("POST", f"{path}/complete", {}, expect=409)

    def test_sessions_pause_and_resume(self) -> None:
        self.begin()
        self.assertEqual(self.call("POST", f"{ALPHA}/sessions/s1/pause").data["status"], "paused")
        self.call("POST", f"{ALPHA}/sessions/s1/pause", expect=409)
        self.assertEqual(self.call("POST", f"{ALPHA}/sessions/s1/resume").data["status"], "active")

    def test_a_turn_finds_the_session_by_its_sanitised_name(self) -> None:
        for turn in ("t1", "t2"):
            body = {"session_id": "a\0b", "turn_id": turn}
            self.call("POST", "projects/alpha/turns/begin", body, expect=201)
