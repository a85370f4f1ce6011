"""Base of the tests of decisions: a project's store, and short ways to record."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from decisions import selectors, services
from decisions.schemas import DecisionGet, DecisionRecord, DecisionResult
from sessions_app.models import Commit
from sessions_app.schemas import CommitRecord
from sessions_app.services import record_commits
from tests.support import HubTestCase

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class DecisionsTestCase(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="ada", session_id="s-1"))

    def record(self, title: str, **fields: Any) -> DecisionResult:
        command = DecisionRecord.model_validate({"title": title, "chosen": f"Choose {title}.", **fields})
        return services.record_decision(command=command)

    def get(self, *ids: int, **fields: Any) -> dict[str, Any]:
        return selectors.get_decisions(command=DecisionGet.model_validate({"ids": list(ids), **fields}))[0]

    def commit(self, sha: str, message: str, *paths: str) -> int:
        files = [{"path": path, "insertions": 1, "deletions": 0} for path in paths]
        command = CommitRecord.model_validate(
            {"sha": sha.ljust(40, "0"), "message": message, "author": "Ada", "committed_at": NOON, "files": files}
        )
        record_commits(commits=[command])
        return int(Commit.objects.get(sha=command.sha).id)
