"""The rail, the search field and the palette, which are on every page."""

from __future__ import annotations

import re
from typing import Any

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_memory
from memories.schemas import MemoryDelete
from memories.services import delete_memory
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.stores.store import project_store
from memoryhub.registry.people import PersonAdd, add_person
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.admin.base import AdminTestCase, text_of


class RailTests(AdminTestCase):
    def test_the_pages_of_the_current_section_are_listed(self) -> None:
        page = text_of(self.page("memories/tag/"))
        self.assertIn("Knowledge All memories Observations Guidelines Tools Knowledge Tags Search", page)
        self.assertNotIn("Sessions Turns", page)
        self.assertIn("Activity Sessions Turns Iterations Commits", text_of(self.page("sessions_app/turn/")))

    def test_an_organisation_has_no_sessions(self) -> None:
        self.assertNotIn("Activity", text_of(self.client.get("/global/admin/").content.decode()))

    def test_pages_of_the_hub_have_the_same_shell(self) -> None:
        for path in ("/", "/jobs", "/help/index.md"):
            page = self.client.get(path).content.decode()
            self.assertIn('aria-label="Pages of the hub"', page, path)
            self.assertIn('action="/find"', page, path)

    def test_signed_out_there_is_no_navigation(self) -> None:
        self.client.logout()
        self.assertNotIn('id="nav"', self.client.get("/admin/login/").content.decode())


class HomeTests(AdminTestCase):
    def home_page(self) -> str:
        return text_of(self.client.get("/").content.decode())

    def test_it_shows_what_happened_in_all_projects_and_what_is_pending(self) -> None:
        self.write("The SMS gateway takes 20 seconds")
        with self.store("beta"):
            record_decision(command=DecisionRecord(title="Warn by SMS", chosen="SMS"))
            change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        self.write("A proposal", project="beta")
        page = self.home_page()
        self.assertIn("alpha Memories 1 Decisions 0", page)
        self.assertIn("beta Memories 1 Decisions 1", page)
        self.assertIn("1 memory needs review", page)
        self.assertIn("Warn by SMS Decision beta", page)
        self.assertIn("The SMS gateway takes 20 seconds Memory alpha", page)

    def test_a_damaged_project_has_its_problem_and_nothing_else(self) -> None:
        self.write("A note")
        path_of(project_store("beta")).write_bytes(b"no database" * 1000)
        page = self.home_page()
        self.assertIn("A note Memory alpha", page)
        self.assertNotIn("beta Memories", page)


