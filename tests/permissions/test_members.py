"""Members of places: what they see and may do, who makes them, their tokens, and projects that move.

That they see and change nothing beyond their rights is in ``test_matrix.py``.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from unittest import mock

from django.contrib.auth.models import User
from django.db import DatabaseError

from governance.rollback.schemas import RollbackMake, RollbackPlan
from governance.rollback.services import preview, roll_back
from memoryhub.core.errors import Conflict, Forbidden, Invalid, NotFound
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import EVERYTHING, MEMBER_ROLES, Act, use_grant
from memoryhub.core.stores.store import GLOBAL_STORE, list_orgs, list_projects, org_store, project_store, use_store
from memoryhub.models import AccessChange, AgentToken, Membership, Subject
from memoryhub.registry import members, rights, tokens
from memoryhub.registry.organizations import OrgCreate, create_org
from memoryhub.registry.people import change_role, deactivate_person
from memoryhub.registry.projects import ProjectCreate, create_project, describe_project
from memoryhub.registry.rights import grant_of_person, org_of
from memoryhub.transfer.jsonl import Export, export_lines
from memoryhub.transfer.replaying import replay_export
from memoryhub.web.signin import create_link_token
from sessions_app.models import Session
from sessions_app.schemas import CommitRead, ProfileView, ProjectDescribe
from sessions_app.selectors import profile
from sessions_app.services.commits import record_commit
from tests.databases import sqlite_only
from tests.permissions.base import MembersTestCase, add, browser_of

BODY = {"title": "t", "content": "c"}
INTO_UMBRA = [
    ("project:alpha", "moved from the organisation acme into umbra"),
    ("org:acme", "left by the project alpha"),
    ("org:umbra", "given the project alpha"),
]


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
        add("vic", "viewer")
        self.join("vic", "project:alpha", "reviewer")
        self.assertEqual(self.grant("vic").at("project:alpha"), MEMBER_ROLES["reviewer"])
        self.assertEqual(self.grant("vic").at("project:beta"), MEMBER_ROLES["viewer"])

    def test_both_ways_to_a_persons_rights_agree(self) -> None:
        for name, role in (("vic", "viewer"), ("rea", "reviewer"), ("adi", "administrator"), ("olga", "owner")):
            add(name, role)
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
        add("ben")
        self.join("ann", "project:alpha", "owner")
        with use_grant(self.grant("ann")):
            self.join("ben", "project:alpha", "reviewer")
            with self.assertRaisesMessage(NotFound, "there is no project 'beta' in this hub; known: alpha"):
                self.join("ben", "project:beta")
        with use_grant(self.grant("ben")), self.assertRaisesMessage(Forbidden, "may not manage members"):
            self.join("ben", "project:alpha", "owner")
        self.assertEqual(Membership.objects.get(username="ben").role, "reviewer")

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
                self.assertFalse(User.objects.filter(username="eve").exists() or AgentToken.objects.exists())
                for name, role in (("adi", "administrator"), ("ann", "member"), ("owner", "")):
                    person = User.objects.get(username=name)
                    self.assertEqual([group.name for group in person.groups.all()], [role] if role else [])
                    self.assertTrue(person.is_active)
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
        self.assertContains(browser_of("adi").post("/people/ann/link"), "/signin/")
        self.assertContains(browser_of("owner").post("/people/ann/link"), "/signin/")

    def test_people_see_who_was_given_a_link_or_a_token_in_their_name(self) -> None:
        browser_of("owner").post("/people/ann/link")
        tokens.create_token(command=tokens.TokenCreate(name="x", person="ann"), by="owner")
        page = browser_of("ann").get("/tokens")
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
        add("vic", "viewer")
        found = [(member.name, member.role, member.through) for member in members.list_members(project_store("alpha"))]
        expected = [
            ("ann", "viewer", ""),
            ("ann", "owner", "acme"),
            ("owner", "owner", "the hub"),
            ("vic", "viewer", "the hub"),
        ]
        self.assertEqual(found, expected)

    def test_the_page_and_the_routes_change_members(self) -> None:
        owner = browser_of("owner")
        page = "/p/alpha/admin/members/"
        self.assertContains(
            owner.post(page, {"name": "ann", "role": "viewer"}, follow=True), "nn now has the role viewer here."
        )
        self.assertContains(owner.post(page, {"name": "nobody", "role": "viewer"}), "There is no person")
        self.assertEqual(browser_of("ann").get(page).status_code, 403)
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
    def test_events_name_the_person_and_the_client(self) -> None:
        self.join("ann", "project:alpha")
        text = self.token("ann")
        self.call("POST", "projects/alpha/memories", BODY, token=text, expect=201)
        event = self.call("GET", "projects/alpha/events", token=text).data["results"][-1]
        self.assertEqual(event["actor"], "ann/laptop")

    def test_pages_show_person_and_client_and_filter_by_both(self) -> None:
        self.join("ann", "project:alpha")
        for client in ("laptop", "desk"):
            text = self.token("ann", client)
            self.call("POST", "projects/alpha/memories", {"title": client, "content": client}, token=text, expect=201)
        self.call("POST", "projects/alpha/memories", BODY, expect=201)
        browser, log = browser_of("ann"), "/p/alpha/admin/core/rawevent/"
        shown = '<span class="actor" data-initial="A">ann <span class="badge badge-client">{}</span></span>'
        self.assertContains(browser.get(log), shown.format("laptop"))
        self.assertContains(browser.get(log), "ann, all clients")
        for chosen, clients in (("ann/", ["laptop", "desk"]), ("ann/desk", ["desk"])):
            page = browser.get(log, {"actor": chosen})
            found = {event.actor for event in page.context["cl"].result_list}
            self.assertEqual(found, {f"ann/{client}" for client in clients})
        events = page.context["cl"].result_list
        self.assertContains(browser.get(f"{log}{events[0].position}/change/", follow=True), shown.format("desk"))

    def test_it_can_do_what_the_person_can_at_this_moment(self) -> None:
        text = self.token("ann", "laptop", "admin")
        self.call("GET", "projects/alpha", token=text, expect=404)
        self.join("ann", "project:alpha", "viewer")
        self.call("GET", "projects/alpha", token=text)
        self.call("POST", "projects/alpha/memories", BODY, token=text, expect=403)
        self.join("ann", "project:alpha", "reviewer")
        self.call("POST", "projects/alpha/memories", BODY, token=text, expect=201)
        self.call("PATCH", "projects/alpha/settings", {"retention_days": 30}, token=text, expect=403)
        members.remove_member(store=project_store("alpha"), name="ann")
        self.call("GET", "projects/alpha", token=text, expect=404)
        change_role(name="ann", role="viewer")
        self.call("GET", "projects/beta", token=text)
        deactivate_person(name="ann")
        self.call("GET", "projects/beta", token=text, expect=404)

    def test_it_is_for_the_places_and_verbs_that_were_chosen(self) -> None:
        self.join("ann", "org:acme", "owner")
        self.join("ann", "project:beta", "owner")
        text = self.token("ann", "laptop", "read", projects=["beta"])
        self.call("GET", "projects/beta", token=text)
        self.call("POST", "projects/beta/memories", BODY, token=text, expect=403)
        self.call("GET", "projects/alpha", token=text, expect=404)
        of_org = self.token("ann", "desk", "write", orgs=["acme"])
        self.call("POST", "projects/alpha/memories", BODY, token=of_org, expect=201)
        self.call("GET", "projects/beta", token=of_org, expect=404)
        with self.assertRaisesMessage(NotFound, "there is no project 'gamma' in this hub; known: alpha, beta"):
            self.token("ann", "tablet", projects=["gamma"])

    def test_everyone_makes_and_revokes_their_own(self) -> None:
        add("ben")
        self.join("ann", "project:alpha")
        ann, ben = browser_of("ann"), browser_of("ben")
        fields = {"name": "laptop", "verbs": "write", "reach": "some", "projects": ["alpha"], "days": "9"}
        made = ann.post("/tokens", fields)
        self.assertContains(made, "ann/laptop")
        self.assertContains(ann.get("/tokens"), "ann/laptop")
        self.assertNotContains(ben.get("/tokens"), "ann/laptop")
        self.assertNotContains(ben.post("/tokens", fields), "mh_")
        for method in (ben.get, ben.post):
            self.assertEqual(method("/tokens/ann/laptop/revoke").status_code, 404)
        self.assertEqual(AgentToken.objects.get().revoked_at, None)
        ann.post("/tokens/ann/laptop/revoke")
        self.assertEqual(AgentToken.objects.get().revoked_by, "ann")
        with self.assertRaisesMessage(Conflict, "ann/laptop"):
            self.token("ann")

    def test_nobody_makes_a_token_in_anothers_name(self) -> None:
        add("ben")
        with use_grant(self.grant("ben")), self.assertRaises(Forbidden):
            tokens.create_token(command=tokens.TokenCreate(name="x", person="ann"), by="ben")
        with self.assertRaisesMessage(NotFound, "there is no person 'eve'"):
            tokens.create_token(command=tokens.TokenCreate(name="x", person="eve"), by="owner")


class FolderTests(MembersTestCase):
    """Members work on other machines; a path that they send is none of the hub's."""

    def test_git_on_the_hubs_machine_is_read_for_those_who_administer_it(self) -> None:
        repository = Path(self.enterContext(tempfile.TemporaryDirectory()))
        git = ["git", "-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@b.c"]
        subprocess.run([*git, "init", "--quiet"], check=True)
        subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "Secret plans"], check=True)
        sha = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        self.join("ann", "project:alpha", "owner")
        command = CommitRead(sha=sha, directory=str(repository))
        token = self.token("ann", "laptop", "admin")
        with use_grant(self.grant("ann")), self.store(), self.assertRaises(NotFound):
            record_commit(command=command)
        self.call("PATCH", "projects/alpha", {"root_path": str(repository)}, token=token, expect=403)
        self.call("PATCH", "projects/alpha", {"root_path": str(repository)})
        self.call("PATCH", "projects/alpha", {"root_path": str(repository), "name": "A"}, token=token)
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

    def noted(self) -> list[tuple[str, str]]:
        rows = AccessChange.objects.order_by("id").values_list("name", "what")
        return list(rows)[self.start :]

    def test_a_move_by_rest_is_shown_with_the_members_of_both_organisations_and_of_the_project(self) -> None:
        self.join("ann", "org:umbra", "viewer")
        self.start = AccessChange.objects.count()
        browser = browser_of("owner")
        self.assertEqual(browser_of("ann").get("/p/alpha/admin/").status_code, 404)
        self.call("PATCH", "projects/alpha", {"org_id": "umbra"})
        self.assertEqual(browser_of("ann").get("/p/alpha/admin/").status_code, 200)
        self.assertEqual(self.noted(), INTO_UMBRA)
        row = AccessChange.objects.filter(subject=Subject.MEMBER).latest("id")
        self.assertEqual((row.by, row.door), ("token", "rest"))
        for place, (name, what) in zip(("p/alpha", "o/acme", "o/umbra"), INTO_UMBRA, strict=True):
            page = browser.get(f"/{place}/admin/members/").content.decode()
            self.assertInHTML(f"<strong>{name}</strong>: {what}", page)

    def test_the_page_takes_it_out_and_what_changes_nothing_is_not_noted(self) -> None:
        page = "/p/alpha/admin/describe/"
        owner = browser_of("owner")
        for org in ("acme", "", ""):
            owner.post(page, {"org_id": org, "initial-org_id": org_of("alpha") or "", "metadata": "{}"})
        self.call("PATCH", "projects/alpha", {"description": "about it"})
        self.assertEqual(org_of("alpha"), None)
        said = [
            ("project:alpha", "moved out of the organisation acme"),
            ("org:acme", "left by the project alpha"),
        ]
        self.assertEqual(self.noted(), said)

    def test_a_project_that_is_made_in_an_organisation_is_noted(self) -> None:
        create_project(command=ProjectCreate(project_id="gamma", org_id="umbra"))
        said = [("project:gamma", "moved into the organisation umbra"), ("org:umbra", "given the project gamma")]
        self.assertEqual(self.noted(), said)

    def roll_back(self) -> None:
        """Undo what the session s-bad did."""
        plan = RollbackPlan(session_id="s-bad", action="undo")
        token = preview(command=plan).confirm_token
        roll_back(command=RollbackMake(**plan.model_dump(), confirm_token=token))

    def test_a_roll_back_that_moves_it_back_is_noted(self) -> None:
        with use_origin(session_id="s-bad", actor="mallory", source="mcp"):
            describe_project(project_id="alpha", command=ProjectDescribe(org_id="umbra"))
        with self.store("alpha", actor="olga", source="admin"):
            self.roll_back()
        said = [
            ("project:alpha", "moved from the organisation umbra into acme"),
            ("org:umbra", "left by the project alpha"),
            ("org:acme", "given the project alpha"),
        ]
        self.assertEqual(self.noted(), [*INTO_UMBRA, *said])

    def refused(self, before: ProjectDescribe, after: ProjectDescribe) -> ProfileView:
        """Return the description after an owner of the project alone was refused to roll back a change of it."""
        self.join("ann", "project:alpha", "owner")
        describe_project(project_id="alpha", command=before)
        with use_origin(session_id="s-bad", actor="mallory", source="mcp"):
            describe_project(project_id="alpha", command=after)
        self.start = AccessChange.objects.count()
        with self.store("alpha"):
            with use_grant(self.grant("ann")), self.assertRaises(Forbidden):
                self.roll_back()
            self.assertEqual(self.noted(), [])
            return profile()

    def test_a_roll_back_moves_it_only_for_those_who_see_the_organisation(self) -> None:
        found = self.refused(ProjectDescribe(org_id="acme"), ProjectDescribe(org_id=None))
        self.assertEqual(found.org, None)

    def test_a_roll_back_names_a_folder_of_the_hub_only_for_those_who_administer_it(self) -> None:
        found = self.refused(ProjectDescribe(root_path="/a"), ProjectDescribe(root_path="/b"))
        self.assertEqual(found.root_path, "/b")

    def test_an_import_that_brings_an_organisation_is_noted(self) -> None:
        with self.store("alpha"):
            (self.home / "alpha.jsonl").write_text("".join(export_lines()))
        with use_store(project_store("copy"), create=True):
            replay_export(Export(self.home / "alpha.jsonl"))
        said = [("project:copy", "moved into the organisation acme"), ("org:acme", "given the project copy")]
        self.assertEqual(self.noted(), said)

    def test_nothing_is_moved_without_a_note_unless_there_is_no_hub(self) -> None:
        create = mock.patch.object(AccessChange.objects, "create", side_effect=DatabaseError("disk full"))
        with create, self.assertRaisesMessage(Exception, "disk full"):
            describe_project(project_id="alpha", command=ProjectDescribe(org_id="umbra"))
        self.assertEqual(org_of("alpha"), "acme")
        with mock.patch("memoryhub.registry.moves.has_hub", return_value=False):
            describe_project(project_id="alpha", command=ProjectDescribe(org_id="umbra"))
        self.assertEqual((org_of("alpha"), self.noted()), ("umbra", []))
