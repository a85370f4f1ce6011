"""Members of projects and organisations: what they see and may do, and who makes them."""

from __future__ import annotations

import re
from unittest import mock

from django.contrib.auth.models import User

from memoryhub.core.errors import Forbidden, Invalid, NotFound
from memoryhub.core.permissions import EVERYTHING, MEMBER_ROLES, Act, use_grant
from memoryhub.core.stores.store import GLOBAL_STORE, list_orgs, list_projects, org_store, project_store, use_store
from memoryhub.models import AccessChange, AgentToken, Membership, Subject
from memoryhub.registry import members, rights, tokens
from memoryhub.registry.organizations import OrgCreate, create_org
from memoryhub.registry.people import deactivate_person
from memoryhub.registry.projects import describe_project
from memoryhub.registry.rights import grant_of_person, org_of
from memoryhub.web.signin import create_link_token
from sessions_app.schemas import ProjectDescribe
from tests.databases import sqlite_only
from tests.permissions.member_case import MembersTestCase


class GrantTests(MembersTestCase):
    def test_a_member_may_what_their_role_says_there_and_nothing_elsewhere(self) -> None:
        for role, acts in MEMBER_ROLES.items():
            self.join("ann", "project:alpha", role)
            self.assertEqual(self.grant("ann").at("project:alpha"), acts)
        for place in ("project:beta", "org:acme", "global"):
            self.assertEqual(self.grant("ann").at(place), frozenset())
        self.assertEqual(self.grant("ann").at(""), {Act.VIEW})

    def test_a_role_in_an_organisation_holds_in_its_projects(self) -> None:
        self.join("ann", "org:acme", "reviewer")
        self.join("ann", "project:alpha", "viewer")
        self.assertEqual(self.grant("ann").at("project:alpha"), MEMBER_ROLES["reviewer"])
        self.assertEqual(self.grant("ann").at("project:beta"), frozenset())
        describe_project(project_id="beta", command=ProjectDescribe(org_id="acme"))
        self.assertEqual(self.grant("ann").at("project:beta"), MEMBER_ROLES["reviewer"])
        describe_project(project_id="beta", command=ProjectDescribe(org_id=None))
        self.assertEqual((org_of("beta"), self.grant("ann").at("project:beta")), (None, frozenset()))

    def test_a_role_in_the_hub_and_one_in_a_place_count_together(self) -> None:
        self.add("vic", "viewer")
        self.join("vic", "project:alpha", "reviewer")
        self.assertEqual(self.grant("vic").at("project:alpha"), MEMBER_ROLES["reviewer"])
        self.assertEqual(self.grant("vic").at("project:beta"), MEMBER_ROLES["viewer"])

    def test_both_ways_to_a_persons_rights_agree(self) -> None:
        for name, role in (("vic", "viewer"), ("rea", "reviewer"), ("adi", "administrator"), ("olga", "owner")):
            self.add(name, role)
        self.join("ann", "project:alpha")
        self.join("adi", "org:acme", "owner")
        for name in ("ann", "vic", "rea", "adi", "olga", "owner"):
            for place in ("", "project:alpha", "project:beta", "org:acme", "global"):
                with self.subTest(name=name, place=place):
                    self.assertEqual(self.grant(name).at(place), grant_of_person(name).at(place))

    def test_lists_name_only_what_one_may_see(self) -> None:
        self.join("ann", "project:alpha")
        with use_grant(self.grant("ann")):
            self.assertEqual((list_projects(), list_orgs()), (["alpha"], []))
        self.join("ann", "org:acme")
        with use_grant(self.grant("ann")):
            self.assertEqual((list_projects(), list_orgs()), (["alpha"], ["acme"]))
        with use_grant(EVERYTHING):
            self.assertEqual(list_projects(), ["alpha", "beta"])

    def test_a_project_reads_what_it_inherits_and_nothing_else(self) -> None:
        create_org(command=OrgCreate(org_id="other"))
        self.join("ann", "project:alpha")
        with use_grant(self.grant("ann")):
            with use_store(project_store("alpha")), use_store(org_store("acme")):
                pass
            with use_store(project_store("alpha")), self.assertRaisesMessage(NotFound, "no org 'other'"):
                use_store(org_store("other")).__enter__()
            for store in (org_store("acme"), GLOBAL_STORE, project_store("beta")):
                with self.assertRaises(NotFound), use_store(store, create=True):
                    pass

    def test_a_deactivated_person_may_nothing(self) -> None:
        self.join("ann", "project:alpha", "owner")
        deactivate_person(name="ann")
        self.assertEqual(self.grant("ann").at("project:alpha"), frozenset())
        self.assertEqual(grant_of_person("ann").at("project:alpha"), frozenset())

    @sqlite_only("what is kept in memory is dropped when the store's files change")
    def test_organisations_of_few_projects_are_kept_in_memory(self) -> None:
        with mock.patch.object(rights, "_MOST_ORGS", 1), mock.patch.dict(rights._orgs, clear=True):
            self.assertEqual([org_of(project) for project in ("alpha", "beta", "alpha")], ["acme", None, "acme"])
            self.assertEqual(len(rights._orgs), 1)


