from __future__ import annotations

import json

from django.contrib.auth import get_user_model
from django.test import Client

from memoryhub.web import signin
from tests.api.client import RestTestCase
from tests.databases import sqlite_only

MEMORIES = "/api/v1/projects/alpha/memories"
BODY = {"title": "t", "content": "c"}
ROUTES = (
    "memories",
    "memories/1",
    "memories/1/versions",
    "search?q=wal",
    "timeline",
    "timeline?id=1",
    "stats",
    "sessions",
    "sessions/s1",
    "commits",
    "events",
    "events/verify",
)


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

    def test_without_token_or_session_everything_but_health_is_401(self) -> None:
        for route in ROUTES:
            with self.subTest(route=route):
                response = self.client.get(f"/api/v1/projects/alpha/{route}")
                self.assertEqual(response.status_code, 401)
                self.check_shape(response)
                self.assertIn("Bearer", response["WWW-Authenticate"])
        for path in ("/api/v1/projects", "/api/v1/projects/gamma/memories"):
            self.assertEqual(self.client.get(path).status_code, 401)
        for method in ("post", "patch", "delete"):
            response = getattr(self.client, method)(f"{MEMORIES}/1", BODY, content_type="application/json")
            self.assertIn(response.status_code, (401, 405))

    def test_a_wrong_token_is_401_even_beside_a_session(self) -> None:
        for token in ("", "wrong", "ü", "Bearer"):
            with self.subTest(token=token):
                self.call("GET", "projects/alpha/memories", token=token, expect=401)
        self._sign_in()
        response = self.browser.get(MEMORIES, headers={"Authorization": "Bearer wrong"})
        self.assertEqual(response.status_code, 401)

    def test_a_session_reads_and_writes_with_the_csrf_token(self) -> None:
        token = self._sign_in()
        self.assertEqual(self.browser.get(MEMORIES).status_code, 200)
        written = self.browser.post(MEMORIES, BODY, content_type="application/json", headers={"X-CSRFToken": token})
        self.assertEqual(written.status_code, 201)
        event = self.call("GET", "projects/alpha/events").data["results"][0]
        self.assertEqual((event["actor"], event["source"]), ("owner", "rest"))

    def test_a_session_without_the_csrf_token_writes_nothing(self) -> None:
        token = self._sign_in()
        for headers in ({}, {"X-CSRFToken": "x" * 64}, {"X-CSRFToken": token, "Origin": "http://evil.example"}):
            with self.subTest(headers=headers):
                response = self.browser.post(MEMORIES, BODY, content_type="application/json", headers=headers)
                self.assertEqual(response.status_code, 403)
                self.check_shape(response)
        self.assertEqual(self.call("GET", "projects/alpha/memories").data["results"], [])

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
        spelled = (
            "%2561lpha",
            "ALPHA",
            "alpha%00",
            "alpha%20",
            "beta/../alpha",
            "beta%2F..%2Falpha",
            "ａlpha",
            "alpha.",
        )
        for method, path in (
            *((method, MEMORIES) for method in ("GET", "HEAD", "OPTIONS", "PUT", "TRACE")),
            ("GET", f"{MEMORIES}?_method=POST"),
            ("POST", f"{MEMORIES}/"),
            ("POST", f"/{MEMORIES}"),
            *(("POST", f"/api/v1/projects/{name}/memories") for name in spelled),
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

    def test_a_user_who_is_not_staff_is_not_let_in(self) -> None:
        user = get_user_model().objects.create_user("guest")
        self.browser.force_login(user)
        self.assertEqual(self.browser.get(MEMORIES).status_code, 401)

    @sqlite_only("the token is a file; in a database, all machines agree on one")
    def test_a_replaced_token_counts_at_once(self) -> None:
        self.call("GET", "projects")
        another = "another-" * 5
        (self.home / "token").write_text(f"{another}\n")
        self.call("GET", "projects", token=another)
        self.assertEqual((self.home / "token").read_text(), f"{another}\n")


class IsolationTests(RestTestCase):
    def test_nothing_written_in_alpha_is_reachable_through_beta(self) -> None:
        self.write("Walrus", "walrus walrus walrus", topic_key="walrus", tags=["walrus"])
        self.call("POST", "projects/alpha/sessions", {"session_id": "s1", "purpose": "walrus"}, expect=201)
        commit = {"sha": "a" * 40, "message": "walrus", "committed_at": "2026-11-20T08:30:00Z"}
        self.call("POST", "projects/alpha/commits", [commit])
        self.assertEqual(self.call("GET", "projects/beta").data["events"], 0)
        routes = (*ROUTES[:3], "search?q=walrus", *ROUTES[4:6], *ROUTES[7:11], "memories?tags=walrus")
        for route in routes:
            with self.subTest(route=route):
                self.assertIn("walrus", self._body("alpha", route))
                self.assertNotIn("walrus", self._body("beta", route))

    def _body(self, project: str, route: str) -> str:
        from memoryhub.rest.auth import read_token

        path = f"/api/v1/projects/{project}/{route}"
        response = self.client.get(path, headers={"Authorization": f"Bearer {read_token()}"})
        return response.content.decode().lower()

    def test_alphas_ids_mean_nothing_in_beta(self) -> None:
        memory_id = self.write()
        for method, tail, body in (
            ("GET", "", None),
            ("PATCH", "", {"content": "x"}),
            ("DELETE", "", None),
            ("POST", "/restore", None),
            ("GET", "/versions", None),
        ):
            with self.subTest(method=method, tail=tail):
                self.call(method, f"projects/beta/memories/{memory_id}{tail}", body, expect=404)
        self.assertEqual(self.call("GET", f"projects/alpha/memories/{memory_id}").data["version"], 1)

    def test_a_cursor_or_a_key_of_alpha_tells_beta_nothing(self) -> None:
        self.call("POST", "projects/alpha/memories", BODY, expect=201, Idempotency_Key="k1")
        self.write()
        cursor = self.call("GET", "projects/alpha/memories?limit=1").data["meta"]["next_cursor"]
        self.assertEqual(self.call("GET", f"projects/beta/memories?cursor={cursor}").data["results"], [])
        answer = self.call("POST", "projects/beta/memories", BODY, expect=201, Idempotency_Key="k1")
        self.assertEqual(answer.data["status"], "created")
