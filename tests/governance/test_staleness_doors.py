from __future__ import annotations

from governance.tools import TOOLS
from memories.pack import preview_pack
from memories.schemas.query import ContextPackRequest
from tests.api.client import RestTestCase
from tests.governance.staleness import StalenessTestCase

SHOW, AFFIRM, *_ = TOOLS


class ToolTests(StalenessTestCase):
    def test_agents_see_what_waits_and_say_that_it_holds(self):
        decision = self.record("Sign tokens", files=["src/auth.py"]).id
        self.assertEqual(SHOW.handler(SHOW.input()).text, "nothing needs rechecking")
        self.commit_now("Shorten tokens", "src/auth.py")
        self.assertEqual(
            SHOW.handler(SHOW.input()).text,
            f"#{decision} decision Sign tokens — since 2026-11-20: "
            "commit 0000000000 “Shorten tokens” touched src/auth.py\n(1 of 1)",
        )
        said = AFFIRM.handler(AFFIRM.input(id=decision, reason="shorter is safer"))
        self.assertEqual(said.text, f"#{decision} decision affirmed: Sign tokens")
        self.assertEqual(SHOW.handler(SHOW.input()).data["results"], [])

    def test_a_list_stays_within_its_budget(self):
        for number in range(30):
            self.guide(f"Guide {number}", "src/")
        self.commit_now("Touch", "src/a.py")
        found = SHOW.handler(SHOW.input(max_tokens=200))
        self.assertTrue(found.data["meta"]["truncated"])
        self.assertIn("of 30; more: cursor=", found.text)


class PackTests(StalenessTestCase):
    def pack(self) -> str:
        return preview_pack(command=ContextPackRequest()).body.text

    def test_a_pack_says_what_waits_and_why(self):
        decision = self.record("Sign tokens", files=["src/auth.py"]).id
        self.assertNotIn("Needs recheck", self.pack())
        self.commit_now("Shorten tokens", "src/auth.py")
        self.assertRegex(
            self.pack(),
            rf"Needs recheck: memory_affirm .*:\n- #{decision} decision Sign tokens — .*touched src/auth.py",
        )
        self.affirm(decision)
        self.assertNotIn("Needs recheck", self.pack())

    def test_what_has_merely_expired_is_in_no_pack(self):
        self.write("Port", kind="knowledge", attributes={"valid_until": "2026-11-20T12:30:00Z"})
        self.pass_time(days=1)
        self.assertEqual(len(self.due()), 1)
        self.assertNotIn("Port", self.pack())


class RestTests(RestTestCase):
    def test_what_waits_is_listed_with_why_and_affirmed_and_another_project_sees_nothing(self):
        body = {"title": "Sign tokens", "chosen": "HMAC", "files": ["src/auth.py"]}
        decision = self.call("POST", "projects/alpha/decisions", body, expect=201).data["id"]
        files = [{"path": "src/auth.py", "insertions": 2, "deletions": 1}]
        commit = {"sha": "a" * 40, "message": "Shorten", "committed_at": "2040-01-01T00:00:00Z", "files": files}
        self.call("POST", "projects/alpha/commits", [commit])
        found = self.call("GET", "projects/alpha/stale?kind=decision&diff=true").data
        self.assertEqual([item["id"] for item in found["results"]], [decision])
        self.assertEqual(found["results"][0]["commits"][0]["files"], files)
        self.assertEqual(self.call("GET", "projects/beta/stale").data["results"], [])
        path = f"stale/{decision}/affirm"
        self.call("POST", f"projects/beta/{path}", {"reason": "holds"}, expect=404)
        listed = [
            self.call("POST", f"projects/alpha/{path}", {"reason": "holds"}, Idempotency_Key="k").data for _ in range(2)
        ]
        self.assertEqual(
            [(item["title"], item["is_new"]) for item in listed], [("Sign tokens", True), ("Sign tokens", False)]
        )
        self.call("POST", f"projects/alpha/decisions/{decision}/status", {"status": "deprecated"})
        self.call("POST", f"projects/alpha/{path}", {}, expect=409)
        self.call("GET", "projects/alpha/stale?kind=guidelines", expect=422)