class PaletteTests(AdminTestCase):
    def find(self, typed: str, **query: str) -> str:
        return self.client.get("/find", {"q": typed, **query}).content.decode()

    def test_entries_of_all_projects_are_found_by_a_part_of_their_title_or_by_number(self) -> None:
        first = self.write("The SMS gateway takes 20 seconds")
        second = self.write("Warn by SMS", project="beta")
        page = self.find("sm")
        self.assertIn(f"/p/alpha/admin/memories/memory/{first}/change/", page)
        self.assertIn(f"/p/beta/admin/memories/memory/{second}/change/", page)
        self.assertNotIn("Warn by SMS", self.find("SMS gateway"))
        self.assertIn("The SMS gateway", self.find(f"#{first}"))

    def test_items_are_picked_from_the_current_project_by_type_and_by_a_part_of_the_title(self) -> None:
        memory = self.write("Warn by SMS first")
        self.write("Warn by SMS", project="beta")
        with self.store():
            decision = record_decision(command=DecisionRecord(title="Warn by SMS and mail", chosen="both")).id
        self.assertEqual(self.picked("by sms"), [decision, memory])
        self.assertEqual(self.picked("by sms", of="decision"), [decision])
        self.assertEqual(self.picked("sms", of="nonsense"), [decision, memory])
        self.assertEqual([self.picked(typed) for typed in ("", "nothing of it", "%")], [[], [], []])

    def picked(self, typed: str, **query: Any) -> list[int]:
        page = self.page("pick/", q=typed, **query)
        return [int(number) for number in re.findall(r'data-number="(\d+)"', page)]

    def test_the_current_projects_entries_pages_and_actions_come_first(self) -> None:
        self.write("A note")
        self.write("A note", project="beta")
        found = self.find("note", **{"from": "/p/beta/admin/memories/tag/", "fragment": "1"})
        self.assertLess(found.index("/p/beta/"), found.index("/p/alpha/"))
        self.assertNotIn("<html", found)
        self.assertIn("/p/beta/admin/memories/tag/", self.find("tags", **{"from": "/p/beta/admin/"}))
        self.assertIn("Write a memory", self.find("write", **{"from": "/p/beta/admin/"}))

    def test_a_word_with_an_umlaut_is_found_in_either_case(self) -> None:
        self.write("Ärger über den Ölstand")
        for typed in ("ärger", "Ärger", "ölstand", "ÜBER"):
            self.assertIn("Ärger über den Ölstand", self.find(typed), typed)

    def test_wildcards_and_odd_input_are_text(self) -> None:
        self.write("100 % of_them")
        for typed in ("100 %", "of_", "!"):
            self.assertEqual(self.client.get("/find", {"q": typed}).status_code, 200, typed)
        self.assertIn("100 % of_them", self.find("0 %"))
        self.assertNotIn("100 % of_them", self.find("of%them"))
        self.assertIn("No results", self.find("9" * 300))

    def test_deleted_entries_are_not_found(self) -> None:
        memory = self.write("Short-lived")
        with self.store("alpha"):
            delete_memory(command=MemoryDelete(id=memory))
        self.assertNotIn("Short-lived", self.find("short"))

    def test_actions_are_those_that_the_person_may_do(self) -> None:
        self.client.force_login(add_person(command=PersonAdd(name="reader", role="viewer")))
        page = self.find("", **{"from": "/p/alpha/admin/"})
        self.assertNotIn("Redact a text", page)
        self.assertNotIn("New project", page)
        self.assertNotIn("People", page)


class FirstStepsTests(AdminTestCase):
    def test_the_steps_follow_what_happened(self) -> None:
        page = text_of(self.page())
        self.assertIn("First steps 0 of 4", page)
        self.assertIn("Waiting for its first call. Run one of these in the project’s folder Claude Code", page)
        memory = self.write("The port is 8321")
        page = text_of(self.page())
        self.assertIn("First steps 2 of 4", page)
        self.assertIn("agent made the first call.", page)
        self.assertIn("“The port is 8321”", page)
        with self.store("alpha"):
            record_decision(command=DecisionRecord(title="Use WAL", chosen="WAL", impact="low"))
            review_memory(command=ReviewVerdict(id=memory, verdict="rejected", reason="wrong"))
        self.assertNotIn("First steps", text_of(self.page()))
        self.assertIn("First steps 0 of 4", text_of(self.page(project="beta")))

    def test_hidden_steps_stay_hidden_in_one_project(self) -> None:
        self.client.post("/first-steps/alpha/hide")
        self.assertNotIn("First steps", text_of(self.page()))
        self.assertIn("First steps", text_of(self.page(project="beta")))

    def test_the_sample_project_is_loaded_once(self) -> None:
        self.assertIn("Load the sample project", self.page())
        answer = self.client.post("/sample", follow=True)
        self.assertIn("Tidewatch (sample)", answer.content.decode())
        self.assertNotIn("Load the sample project", self.page())
        self.assertIn("already exists", self.client.post("/sample", follow=True).content.decode())

    def test_a_reader_can_not_load_it(self) -> None:
        self.client.force_login(add_person(command=PersonAdd(name="reader", role="viewer")))
        self.assertNotIn("Load the sample project", self.page())
        self.assertEqual(self.client.post("/sample").status_code, 403)
