"""The base of the admin's tests: alpha's owner, signed in, and a project beta that must see nothing of alpha's."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.db import connections
from django.test.utils import CaptureQueriesContext

from memories.models import Memory
from memories.schemas import MemoryWrite, WriteResult
from memories.services import write_memory
from memoryhub.core.stores.store import project_store
from memoryhub.web.signin import ensure_owner
from tests.support import HubTestCase


class AdminTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.client.force_login(ensure_owner())
        for project in ("alpha", "beta"):
            with self.store(project):
                pass

    def write(self, title: str, content: str = "some text", project: str = "alpha", **fields: Any) -> int:
        with self.store(project, actor="agent", source="mcp", session_id=fields.pop("session", "")):
            result: WriteResult = write_memory(command=MemoryWrite(title=title, content=content, **fields))
            return result.id

    def memory(self, memory_id: int, project: str = "alpha") -> Memory:
        with self.store(project):
            found: Memory = Memory.objects.get(id=memory_id)
            return found

    def address(self, path: str, project: str = "alpha") -> str:
        return f"/p/{project}/admin/{path}"

    def page(self, path: str = "", project: str = "alpha", status: int = 200, **query: str) -> str:
        answer = self.client.get(self.address(path, project), query)
        self.assertEqual(answer.status_code, status, answer.content[:500])
        return unescape(answer.content.decode())

    def memories(self, **query: Any) -> list[int]:
        return self.listed("memories/memory/", **query)

    def listed(self, path: str, **query: Any) -> list[int]:
        found = re.findall(r'class="field-number"><a href="[^"]*/(\d+)/change/', self.page(path, **query))
        return [int(each) for each in found]

    def post(self, path: str, project: str = "alpha", **fields: Any) -> str:
        answer = self.client.post(self.address(path, project), fields, follow=True)
        return unescape(answer.content.decode())

    def queries_of(self, path: str, project: str = "alpha") -> int:
        self.page(path, project)
        with self.store(project), CaptureQueriesContext(connections[project_store(project).alias]) as queries:
            self.page(path, project)
        return len([query for query in queries if not query["sql"].startswith("PRAGMA")])


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())
