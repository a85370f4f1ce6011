"""What holds for every page: markup and policy, isolation of projects, and queries that do not grow with the rows."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.db import connections
from django.test import tag
from django.test.utils import CaptureQueriesContext

from memories.models import Amendment, Memory
from memories.pack import pack_context
from memories.schemas import MemoryUpdate
from memories.schemas.query import ContextPackRequest
from memories.services import update_memory
from memoryhub.core import log
from memoryhub.core.stores.routing import STORE_APPS
from memoryhub.core.stores.store import org_store, use_store
from sessions_app.schemas import IterationComplete, IterationStart, OrgDescribe
from sessions_app.services.profile import describe
from sessions_app.services.work import complete_iteration, start_iteration
from tests.admin.base import DecidingTestCase, WorkingTestCase
from tests.hostile import MARKUP, fill
from tests.web.hostile_pages import HUB_PAGES, UNFILLED, addresses

TEXT = MARKUP["elements"]
# That of amendments leads to the inbox
_LISTED = [model for model in admin.site._registry if model is not Amendment]
LISTS = [f"{model._meta.app_label}/{model._meta.model_name}/" for model in _LISTED]


class Markup(HTMLParser):
    """Collects what the content security policy refuses, and what a stored text has put into a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        address = values.get("src") or values.get("href") or ""
        is_inline = tag == "script" and "src" not in values and values.get("type") != "application/json"
        if tag in ("style", "base") or is_inline or "style" in values:
            self.faults.append(f"a style, a base or a script in <{tag} {values}>")
        if "hostile" in values.get("class", "").split() or any(name.startswith("on") for name in values):
            self.faults.append(f"markup of a text: <{tag} {values}>")
        if re.match(r"(?i)\s*(javascript|data|file):", address) or (tag != "a" and re.match("(https?:)?//", address)):
            self.faults.append(f"a foreign address in <{tag} {values}>")


class EveryPageTests(WorkingTestCase):
    def setUp(self) -> None:
        super().setUp()
        with self.store("alpha", source="rest", actor=TEXT[:190], session_id="s-hostile"):
            self.paths, self.unfilled = addresses(TEXT, fill(TEXT))

    def test_every_page_obeys_the_policy_and_shows_texts_as_text(self) -> None:
        self.assertEqual(self.unfilled, UNFILLED)
        faults, shown = [], 0
        for path in [*(f"/p/alpha/{path}" for path in self.paths), *(f"/{path}" for path in HUB_PAGES)]:
            answer = self.client.get(path)
            if answer.status_code >= 500 or "default-src 'self'" not in answer["Content-Security-Policy"]:
                faults.append(f"{path}: {answer.status_code}")
            if answer["Content-Type"].startswith("text/html") and not answer.streaming:
                shown += answer.status_code == 200
                faults += [f"{path}: {fault}" for fault in Markup(answer.content.decode()).faults]
        self.assertEqual(faults, [])
        self.assertGreater(shown, 60)

    def test_nothing_of_alpha_is_on_a_page_of_another_place(self) -> None:
        with use_store(org_store("acme"), create=True):
            describe(command=OrgDescribe(name="Acme"))
        shown = []
        for place in ("/p/beta/", "/o/acme/", "/global/"):
            for path in self.paths:
                # What was asked for may be in the answer
                answer = self.client.get(f"{place}{path.partition('?')[0]}")
                if not answer.streaming and b"hostile" in answer.content.replace(path.encode(), b""):
                    shown.append(f"{place}{path}")
        self.assertEqual(shown, [])


