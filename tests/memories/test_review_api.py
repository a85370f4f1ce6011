from __future__ import annotations

from memories.schemas import MemoryTouch, MemoryUpdate, MemoryWrite
from memories.services import delete_memory, update_memory, write_memory
from tests.api.client import RestTestCase

QUEUE = "projects/alpha/reviews"


class ReviewRouteTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.call("PATCH", "projects/alpha/settings", {"settings": {"review_policy": "all"}})
        with self.store("alpha", actor="codex", source="mcp"):
            self.ids = [
                write_memory(command=MemoryWrite(title=f"Title {number}", content=f"Text {number}.")).id
                for number in range(3)
            ]
        self.first = self.ids[0]

    def verdict(self, expect: int = 200, memory_id: int = 0, **body: object) -> dict[str, object]:
        path = f"projects/alpha/memories/{memory_id or self.first}/review"
        answer: dict[str, object] = self.call("POST", path, {"verdict": "accepted", **body}, expect=expect).data
        return answer

    def test_the_queue_is_paged_and_limited_to_the_project(self) -> None:
        page = self.call("GET", f"{QUEUE}?limit=2").data
        rest = self.call("GET", f"{QUEUE}?limit=2&cursor={page['meta']['next_cursor']}").data
        self.assertEqual([item["id"] for item in page["results"] + rest["results"]], self.ids)
        self.assertEqual(page["results"][0]["review_reason"], "policy reviews all writes")
        self.assertEqual(self.call("GET", "projects/beta/reviews").data["results"], [])

    def test_a_verdict_is_given_once_and_on_the_reviewed_version(self) -> None:
        with self.store("alpha", actor="codex", source="mcp"):
            update_memory(command=MemoryUpdate(id=self.first, content="Another text."))
        refused = self.verdict(412, base_version=1)
        self.assertEqual((refused["id"], refused["version"]), (self.first, 2))
        done = self.verdict(base_version=2, verdict="rejected", reason="It is not so.")
        self.assertEqual((done["review"], done["review_reason"]), ("rejected", "It is not so."))
        self.assertIn("is rejected already", str(self.verdict(409, verdict="rejected")["detail"]))
        shown = self.call("GET", f"{QUEUE}?review=rejected").data["results"]
        self.assertEqual([item["id"] for item in shown], [self.first])

    def test_unknown_memories_and_bad_input_are_refused(self) -> None:
        self.verdict(404, memory_id=999)
        self.verdict(422, verdict="withdrawn")
        self.verdict(422, verdict="")
        with self.store("alpha"):
            delete_memory(command=MemoryTouch(id=self.first))
        self.verdict(410)

    def test_a_script_cannot_review_its_own_writes(self) -> None:
        mine = self.write()
        self.assertIn("wrote version 1", str(self.verdict(403, memory_id=mine)["detail"]))