class ManagingTests(MembersTestCase):
    def test_every_grant_is_in_the_history(self) -> None:
        self.join("ann", "project:alpha", "viewer")
        self.join("ann", "project:alpha", "viewer")
        self.join("ann", "project:alpha", "owner")
        members.remove_member(store=project_store("alpha"), name="ann")
        found = AccessChange.objects.filter(subject=Subject.MEMBER).order_by("id").values_list("name", "what")
        said = [
            "moved into the organisation acme",
            "added ann as viewer",
            "changed ann from viewer to owner",
            "removed ann",
        ]
        self.assertEqual(list(found.filter(name="project:alpha")), [("project:alpha", what) for what in said])

    def test_owners_of_a_place_manage_its_members_and_reviewers_do_not(self) -> None:
        self.add("ben")
        self.join("ann", "project:alpha", "owner")
        with use_grant(self.grant("ann")):
            self.join("ben", "project:alpha", "reviewer")
            with self.assertRaisesMessage(NotFound, "there is no project 'beta' in this hub; known: alpha"):
                self.join("ben", "project:beta")
        with use_grant(self.grant("ben")), self.assertRaisesMessage(Forbidden, "may not manage members"):
            self.join("ben", "project:alpha", "owner")
        self.assertEqual(Membership.objects.get(username="ben").role, "reviewer")

    def test_an_administrator_manages_members_of_what_they_do_not_see(self) -> None:
        self.add("adi", "administrator")
        browser = self.browser("adi")
        self.assertEqual(browser.get("/p/alpha/admin/").status_code, 404)
        self.assertContains(browser.get("/people"), "project alpha")
        joined = browser.post("/people/ann/join", {"place": "project:alpha", "role": "viewer"}, follow=True)
        self.assertContains(joined, "ann now has the role viewer in alpha.")
        self.assertEqual(self.browser("ann").get("/p/alpha/admin/").status_code, 200)
        browser.post("/people/ann/leave", {"place": "project:alpha"})
        self.assertEqual(self.browser("ann").get("/p/alpha/admin/").status_code, 404)

    def test_an_administrator_becomes_nobody_who_may_do_more(self) -> None:
        self.add("adi", "administrator")
        browser = self.browser("adi")
        for path, fields in (
            ("/people/adi/role", {"role": "owner"}),
            ("/people/ann/role", {"role": "viewer"}),
            ("/people/owner/role", {"role": "member"}),
            ("/people/owner/deactivate", {}),
            ("/people/owner/link", {}),
            ("/people", {"name": "eve", "role": "owner"}),
            ("/tokens", {"name": "ci", "verbs": "admin", "reach": "hub", "days": "9"}),
            ("/tokens", {"name": "ci", "verbs": "read", "reach": "hub", "days": "9"}),
        ):
            with self.subTest(path=path):
                browser.post(path, fields)
                self.assertFalse(User.objects.filter(username="eve").exists() or AgentToken.objects.exists())
                for name, role in (("adi", "administrator"), ("ann", "member"), ("owner", "")):
                    person = User.objects.get(username=name)
                    self.assertEqual([group.name for group in person.groups.all()], [role] if role else [])
                    self.assertTrue(person.is_active)
        with use_grant(self.grant("adi")), self.assertRaises(Forbidden):
            create_link_token(username="owner")
        self.assertContains(browser.post("/people/ann/link"), "/signin/")

    def test_an_administrator_signs_in_as_nobody_who_sees_more(self) -> None:
        self.add("adi", "administrator")
        self.join("ann", "org:acme", "owner")
        token = tokens.TokenCreate(name="x", person="ann")
        for role in ("", "reviewer"):
            if role:
                self.join("adi", "org:acme", role)
            with use_grant(self.grant("adi")):
                with self.assertRaisesMessage(Forbidden, "ann has a role that you do not have"):
                    create_link_token(username="ann")
                with self.assertRaisesMessage(Forbidden, "ann has a role that you do not have"):
                    tokens.create_token(command=token, by="adi")
            self.assertEqual(self.browser("adi").post("/people/ann/link").status_code, 403)
        self.join("adi", "org:acme", "owner")
        with use_grant(self.grant("adi")):
            tokens.create_token(command=token, by="adi")
        self.assertContains(self.browser("adi").post("/people/ann/link"), "/signin/")
        self.assertContains(self.browser("owner").post("/people/ann/link"), "/signin/")

    def test_people_see_who_was_given_a_link_or_a_token_in_their_name(self) -> None:
        self.browser("owner").post("/people/ann/link")
        tokens.create_token(command=tokens.TokenCreate(name="x", person="ann"), by="owner")
        page = self.browser("ann").get("/tokens")
        self.assertContains(page, "Sign-in link created")
        changes = [(change.by, change.name) for change in page.context["own_history"].changes]
        self.assertIn(("owner", "ann"), changes)
        self.assertContains(page, "ann/x")

    def test_what_is_not_there_has_no_members(self) -> None:
        for store, error in ((project_store("gamma"), NotFound), (GLOBAL_STORE, Invalid)):
            with self.assertRaises(error):
                members.list_members(store)
        with self.assertRaises(NotFound):
            self.join("nobody", "project:alpha")
        with self.assertRaises(NotFound):
            members.remove_member(store=project_store("alpha"), name="ann")

    def test_the_list_says_why_each_may_see_it(self) -> None:
        self.join("ann", "project:alpha", "viewer")
        self.join("ann", "org:acme", "owner")
        self.add("vic", "viewer")
        found = [(member.name, member.role, member.through) for member in members.list_members(project_store("alpha"))]
        expected = [
            ("ann", "viewer", ""),
            ("ann", "owner", "acme"),
            ("owner", "owner", "the hub"),
            ("vic", "viewer", "the hub"),
        ]
        self.assertEqual(found, expected)

    def test_the_page_and_the_routes_change_members(self) -> None:
        owner = self.browser("owner")
        page = "/p/alpha/admin/members/"
        self.assertContains(
            owner.post(page, {"name": "ann", "role": "viewer"}, follow=True), "nn now has the role viewer here."
        )
        self.assertContains(owner.post(page, {"name": "nobody", "role": "viewer"}), "There is no person")
        self.assertEqual(self.browser("ann").get(page).status_code, 403)
        owner.post(page, {"name": "ann", "remove": "1"})
        self.assertFalse(Membership.objects.exists())
        path = "projects/alpha/members"
        self.call("PUT", f"{path}/ann", {"role": "owner"})
        listed = self.call("GET", path).data["results"]
        self.assertEqual((listed[0]["name"], listed[0]["role"], listed[0]["given_by"]), ("ann", "owner", "token"))
        self.call("PUT", f"{path}/ann", {"role": "god"}, expect=422)
        self.call("DELETE", f"{path}/ann", expect=204)
        self.call("DELETE", f"{path}/ann", expect=404)
        self.call("PUT", "orgs/acme/members/ann", {"role": "viewer"})
        self.assertEqual(Membership.objects.get().place, "org:acme")
        self.assertEqual(owner.get("/global/admin/members/").status_code, 404)


