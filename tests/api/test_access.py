from __future__ import annotations

import json
import re
from typing import Any

from django.contrib.auth import get_user_model
from django.test import Client, tag

from memoryhub.core import clock, log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.stores.store import org_store, project_store, use_store
from memoryhub.models import StoreCheck
from memoryhub.registry.projects import ProjectList, list_projects
from memoryhub.rest.api import api
from memoryhub.rest.auth import read_token
from memoryhub.web import signin
from sessions_app.selectors import profile
from tests.api.client import RestTestCase
from tests.databases import sqlite_only

MEMORIES = "/api/v1/projects/alpha/memories"
BODY = {"title": "t", "content": "c"}
# What some routes need to answer
QUERIES = {"search": "q=walrus", "blame": "file=a.py", "decisions/behind": "file_path=a.py"}


def project_reads() -> list[str]:
    """Return an address of every route that reads a project, below that of the project."""
    prefix = "/api/v1/projects/{project_id}"
    paths = [path for path, methods in api.get_openapi_schema()["paths"].items() if "get" in methods]
    routes = [path.removeprefix(f"{prefix}/") for path in paths if path.startswith(f"{prefix}/")]
    filled = [re.sub(r"\{\w+\}", "1", route.replace("{session_id}", "s1")) for route in routes]
    return [f"{route}?{QUERIES.get(route, '')}" for route in filled]


class AccessTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.browser = Client(headers={"host": "localhost"}, enforce_csrf_checks=True)

    def _sign_in(self) -> str:
        """Follow a sign-in link, and return the CSRF token of the page."""
        signin.ensure_owner()
        page = self.browser.get(f"/signin/{signin.create_link_token()}", follow=True)
        self.assertEqual(page.status_code, 200)
        return str(page.context["csrf_token"])

    def test_without_a_right_token_it_is_401_even_beside_a_session(self) -> None:
        response = self.client.get(MEMORIES)
        self.assertEqual(response.status_code, 401)
        self.check_shape(response)
        self.assertIn("Bearer", response["WWW-Authenticate"])
        for token in ("", "wrong", "ü", "Bearer"):
            with self.subTest(token=token):
                self.call("GET", "projects/alpha/memories", token=token, expect=401)
        self._sign_in()
        response = self.browser.get(MEMORIES, headers={"Authorization": "Bearer wrong"})
        self.assertEqual(response.status_code, 401)
        self.browser.force_login(get_user_model().objects.create_user("guest"))  # who is not staff
        self.assertEqual(self.browser.get(MEMORIES).status_code, 401)

    def test_a_session_reads_and_writes_with_the_csrf_token_alone(self) -> None:
        token = self._sign_in()
        self.assertEqual(self.browser.get(MEMORIES).status_code, 200)
        foreign = {"X-CSRFToken": token, "Origin": "http://evil.example"}
        for headers, status in (
            ({}, 403),
            ({"X-CSRFToken": "x" * 64}, 403),
            (foreign, 403),
            ({"X-CSRFToken": token}, 201),
        ):
            with self.subTest(headers=headers):
                response = self.browser.post(MEMORIES, BODY, content_type="application/json", headers=headers)
                self.assertEqual(response.status_code, status)
                self.check_shape(response)
        (event,) = self.call("GET", "projects/alpha/events").data["results"]
        self.assertEqual((event["actor"], event["source"]), ("owner", "rest"))

    def test_what_a_foreign_page_can_send_with_cookies_is_refused(self) -> None:
        self._sign_in()
        for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
            with self.subTest(content_type=content_type):
                response = self.browser.generic("POST", MEMORIES, '{"title": "t"}', content_type=content_type)
                self.assertEqual(response.status_code, 415)
                self.check_shape(response)

    def test_no_other_spelling_of_a_write_is_one(self) -> None:
        token = self._sign_in()
        override = {"X-HTTP-Method-Override": "POST", "X-HTTP-Method": "POST", "X-Method-Override": "POST"}
        projects = [
            "%2561lpha",
            "ALPHA",
            "alpha%00",
            "alpha%20",
            "beta/../alpha",
            "beta%2F..%2Falpha",
            "ａlpha",
            "alpha.",
        ]
        for method, path in (
            *((method, MEMORIES) for method in ("GET", "HEAD", "OPTIONS", "PUT", "TRACE")),
            ("GET", f"{MEMORIES}?_method=POST"),
            ("POST", f"{MEMORIES}/"),
            ("POST", f"/{MEMORIES}"),
            *(("POST", f"/api/v1/projects/{name}/memories") for name in projects),
        ):
            with self.subTest(method=method, path=path):
                headers = {"X-CSRFToken": token, **override}
                response = self.browser.generic(method, path, json.dumps(BODY), "application/json", headers=headers)
                self.assertTrue(response.status_code >= 400 or method in ("GET", "HEAD"), response.status_code)
        for charset in ("utf-7", "utf-16", "x" * 100):
            content_type = f"application/json; charset={charset}"
            response = self.browser.generic("POST", MEMORIES, json.dumps(BODY), content_type)
            self.assertIn(response.status_code, (403, 415), charset)
        for project in ("alpha", "beta"):
            self.assertEqual(self.call("GET", f"projects/{project}/memories").data["results"], [])

    @sqlite_only("the token is a file; in a database, all machines agree on one")
    def test_a_replaced_token_counts_at_once(self) -> None:
        self.call("GET", "projects")
        another = "another-" * 5
        (self.home / "token").write_text(f"{another}\n")
        self.call("GET", "projects", token=another)
        self.assertEqual((self.home / "token").read_text(), f"{another}\n")


