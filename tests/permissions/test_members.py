"""Members of places: what they see and may do, who makes them, their tokens, and projects that move.

That they see and change nothing beyond their rights is in ``test_matrix.py``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from django.contrib.auth.models import User
from django.db import DatabaseError

from governance.rollback.schemas import RollbackMake, RollbackPlan
from governance.rollback.service import preview, roll_back
from memoryhub.core.errors import ConflictError, Forbidden, Invalid, NotFound
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import MEMBER_ROLES, use_grant
from memoryhub.core.stores.store import GLOBAL_STORE, org_store, project_store, use_store
from memoryhub.models import AccessChange, AgentToken, Membership, Subject
from memoryhub.registry import members, rights, tokens
from memoryhub.registry.organizations import OrgCreate, create_org
from memoryhub.registry.people import change_role, deactivate_person
from memoryhub.registry.projects import ProjectCreate, create_project, describe_project
from memoryhub.registry.rights import grant_of_person, org_of
from memoryhub.transfer.bundles.applying import apply_bundle
from memoryhub.transfer.bundles.archive import export_lines, open_bundle
from memoryhub.web.signin import create_link_token
from sessions_app.models import Session
from sessions_app.schemas import CommitRead, ProjectDescribe
from sessions_app.selectors import profile
from sessions_app.services.work import record_commit
from tests.databases import sqlite_only
from tests.permissions.base import MembersTestCase, add, browser_of
from tests.sessions_app.test_git import Repository

BODY = {"title": "t", "content": "c"}
INTO_UMBRA = [
    ("project:alpha", "moved from the organisation acme into umbra"),
    ("org:acme", "left by the project alpha"),
    ("org:umbra", "given the project alpha"),
]


def describe_alpha(**fields: Any) -> None:
    describe_project(project_id="alpha", command=ProjectDescribe(**fields))


class GrantTests(MembersTestCase):
    def test_a_role_in_an_organisation_holds_in_its_projects(self) -> None:
        self.join("ann", "org:acme", "reviewer")
        self.join("ann", "project:alpha", "viewer")
        self.assertEqual(self.grant("ann").at("project:alpha"), MEMBER_ROLES["reviewer"])
        for org, acts in ((None, frozenset()), ("acme", MEMBER_ROLES["reviewer"]), (None, frozenset())):
            describe_project(project_id="beta", command=ProjectDescribe(org_id=org))
            self.assertEqual((org_of("beta"), self.grant("ann").at("project:beta")), (org, acts))

    def test_roles_in_the_hub_and_in_places_count_together_both_ways_they_are_read(self) -> None:
        for name, role in (("vic", "viewer"), ("rea", "reviewer"), ("adi", "administrator"), ("olga", "owner")):
            add(name, role)
        self.join("ann", "project:alpha")
        self.join("vic", "project:alpha")
        self.join("adi", "org:acme", "owner")
        self.assertEqual(self.grant("vic").at("project:alpha"), MEMBER_ROLES["reviewer"])
        self.assertEqual(self.grant("vic").at("project:beta"), MEMBER_ROLES["viewer"])
        for name in ("rea", "adi"):
            deactivate_person(name=name)
            self.assertEqual(self.grant(name).at("project:alpha"), frozenset())
        for name in ("ann", "vic", "rea", "adi", "olga", "owner"):
            for place in ("", "project:alpha", "project:beta", "org:acme", "global"):
                with self.subTest(name=name, place=place):
                    self.assertEqual(self.grant(name).at(place), grant_of_person(name).at(place))

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

    @sqlite_only("what is kept in memory is dropped when the store's files change")
    def test_organisations_of_few_projects_are_kept_in_memory(self) -> None:
        with mock.patch.object(rights, "_MOST_ORGS", 1), mock.patch.dict(rights._orgs, clear=True):
            self.assertEqual([org_of(project) for project in ("alpha", "beta", "alpha")], ["acme", None, "acme"])
            self.assertEqual(len(rights._orgs), 1)


class ManagingTests(MembersTestCase):
    def test_every_grant_is_in_the_history(self) -> None:
        for role in ("viewer", "viewer", "owner"):
            self.join("ann", "project:alpha", role)
        members.remove_member(store=project_store("alpha"), name="ann")
        changes = AccessChange.objects.filter(subject=Subject.MEMBER, name="project:alpha").order_by("id")
        notes = ["added ann as viewer", "changed ann from viewer to owner", "removed ann"]
        self.assertEqual([change.what for change in changes], ["moved into the organisation acme", *notes])

    def test_an_administrator_manages_members_of_what_they_do_not_see(self) -> None:
        add("adi", "administrator")
        browser = browser_of("adi")
        self.assertEqual(browser.get("/p/alpha/admin/").status_code, 404)
        self.assertContains(browser.get("/people"), "project alpha")
        joined = browser.post("/people/ann/join", {"place": "project:alpha", "role": "viewer"}, follow=True)
        self.assertContains(joined, "ann now has the role viewer in alpha.")
        self.assertEqual(browser_of("ann").get("/p/alpha/admin/").status_code, 200)
        browser.post("/people/ann/leave", {"place": "project:alpha"})
        self.assertEqual(browser_of("ann").get("/p/alpha/admin/").status_code, 404)

    def test_an_administrator_becomes_nobody_who_may_do_more(self) -> None:
        add("adi", "administrator")
        browser = browser_of("adi")
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
                people = set(User.objects.filter(is_active=True).values_list("username", "groups__name"))
                self.assertEqual(people, {("adi", "administrator"), ("ann", "member"), ("owner", None)})
                self.assertFalse(AgentToken.objects.exists())
        with use_grant(self.grant("adi")), self.assertRaises(Forbidden):
            create_link_token(username="owner")
        self.assertContains(browser.post("/people/ann/link"), "/signin/")

    def test_an_administrator_signs_in_as_nobody_who_sees_more(self) -> None:
        add("adi", "administrator")
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
            self.assertEqual(browser_of("adi").post("/people/ann/link").status_code, 403)
        self.join("adi", "org:acme", "owner")
        with use_grant(self.grant("adi")):
            tokens.create_token(command=token, by="adi")
        for name in ("adi", "owner"):
            self.assertContains(browser_of(name).post("/people/ann/link"), "/signin/")
        page = browser_of("ann").get("/tokens")
        self.assertContains(page, "Sign-in link created")
        self.assertContains(page, "ann/x")
        changes = [(change.by, change.name) for change in page.context["own_history"].changes]
        self.assertIn(("owner", "ann"), changes)

    def test_a_place_or_a_person_that_does_not_exist_is_refused(self) -> None:
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
        add("vic", "viewer")
        listed = [(member.name, member.role, member.through) for member in members.list_members(project_store("alpha"))]
        of_ann, of_hub = [("ann", "viewer", ""), ("ann", "owner", "acme")], "the hub"
        self.assertEqual(listed, [*of_ann, ("owner", "owner", of_hub), ("vic", "viewer", of_hub)])

    def test_the_page_and_the_routes_change_members(self) -> None:
        owner, page = browser_of("owner"), "/p/alpha/admin/members/"
        joined = owner.post(page, {"name": "ann", "role": "viewer"}, follow=True)
        self.assertContains(joined, "nn now has the role viewer here.")
        self.assertContains(owner.post(page, {"name": "nobody", "role": "viewer"}), "There is no person")
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


class PersonsTokenTests(MembersTestCase):
    def write(self, token: str | None, project: str = "alpha", expect: int = 201, **fields: Any) -> None:  # type: ignore[override]
        self.call("POST", f"projects/{project}/memories", {**BODY, **fields}, token=token, expect=expect)

    def test_pages_show_person_and_client_and_filter_by_both(self) -> None:
        self.join("ann", "project:alpha")
        for client in ("laptop", "desk"):
            self.write(self.token("ann", client), title=client, content=client)
        self.write(None)
        browser, log = browser_of("ann"), "/p/alpha/admin/core/rawevent/"
        shown = '<span class="actor" data-initial="A">ann <span class="badge badge-client">{}</span></span>'
        self.assertContains(browser.get(log), shown.format("laptop"))
        self.assertContains(browser.get(log), "ann, all clients")
        for chosen, clients in (("ann/", ["laptop", "desk"]), ("ann/desk", ["desk"])):
            events = browser.get(log, {"actor": chosen}).context["cl"].result_list
            self.assertEqual({event.actor for event in events}, {f"ann/{client}" for client in clients})
        self.assertContains(browser.get(f"{log}{events[0].position}/change/", follow=True), shown.format("desk"))

    def test_it_can_do_what_the_person_can_at_this_moment(self) -> None:
        token = self.token("ann", "laptop", "admin")
        self.call("GET", "projects/alpha", token=token, expect=404)
        self.join("ann", "project:alpha", "viewer")
        self.call("GET", "projects/alpha", token=token)
        self.write(token, expect=403)
        self.join("ann", "project:alpha", "reviewer")
        self.write(token)
        self.call("PATCH", "projects/alpha/settings", {"retention_days": 30}, token=token, expect=403)
        members.remove_member(store=project_store("alpha"), name="ann")
        self.call("GET", "projects/alpha", token=token, expect=404)
        change_role(name="ann", role="viewer")
        self.call("GET", "projects/beta", token=token)
        deactivate_person(name="ann")
        self.call("GET", "projects/beta", token=token, expect=404)

    def test_everyone_makes_and_revokes_their_own(self) -> None:
        add("ben")
        self.join("ann", "project:alpha")
        ann, ben = browser_of("ann"), browser_of("ben")
        fields = {"name": "laptop", "verbs": "write", "reach": "some", "projects": ["alpha"], "days": "9"}
        self.assertContains(ann.post("/tokens", fields), "ann/laptop")
        self.assertContains(ann.get("/tokens"), "ann/laptop")
        self.assertNotContains(ben.get("/tokens"), "ann/laptop")
        self.assertNotContains(ben.post("/tokens", fields), "mh_")
        for method in (ben.get, ben.post):
            self.assertEqual(method("/tokens/ann/laptop/revoke").status_code, 404)
        self.assertEqual(AgentToken.objects.get().revoked_at, None)
        ann.post("/tokens/ann/laptop/revoke")
        self.assertEqual(AgentToken.objects.get().revoked_by, "ann")
        with self.assertRaisesMessage(ConflictError, "ann/laptop"):
            self.token("ann")
        with use_grant(self.grant("ben")), self.assertRaises(Forbidden):
            tokens.create_token(command=tokens.TokenCreate(name="desk", person="ann"), by="ben")
        with self.assertRaisesMessage(NotFound, "there is no person 'eve'"):
            self.token("eve")


class FolderTests(MembersTestCase):
    """Members work on other machines; a path that they send is none of the hub's."""

    def test_git_on_the_hubs_machine_is_read_for_those_who_administer_it(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        sha = Repository(Path(folder)).commit("Secret plans")
        self.join("ann", "project:alpha", "owner")
        command = CommitRead(sha=sha, directory=folder)
        token = self.token("ann", "laptop", "admin")
        with use_grant(self.grant("ann")), self.store(), self.assertRaises(NotFound):
            record_commit(command=command)
        self.call("PATCH", "projects/alpha", {"root_path": folder}, token=token, expect=403)
        self.call("PATCH", "projects/alpha", {"root_path": folder})
        self.call("PATCH", "projects/alpha", {"root_path": folder, "name": "A"}, token=token)
        with use_grant(self.grant("ann")), self.store():
            self.assertIn("Secret plans", record_commit(command=command).message)

    def test_a_sessions_folder_names_its_sender(self) -> None:
        self.join("ann", "project:alpha")
        body = {"session_id": "s1", "purpose": "p", "directory": "/home/ann/shop"}
        self.call("POST", "projects/alpha/sessions", body, token=self.token("ann"), expect=201)
        with self.store():
            self.assertEqual(Session.objects.get().directory, "ann/laptop:/home/ann/shop")


class MoveTests(MembersTestCase):
    """Alpha belongs to acme; umbra has no project."""

    def setUp(self) -> None:
        super().setUp()
        create_org(command=OrgCreate(org_id="umbra"))
        self.start = AccessChange.objects.count()

    def assert_noted(self, *notes: tuple[str, str]) -> None:
        rows = AccessChange.objects.order_by("id").values_list("name", "what")
        self.assertEqual(list(rows)[self.start :], list(notes))

    def test_a_move_by_rest_is_shown_with_the_members_of_both_organisations_and_of_the_project(self) -> None:
        self.join("ann", "org:umbra", "viewer")
        self.start = AccessChange.objects.count()
        self.assertEqual(browser_of("ann").get("/p/alpha/admin/").status_code, 404)
        self.call("PATCH", "projects/alpha", {"org_id": "umbra"})
        self.assertEqual(browser_of("ann").get("/p/alpha/admin/").status_code, 200)
        self.assert_noted(*INTO_UMBRA)
        change = AccessChange.objects.filter(subject=Subject.MEMBER).latest("id")
        self.assertEqual((change.by, change.door), ("token", "rest"))
        for place, (name, what) in zip(("p/alpha", "o/acme", "o/umbra"), INTO_UMBRA, strict=True):
            page = browser_of("owner").get(f"/{place}/admin/members/").content.decode()
            self.assertInHTML(f"<strong>{name}</strong>: {what}", page)

    def test_the_page_takes_it_out_and_what_changes_nothing_is_not_noted(self) -> None:
        for org in ("acme", "", ""):
            fields = {"org_id": org, "initial-org_id": org_of("alpha") or "", "metadata": "{}"}
            browser_of("owner").post("/p/alpha/admin/describe/", fields)
        self.call("PATCH", "projects/alpha", {"description": "about it"})
        self.assertEqual(org_of("alpha"), None)
        self.assert_noted(
            ("project:alpha", "moved out of the organisation acme"), ("org:acme", "left by the project alpha")
        )

    def test_a_project_that_is_made_or_imported_in_an_organisation_is_noted(self) -> None:
        create_project(command=ProjectCreate(project_id="gamma", org_id="umbra"))
        with self.store("alpha"):
            (self.home / "alpha.jsonl").write_text("".join(export_lines()))
        with use_store(project_store("copy"), create=True):
            apply_bundle(open_bundle(self.home / "alpha.jsonl"), project_store("copy"))
        self.assert_noted(
            ("project:gamma", "moved into the organisation umbra"),
            ("org:umbra", "given the project gamma"),
            ("project:copy", "moved into the organisation acme"),
            ("org:acme", "given the project copy"),
        )

    def describe_in(self, session: str, **fields: Any) -> None:
        with use_origin(session_id=session, actor="mallory", source="mcp"):
            describe_alpha(**fields)

    def roll_back(self, session: str) -> None:
        plan = RollbackPlan(session_id=session, action="undo")
        token = preview(command=plan).confirm_token
        roll_back(command=RollbackMake(**plan.model_dump(), confirm_token=token))

    def test_a_roll_back_that_moves_it_back_is_noted(self) -> None:
        self.describe_in("s-bad", org_id="umbra")
        with self.store("alpha", actor="olga", source="admin"):
            self.roll_back("s-bad")
        self.assert_noted(
            *INTO_UMBRA,
            ("project:alpha", "moved from the organisation umbra into acme"),
            ("org:umbra", "left by the project alpha"),
            ("org:acme", "given the project alpha"),
        )

    def test_a_roll_back_changes_the_organisation_and_the_folder_only_for_those_who_may(self) -> None:
        """An owner of the project alone neither sees the organisation nor names a folder of the hub."""
        self.join("ann", "project:alpha", "owner")
        for field, before, after in (("root_path", "/a", "/b"), ("org_id", "acme", None)):
            with self.subTest(field), self.store("alpha"):
                describe_alpha(**{field: before})
                self.describe_in(f"s-{field}", **{field: after})
                self.start = AccessChange.objects.count()
                with use_grant(self.grant("ann")), self.assertRaises(Forbidden):
                    self.roll_back(f"s-{field}")
                self.assert_noted()
                self.assertEqual(profile().org if field == "org_id" else profile().root_path, after)

    def test_nothing_is_moved_without_a_note_unless_there_is_no_hub(self) -> None:
        create = mock.patch.object(AccessChange.objects, "create", side_effect=DatabaseError("disk full"))
        with create, self.assertRaisesMessage(Exception, "disk full"):
            describe_alpha(org_id="umbra")
        self.assertEqual(org_of("alpha"), "acme")
        with mock.patch("memoryhub.registry.access_history.has_hub", return_value=False):
            describe_alpha(org_id="umbra")
        self.assertEqual(org_of("alpha"), "umbra")
        self.assert_noted()