class PageTests(MembersTestCase):
    def test_what_one_may_not_see_is_as_what_does_not_exist(self) -> None:
        self.join("ann", "project:alpha", "owner")
        browser = self.browser("ann")
        for there, nowhere in (
            ("/p/beta/admin/", "/p/gamma/admin/"),
            ("/o/acme/admin/", "/o/other/admin/"),
            ("/p/beta/admin/members/", "/p/gamma/admin/members/"),
        ):
            answers = [browser.get(path) for path in (there, nowhere)]
            texts = [answer.content.decode() for answer in answers]
            self.assertEqual([answer.status_code for answer in answers], [404, 404])
            strip = [
                text.replace("beta", "…").replace("gamma", "…").replace("acme", "…").replace("other", "…")
                for text in texts
            ]
            self.assertEqual(_without_tokens(strip[0]), _without_tokens(strip[1]))
        home = browser.get("/").content.decode()
        self.assertIn("/p/alpha/", home)
        self.assertEqual(home.count("beta"), 0)
        self.assertNotContains(browser.get("/find?q=beta"), "/p/beta/")
        self.assertNotContains(browser.get("/jobs"), "beta")

    def test_someone_without_memberships_sees_an_empty_hub(self) -> None:
        for path in ("/", "/jobs", "/tokens", "/find?q=a"):
            page = self.browser("ann").get(path)
            self.assertEqual(page.status_code, 200)
            self.assertNotContains(page, "alpha")


def _without_tokens(html: str) -> str:
    return re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", html)
