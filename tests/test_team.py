"""Two people and their clients in one hub: a conflict, a review, the log and the audit, through the real interfaces."""

from __future__ import annotations

import json
import re
from unittest import TestCase

from tests.mcp.http_server import HttpSession, HubProject
from tests.web.server import Server, Shell, serving


class TeamTests(TestCase):
    hub: Server
    shell: Shell

    def setUp(self) -> None:
        self.hub = self.enterContext(serving("--no-worker"))
        self.shell = Shell(self.hub.home)
        self.addCleanup(self.shell.close)
        for project in ("shop", "other"):
            self.assertEqual(self.hub.api("POST", "projects", {"project_id": project}).status, 201)

    def run_command(self, *words: str) -> str:
        code, output = self.shell.run(*words)
        self.assertEqual(code, 0, output)
        return output

    def join(self, person: str, role: str, *verbs: str) -> str:
        """Add a person to the shop, and return the token of their laptop."""
        self.run_command("signin", "--user", person, "--role", "member")
        self.run_command("member", "add", person, "--project", "shop", "--role", role)
        made = self.run_command("token", "create", "--person", person, "--name", "laptop", "--verbs", *verbs)
        return made.split()[-1]

    def client(self, token: str) -> HttpSession:
        return HttpSession(HubProject(self.hub, "shop", token))

    def api(self, token: str, method: str, path: str, body: object = None) -> tuple[int, object]:
        reply = self.hub.request(method, f"/api/v1/projects/{path}", body, Authorization=f"Bearer {token}")
        return reply.status, reply.json() if reply.body else None

    def test_their_conflict_their_review_and_their_log(self) -> None:
        ann, ben, olga = (
            self.join("ann", "reviewer", "write"),
            self.join("ben", "reviewer", "write"),
            self.join("olga", "owner", "admin"),
        )
        of_ann, of_ben = self.client(ann), self.client(ben)
        written = of_ann.say("memory_write", title="Queue", content="Orders wait in Redis.")
        number = int(re.search(r"#(\d+)", written)[1])  # type: ignore[index]
        self.assertIn("Queue", of_ben.say("memory_search", query="queue orders"))
        of_ann.say("memory_update", id=number, base_version=1, content="Orders wait in PostgreSQL.")
        answer = of_ben.say("memory_update", id=number, base_version=1, content="Orders wait in Kafka.")
        self.assertIn("conflict", answer)

        status, conflicts = self.api(olga, "GET", "shop/conflicts")
        self.assertEqual(status, 200)
        (conflict,) = conflicts["results"]  # type: ignore[index]
        resolution = {"resolution": "keep_b"}
        self.assertEqual(self.api(olga, "POST", f"shop/conflicts/{conflict['id']}/resolve", resolution)[0], 200)
        self.assertIn("Kafka", of_ann.say("memory_get", ids=[number]))

        self.api(olga, "PATCH", "shop/settings", {"settings": {"review_policy": "all"}})
        proposed = of_ben.say("memory_write", title="Retry", content="Wait a minute after a refusal.")
        second = int(re.search(r"#(\d+)", proposed)[1])  # type: ignore[index]
        verdict = {"verdict": "accepted"}
        self.assertEqual(self.api(ben, "POST", f"shop/memories/{second}/review", verdict)[0], 403)
        self.assertEqual(self.api(olga, "POST", f"shop/memories/{second}/review", verdict)[0], 200)

        lines = [json.loads(line) for line in self.run_command("replay", "--project", "shop").splitlines() if line]
        actors = {(line["event_type"], line["actor"]) for line in lines}
        self.assertLessEqual(
            {
                ("memory.written", "ann/laptop"),
                ("memory.revised", "ann/laptop"),
                ("conflict.resolved", "olga/laptop"),
                ("memory.reviewed", "olga/laptop"),
            },
            actors,
        )
        self.assertIn("the chain holds", self.run_command("verify", "--project", "shop"))

        of_ann.say("memory_context")
        audit = self.run_command("audit", "--project", "shop", "--person", "ann")
        self.assertIn("ann/laptop over mcp: 1 pack", audit)
        self.assertNotIn("ben", audit)

    def test_a_membership_that_ends_ends_everywhere_at_the_next_request(self) -> None:
        ann = self.join("ann", "reviewer", "write")
        session = self.client(ann)
        session.say("memory_write", title="Queue", content="Orders wait in Redis.")
        self.assertEqual(self.api(ann, "GET", "shop/memories")[0], 200)
        self.run_command("member", "remove", "ann", "--project", "shop")
        with session.begin("memory_search", query="queue") as refused:
            self.assertEqual(refused.status, 404)
            self.assertIn("there is no project 'shop' in this hub; known: none", refused.read().decode())
        self.assertEqual(self.api(ann, "GET", "shop/memories")[0], 404)
        self.assertEqual(self.api(ann, "GET", "never-was/memories")[0], 404)
