"""The base of the admin's tests: alpha's owner, signed in, and a project beta that must see nothing of alpha's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import unescape
from typing import Any
from urllib.parse import urlencode

from django.db import connections
from django.test.utils import CaptureQueriesContext

from decisions.models import Decision
from decisions.schemas import DecisionRecord
from decisions.selectors import find_decision
from decisions.services import record_decision
from memories.models import Memory
from memories.schemas import MemoryDelete, MemoryRestore, MemoryUpdate, MemoryWrite, WriteResult
from memories.services import delete_memory, restore_memory, update_memory, write_memory
from memoryhub.core.events.projection import Event
from memoryhub.core.stores.store import project_store
from memoryhub.web.signin import ensure_owner
from sessions_app.models import Commit, Session, Turn
from sessions_app.schemas import CommitRecord, SessionStart, SettingsChange
from sessions_app.services import record_commits, start_session
from sessions_app.services.profile import change_settings
from sessions_app.services.turns import append_automatically, automatic_turn, close_turn
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

    def delete(self, memory_id: int, **fields: Any) -> WriteResult:
        with self.store():
            return delete_memory(command=MemoryDelete(id=memory_id, **fields))

    def restore(self, memory_id: int, **fields: Any) -> WriteResult:
        with self.store():
            return restore_memory(command=MemoryRestore(id=memory_id, **fields))

    def update(self, memory_id: int, *, actor: str = "agent", **changes: Any) -> WriteResult:
        with self.store(actor=actor, source="mcp"):
            return update_memory(command=MemoryUpdate(id=memory_id, **changes))

    def configure(self, **settings: Any) -> None:
        with self.store():
            change_settings(command=SettingsChange(settings=settings))

    def page_of(self, memory_id: int, name: str = "change") -> str:
        return self.page(f"memories/memory/{memory_id}/{name}/")

    def act(self, memory_id: int, name: str, **fields: Any) -> str:
        """Send a form of a memory's page, and return the page to which it leads."""
        return self.post(f"memories/memory/{memory_id}/{name}/", **fields)

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

    def assert_shows(self, page: str, *texts: str, lacks: Iterable[str] = (), where: object = "a page") -> None:
        """Fail with what a page lacks, or should lack, rather than with the page."""
        missing = [f"no {text!r}" for text in texts if text not in page]
        surplus = [f"a {text!r}" for text in lacks if text in page]
        self.assertEqual(missing + surplus, [], f"on {where}")

    def assert_lacks(self, page: str, *texts: str) -> None:
        self.assert_shows(page, lacks=texts)

    def queries_of(self, path: str, project: str = "alpha") -> int:
        self.page(path, project)
        with self.store(project), CaptureQueriesContext(connections[project_store(project).alias]) as queries:
            self.page(path, project)
        return len([query for query in queries if not query["sql"].startswith("PRAGMA")])


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


DECISIONS = "decisions/decision"


class DecidingTestCase(AdminTestCase):
    def record(self, title: str, project: str = "alpha", **fields: Any) -> int:
        given = {"title": title, "chosen": f"Choose {title}.", **fields}
        with self.store(project, actor="agent", source="mcp", session_id="s-1"):
            return record_decision(command=DecisionRecord.model_validate(given)).id

    def commit(self, sha: str, message: str, project: str = "alpha") -> int:
        given = {"sha": sha.ljust(40, "0"), "message": message, "author": "Ada", "committed_at": "2026-11-20T12:00:00Z"}
        with self.store(project, actor="agent", source="mcp", session_id="s-1"):
            record_commits(commits=[CommitRecord.model_validate(given)])
            return int(Commit.objects.get(sha=given["sha"]).id)

    def decision(self, decision_id: int) -> Decision:
        with self.store():
            return find_decision(decision_id)

    def count(self) -> int:
        with self.store():
            return Decision.objects.count()

    def decisions(self, **query: Any) -> list[int]:
        return self.listed(f"{DECISIONS}/?{urlencode(query)}")

    def shown(self, decision_id: int) -> str:
        return self.page(f"{DECISIONS}/{decision_id}/change/")

    def send(self, decision_id: int, name: str, **fields: Any) -> str:
        return self.post(f"{DECISIONS}/{decision_id}/{name}/", **fields)


class WorkingTestCase(AdminTestCase):
    def start(self, name: str, purpose: str = "", project: str = "alpha") -> int:
        with self.store(project, actor="agent", source="mcp", session_id=name):
            session: Session = start_session(command=SessionStart(session_id=name, purpose=purpose))
            return session.id

    def session_of(self, name: str) -> int:
        return int(Session.objects.get(session_id=name).id)

    def turn(self, session: str, *happenings: tuple[str, dict[str, Any]], ends: bool = True, summary: str = "") -> Turn:
        with self.store(actor="agent", source="mcp"):
            turn = automatic_turn(session_id=session)
            for kind, payload in happenings:
                append_automatically(turn=turn, type=kind, payload=payload)
            return close_turn(turn, summary=summary) if ends else turn

    def ask(self, session: str, *prompts: str, ends: bool = True) -> Turn:
        return self.turn(session, *[("message.user", {"content": prompt}) for prompt in prompts], ends=ends)

    def tell(self, turn: Turn, kind: str, **payload: Any) -> Event[Any]:
        with self.store(actor="agent", source="mcp"):
            return append_automatically(turn=turn, type=kind, payload=payload)
