from __future__ import annotations

import re
from datetime import timedelta

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.test import SimpleTestCase

from memories.schemas import MemoryWrite
from memories.services import write_memories
from memoryhub.core import clock
from memoryhub.core.admin import cells
from memoryhub.core.stores.routing import STORE_APPS
from sessions_app.schemas import SessionStart
from sessions_app.services import start_session
from tests.admin.base import AdminTestCase, text_of

MEMORY_LISTS = tuple(f"memories/{name}/" for name in ("memory", "observation", "conflict", "tag"))
LISTS = (*MEMORY_LISTS, "sessions_app/session/", "sessions_app/commit/", "core/rawevent/")


class OverviewTests(AdminTestCase):
    def test_an_empty_project_says_what_to_do(self) -> None:
        page = self.page()
        self.assertIn("First steps", page)
        self.assertIn("memory-hub import markdown", page)

    def test_shows_how_the_project_stands(self) -> None:
        before = clock.now() - timedelta(days=3)
        with clock.frozen(before):
            self.write("A choice", type="decision")
        self.write("A note", "text of the note")
        with self.store():
            start_session(command=SessionStart(purpose="Build the admin"))
        page = text_of(self.page())
        for each in ("2 memories", "1 session, 1 active", "3 events", "Build the admin", "A choice", "A note"):
            self.assertIn(each, page)
        self.assertRegex(page, rf"{before.date()} 1 ")

    def test_the_chart_has_a_name_a_description_and_a_table(self) -> None:
        self.write("A note")
        page = self.page()
        self.assertRegex(
            page, r'<svg class="activity"[^>]* role="group" aria-labelledby="activity-svg-title activity-svg-desc"'
        )
        self.assertIn("1 event in the past 30 days", page)
        self.assertIn("Show as a table", page)

    def test_the_others_are_one_step_away(self) -> None:
        page = self.page()
        self.assertIn('href="/p/beta/admin/"', page)
        self.assertIn('<a href="/p/alpha/admin/" class="here" aria-current="page">', page)


class SiteTests(AdminTestCase):
    def test_only_what_is_in_a_store_has_pages(self) -> None:
        self.assertEqual({model._meta.app_label for model in admin.site._registry} - set(STORE_APPS), set())
        for path in ("auth/user/", "password_change/", "django_q/schedule/"):
            self.assertEqual(self.client.get(self.address(path)).status_code, 404, path)

    def test_who_is_not_signed_in_sees_nothing(self) -> None:
        memory_id = self.write("A secret plan")
        self.client.logout()
        for path in (
            "",
            *LISTS,
            f"memories/memory/{memory_id}/change/",
            "memories/memory/add/",
            "core/rawevent/1/change/",
        ):
            answer = self.client.get(self.address(path), follow=True)
            self.assertNotIn("A secret plan", answer.content.decode())
            self.assertIn("memory-hub signin", answer.content.decode())
        answer = self.client.post(self.address(f"memories/memory/{memory_id}/delete/"))
        self.assertEqual(answer.status_code, 302)
        self.assertIsNone(self.memory(memory_id).deleted_at)

    def test_no_page_needs_more_than_the_content_security_policy_allows(self) -> None:
        memory_id = self.write("A choice", "**text**")
        one = f"memories/memory/{memory_id}/"
        pages = [
            f"{one}change/",
            f"{one}edit/",
            f"{one}versions/",
            f"{one}history/",
            f"{one}delete/",
            "core/rawevent/1/change/",
        ]
        for path in ("", *LISTS, *pages, "memories/memory/add/"):
            answer = self.client.get(self.address(path))
            html = answer.content.decode()
            self.assertIn("default-src 'self'", answer["Content-Security-Policy"])
            self.assertNotRegex(html, r"(?i)\sstyle=|<style|\son[a-z]+=\"|javascript:", path)
            self.assertEqual(re.findall(r"<script(?![^>]*\ssrc=)", html), [], path)
            self.assertEqual(re.findall(r'(?:src|href)="(?:https?:)?//', html), [], path)

    def test_the_admins_own_log_is_never_written(self) -> None:
        memory_id = self.write("A choice")
        fields = {"title": "B", "content": "c", "type": "note", "tags": "", "source": "", "links": ""}
        self.post("memories/memory/add/", **fields)
        self.post(f"memories/memory/{memory_id}/edit/", **{**fields, "title": "C", "base_version": "1"})
        self.post(f"memories/memory/{memory_id}/delete/")
        self.post("memories/memory/", action="delete_chosen", _selected_action=["2"], index="0")
        self.assertIsNotNone(self.memory(2).deleted_at)
        self.assertEqual(LogEntry.objects.count(), 0)