class IsolationTests(DecidingTestCase):
    @tag("backend")
    def test_alphas_things_cannot_be_changed_through_beta(self) -> None:
        memory, decision = self.write("Zebrafish are kept in tank nine"), self.record("Tank nine")
        with self.store():
            update_memory(command=MemoryUpdate(id=memory, base_version=1, content="in tank ten"))
            conflict = update_memory(command=MemoryUpdate(id=memory, base_version=1, content="in tank two")).conflict
            before = log.head()
        edited = {"title": "x", "content": "x", "base_version": "3", "status": "deprecated", "resolution": "keep_a"}
        one = f"memories/memory/{memory}"
        paths = [f"{one}/{name}/" for name in ("edit", "delete", "restore", "promote", "versions/1/again")]
        paths += [f"memories/conflict/{conflict}/settle/", f"memories/memory/review/{memory}/accept/"]
        paths += [f"decisions/decision/{decision}/{name}/" for name in ("mark", "supersede", "link", "evidence")]
        for path in paths:
            self.client.post(self.address(path, "beta"), edited)
        self.post("memories/memory/", "beta", action="delete_chosen", _selected_action=[memory], index="0")
        with self.store():
            self.assertEqual(log.head(), before)

    def test_one_number_is_another_thing_in_each_project(self) -> None:
        alphas, betas = self.write("Zebrafish"), self.write("Beta's own", project="beta")
        self.assertEqual(alphas, betas)
        self.assert_shows(self.page(f"memories/memory/{betas}/history/", "beta"), "Beta's own", lacks=("Zebrafish",))

    def test_only_what_is_in_a_store_has_pages_and_djangos_own_log_stays_empty(self) -> None:
        self.assertEqual({model._meta.app_label for model in admin.site._registry} - set(STORE_APPS), set())
        for path in ("auth/user/", "password_change/", "django_q/schedule/"):
            self.page(path, status=404)
        memory_id = self.write("A choice")
        fields = {"title": "B", "content": "c", "type": "note", "tags": "", "source": "", "links": ""}
        self.post("memories/memory/add/", **fields)
        self.act(memory_id, "edit", **{**fields, "title": "C", "base_version": "1"})
        self.act(memory_id, "delete")
        self.post("memories/memory/", action="delete_chosen", _selected_action=["2"], index="0")
        self.assertIsNotNone(self.memory(2).deleted_at)
        self.assertEqual(LogEntry.objects.count(), 0)


class QueryTests(DecidingTestCase, WorkingTestCase):
    def fill(self, start: int, end: int) -> None:
        for number in range(start, end):
            name = f"s-{number}"
            self.start(name)
            self.ask(name, f"prompt {number}")
            self.ask("s-0", f"another prompt {number}")
            self.write(f"of a long session {number}", f"text {number}", session="s-0")
            memory = self.write(f"note {number}", f"text {number} of a log", session=name, tags=[f"tag-{number}"])
            decision = self.record(f"Choice {number} of a log", topic="a")
            self.commit(f"{number:04x}", f"Do\n\nDecision: #{decision}")
            with self.store(session_id=name):
                for text in ("one", "two"):
                    update_memory(command=MemoryUpdate(id=memory, base_version=1, content=f"{text} {number} of a log"))
                start_iteration(command=IterationStart(command="fix", description=f"number {number}"))
                complete_iteration(command=IterationComplete())
                pack_context(command=ContextPackRequest(session_id=name))

    def test_a_longer_list_takes_no_more_queries(self) -> None:
        self.fill(0, 2)
        with self.store():
            session = self.session_of("s-0")
            memory = Memory.objects.latest("id").id
        paths = ["", "inbox/", "memories/memory/?q=log", "memories/searchdocument/?query=log", *LISTS]
        paths += [f"sessions_app/session/{session}/change/", f"memories/memory/{memory}/history/"]
        before = {path: self.queries_of(path) for path in paths}
        self.fill(2, 8)
        after = {path: self.queries_of(path) for path in paths}
        self.assertEqual({path: count for path, count in after.items() if count > before[path]}, {}, before)
        self.assertEqual({path: before[path] for path in ["", *LISTS] if before[path] > 20}, {})
        self.assertLessEqual(before["memories/memory/"], 11)
        self.assertLessEqual(max(before.values()), 26, before)

    def test_texts_are_not_read_for_lists(self) -> None:
        self.fill(0, 2)
        with self.store(), CaptureQueriesContext(connections["store:project:alpha"]) as queries:
            self.page("memories/memory/")
            self.page("core/rawevent/")
        sql = " ".join(query["sql"] for query in queries)
        self.assert_lacks(sql.replace('SUBSTR("memories_memory"."content", 1, 200)', ""), '"content"')
        self.assert_lacks(sql, '"payload_json"')
