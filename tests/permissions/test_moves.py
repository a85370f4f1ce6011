"""A project that enters or leaves an organisation is in the history of grants, whichever way it came about."""

from __future__ import annotations

from unittest import mock

from django.db import DatabaseError

from governance.rollback.schemas import RollbackMake, RollbackPlan
from governance.rollback.services import preview, roll_back
from memoryhub.core.errors import Forbidden
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import use_grant
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.models import AccessChange, Subject
from memoryhub.registry.organizations import OrgCreate, create_org
from memoryhub.registry.projects import ProjectCreate, create_project, describe_project
from memoryhub.registry.rights import org_of
from memoryhub.transfer.jsonl import Export, export_lines
from memoryhub.transfer.replaying import replay_export
from sessions_app.schemas import ProfileView, ProjectDescribe
from sessions_app.selectors import profile
from tests.permissions.member_case import MembersTestCase

INTO_UMBRA = [
    ("project:alpha", "moved from the organisation acme into umbra"),
    ("org:acme", "left by the project alpha"),
    ("org:umbra", "given the project alpha"),
]


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
        browser = self.browser("owner")
        self.assertEqual(self.browser("ann").get("/p/alpha/admin/").status_code, 404)
        self.call("PATCH", "projects/alpha", {"org_id": "umbra"})
        self.assertEqual(self.browser("ann").get("/p/alpha/admin/").status_code, 200)
        self.assertEqual(self.noted(), INTO_UMBRA)
        row = AccessChange.objects.filter(subject=Subject.MEMBER).latest("id")
        self.assertEqual((row.by, row.door), ("token", "rest"))
        for place, (name, what) in zip(("p/alpha", "o/acme", "o/umbra"), INTO_UMBRA, strict=True):
            page = browser.get(f"/{place}/admin/members/").content.decode()
            self.assertInHTML(f"<strong>{name}</strong>: {what}", page)

    def test_the_page_takes_it_out_and_what_changes_nothing_is_not_noted(self) -> None:
        page = "/p/alpha/admin/describe/"
        owner = self.browser("owner")
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
