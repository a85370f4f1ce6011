"""Projects and organisations are made from inside a project: what goes along, and what does not."""

from __future__ import annotations

from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.errors import Forbidden, Invalid
from memoryhub.core.stores.store import Scope, StoreId, org_store, project_store, use_store
from memoryhub.registry.organizations import OrgCreate, create_org
from memoryhub.registry.projects import (
    ProjectCard,
    ProjectCreate,
    ProjectDetails,
    ProjectGet,
    create_project,
    get_project,
)
from tests.support import HubTestCase


class FromInsideTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", source="mcp", actor="agent", session_id="alphas-session", turn_id="t"))

    def origin_of_the_first_event(self, store: StoreId) -> tuple[str, str, str]:
        with use_store(store):
            event = next(map(log.event_of, log.events()))
        return event.actor, event.session_id, event.turn_id

    def test_a_session_is_named_in_its_own_project_only(self) -> None:
        create_org(command=OrgCreate(org_id="acme", name="Acme"))
        create_project(command=ProjectCreate(project_id="gamma", name="Gamma", org_id="acme"))
        create_project(command=ProjectCreate(project_id="alpha", name="Alpha"))
        for scope, name in ((Scope.ORG, "acme"), (Scope.PROJECT, "gamma")):
            self.assertEqual(self.origin_of_the_first_event(StoreId(scope, name)), ("agent", "", ""))
        self.assertEqual(self.origin_of_the_first_event(project_store("alpha")), ("agent", "alphas-session", "t"))

    def test_a_repeated_call_gives_the_first_answer_and_no_more_of_another_project(self) -> None:
        command = ProjectCreate(project_id="gamma", name="Gamma", idempotency_key="k")
        first = create_project(command=command)
        self.assertEqual(create_project(command=command), first)
        self.assertEqual((type(first), first.name), (ProjectCard, "Gamma"))
        self.assertIs(type(get_project(command=ProjectGet())), ProjectDetails)

    def test_a_key_that_is_refused_creates_nothing(self) -> None:
        for store, create in (
            (org_store("acme"), lambda: create_org(command=OrgCreate(org_id="acme", name="A", idempotency_key="a\0b"))),
            (
                project_store("gamma"),
                lambda: create_project(command=ProjectCreate(project_id="gamma", name="G", idempotency_key="a\0b")),
            ),
        ):
            with self.subTest(store=store.alias):
                self.assertRaisesMessage(Invalid, "idempotency_key must have at most 200", create)
                self.assertFalse(stores.exists(store))

    def test_an_organisation_is_changed_by_its_own_projects_only(self) -> None:
        create_org(command=OrgCreate(org_id="acme"))
        change = OrgCreate.model_validate({"id": "acme", "name": "Acme", "if_exists": "update"})
        with self.assertRaises(Forbidden):
            create_org(command=change)
        create_project(command=ProjectCreate(project_id="alpha", org_id="acme"))
        changed = create_org(command=change)
        self.assertEqual((changed.name, changed.projects), ("Acme", ["alpha"]))
        with use_store(org_store("acme")):
            self.assertEqual(log.head()[0], 1)
