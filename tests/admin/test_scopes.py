"""What stores say of themselves in the admin, and the pages of organisations and of the global scope."""

from __future__ import annotations

import json
import re
from html import unescape

from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core import log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.stores.store import GLOBAL_STORE, StoreId, org_store, project_store, use_store
from sessions_app.schemas import OrgDescribe, ProfileView, ProjectDescribe
from sessions_app.selectors import profile
from sessions_app.services.profile import describe
from tests.admin.base import AdminTestCase, text_of


class ScopesTestCase(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.say(org_store("acme"), OrgDescribe(name="Acme", description="Makes everything."))
        self.say(project_store("alpha"), ProjectDescribe(name="Aquarium", org_id="acme", metadata={"goals": ["ship"]}))

    def say(self, store: StoreId, command: OrgDescribe) -> None:
        with use_store(store, create=True):
            describe(command=command)

    def show(self, path: str, status: int = 200) -> str:
        answer = self.client.get(path)
        self.assertEqual(answer.status_code, status, answer.content[:500])
        return unescape(answer.content.decode())

    def send(self, path: str, **fields: str) -> str:
        """Send the form of a page as a browser does: with all that it showed, but for what is typed."""
        page = self.client.get(path).content.decode()
        shown = re.findall(r'<input[^>]* name="([^"]+)"(?: value="([^"]*)")?', page)
        shown += re.findall(r'<textarea[^>]* name="([^"]+)"[^>]*>\n?([^<]*)</textarea>', page)
        shown += re.findall(r'<select[^>]* name="([^"]+)".*?<option value="([^"]*)" selected', page, re.DOTALL)
        kept = {name: unescape(value).replace("\n", "\r\n") for name, value in shown}
        answer = self.client.post(path, {**kept, **fields}, follow=True)
        return unescape(answer.content.decode())

    def profile_of(self, store: StoreId) -> ProfileView:
        with use_store(store):
            return profile()


class OverviewTests(ScopesTestCase):
    def test_a_project_shows_its_name_and_leads_to_its_organisation(self) -> None:
        self.assert_shows(self.page(), "<h1>Aquarium</h1>", '<a href="/o/acme/admin/">acme</a>', '"ship"')
        self.assert_shows(self.page(project="beta"), "<h1>beta</h1>", "Describe this project")

    def test_an_organisation_has_pages_and_names_its_projects(self) -> None:
        with use_store(org_store("acme")):
            write_memory(command=MemoryWrite(title="House style", content="plain words"))
        page = self.show("/o/acme/admin/")
        links = ("<h1>Acme</h1>", '<a href="/p/alpha/admin/">alpha</a>')
        self.assert_shows(page, *links, lacks=("/o/acme/admin/sessions_app/",))
        self.assert_shows(self.show("/o/acme/admin/memories/memory/"), "House style")
        self.assert_lacks(self.page("memories/memory/"), "House style")

    def test_the_global_scope_has_pages_before_anything_is_kept(self) -> None:
        self.assertFalse(path_of(GLOBAL_STORE).exists())
        self.assert_shows(self.show("/global/admin/"), "The global scope is empty")
        with use_store(GLOBAL_STORE, create=True):
            write_memory(command=MemoryWrite(title="Be brief", content="in everything"))
        self.assert_shows(self.show("/global/admin/memories/memory/"), "Be brief")
        answer = self.client.post("/global/admin/log/verify/", follow=True)
        self.assertContains(answer, "/global/admin/core/rawevent/")

    def test_what_is_not_there_is_not_made(self) -> None:
        self.assert_shows(text_of(self.show("/o/umbrella/admin/", 404)).lower(), "there is no org 'umbrella'")
        self.assertFalse(path_of(org_store("umbrella")).parent.exists())
        for path in ("/o/UPPER/admin/", "/o//admin/", "/o/..%2Fx/admin/", "/globally/admin/"):
            self.assertEqual(self.client.get(path).status_code, 404, path)

    def test_each_place_is_one_step_away(self) -> None:
        for path in ("/p/beta/admin/", "/o/acme/admin/", "/global/admin/"):
            header = self.show(path).partition("</header>")[0]
            others = {"/p/alpha/admin/", "/p/beta/admin/", "/o/acme/admin/", "/global/admin/"} - {path}
            self.assertEqual(set(re.findall(r'<li><a href="([^"]+)"', header)), others)


class HomeTests(ScopesTestCase):
    def test_projects_stand_under_their_organisations_and_one_that_cannot_be_read_hides_nothing(self) -> None:
        path_of(org_store("broken")).parent.mkdir(parents=True)
        path_of(org_store("broken")).write_bytes(b"not a database!!" * 1000)
        page = self.show("/")
        self.assertRegex(text_of(page), r"Acme .*Makes everything\..*Aquarium alpha .*")
        self.assertRegex(text_of(page), r"broken Memory database unavailable: .*No organisation beta ")
        for address in ("/o/acme/admin/", "/global/admin/", "/p/alpha/admin/", "/p/beta/admin/"):
            self.assert_shows(page, f'href="{address}"')


class NewTests(ScopesTestCase):
    def test_an_organisation_and_a_project_of_it_are_made(self) -> None:
        self.assert_shows(self.send("/new/organisation", id="umbrella", name="Umbrella"), "<h1>Umbrella</h1>")
        self.assert_shows(self.show("/new/project?org_id=umbrella"), '<option value="umbrella" selected')
        page = self.send("/new/project", id="gamma", description="Fish.\r\nMore fish.", org_id="umbrella")
        self.assert_shows(page, "<h1>gamma</h1>")
        known = self.profile_of(project_store("gamma"))
        self.assertEqual((known.description, known.org), ("Fish.\nMore fish.", "umbrella"))
        with self.store("gamma"):
            (event,) = map(log.event_of, log.events())
        self.assertEqual((event.source, event.actor), ("admin", "owner"))

    def test_mistakes_are_told_and_nothing_is_made(self) -> None:
        for address, fields, sentence in (
            ("/new/organisation", {"id": ""}, "'id' is required"),
            ("/new/organisation", {"id": "../x"}, "'id' must match"),
            ("/new/organisation", {"id": "acme"}, "Organisation 'acme' exists already"),
            ("/new/project", {"id": "alpha"}, "Project 'alpha' exists already"),
            ("/new/project", {"id": "gamma", "org_id": "nobody"}, "not one of the available choices"),
        ):
            self.assert_shows(self.send(address, **fields), "Not saved. Correct the errors below.", sentence)
        self.client.logout()
        self.client.get("/global/admin/", follow=True)
        for address in ("/new/organisation", "/new/project", "/global/admin/describe/", "/o/acme/admin/describe/"):
            self.assertEqual(self.client.post(address, {"id": "gamma"}).status_code, 302)
        made = sorted(path.parent.name for path in self.home.glob("*/*/events.db"))
        self.assertEqual(made, ["acme", "alpha", "beta"])
        self.assertFalse(path_of(GLOBAL_STORE).exists())


class DescribeTests(ScopesTestCase):
    def test_a_person_describes_a_project(self) -> None:
        page = self.send("/p/beta/admin/describe/", name="Beta", org_id="acme", tags="Fish, ops", metadata='{"a": 1}')
        self.assert_shows(page, "The description was saved.")
        profile = self.profile_of(project_store("beta"))
        self.assertEqual((profile.name, profile.org, profile.tags), ("Beta", "acme", ["fish", "ops"]))
        self.assertEqual(profile.metadata, {"a": 1})
        self.send("/p/beta/admin/describe/", org_id="")
        self.assertIsNone(self.profile_of(project_store("beta")).org)
        token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        page = self.send("/p/beta/admin/describe/", description=f"the token is {token}")
        self.assert_shows(page, "The description was saved with these secrets masked: github-token.", lacks=(token,))

    def test_only_what_was_changed_is_sent_on(self) -> None:
        self.send("/p/alpha/admin/describe/", description="An aquarium.")
        with self.store():
            *_, event = map(log.event_of, log.events())
        self.assertEqual(event.payload.model_dump(exclude_unset=True), {"description": "An aquarium."})
        self.assertEqual((event.source, event.actor), ("admin", "owner"))
        self.say(project_store("beta"), ProjectDescribe(name="From an agent"))
        stale = {"initial-name": "", "initial-description": "", "name": "", "description": "By a person."}
        self.client.post("/p/beta/admin/describe/", stale)
        profile = self.profile_of(project_store("beta"))
        self.assertEqual((profile.name, profile.description), ("From an agent", "By a person."))

    def test_an_organisation_and_the_global_scope_are_described(self) -> None:
        self.send("/o/acme/admin/describe/", description="New.")
        self.send("/global/admin/describe/", name="All of us")
        self.assertEqual(self.profile_of(org_store("acme")).description, "New.")
        self.assertEqual(self.profile_of(GLOBAL_STORE).name, "All of us")
        self.assert_lacks(self.show("/o/acme/admin/describe/"), 'name="org_id"')

    def test_mistakes_stand_beside_their_fields_and_nothing_is_kept(self) -> None:
        mistakes: tuple[tuple[str, str, str], ...] = (
            ("metadata", "{", "This is not valid JSON"),
            ("metadata", "[" * 20_000, "This is nested too deeply"),
            ("metadata", "[1]", "'metadata' must be an object"),
            ("metadata", json.dumps({"a": "x" * 16_000}), "may have at most 16,000"),
            ("name", "x" * 201, "'name' must have at most 200 characters"),
            ("org_id", "umbrella", "not one of the available choices"),
        )
        for field, typed, sentence in mistakes:
            page = self.send("/p/beta/admin/describe/", **{field: typed})
            self.assert_shows(page, "Not saved. Correct the errors below.", sentence)
        self.assertEqual(self.profile_of(project_store("beta")), ProfileView())
