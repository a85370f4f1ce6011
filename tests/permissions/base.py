"""Alpha with one thing of each kind, and a person of each role."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from memories.schemas import MemoryTouch, MemoryUpdate, MemoryWrite
from memories.services import delete_memory, update_memory, write_memory
from memoryhub.core import log
from memoryhub.registry.people import PersonAdd, add_person
from memoryhub.web.signin import ensure_owner
from tests.support import HubTestCase

ADMIN = "/p/alpha/admin/"


class PermissionTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.people = {
            "viewer": self.add("vic", "viewer"),
            "reviewer": self.add("rea", "reviewer"),
            "owner": ensure_owner(),
        }
        self.browsers = {role: self.browser(user) for role, user in self.people.items()}
        with self.store("beta"):
            pass
        with self.store(actor="agent", source="mcp"):
            self.memory = self.write("One")
            self.gone = self.write("Two")
            delete_memory(command=MemoryTouch(id=self.gone))
            self.conflict = self.disagree(self.write("Three"))
            self.decision = record_decision(command=DecisionRecord(title="Four", chosen="four")).id

    def add(self, name: str, role: Any) -> User:
        return add_person(command=PersonAdd(name=name, role=role))

    def browser(self, user: User) -> Client:
        browser = Client(headers={"host": "localhost"})
        browser.force_login(user)
        return browser

    def write(self, title: str) -> int:
        return write_memory(command=MemoryWrite(title=title, content=f"the text of {title}")).id

    def disagree(self, memory_id: int) -> int:
        for text in ("this", "that"):
            result = update_memory(command=MemoryUpdate(id=memory_id, base_version=1, content=text))
        assert result.conflict
        return result.conflict

    def head(self, project: str = "alpha") -> int:
        with self.store(project):
            return log.head()[0]
