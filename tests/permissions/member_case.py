"""A hub with a project of an organisation, another project, and a person who may join them."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from memoryhub.core.permissions import Grant, grant_of
from memoryhub.core.stores.store import org_store, project_store
from memoryhub.registry import members, tokens
from memoryhub.registry.organizations import OrgCreate, create_org
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.registry.projects import describe_project
from memoryhub.web.signin import ensure_owner
from sessions_app.schemas import ProjectDescribe
from tests.api.client import RestTestCase


class MembersTestCase(RestTestCase):
    """Alpha belongs to acme, beta to nobody."""

    def setUp(self) -> None:
        super().setUp()
        create_org(command=OrgCreate(org_id="acme"))
        describe_project(project_id="alpha", command=ProjectDescribe(org_id="acme"))
        self.owner = ensure_owner()
        self.ann = self.add("ann")

    def add(self, name: str, role: Any = "member") -> User:
        return add_person(command=PersonAdd(name=name, role=role))

    def join(self, name: str, place: str, role: Any = "reviewer") -> None:
        kind, _, named = place.partition(":")
        store = (project_store if kind == "project" else org_store)(named)
        members.set_member(store=store, name=name, command=members.MemberSet(role=role))

    def grant(self, name: str) -> Grant:
        return grant_of(User.objects.get(username=name))

    def browser(self, name: str) -> Client:
        browser = Client(headers={"host": "localhost"})
        browser.force_login(User.objects.get(username=name))
        return browser

    def token(self, person: str, client: str = "laptop", *verbs: Any, **places: list[str]) -> str:
        command = tokens.TokenCreate(name=client, person=person, verbs=list(verbs) or ["write"], **places)
        return tokens.create_token(command=command, by=person)[1]
