"""Agents' tokens: verbs, projects, expiry, revocation, what is kept of them, and the page that shows a new one once.

That they see and change nothing beyond their rights is in ``test_matrix.py``.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import shlex
import tomllib
from datetime import timedelta
from io import StringIO
from typing import Any

from django.core.management import call_command
from django.test import tag
from django_q.models import Schedule

from memoryhub.config.clients import all_clients
from memoryhub.core import clock
from memoryhub.core.errors import ConflictError, Forbidden, NotFound, Unauthorized
from memoryhub.core.permissions import VERBS, Act, Grant, use_grant
from memoryhub.models import AgentToken
from memoryhub.registry import tokens
from memoryhub.registry.projects import ProjectCreate, create_project
from memoryhub.rest.api import api
from memoryhub.rest.auth import act_of_route
from memoryhub.web.signin import ensure_owner
from tests.api.client import RestTestCase
from tests.permissions import rest_requests as rest
from tests.setup.test_team import ENTRIES, INPUT, URL
from tests.support import HubTestCase

BODY = {"title": "t", "content": "c"}
TO_MAKE = "this caller may not create or set up projects and organisations; that needs the role owner"


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

    @tag("backend")
    def test_a_verb_comes_with_the_lesser_ones(self) -> None:
        self.make("a", "admin")
        self.make("w", "write")
        verbs = dict(AgentToken.objects.values_list("name", "verbs"))
        self.assertEqual(verbs, {"a": ["read", "write", "admin"], "w": ["read", "write"]})

    def test_a_name_is_given_once_for_good_and_a_project_must_exist(self) -> None:
        self.make("ci")
        tokens.revoke_token(name="ci", by="owner")
        with self.assertRaisesMessage(ConflictError, "such as ci-2"):
            self.make("ci")
        with self.assertRaisesMessage(NotFound, "there is no project 'gamma' in this hub; known: alpha, beta"):
            self.make("other", projects=["alpha", "gamma"])
        self.assertEqual(AgentToken.objects.count(), 1)


class UsingTests(TokenTestCase):
    def setUp(self) -> None:
        super().setUp()
        Schedule.objects.all().delete()  # no worker runs here, and what it would do falls due as the tests go on

    def test_a_refusal_says_which_token_may(self) -> None:
        reader, writer = self.make(), self.make("w", "write")
        member = self.make("alpha", "admin", projects=["alpha"])
        self.call("POST", "orgs", {"id": "acme"}, expect=201)
        self.call("PATCH", "projects/alpha", {"org_id": "acme"})
        memory = f"projects/alpha/memories/{self.write()}"
        may_not = "this caller may not .+ or a token with"
        for token, method, path, body, sentence in (
            (reader, "POST", "projects/alpha/memories", BODY, f"{may_not} write"),
            (reader, "PATCH", "projects/alpha/settings", {"retention_days": 3}, f"{may_not} admin"),
            (reader, "POST", "hooks/claude/Stop", {}, f"{may_not} admin"),
            (writer, "POST", "projects", {"project_id": "gamma"}, f"{TO_MAKE}, or a token with admin"),
            (writer, "DELETE", f"{memory}?permanent=true", None, "or a token with admin"),
            (member, "POST", "projects/alpha/memories", {**BODY, "scope": "global"}, "limited to some projects"),
            (member, "PATCH", "projects/alpha", {"org_id": None}, "."),
        ):
            with self.subTest(path=path, method=method):
                self.assertRegex(self.detail(method, path, body, token=token, expect=403), sentence)
        with use_grant(Grant(VERBS["write"])), self.assertRaisesMessage(Forbidden, TO_MAKE):
            create_project(command=ProjectCreate(project_id="gamma"))

    def test_a_token_for_alpha_can_not_learn_what_else_there_is(self) -> None:
        text = self.make("ci", "admin", projects=["alpha"])
        said = self.detail("GET", "projects/beta/stats", token=text, expect=404)
        self.assertEqual(said, "there is no project 'beta' in this hub; known: alpha")
        self.assertEqual(
            self.detail("GET", "orgs/acme", token=text, expect=404), "there is no org 'acme' in this hub; known: none"
        )
        self.assertNotIn("parts", self.call("GET", "health", token=text).data)
        self.assertIn("parts", self.call("GET", "health").data)

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
        with self.assertRaises(Unauthorized):
            tokens.recognise(f"mh_{'0' * 8}_{'x' * 43}")

    @tag("backend")
    def test_its_last_use_is_noted_once_a_minute(self) -> None:
        text, now = self.make(), clock.now()
        for seconds, noted in ((0, 0), (59, 0), (61, 61), (90, 61)):
            with clock.frozen(now + timedelta(seconds=seconds)):
                self.call("GET", "projects/alpha/stats", token=text)
            token = AgentToken.objects.get()
            self.assertEqual(token.last_used_at, now + timedelta(seconds=noted))
        self.assertEqual(token.last_used_from, "127.0.0.1")


class RouteTests(TokenTestCase):
    def test_every_route_needs_what_the_documents_say(self) -> None:
        routes: dict[Act, set[str]] = {}
        for path, methods in api.get_openapi_schema()["paths"].items():
            pattern = path.removeprefix("/api/v1/").replace("{", "<").replace("}", ">")
            for method in methods:
                routes.setdefault(act_of_route(method.upper(), pattern), set()).add(f"{method} {path[8:]}")
        self.assertEqual(routes[Act.ADMINISTER], {"post hooks/{client}/{event}"})
        reviews = {f"post projects/{{project_id}}/{path}/review" for path in ("amendments", "memories/{memory_id}")}
        self.assertEqual(routes[Act.REVIEW], reviews)
        governed = {each.split("/")[2] for each in routes[Act.GOVERN] if "{project_id}/" in each}
        self.assertLessEqual(governed, {"settings", "retention", "holds", "redactions", "rollbacks"})
        self.assertIn("settings", governed)
        own = {each for each in routes[Act.GOVERN] if "{project_id}/" not in each}
        self.assertEqual(own, {"post projects", "patch projects/{project_id}", "post orgs", "patch orgs/{org_id}"})
        # Of members, the service decides who may change them; only owners look for what to redact.
        posted = {each for each in routes[Act.VIEW] if not each.startswith("get ") and "/members" not in each}
        self.assertEqual(posted, rest.ASKING - {f"post {rest.PROJECT}/redactions/preview"})


class TokenPageTests(HubTestCase):
    """A new token is shown once, with how clients take it from elsewhere than their files."""

    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha"):
            pass
        self.client.force_login(ensure_owner())

    def create(self, **fields: object) -> tuple[str, list[str], str]:
        """Return the new token, the texts to copy for its use, and the page."""
        form = {"name": "ci", "verbs": "write", "reach": "some", "projects": ["alpha"], "days": "30", **fields}
        response = self.client.post("/tokens", form, headers={"host": "localhost"})
        page = response.content.decode()
        snippets = re.findall(r'<pre [^>]*id="snippet-[^>]*>(.*?)</pre>', page, re.DOTALL)
        return str(response.context["text"]), [html.unescape(text) for text in snippets], page

    def test_every_client_has_its_command_and_a_script_the_variable_without_the_token(self) -> None:
        token, texts, page = self.create()
        self.assertEqual(page.count(token), 1)
        ask, curl = texts[-1].splitlines()
        self.assertEqual(ask, "read -rs MEMORY_HUB_TOKEN && export MEMORY_HUB_TOKEN")
        self.assertEqual(shlex.split(curl)[:3], ["curl", "-H", "Authorization: Bearer $MEMORY_HUB_TOKEN"])
        commands = [shlex.split(text) for text in texts if text.startswith("memory-hub ")]
        clients = [client.id for client in all_clients().values() if client.http]
        self.assertEqual([words[2] for words in commands], clients)
        for words in commands:
            self.assertEqual((words[:2], words[3]), (["memory-hub", "setup"], "--url"))
            self.assertTrue(words[4].endswith("/p/alpha/mcp"), words)
            call_command("setup", words[2], *words[3:5], "--dry-run", stdout=StringIO())

    def test_every_client_has_the_entry_that_the_command_writes(self) -> None:
        _, texts, page = self.create()
        found = [text for text in texts if not text.startswith(("memory-hub ", "read "))]
        for client, text in zip(ENTRIES, found, strict=True):
            with self.subTest(client=client):
                data = tomllib.loads(text) if text.startswith("[") else json.loads(text)
                (entry,) = data[all_clients()[client].servers[0]].values()
                url = next(value for value in entry.values() if str(value).endswith("/p/alpha/mcp"))
                self.assertEqual(entry, json.loads(json.dumps(ENTRIES[client]).replace(URL, url)))
                self.assertEqual(data.get("inputs", []), [INPUT] if client == "vscode" else [])
        for file in (".mcp.json", ".codex/config.toml", ".vscode/mcp.json", "~/.codeium/windsurf/mcp_config.json"):
            self.assertIn(file, page)

    def test_a_token_that_may_only_read_sets_up_no_hooks_and_one_without_a_project_names_its_place(self) -> None:
        _, texts, page = self.create(verbs="read", reach="hub")
        for text in texts:
            self.assertEqual(text.startswith("memory-hub "), text.endswith(" --no-hooks"))
        self.assertTrue(any("/p/PROJECT/mcp" in text for text in texts))
        self.assertIn("instead of PROJECT", page)