class IsolationTests(RestTestCase):
    @tag("backend")
    def test_nothing_written_in_alpha_is_reachable_through_beta(self) -> None:
        self.write("Walrus", "walrus walrus walrus", topic_key="walrus", tags=["walrus"])
        self.call("POST", "projects/alpha/sessions", {"session_id": "s1", "purpose": "walrus"}, expect=201)
        commit = {"sha": "a" * 40, "message": "walrus", "committed_at": "2026-11-20T08:30:00Z"}
        self.call("POST", "projects/alpha/commits", [commit])
        self.assertEqual(self.call("GET", "projects/beta").data["events"], 0)
        shown = [route for route in project_reads() if "walrus" in self.text("alpha", route)]
        self.assertGreater(len(shown), 9, shown)
        self.assertEqual([route for route in project_reads() if "walrus" in self.text("beta", route)], [])

    def text(self, project: str, route: str) -> str:
        headers = {"Authorization": f"Bearer {read_token()}"}
        response: Any = self.client.get(f"/api/v1/projects/{project}/{route}", headers=headers)
        return (b"".join(response) if response.streaming else response.content).decode().lower()

    def test_alphas_ids_mean_nothing_in_beta(self) -> None:
        memory = f"memories/{self.write()}"
        for text in ("Use tabs.", "Use spaces."):  # both from the first version
            self.call("PATCH", f"projects/alpha/{memory}", {"content": text, "base_version": 1})
        conflict = f"conflicts/{self.call('GET', 'projects/alpha/conflicts').data['results'][0]['id']}"
        for method, path, body in (
            ("GET", memory, None),
            ("PATCH", memory, {"content": "x"}),
            ("DELETE", memory, None),
            ("POST", f"{memory}/restore", None),
            ("GET", f"{memory}/versions", None),
            ("GET", conflict, None),
            ("POST", f"{conflict}/resolve", {"resolution": "keep_a"}),
        ):
            with self.subTest(method=method, path=path):
                self.call(method, f"projects/beta/{path}", body, expect=404)
        self.assertEqual(self.call("GET", f"projects/alpha/{memory}").data["version"], 3)

    @tag("backend")
    def test_a_cursor_or_a_key_of_alpha_tells_beta_nothing(self) -> None:
        self.call("POST", "projects/alpha/memories", BODY, expect=201, Idempotency_Key="k1")
        self.write()
        cursor = self.call("GET", "projects/alpha/memories?limit=1").data["meta"]["next_cursor"]
        self.assertEqual(self.call("GET", f"projects/beta/memories?cursor={cursor}").data["results"], [])
        answer = self.call("POST", "projects/beta/memories", BODY, expect=201, Idempotency_Key="k1")
        self.assertEqual(answer.data["status"], "created")


GITHUB_TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class OrgTests(RestTestCase):
    def test_an_organisation_is_created_described_and_read(self) -> None:
        body = {"org_id": "acme", "name": "Acme", "metadata": {"house style": "plain"}}
        created = self.call("POST", "orgs", body, expect=201)
        self.assertEqual(created["Location"], "/api/v1/orgs/acme")
        self.assertEqual(self.call("GET", "orgs/acme").data, created.data)
        changed = self.call("PATCH", "orgs/acme", {"description": "Makes everything."}).data
        self.assertEqual((changed["name"], changed["metadata"]), ("Acme", {"house style": "plain"}))
        self.call("POST", "orgs", body, expect=409)
        again = self.call("POST", "orgs", {"id": "acme", "name": "ACME", "if_exists": "update"}, expect=201).data
        self.assertEqual((again["name"], again["description"]), ("ACME", "Makes everything."))

    def test_the_list_names_the_projects_of_each(self) -> None:
        for org in ("acme", "umbrella", "zeta"):
            self.call("POST", "orgs", {"org_id": org}, expect=201)
        for project in ("beta", "alpha"):
            self.call("PATCH", f"projects/{project}", {"org_id": "acme"})
        first = self.call("GET", "orgs?limit=2").data
        self.assertEqual([org["org_id"] for org in first["results"]], ["acme", "umbrella"])
        self.assertEqual(first["results"][0]["projects"], ["alpha", "beta"])
        second = self.call("GET", f"orgs?limit=2&cursor={first['meta']['next_cursor']}").data
        self.assertEqual([org["org_id"] for org in second["results"]], ["zeta"])
        self.assertEqual((second["meta"]["total_count"], second["meta"]["has_more"]), (3, False))

    def test_an_unknown_organisation_is_not_found_and_not_created(self) -> None:
        self.call("POST", "orgs", {"org_id": "acme"}, expect=201)
        for method, body in (("GET", None), ("PATCH", {"name": "x"})):
            answer = self.call(method, "orgs/umbrella", body, expect=404)
            self.assertIn("there is no org 'umbrella' in this hub; known: acme", answer.data["detail"])
        self.assertFalse(path_of(org_store("umbrella")).parent.exists())
        for name in ("UPPER", "..", "%2e%2e", "x" * 65):
            self.call("GET", f"orgs/{name}", expect=422)
            self.call("POST", "orgs", {"org_id": name}, expect=422)


