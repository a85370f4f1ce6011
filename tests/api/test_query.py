from __future__ import annotations

from tests.api.client import RestTestCase

QUERY = "projects/alpha/query"
CONFLICTS = "projects/alpha/conflicts"


class QueryTests(RestTestCase):
    def test_a_query_is_the_body_and_pages_by_its_cursor(self):
        for number in range(3):
            self.write(f"Rule {number}", content=f"text {number}", kind="guideline", tags=["python"])
        question = {
            "types": ["guidelines"],
            "scope": {"type": "project", "id": "alpha"},
            "tags": {"require": ["python"]},
        }
        first = self.call("POST", QUERY, {**question, "limit": 2}).data
        self.assertEqual((first["meta"]["total_count"], first["meta"]["returned_count"]), (3, 2))
        rest = self.call("POST", QUERY, {**question, "cursor": first["meta"]["next_cursor"]}).data
        self.assertEqual(
            sorted(item["title"] for item in first["results"] + rest["results"]), ["Rule 0", "Rule 1", "Rule 2"]
        )
        self.assertEqual(first["results"][0]["parts"]["tags"], {"value": 1.0, "points": 3.0})
        self.assertEqual(self.call("POST", "projects/beta/query", {}).data["results"], [])

    def test_invalid_queries_are_refused_in_one_sentence(self):
        for body, output in (
            ({"types": ["decisions"]}, "'types[0]' must be one of"),
            ({"tags": {"all": ["x"]}}, "'tags.all' is not known"),
            ({"scope": {"type": "project", "id": "beta"}}, "bound to project alpha"),
            ({"limit": 0}, "'limit' must be at least 1"),
        ):
            with self.subTest(output):
                self.assertIn(output, self.call("POST", QUERY, body, expect=422).data["detail"])
        self.call("POST", QUERY, {"related_to": {"type": "tool", "id": "Nothing"}}, expect=404)


class ConflictTests(RestTestCase):
    def dispute(self) -> int:
        memory_id = self.write("Rule")
        for text in ("Use tabs.", "Use spaces."):
            change = {"content": text, "base_version": 1}
            self.call("PATCH", f"projects/alpha/memories/{memory_id}", change)
        (item,) = self.call("GET", CONFLICTS).data["results"]
        conflict_id: int = item["id"]
        return conflict_id

    def test_conflicts_are_listed_read_and_resolved_once(self):
        conflict_id = self.dispute()
        one = self.call("GET", f"{CONFLICTS}/{conflict_id}").data
        self.assertEqual((one["a"]["content"], one["b"]["content"]), ("Use tabs.", "Use spaces."))
        self.assertIn("[-tabs-]{+spaces+}", one["diff"])
        body = {"resolution": "merge", "content": "Use either.", "reason": "agreed"}
        settled = self.call("POST", f"{CONFLICTS}/{conflict_id}/resolve", body).data
        self.assertEqual((settled["resolution"], settled["version"]), ("merge", 4))
        self.call("POST", f"{CONFLICTS}/{conflict_id}/resolve", body, expect=409)
        self.assertEqual(self.call("GET", CONFLICTS).data["results"], [])
        self.assertEqual(len(self.call("GET", f"{CONFLICTS}?all=true").data["results"]), 1)

    def test_beta_has_none_of_alphas(self):
        conflict_id = self.dispute()
        self.assertEqual(self.call("GET", "projects/beta/conflicts").data["results"], [])
        self.call("GET", f"projects/beta/conflicts/{conflict_id}", expect=404)
        self.call("POST", f"projects/beta/conflicts/{conflict_id}/resolve", {"resolution": "keep_a"}, expect=404)
