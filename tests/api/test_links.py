from __future__ import annotations

from tests.api.client import RestTestCase

ALPHA = "projects/alpha"


class TagRouteTests(RestTestCase):
    def test_a_tag_is_described_and_listed(self) -> None:
        body = {"name": "billing", "category": "domain"}
        made = self.call("POST", f"{ALPHA}/tags", body, expect=201).data
        found = self.call("GET", f"{ALPHA}/tags?prefix=bill").data
        self.assertEqual((found["results"][0]["id"], found["meta"]["total_count"]), (made["id"], 1))
        self.assertEqual(self.call("POST", f"{ALPHA}/tags", body, expect=409).data["id"], made["id"])
        self.assertIn(
            "no parameter 'categroy'", self.call("GET", f"{ALPHA}/tags?categroy=x", expect=422).data["detail"]
        )

    def test_tags_are_attached_and_detached(self) -> None:
        path = f"{ALPHA}/memories/{self.write(tags=['a'])}/tags"
        added = self.call("POST", path, {"tags": ["b", "c"]}, Idempotency_Key="k")
        self.assertEqual((added.data["tags"], added["ETag"]), (["a", "b", "c"], '"2"'))
        again = self.call("POST", path, {"tags": ["b", "c"]}, Idempotency_Key="k")
        self.assertEqual(again.data, added.data)
        taken = self.call("DELETE", f"{path}?tags=a&tags=c")
        self.assertEqual((taken.data["tags"], taken["ETag"]), (["b"], '"3"'))
        self.call("POST", f"{ALPHA}/memories/999/tags", {"tags": ["b"]}, expect=404)
        self.assertIn("'tags' must not be empty", self.call("POST", path, {"tags": []}, expect=422).data["detail"])


class RelationRouteTests(RestTestCase):
    def test_a_relation_is_created_kept_listed_and_deleted(self) -> None:
        first, second = self.write("One", "1"), self.write("Two", "2")
        body = {"source": first, "relation": "depends_on", "target": second}
        made = self.call("POST", f"{ALPHA}/relations", body, expect=201, Idempotency_Key="make")
        self.assertEqual(made["Location"], f"/api/v1/{ALPHA}/relations/{made.data['id']}")
        self.assertEqual(self.call("POST", f"{ALPHA}/relations", body).data["status"], "kept")
        (found,) = self.call("GET", f"{ALPHA}/relations?id={first}&direction=out").data["results"]
        self.assertEqual((found["target"]["title"], found["actor"]), ("Two", made.data["actor"]))
        shown = self.call("GET", f"{ALPHA}/memories/{first}?relations=true").data
        self.assertEqual([relation["id"] for relation in shown["relations"]], [found["id"]])
        circle = {"source": second, "relation": "depends_on", "target": first}
        self.assertEqual(self.call("POST", f"{ALPHA}/relations", circle, expect=409).data["path"], [first, second])
        gone = self.call("DELETE", f"{ALPHA}/relations/{made.data['id']}?reason=wrong").data
        self.assertEqual((gone["id"], gone["status"]), (made.data["id"], "deleted"))
        self.call("DELETE", f"{ALPHA}/relations/{made.data['id']}", expect=404)
        self.assertEqual(self.call("GET", f"{ALPHA}/relations").data["results"], [])

    def test_a_deleted_end_is_gone(self) -> None:
        first, second = self.write("One", "1"), self.write("Two", "2")
        self.call("DELETE", f"{ALPHA}/memories/{second}")
        body = {"source": first, "relation": "depends_on", "target": second}
        self.assertIn("restore it first", self.call("POST", f"{ALPHA}/relations", body, expect=410).data["detail"])
        self.call("GET", f"{ALPHA}/relations?id={second}", expect=410)
