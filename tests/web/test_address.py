"""The project in the address: where pages lead, whose store they read, and what an error looks like."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any
from unittest import mock

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import Client, RequestFactory, tag
from django.urls import get_script_prefix

from memories.models import Memory
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.origin import current_origin
from memoryhub.core.stores.routing import current_alias
from memoryhub.core.stores.store import project_store
from memoryhub.web import middleware, signin
from tests.support import HubTestCase, forget_all_stores

PAGES = ("/", "/admin/login/", "/p/alpha/admin/", "/p/alpha/admin/memories/memory/", "/api/v1/docs", "/nowhere")
POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'"


@tag("process")
class WebTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.client = Client(headers={"host": "localhost"}, raise_request_exception=False)
        self.owner = signin.ensure_owner()
        for project in ("alpha", "beta"):
            with self.store(project):
                write_memory(command=MemoryWrite(title=f"The {project} memory", content=f"kept in {project}"))

    def sign_in(self) -> None:
        self.client.force_login(self.owner)


@tag("process")
class AddressTests(WebTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.sign_in()

    def test_each_project_shows_its_own_memories_alone(self) -> None:
        for project, other in (("alpha", "beta"), ("beta", "alpha")):
            page = self.client.get(f"/p/{project}/admin/memories/memory/")
            self.assertContains(page, f"The {project} memory")
            self.assertNotContains(page, f"The {other} memory")

    def test_every_link_of_a_page_stays_in_the_project(self) -> None:
        page = self.client.get("/p/alpha/admin/memories/memory/")
        self.assertContains(page, 'href="/p/alpha/admin/memories/memory/1/change/')
        self.assertNotContains(page, 'href="/admin/memories')
        self.assertEqual(get_script_prefix(), "/")

    def test_the_address_without_its_end_leads_to_the_admin(self) -> None:
        for path in ("/p/alpha", "/p/alpha/", "/p/alpha/admin"):
            with self.subTest(path=path):
                self.assertRedirects(
                    self.client.get(path), "/p/alpha/admin/", status_code=302, fetch_redirect_response=False
                )
        self.assertRedirects(
            self.client.get("/p/alpha/admin/memories/memory"),
            "/p/alpha/admin/memories/memory/",
            status_code=301,
            fetch_redirect_response=False,
        )

    def test_an_unknown_project_is_a_plain_404_and_is_not_made(self) -> None:
        page = self.client.get("/p/gamma/admin/")
        self.assertContains(page, "here is no project &#x27;gamma&#x27;", status_code=404)
        self.assertFalse((self.home / "projects/gamma").exists())

    def test_a_name_that_is_no_slug_is_no_page(self) -> None:
        for name in ("UPPER", "..", "%2e%2e", "-x", "a%2Fb", "x" * 65):
            with self.subTest(name=name):
                self.assertContains(self.client.get(f"/p/{name}/admin/"), "Page not found", status_code=404)

    def test_the_admin_is_nowhere_but_in_a_project_and_the_api_nowhere_but_outside(self) -> None:
        for path in ("/admin/", "/admin/memories/memory/", "/p/alpha/api/v1/health", "/p/alpha/signin/x"):
            with self.subTest(path=path):
                self.assertEqual(self.client.get(path).status_code, 404)

    def test_what_a_page_does_is_done_by_the_signed_in_user(self) -> None:
        seen = []

        def view(request: HttpRequest) -> HttpResponse:
            seen.append((current_origin().source, current_origin().actor, current_alias.get()))
            return HttpResponse()

        self._through_the_store(view)
        self.assertEqual(seen, [("admin", "owner", "store:project:alpha")])
        self.assertIsNone(current_alias.get())

    def test_a_lazy_template_is_rendered_in_the_store(self) -> None:
        template = engines["django"].from_string("{% for memory in memories %}{{ memory.title }}{% endfor %}")
        response = self._through_the_store(
            lambda request: TemplateResponse(request, template, {"memories": Memory.objects.all()})
        )
        self.assertEqual(response.content, b"The alpha memory")

    def test_a_stream_is_read_in_the_store(self) -> None:
        response = self._through_the_store(
            lambda request: StreamingHttpResponse(memory.title for memory in Memory.objects.filter(id=1).iterator())
        )
        self.assertEqual(b"".join(response.streaming_content), b"The alpha memory")

    def _through_the_store(self, view):
        request: Any = RequestFactory().get("/admin/")
        request.store, request.user = project_store("alpha"), self.owner
        return middleware.CurrentStore(lambda _: HttpResponse()).process_view(request, view, [], {})


@tag("process")
class FailureTests(WebTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.sign_in()
        self.path = path_of(project_store("alpha"))

    def test_a_locked_store_is_a_page_that_says_so(self) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with mock.patch("memoryhub.core.backends.sqlite.base.BUSY_TIMEOUT_SECONDS", 0.2):
                page = self.client.post("/p/alpha/admin/memories/memory/1/delete/", {"post": "yes"})
        self.assertContains(page, "emory database is locked by another process", status_code=423)

    def test_a_corrupted_store_is_a_page_and_the_project_list_still_works(self) -> None:
        forget_all_stores()
        self.path.write_bytes(b"not a database!!" * 1000)
        page = self.client.get("/p/alpha/admin/")
        self.assertContains(page, "emory database unavailable: ", status_code=503)
        home = self.client.get("/")
        self.assertContains(home, "emory database unavailable: ")
        self.assertContains(home, 'href="/p/beta/admin/')


@tag("process")
class HeaderTests(WebTestCase):
    def test_every_page_has_the_policy_signed_in_or_not(self) -> None:
        for signed_in in (False, True):
            if signed_in:
                self.sign_in()
            for path in (*PAGES, "/static/admin/css/base.css", "/signin/unknown"):
                with self.subTest(path=path, signed_in=signed_in):
                    response = self.client.get(path)
                    self.assertEqual(response["Content-Security-Policy"], POLICY)
                    self.assertEqual(response["X-Content-Type-Options"], "nosniff")
                    response.close()

    def test_no_page_has_script_or_style_of_its_own(self) -> None:
        self.sign_in()
        for path in PAGES:
            with self.subTest(path=path):
                page = self.client.get(path).content.decode()
                self.assertNotRegex(
                    page, r"<script>|<script type=\"(?!application/json|module)|<style|\son\w+=|\sstyle="
                )
                self.assertNotRegex(page, r"(src|href)=\"(https?:)?//")

    def test_a_foreign_host_is_refused(self) -> None:
        self.assertEqual(self.client.get("/", headers={"host": "evil.example"}).status_code, 400)

    def test_a_form_without_its_token_is_refused(self) -> None:
        browser = Client(headers={"host": "localhost"}, enforce_csrf_checks=True)
        browser.force_login(self.owner)
        page = browser.post("/p/alpha/admin/memories/memory/1/delete/", {"post": "yes"})
        self.assertContains(page, "This form has expired", status_code=403)
        self.assertEqual(browser.post("/signout").status_code, 403)