class IsolationTests(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.memory_id = self.write("Zebrafish are kept in tank nine", session="alphas-session")
        with self.store():
            self.session_id = start_session(command=SessionStart(session_id="alphas-session", purpose="Zebrafish")).id

    def test_beta_sees_nothing_of_alpha_on_any_list(self) -> None:
        for path in ("", *LISTS):
            page = self.page(path, "beta")
            self.assertNotIn("ebrafish", page, path)
        for query in ("q=zebrafish", "session=alphas-session", "state=all"):
            self.assertNotIn("tank nine", self.page(f"memories/memory/?{query}", "beta"))

    def test_alphas_ids_mean_nothing_under_betas_address(self) -> None:
        one = f"memories/memory/{self.memory_id}/"
        for path in (f"{one}change/", f"{one}edit/", f"{one}versions/", f"{one}history/", f"{one}delete/",
                     f"sessions_app/session/{self.session_id}/change/", f"core/rawevent/{self.memory_id}/change/",
                     f"core/rawevent/{self.memory_id}/history/"):  # fmt: skip
            page = self.page(path, "beta", status=404)
            self.assertNotIn("ebrafish", page)

    def test_alphas_memories_cannot_be_changed_through_beta(self) -> None:
        one = f"memories/memory/{self.memory_id}/"
        for path in (f"{one}edit/", f"{one}delete/", f"{one}restore/"):
            answer = self.client.post(self.address(path, "beta"), {"title": "x", "content": "x", "base_version": "1"})
            self.assertEqual(answer.status_code, 404)
        self.post("memories/memory/", "beta", action="delete_chosen", _selected_action=[self.memory_id], index="0")
        memory = self.memory(self.memory_id)
        self.assertEqual((memory.version, memory.deleted_at), (1, None))

    def test_one_number_is_another_thing_in_each_project(self) -> None:
        mine = self.write("Beta's own", project="beta")
        self.assertEqual(mine, self.memory_id)
        self.assertIn("Beta's own", self.page(f"memories/memory/{mine}/history/", "beta"))
        self.assertNotIn("ebrafish", self.page(f"memories/memory/{mine}/history/", "beta"))

    def test_a_project_that_does_not_exist_is_not_made(self) -> None:
        self.assertEqual(self.client.get(self.address("", "gamma")).status_code, 404)
        self.assertFalse((self.home / "projects" / "gamma").exists())


class QueryTests(AdminTestCase):
    def fill(self, start: int, end: int) -> None:
        with self.store(actor="agent", session_id="s-1"):
            commands = [
                MemoryWrite(title=f"note {n}", content=f"text {n} of a log", tags=["x"]) for n in range(start, end)
            ]
            write_memories(commands=commands)
            for number in range(start, end):
                start_session(command=SessionStart(session_id=f"s{number}", purpose="p"))

    def test_a_longer_list_takes_no_more_queries(self) -> None:
        self.fill(0, 3)
        paths = ("", *LISTS, "memories/memory/?q=log", "sessions_app/session/4/change/", "memories/memory/1/history/")
        before = {path: self.queries_of(path) for path in paths}
        self.fill(3, 40)
        self.assertEqual({path: self.queries_of(path) for path in paths}, before)
        self.assertLessEqual(max(before.values()), 19, before)

    def test_texts_are_not_read_for_lists(self) -> None:
        from django.db import connections
        from django.test.utils import CaptureQueriesContext

        self.fill(0, 3)
        with self.store(), CaptureQueriesContext(connections["store:project:alpha"]) as queries:
            self.page("memories/memory/")
            self.page("core/rawevent/")
        sql = " ".join(query["sql"] for query in queries)
        self.assertNotIn('"content"', sql.replace('SUBSTR("memories_memory"."content", 1, 200)', ""))
        self.assertNotIn('"payload_json"', sql)


class CellTests(SimpleTestCase):
    def test_how_long_ago_is_one_unit(self) -> None:
        now = clock.now()
        with clock.frozen(now):
            for seconds, words in (
                (3, "just now"),
                (60, "1 minute ago"),
                (7200, "2 hours ago"),
                (86_400 * 400, "1 year ago"),
            ):
                self.assertEqual(cells.ago(now - timedelta(seconds=seconds)), words)
            self.assertEqual(cells.ago(now + timedelta(hours=1)), "in the future")

    def test_how_long_it_took_has_at_most_two_units(self) -> None:
        start = clock.now()
        for seconds, words in ((8, "8 s"), (300, "5 min"), (3660, "1 h 1 min"), (90_000, "1 d 1 h")):
            self.assertEqual(cells.lasted(start, start + timedelta(seconds=seconds)), words)

    def test_every_cell_escapes_its_text(self) -> None:
        attack = '"><script>'
        shown = [
            cells.badge(attack),
            cells.event_badge(attack),
            cells.code(attack),
            cells.link("/", attack),
            cells.tag_links([attack], ""),
        ]
        for html in shown:
            self.assertNotIn("<script>", html)
