"""Decisions over REST."""

from __future__ import annotations

from typing import Any

from tests.api.client import RestTestCase

DECISIONS = "projects/alpha/decisions"
SHA = "a" * 40


class DecisionsApiTests(RestTestCase):
    def record(self, title: str = "Use WAL", **fields: Any) -> int:
        body = {"title": title, "chosen": f"Choose {title}.", **fields}
        answer = self.call("POST", DECISIONS, body, expect=201)
        decision_id: int = answer.data["id"]
        self.assertEqual(answer["Location"], f"/api/v1/{DECISIONS}/{decision_id}")
        return decision_id

    def test_a_decision_is_recorded_got_and_listed_and_another_project_sees_nothing(self) -> None:
        found = self.record(alternatives=["MVCC", {"option": "Locks", "why_not": "slow"}], impact="high")
        got = self.call("GET", f"{DECISIONS}/{found}").data
        self.assertEqual([each["option"] for each in got["alternatives"]], ["MVCC", "Locks"])
        self.assertNotIn("lineage", got)
        listed = self.call("GET", f"{DECISIONS}?impact=high&status=accepted").data
        self.assertEqual([each["id"] for each in listed["results"]], [found])
        self.assertEqual(self.call("GET", f"{DECISIONS}?impact=low").data["results"], [])
        self.call("GET", f"projects/beta/decisions/{found}", expect=404)
        self.assertEqual(self.call("GET", "projects/beta/decisions").data["meta"]["total_count"], 0)

    def test_the_same_key_again_gives_the_first_answer(self) -> None:
        body = {"title": "Use WAL", "chosen": "WAL"}
        first = self.call("POST", DECISIONS, body, expect=201, Idempotency_Key="k-1").data
        again = self.call("POST", DECISIONS, body, expect=200, Idempotency_Key="k-1").data
        self.assertEqual((again["id"], again["is_new"]), (first["id"], False))
        path = f"{DECISIONS}/{first['id']}"
        for route, change in (("status", {"status": "deprecated"}), ("evidence", {"notes": ["seen"]})):
            answers = [
                self.call("POST", f"{path}/{route}", change, Idempotency_Key=f"k-{route}").data for _ in range(2)
            ]
            self.assertEqual([each["is_new"] for each in answers], [True, False])

    def test_superseding_shows_in_the_lineage_and_what_is_superseded_is_a_conflict(self) -> None:
        first = self.record()
        answer = self.call("POST", f"{DECISIONS}/{first}/supersede", {"chosen": "A server"}, expect=201)
        second = answer.data["id"]
        self.assertEqual(answer["Location"], f"/api/v1/{DECISIONS}/{second}")
        refused = self.call("POST", f"{DECISIONS}/{first}/supersede", {"chosen": "Files"}, expect=409).data
        self.assertEqual(refused["heads"], [second])
        lineage = self.call("GET", f"{DECISIONS}/{first}/lineage").data
        self.assertEqual([each["id"] for each in lineage["descendants"]], [second])
        self.assertEqual([each["id"] for each in lineage["heads"]], [second])
        before = self.call("GET", f"{DECISIONS}/{first}?as_of={first}&lineage=true").data
        self.assertEqual((before["status"], before["lineage"]["descendant_count"]), ("accepted", 0))

    def test_status_and_edges_change_what_stands_around_it(self) -> None:
        first, second = self.record(), self.record("Locks")
        self.assertEqual(
            self.call("POST", f"{DECISIONS}/{first}/status", {"status": "deprecated"}).data["status"], "deprecated"
        )
        self.call("POST", f"{DECISIONS}/{second}/edges", {"relation": "refines", "to": first})
        refused = self.call("POST", f"{DECISIONS}/{first}/edges", {"relation": "refines", "to": second}, expect=409)
        self.assertEqual(refused.data["path"], [second, first])
        self.call("POST", f"{DECISIONS}/{first}/status", {"status": "superseded"}, expect=422)
        self.call("POST", f"{DECISIONS}/999/status", {"status": "accepted"}, expect=404)

    def test_evidence_leads_from_a_file_to_its_decisions(self) -> None:
        found = self.record()
        self.call("POST", f"{DECISIONS}/{found}/evidence", {"files": ["core/wal.py"], "commits": [SHA[:8]]})
        commit = {"sha": SHA, "message": "Open", "files": ["core/stores.py"], "committed_at": "2026-11-20T08:00:00"}
        recorded = self.call("POST", "projects/alpha/commits/read", commit).data
        self.assertEqual(recorded["decisions"], [{"id": found, "title": "Use WAL", "link_type": "implements"}])
        for path in ("core/wal.py", "core/stores.py", "core"):
            behind = self.call("GET", f"{DECISIONS}/behind?file_path={path}").data
            self.assertEqual([each["id"] for each in behind["results"]], [found])
        self.call("GET", f"{DECISIONS}/behind?file_path=docs", expect=404)
        self.call("GET", f"{DECISIONS}/behind", expect=422)
        self.call("POST", f"{DECISIONS}/{found}/evidence", {}, expect=422)

    def test_a_memory_is_no_decision(self) -> None:
        memory = self.write()
        problem = self.call("GET", f"{DECISIONS}/{memory}", expect=404).data
        self.assertIn("is a memory, not a decision; memory_get shows it", problem["detail"])
