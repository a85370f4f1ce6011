"""Pages by their address: the project in it, errors, headers, background tasks, and the documentation."""

from __future__ import annotations

import posixpath
import re
import shutil
import sqlite3
import threading
from contextlib import closing
from typing import Any
from unittest import mock

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import Client, RequestFactory, SimpleTestCase
from django.urls import get_script_prefix

from memories.models import Memory
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core import background, log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import ConflictError, Invalid
from memoryhub.core.origin import current_origin
from memoryhub.core.stores.routing import current_alias
from memoryhub.core.stores.store import project_store
from memoryhub.web import middleware, signin
from memoryhub.web.help_page import DOCS, GUIDES
from tests.admin.base import AdminTestCase, text_of
from tests.permissions.base import ADMIN, PermissionTestCase
from tests.support import HubTestCase, forget_all_stores
from tests.test_docs import anchors
from tests.web.server import poll

PAGES = (
    *("/", "/admin/login/", "/people", "/tokens", "/jobs", "/find?q=a", "/api/v1/docs", "/api/v1/projects", "/nowhere"),
    *("/p/alpha/admin/", "/p/alpha/admin/memories/memory/"),
)
POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'"


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


class AddressTests(WebTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.sign_in()

    def test_every_link_of_a_page_stays_in_the_project(self) -> None:
        page = self.client.get("/p/alpha/admin/memories/memory/")
        self.assertContains(page, 'href="/p/alpha/admin/memories/memory/1/change/')
        self.assertNotContains(page, 'href="/admin/memories')
        self.assertEqual(get_script_prefix(), "/")

    def test_an_address_leads_to_a_page_of_a_project_or_to_none(self) -> None:
        admin = "/p/alpha/admin/"
        for path, status, target in (
            ("/p/alpha", 302, admin),
            ("/p/alpha/", 302, admin),
            ("/p/alpha/admin", 302, admin),
            (f"{admin}memories/memory", 301, f"{admin}memories/memory/"),
        ):
            with self.subTest(path=path):
                page = self.client.get(path)
                self.assertRedirects(page, target, status_code=status, fetch_redirect_response=False)
        for path in ("/admin/memories/memory/", "/p/alpha/api/v1/health", "/p/alpha/signin/x"):
            with self.subTest(path=path):
                self.assertEqual(self.client.get(path).status_code, 404)
        for name in ("UPPER", "..", "%2e%2e", "-x", "a%2Fb", "x" * 65):
            with self.subTest(name=name):
                self.assertContains(self.client.get(f"/p/{name}/admin/"), "Page not found", status_code=404)
        page = self.client.get("/p/gamma/admin/")
        self.assertContains(page, "here is no project &#x27;gamma&#x27;", status_code=404)
        self.assertFalse((self.home / "projects/gamma").exists())

    def test_the_admin_without_a_project_is_that_of_the_only_one_or_the_list(self) -> None:
        self.assertRedirects(self.client.get("/admin/"), "/", fetch_redirect_response=False)
        self.assertRedirects(self.client.get("/admin"), "/admin/", status_code=301, fetch_redirect_response=False)
        forget_all_stores()
        shutil.rmtree(self.home / "projects/beta")
        self.assertRedirects(self.client.get("/admin/"), "/p/alpha/admin/", fetch_redirect_response=False)
        self.client.logout()
        self.assertRedirects(self.client.get("/admin/"), "/", fetch_redirect_response=False)

    def test_a_page_works_and_is_rendered_and_streamed_in_its_store_as_the_signed_in_user(self) -> None:
        def view(_: HttpRequest) -> HttpResponse:
            origin = current_origin()
            return HttpResponse(f"{origin.source} {origin.actor} {current_alias()}")

        self.assertEqual(self.through_the_store(view).content, b"admin owner store:project:alpha")
        self.assertIsNone(current_alias())
        template = engines["django"].from_string("{% for memory in memories %}{{ memory.title }}{% endfor %}")
        memories = lambda request: TemplateResponse(request, template, {"memories": Memory.objects.all()})  # noqa: E731
        self.assertEqual(self.through_the_store(memories).content, b"The alpha memory")
        titles = lambda _: StreamingHttpResponse(memory.title for memory in Memory.objects.iterator())  # noqa: E731
        self.assertEqual(b"".join(self.through_the_store(titles).streaming_content), b"The alpha memory")

    def through_the_store(self, view: Any) -> Any:
        request: Any = RequestFactory().get("/admin/")
        request.store, request.user = project_store("alpha"), self.owner
        return middleware.CurrentStore(lambda _: HttpResponse()).process_view(request, view, [], {})


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
        self.assertContains(home, "The beta memory")
        self.assertNotContains(home, "The alpha memory")


class HeaderTests(WebTestCase):
    def test_every_page_has_the_policy_signed_in_or_not(self) -> None:
        for is_signed_in in (False, True):
            if is_signed_in:
                self.sign_in()
            for path in (*PAGES, "/static/admin/css/base.css", "/signin/unknown"):
                with self.subTest(path=path, is_signed_in=is_signed_in), closing(self.client.get(path)) as response:
                    self.assertEqual(response["Content-Security-Policy"], POLICY)
                    self.assertEqual(response["X-Content-Type-Options"], "nosniff")
                    if "/static/" not in path:
                        self.assertEqual(response["X-Frame-Options"], "DENY")
                        self.assertRegex(response["Cache-Control"], "(?=.*no-store).*private")

    def test_a_form_without_its_token_is_refused(self) -> None:
        browser = Client(headers={"host": "localhost"}, enforce_csrf_checks=True)
        browser.force_login(self.owner)
        page = browser.post("/p/alpha/admin/memories/memory/1/delete/", {"post": "yes"})
        self.assertContains(page, "This form has expired", status_code=403)
        self.assertEqual(browser.post("/signout").status_code, 403)


class RightsTests(AdminTestCase):
    def test_a_stream_needs_the_rights_of_its_page(self) -> None:
        memory = self.write("The pump hums")
        stream = self.client.get(self.address("live/"))
        self.assertEqual((stream.status_code, stream["Content-Type"]), (200, "text/event-stream; charset=utf-8"))
        self.assertFalse(stream.has_header("Content-Length"))
        self.assertEqual(stream.source.version(), f"{memory}-0")  # type: ignore[attr-defined]
        self.assertEqual(self.client.get(self.address("live/", "gone")).status_code, 404)
        self.assertEqual(self.client.get(self.address("tasks/none/live/")).status_code, 204)
        self.assertRedirects(
            self.client.get(self.address("tasks/none/")), self.address(""), fetch_redirect_response=False
        )
        self.client.logout()
        for path in (self.address("live/"), "/live/jobs", self.address("tasks/none/live/")):
            self.assertEqual(self.client.get(path).status_code, 302, path)

    def test_a_page_that_is_fetched_again_leaves_messages_for_the_next_and_may_lead_elsewhere(self) -> None:
        self.client.get(self.address("tasks/none/"))
        fetched = self.client.get(self.address(""), headers={"Hub-Live": "1"})
        self.assertNotContains(fetched, "The hub was started again since")
        self.assert_shows(self.page(), "The hub was started again since")
        fetched = self.client.get(self.address("memories/memory/review/99/"), headers={"Hub-Live": "1"})
        self.assertRedirects(fetched, self.address("memories/memory/review/"))
        self.assert_lacks(self.page(), "#99 is not in review")


class TaskTests(AdminTestCase):
    def start(self, work: Any, actor: str = "owner") -> background.Task:
        with self.store(actor=actor, source="admin"):
            describe = lambda result: [(messages.SUCCESS, f"Done: {result}.")]  # noqa: E731
            page = self.address("governance/hold/")
            return background.start_task("Sweep", page=page, work=work, describe=describe)

    def result_of(self, task: background.Task) -> str:
        poll(lambda: task.ended, what="the end of the task")
        return text_of(self.client.get(self.address(f"tasks/{task.id}/"), follow=True).content.decode())

    def test_the_result_or_the_error_is_shown_once_to_the_person_who_started_it(self) -> None:
        def refuse(_: Any) -> None:
            raise Invalid("the broom is missing")

        with mock.patch.object(background.logger, "exception") as logged:
            broken = self.result_of(self.start(lambda _: 1 // 0))
        self.assertIn("Sweep failed. The hub’s own log has the error.", broken)
        logged.assert_called_once()
        self.assertIn("The broom is missing.", self.result_of(self.start(refuse)))
        self.assertNotIn("Done: ", self.result_of(self.start(lambda _: log.head()[0], actor="someone")))
        self.assertIn("Done: 0.", self.result_of(self.start(lambda _: log.head()[0])))
        self.assert_lacks(self.page("governance/hold/"), "Done: 0.")

    def test_a_store_has_one_task_at_a_time(self) -> None:
        ends = threading.Event()
        self.addCleanup(ends.set)
        task = self.start(lambda progress: (progress(1, 4), ends.wait(60)))
        with self.assertRaisesRegex(ConflictError, "sweep of alpha is still running; wait until it has ended"):
            self.start(lambda _: None)
        poll(lambda: task.steps, what="its progress")
        page = self.page(f"tasks/{task.id}/")
        self.assert_shows(page, "1 of 4")
        self.assert_lacks(page, "data-live-end")
        self.assertIn("Sweep of alpha", text_of(self.client.get("/jobs").content.decode()))
        self.page(f"tasks/{task.id}/", "beta", status=302)
        ends.set()
        poll(lambda: task.ended, what="the end of the task")
        fetched = self.client.get(self.address(f"tasks/{task.id}/"), headers={"Hub-Live": "1"})
        self.assertContains(fetched, "data-live-end")  # the browser loads the page again, which redirects


class HelpPageTests(SimpleTestCase):
    def test_every_document_is_shown_and_its_links_work(self) -> None:
        shown, linked = set(), {}
        for path in DOCS.rglob("*.md"):
            address = f"/help/{path.relative_to(DOCS)}"
            response = self.client.get(address)
            self.assertContains(response, '<article class="card prose help-page">')
            shown.add(address)
            article = response.content.decode().partition("<article")[2]
            for link in re.findall(r'(?:href|src)="(?!https?:|#)([^"#]+)', article):
                linked[posixpath.normpath(posixpath.join(posixpath.dirname(address), link))] = address
        for link in linked.keys() - shown:
            self.assertEqual(self.client.get(link).status_code, 200, f"{link} on {linked[link]}")

    def test_every_guide_and_its_section_exist(self) -> None:
        for guide in GUIDES.values():
            page, _, anchor = guide.partition("#")
            self.assertTrue(not anchor or anchor in anchors(DOCS / page), guide)
            self.assertContains(self.client.get(f"/help/{page}"), f'id="{anchor}"' if anchor else "<h1")

    def test_nothing_outside_the_documentation_is_shown(self) -> None:
        for path in ("../README.md", "%2e%2e/manage.py", "/etc/passwd", "guides/none.md"):
            self.assertEqual(self.client.get(f"/help/{path}").status_code, 404, path)


class HelpLinkTests(PermissionTestCase):
    def test_a_page_links_to_its_guide(self) -> None:
        for page, guide in (
            (f"{ADMIN}memories/memory/review/", "guides/review.md"),
            (f"{ADMIN}governance/affirmation/", "guides/recheck.md"),
            ("/people", "guides/team.md"),
        ):
            response = self.browsers["owner"].get(page)
            self.assertContains(response, f'class="help-link" href="/help/{guide}"', msg_prefix=page)
