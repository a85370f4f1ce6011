from __future__ import annotations

from typing import Any

from memories import services
from memories.query import query
from memories.schemas import MemoryUpdate, MemoryWrite
from memories.schemas.query import MemoryQuery
from memoryhub.core import log
from memoryhub.core.schemas import Listing
from memoryhub.core.stores.store import org_store, use_store
from sessions_app.events import PROJECT_DESCRIBED, ProjectDescribed
from tests.support import HubTestCase


class AcmeTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        with use_store(org_store("acme"), create=True):
            pass
        for project in ("alpha", "beta"):
            with self.store(project), log.transaction():
                log.append(log.prepare(PROJECT_DESCRIBED, ProjectDescribed(org="acme")), stream="project")
        self.enterContext(self.store("alpha", actor="ada", session_id="s-1"))


class QueryTestCase(AcmeTestCase):
    def write(self, title: str, scope: str = "project", kind: str = "guideline", **fields: Any) -> int:
        given = {"title": title, "scope": scope, "kind": kind, "content": f"{title} in {scope}.", **fields}
        return services.write_memory(command=MemoryWrite.model_validate(given)).id

    def update(self, memory_id: int, scope: str = "project", **fields: Any) -> None:
        services.update_memory(command=MemoryUpdate.model_validate({"id": memory_id, "scope": scope, **fields}))

    def ask(self, mode: str = "auto", **question: Any) -> Listing:
        return query(command=MemoryQuery.model_validate(question), mode=mode)

    def found(self, mode: str = "auto", **question: Any) -> list[tuple[str, str]]:
        return [(item["scope"], item["title"]) for item in self.ask(mode, **question).results]
