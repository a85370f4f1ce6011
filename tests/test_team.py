"""Two people and their clients in one hub: a conflict, a review, the log and the audit, through the real interfaces."""

from __future__ import annotations

import re
from typing import Any
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

    def join(self, person: str, role: str) -> None:
        """Add a person to the shop."""
        self.run_command("signin", "--user", person, "--role", "member")
        self.run_command("member", "add", person, "--project", "shop", "--role", role)

    def token(self, person: str, name: str, *verbs: str) -> str:
        made = self.run_command("token", "create", "--person", person, "--name", name, "--verbs", *verbs)
        return made.split()[-1]

    def client(self, token: str) -> HttpSession:
        return HttpSession(HubProject(self.hub, "shop", token))

    def api(self, token: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
        reply = self.hub.request(method, f"/api/v1/projects/{path}", body, Authorization=f"Bearer {token}")
        return reply.status, reply.json() if reply.body else None

    def found(self, token: str, path: str, name: str = "results") -> Any:
        status, answer = self.api(token, "GET", path)
        self.assertEqual(status, 200, answer)
        return answer[name]

    def number_in(self, answer: str) -> int:
        found = re.search(r"#(\d+)", answer)
        assert found, answer
        return int(found[1])

    def test_their_conflict_their_review_and_their_log(self) -> None:
        self.join("ann", "owner")
        self.join("ben", "reviewer")
        # Their agents write, and what needs a person's own right they do with another token.
        of_ann, of_ben = (self.client(self.token(person, "laptop", "write")) for person in ("ann", "ben"))
        ann, ben = (self.token(person, "desk", "admin") for person in ("ann", "ben"))

        number = self.number_in(of_ann.say("memory_write", title="Queue", content="Orders wait in Redis."))
        self.assertIn("Queue", of_ben.say("memory_search", query="queue orders"))
        of_ann.say("memory_update", id=number, base_version=1, content="Orders wait in PostgreSQL.")
        answer = of_ben.say("memory_update", id=number, base_version=1, content="Orders wait in Kafka.")
        self.assertIn("conflict", answer)
        (conflict,) = self.found(ann, "shop/conflicts")
        resolution = {"resolution": "keep_b"}
        self.assertEqual(self.api(ben, "POST", f"shop/conflicts/{conflict['id']}/resolve", resolution)[0], 200)
        self.assertEqual(self.found(ann, "shop/conflicts"), [])
        self.assertIn("Kafka", of_ann.say("memory_get", ids=[number]))

        policy = {"settings": {"review_policy": "all"}}
        self.assertEqual(self.api(ben, "PATCH", "shop/settings", policy)[0], 403)
        self.assertEqual(self.api(ann, "PATCH", "shop/settings", policy)[0], 200)
        proposed = self.number_in(of_ann.say("memory_write", title="Retry", content="Wait a minute after a refusal."))
        verdict = {"verdict": "accepted"}
        laptop = self.token("ben", "other", "write")
        self.assertEqual(self.api(laptop, "POST", f"shop/memories/{proposed}/review", verdict)[0], 403)
        self.assertEqual(self.api(ben, "POST", f"shop/memories/{proposed}/review", verdict)[0], 200)
        self.assertIn("Retry", of_ann.say("memory_search", query="retry refusal"))

        expected = {
            ("memory.written", "ann/laptop"),
            ("memory.revised", "ann/laptop"),
            ("memory.revised", "ben/laptop"),
            ("conflict.resolved", "ben/desk"),
            ("project.configured", "ann/desk"),
            ("memory.reviewed", "ben/desk"),
        }
        for token in (ann, ben):
            actors = {(event["event_type"], event["actor"]) for event in self.found(token, "shop/events?limit=100")}
            self.assertLessEqual(expected, actors)
            self.assertIs(self.found(token, "shop/events/verify", "ok"), True)

        of_ben.say("memory_context")
        for token in (ann, ben):
            (pack,) = self.found(token, "shop/audit")
            self.assertEqual((pack["person"], pack["client"], pack["door"]), ("ben", "laptop", "mcp"))

    def test_a_membership_that_ends_ends_everywhere_at_the_next_request(self) -> None:
        self.join("ann", "reviewer")
        ann = self.token("ann", "laptop", "write")
        session = self.client(ann)
        session.say("memory_write", title="Queue", content="Orders wait in Redis.")
        self.assertEqual(self.api(ann, "GET", "shop/memories")[0], 200)
        self.run_command("member", "remove", "ann", "--project", "shop")
        with session.begin("memory_search", query="queue") as refused:
            self.assertEqual(refused.status, 404)
            self.assertIn("there is no project 'shop' in this hub; known: none", refused.read().decode())
        self.assertEqual(self.api(ann, "GET", "shop/memories")[0], 404)
        self.assertEqual(self.api(ann, "GET", "never-was/memories")[0], 404)