class ProjectTests(RestTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.call("POST", "orgs", {"org_id": "acme"}, expect=201)

    def test_a_project_is_created_with_its_description(self) -> None:
        body = {
            "project_id": "gamma",
            "name": "Gamma",
            "description": "An aquarium.",
            "org_id": "acme",
            "root_path": "/src/gamma",
            "metadata": {"goals": ["ship"], "state": "begun"},
            "tags": ["Fish"],
        }
        created = self.call("POST", "projects", body, expect=201, Idempotency_Key="k").data
        self.assertEqual({name: created[name] for name in body}, {**body, "tags": ["fish"]})
        self.assertEqual((created["events"], created["chain_ok"]), (1, None))
        self.assertEqual(self.call("POST", "projects", body, expect=201, Idempotency_Key="k").data, created)
        self.assertIn("if_exists=update", self.call("POST", "projects", body, expect=409).data["detail"])
        with use_store(project_store("gamma")):
            (event,) = map(log.event_of, log.events())
        origin = (event.type, event.stream_id, event.actor, event.source)
        self.assertEqual(origin, ("project.described", "project", "token", "rest"))

    def test_a_change_keeps_other_fields_removes_secrets_and_null_removes_the_organisation(self) -> None:
        self.call("PATCH", "projects/alpha", {"name": "Alpha", "org_id": "acme"})
        changed = self.call("PATCH", "projects/alpha", {"description": f"token {GITHUB_TOKEN}", "org_id": None}).data
        self.assertEqual((changed["name"], changed["org_id"], changed["redacted"]), ("Alpha", None, ["github-token"]))
        self.assertRegex(changed["description"], r"^token \[REDACTED")
        self.assertNotIn(GITHUB_TOKEN, changed["description"])

    def test_a_refused_project_is_not_created(self) -> None:
        for fields, status in (
            ({"org_id": "umbrella"}, 404),
            ({"metadata": {"a": "x" * 16_000}}, 422),
            ({"org_id": "../x"}, 422),
            ({"colour": "red"}, 422),
        ):
            self.call("POST", "projects", {"project_id": "gamma", **fields}, expect=status)
        self.assertFalse(path_of(project_store("gamma")).parent.exists())
        detail = self.call("PATCH", "projects/alpha", {"metadata": {"a": "x" * 16_000}}, expect=422).data["detail"]
        self.assertIn("'metadata' is not valid: it has 16,009 characters as JSON and may have at most 16,000", detail)

    def test_the_list_can_be_filtered_by_organisation_and_has_the_last_check_of_the_chain(self) -> None:
        self.call("PATCH", "projects/beta", {"org_id": "acme", "description": "y" * 400})
        (project,) = self.call("GET", "projects?org_id=acme").data["results"]
        self.assertEqual((project["project_id"], len(project["description"])), ("beta", 300))
        self.assertEqual(len(self.call("GET", "projects").data["results"]), 2)
        compact = self.call("GET", "projects?limit=1&compact=true").data
        self.assertEqual((compact["results"][0]["project_id"], compact["meta"]["has_more"]), ("alpha", True))
        self.assertIn("no parameter 'colour'", self.call("GET", "projects?colour=red", expect=422).data["detail"])
        check = {"checked_at": clock.now(), "ok": False, "events": 1, "finding": "broken at #1"}
        StoreCheck.objects.create(store=project_store("alpha").alias, **check)
        self.assertEqual(self.call("GET", "projects/alpha").data["chain_finding"], "broken at #1")
        self.assertIs(self.call("GET", "projects").data["results"][0]["chain_ok"], False)

    @tag("backend")
    def test_more_projects_than_may_be_open_are_listed_all_the_same(self) -> None:
        for number in range(65):
            with use_store(project_store(f"many-{number:02}"), create=True):
                pass
        with self.store("alpha"):
            found = list_projects(command=ProjectList(limit=100))
            self.assertEqual(found.meta.total_count, 67)
            self.assertEqual([project for project in found.results if "problem" in project], [])
            self.assertEqual(profile().name, "")
