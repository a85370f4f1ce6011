"""Agents' tokens at REST: verbs, projects, expiry, revocation, and what is kept of them."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

from django_q.models import Schedule

from memoryhub.core import clock
from memoryhub.core.errors import Conflict, NotFound, Unauthorized
from memoryhub.core.permissions import Act
from memoryhub.models import AgentToken
from memoryhub.registry import tokens
from memoryhub.rest.api import api
from memoryhub.rest.auth import act_of_route
from tests.api.client import RestTestCase

QUERY = "post projects/{project_id}/query"
ASKING = {QUERY, "post projects/{project_id}/rollbacks/preview", "post projects/{project_id}/sanitise"}
BODY = {"title": "t", "content": "c"}


class TokenTestCase(RestTestCase):
    def make(self, name: str = "ci", *verbs: str, projects: list[str] | None = None, days: int = 30) -> str:
        given = {"name": name, "verbs": list(verbs) or ["read"], "projects": projects, "days": days}
        return tokens.create_token(command=tokens.TokenCreate.model_validate(given), by="owner")[1]

    def detail(self, *call: Any, **options: Any) -> str:
        return str(self.call(*call, **options).data["detail"])


class KeepingTests(TokenTestCase):
    def test_only_the_hash_of_256_bits_and_a_public_beginning_are_kept(self) -> None:
        text = self.make()
        self.assertRegex(text, r"^mh_[a-z0-9]{8}_[A-Za-z0-9_-]{43}$")
        kept = AgentToken.objects.get()
        self.assertEqual(kept.token_hash, hashlib.sha256(text.encode()).hexdigest())
        self.assertEqual(text[: len(kept.prefix)], kept.prefix)
        self.assertNotIn(text[len(kept.prefix) + 1 :], " ".join(map(str, vars(kept).values())))

    def test_a_verb_comes_with_the_lesser_ones(self) -> None:
        self.make("a", "admin")
        self.make("w", "write")
        kept = dict(AgentToken.objects.values_list("name", "verbs"))
        self.assertEqual(kept, {"a": ["read", "write", "admin"], "w": ["read", "write"]})

    def test_a_name_is_given_once_for_good(self) -> None:
        self.make("ci")
        tokens.revoke_token(name="ci", by="owner")
        with self.assertRaisesMessage(Conflict, "such as ci-2"):
            self.make("ci")

    def test_a_token_is_for_projects_that_there_are(self) -> None:
        with self.assertRaisesMessage(NotFound, "there is no project 'gamma' in this hub; known: alpha, beta"):
            self.make(projects=["alpha", "gamma"])
        self.assertFalse(AgentToken.objects.exists())


class UsingTests(TokenTestCase):
    def setUp(self) -> None:
        super().setUp()
        Schedule.objects.all().delete()  # no worker runs here, and what it would do falls due as the tests go on

    def test_events_name_the_token(self) -> None:
        text = self.make("ci", "write", projects=["alpha"])
        self.call("POST", "projects/alpha/memories", BODY, token=text, expect=201)
        event = self.call("GET", "projects/alpha/events", token=text).data["results"][0]
        self.assertEqual((event["actor"], event["source"]), ("token:ci", "rest"))

    def test_a_token_that_may_read_writes_nothing(self) -> None:
        text, memory = self.make(), self.write()
        for method, path, body in (
            ("POST", "projects/alpha/memories", BODY),
            ("PATCH", f"projects/alpha/memories/{memory}", {"content": "other"}),
            ("DELETE", f"projects/alpha/memories/{memory}", None),
            ("POST", "projects/alpha/sessions", {"session_id": "s1", "purpose": "p"}),
            ("POST", "projects/alpha/turns/begin", {}),
            ("PATCH", "projects/alpha/settings", {"retention_days": 3}),
            ("POST", "projects", {"project_id": "gamma"}),
            ("POST", "orgs", {"org_id": "acme"}),
            ("POST", "hooks/claude/Stop", {}),
        ):
            with self.subTest(path=path, method=method):
                said = self.detail(method, path, body, token=text, expect=403)
                self.assertRegex(said, "this caller may not .+ or a token with (write|admin)")
        self.assertEqual(self.call("GET", "projects/alpha").data["events"], 1)
        self.assertEqual(
            [each["project_id"] for each in self.call("GET", "projects").data["results"]], ["alpha", "beta"]
        )
        self.call("POST", "projects/alpha/query", {}, token=text)
        self.call("GET", "projects/alpha/context", token=text)

    def test_a_token_that_may_write_does_not_govern(self) -> None:
        text = self.make("w", "write")
        memory = self.call("POST", "projects/alpha/memories", BODY, token=text, expect=201).data["id"]
        self.call("DELETE", f"projects/alpha/memories/{memory}", token=text)
        path = f"projects/alpha/memories/{memory}?permanent=true"
        self.assertIn("or a token with admin", self.detail("DELETE", path, token=text, expect=403))
        asked = self.call("DELETE", path, expect=409).data
        self.call("DELETE", f"{path}&confirm_token={asked['confirm_token']}", token=text, expect=403)
        self.call("PATCH", "projects/alpha/settings", {"retention_days": 30}, token=text, expect=403)
        self.call("PATCH", "projects/alpha", {"name": "A"}, token=text, expect=403)
        self.call("DELETE", f"{path}&confirm_token={asked['confirm_token']}", token=self.make("a", "admin"))

    def test_what_a_token_writes_it_does_not_accept_itself(self) -> None:
        self.call("PATCH", "projects/alpha/settings", {"settings": {"review_policy": "all"}})
        text = self.make("w", "write")
        memory = self.call("POST", "projects/alpha/memories", BODY, token=text, expect=201).data["id"]
        verdict = f"projects/alpha/memories/{memory}/review"
        self.assertIn("may not accept", self.detail("POST", verdict, {"verdict": "accepted"}, token=text, expect=403))
        self.call("POST", verdict, {"verdict": "accepted"}, token=self.make("a", "admin"))

    def test_a_token_for_alpha_can_not_learn_what_else_there_is(self) -> None:
        text = self.make("ci", "admin", projects=["alpha"])
        self.write("Walrus")
        for path in ("", "/memories", "/search?q=x", "/stats", "/events", "/settings", "/context"):
            there, nowhere = (
                self.detail("GET", f"projects/{project}{path}", token=text, expect=404).replace(project, "…")
                for project in ("beta", "gamma")
            )
            self.assertEqual(there, nowhere)
            self.assertEqual(there, "there is no project '…' in this hub; known: alpha")
        for project in ("beta", "gamma"):
            self.call("POST", f"projects/{project}/memories", BODY, token=text, expect=404)
            self.call("POST", "projects", {"project_id": project}, token=text, expect=403)
        listed = self.call("GET", "projects", token=text)
        self.assertEqual([each["project_id"] for each in listed.data["results"]], ["alpha"])
        self.call("POST", "orgs", {"org_id": "acme"}, expect=201)
        self.assertEqual(self.call("GET", "orgs", token=text).data["results"], [])
        there, nowhere = (
            self.detail("GET", f"orgs/{org}", token=text, expect=404).replace(org, "…") for org in ("acme", "none-such")
        )
        self.assertEqual((there, nowhere), 2 * ("there is no org '…' in this hub; known: none",))
        self.call("GET", "metrics", token=text, expect=403)
        self.call("POST", "orgs", {"org_id": "other"}, token=text, expect=403)
        self.call("POST", "hooks/claude/Stop", {}, token=text, expect=403)
        self.assertNotIn("parts", self.call("GET", "health", token=text).data)
        self.assertFalse((self.home / "projects" / "gamma").exists())

    def test_a_token_for_alpha_changes_nothing_that_others_inherit(self) -> None:
        self.call("POST", "orgs", {"org_id": "acme"}, expect=201)
        self.call("PATCH", "projects/alpha", {"org_id": "acme"})
        text = self.make("ci", "admin", projects=["alpha"])
        for scope in ("org", "global"):
            said = self.detail("POST", "projects/alpha/memories", {**BODY, "scope": scope}, token=text, expect=403)
            self.assertIn("limited to some projects", said)
        self.call("PATCH", "projects/alpha", {"org_id": None}, token=text, expect=403)
        self.call(
            "POST", "projects/alpha/memories", {**BODY, "scope": "global"}, token=self.make("all", "write"), expect=201
        )

    def test_what_has_expired_or_is_revoked_or_never_was_is_401(self) -> None:
        text = self.make(days=1)
        with clock.frozen(clock.now() + timedelta(days=1)):
            self.assertIn("the token 'ci' expired on", self.detail("GET", "projects", token=text, expect=401))
        self.call("GET", "projects", token=text)
        tokens.revoke_token(name="ci", by="ann")
        answer = self.call("GET", "projects", token=text, expect=401)
        self.assertIn("the token 'ci' was revoked on", answer.data["detail"])
        self.assertIn("Bearer", answer["WWW-Authenticate"])
        self.assertNotIn(text[12:], answer.content.decode())
        other = text[:-1] + ("A" if text[-1] != "A" else "B")
        for wrong in (other, f"mh_{'0' * 8}_{'x' * 43}", text[:-1], f"{text}x", "mh_"):
            with self.subTest(wrong=wrong):
                said = self.detail("GET", "projects", token=wrong, expect=401)
                self.assertNotIn("ci", said.split())
                self.assertNotIn(wrong[12:] or "\0", said)

    def test_its_last_use_is_noted_once_a_minute(self) -> None:
        text, now = self.make(), clock.now()
        for seconds, noted in ((0, 0), (59, 0), (61, 61), (90, 61)):
            with clock.frozen(now + timedelta(seconds=seconds)):
                self.call("GET", "projects/alpha/stats", token=text)
            token = AgentToken.objects.get()
            self.assertEqual(token.last_used_at, now + timedelta(seconds=noted))
        self.assertEqual(token.last_used_from, "127.0.0.1")

    def test_the_hubs_own_token_goes_on_with_all_rights(self) -> None:
        self.make()
        self.call("POST", "projects", {"project_id": "gamma"}, expect=201)
        self.assertIn("parts", self.call("GET", "health").data)
        with self.assertRaises(Unauthorized):
            tokens.recognise(f"mh_{'0' * 8}_{'x' * 43}")


class RouteTests(TokenTestCase):
    def test_every_route_needs_what_the_documents_say(self) -> None:
        wanted: dict[Act, set[str]] = {}
        for path, methods in api.get_openapi_schema()["paths"].items():
            route = path.removeprefix("/api/v1/").replace("{", "<").replace("}", ">")
            for method in methods:
                wanted.setdefault(act_of_route(method.upper(), route), set()).add(f"{method} {path[8:]}")
        self.assertEqual(wanted[Act.ADMINISTER], {"post hooks/{client}/{event}"})
        self.assertEqual(wanted[Act.REVIEW], {"post projects/{project_id}/memories/{memory_id}/review"})
        governed = {each.split("/")[2] for each in wanted[Act.GOVERN] if "{project_id}/" in each}
        self.assertLessEqual(governed, {"settings", "retention", "holds", "redactions", "rollbacks"})
        self.assertIn("settings", governed)
        own = {each for each in wanted[Act.GOVERN] if "{project_id}/" not in each}
        self.assertEqual(own, {"post projects", "patch projects/{project_id}", "post orgs", "patch orgs/{org_id}"})
        # Of members, the service decides who may change them
        posted = {each for each in wanted[Act.VIEW] if not each.startswith("get ") and "/members" not in each}
        self.assertEqual(posted, ASKING)


class SessionTests(TokenTestCase):
    def test_a_signed_in_person_has_the_rights_of_her_role(self) -> None:
        from django.test import Client

        from memoryhub.registry.people import PersonAdd, add_person

        for role, may_write in (("viewer", False), ("reviewer", True)):
            with self.subTest(role=role):
                browser = Client(headers={"host": "localhost"})
                browser.force_login(add_person(command=PersonAdd(name=role[:3], role=role)))
                self.assertEqual(browser.get("/api/v1/projects/alpha/memories").status_code, 200)
                sent = {"title": role, "content": "c"}
                written = browser.post("/api/v1/projects/alpha/memories", sent, content_type="application/json")
                self.assertEqual(written.status_code, 201 if may_write else 403)
                settings = browser.patch("/api/v1/projects/alpha/settings", {}, content_type="application/json")
                self.assertEqual(settings.status_code, 403)
