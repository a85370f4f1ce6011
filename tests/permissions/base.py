"""Hubs with people: one with a person of each role, one with members of places."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from memories.schemas import MemoryTouch, MemoryWrite
from memories.services import delete_memory, write_memory
from memoryhub.core.permissions import Grant, grant_of
from memoryhub.core.stores.store import org_store, project_store
from memoryhub.registry import members, tokens
from memoryhub.registry.organizations import OrgCreate, create_org
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.registry.projects import describe_project
from memoryhub.web.signin import ensure_owner
from sessions_app.schemas import ProjectDescribe
from tests.api.client import RestTestCase
from tests.support import HubTestCase

ADMIN = "/p/alpha/admin/"


def add(name: str, role: Any = "member") -> User:
    return add_person(command=PersonAdd(name=name, role=role))


def browser_of(name: str) -> Client:
    browser = Client(headers={"host": "localhost"})
    browser.force_login(User.objects.get(username=name))
    return browser


class PermissionTestCase(HubTestCase):
    """Alpha has a memory and a deleted one; vic is a viewer and rea a reviewer of the hub."""

    def setUp(self) -> None:
        super().setUp()
        self.people = {"viewer": add("vic", "viewer"), "reviewer": add("rea", "reviewer"), "owner": ensure_owner()}
        self.browsers = {role: browser_of(user.get_username()) for role, user in self.people.items()}
        with self.store(actor="agent", source="mcp"):
            self.memory, self.gone = self.write("One"), self.write("Two")
            delete_memory(command=MemoryTouch(id=self.gone))

    def write(self, title: str) -> int:
        return write_memory(command=MemoryWrite(title=title, content=f"the text of {title}")).id


class MembersTestCase(RestTestCase):
    """Alpha belongs to acme, beta to nobody; ann may join them."""

    def setUp(self) -> None:
        super().setUp()
        create_org(command=OrgCreate(org_id="acme"))
        describe_project(project_id="alpha", command=ProjectDescribe(org_id="acme"))
        ensure_owner()
        add("ann")

    def join(self, name: str, place: str, role: Any = "reviewer") -> None:
        kind, _, named = place.partition(":")
        store = (project_store if kind == "project" else org_store)(named)
        members.set_member(store=store, name=name, command=members.MemberSet(role=role))

    def grant(self, name: str) -> Grant:
        return grant_of(User.objects.get(username=name))

    def token(self, person: str, client: str = "laptop", *verbs: Any, **places: list[str]) -> str:
        command = tokens.TokenCreate(name=client, person=person, verbs=list(verbs) or ["write"], **places)
        return tokens.create_token(command=command, by=person)[1]
