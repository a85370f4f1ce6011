"""A caller that may not create projects gets a message about that right only."""

from __future__ import annotations

import json

from memoryhub.core.errors import Forbidden
from memoryhub.core.permissions import VERBS, Grant, use_grant
from memoryhub.registry.projects import ProjectCreate, create_project
from memoryhub.registry.tokens import TokenCreate, create_token
from tests.permissions.base import PermissionTestCase

SENTENCE = "may not create or set up projects and organisations; that needs the role owner"


class MakingTests(PermissionTestCase):
    def test_the_pages_name_what_was_wanted(self) -> None:
        for page in ("/new/project", "/new/organisation"):
            for role in ("viewer", "reviewer"):
                answer = self.browsers[role].post(page, {"id": "gamma"})
                self.assertContains(answer, f"{self.people[role].username.title()} {SENTENCE}", status_code=403)

    def test_the_routes_and_the_service_do_too(self) -> None:
        _, text = create_token(command=TokenCreate(name="bot", verbs=["write"]), by="ann")
        bearer = {"authorization": f"Bearer {text}", "host": "localhost"}
        for method, route, body in (
            ("POST", "projects", {"project_id": "gamma"}),
            ("PATCH", "projects/alpha", {"name": "A"}),
            ("POST", "orgs", {"org_id": "acme"}),
        ):
            content = json.dumps(body)
            answer = self.client.generic(method, f"/api/v1/{route}", content, "application/json", headers=bearer)
            detail = answer.json()["detail"]
            self.assertEqual((answer.status_code, detail), (403, f"this caller {SENTENCE}, or a token with admin"))
        with use_grant(Grant(VERBS["write"])), self.assertRaisesMessage(Forbidden, f"this caller {SENTENCE}"):
            create_project(command=ProjectCreate(project_id="gamma"))
