"""What was decided, for the tests of the pages that show it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from decisions.models import Decision
from decisions.schemas import DecisionRecord
from decisions.selectors import find_decision
from decisions.services import record_decision
from sessions_app.models import Commit
from sessions_app.schemas import CommitRecord
from sessions_app.services import record_commits
from tests.admin.base import AdminTestCase

PAGE = "decisions/decision"


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
        return self.listed(f"{PAGE}/?{urlencode(query)}")

    def shown(self, decision_id: int) -> str:
        return self.page(f"{PAGE}/{decision_id}/change/")

    def send(self, decision_id: int, name: str, **fields: Any) -> str:
        return self.post(f"{PAGE}/{decision_id}/{name}/", **fields)
