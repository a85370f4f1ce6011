"""Base of the tests of staleness: a store whose clock is ours, what governs files, and commits that touch them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from governance.staleness.schemas import Affirm, StaleList
from governance.staleness.selectors import list_stale
from governance.staleness.service import affirm
from memories.schemas import MemoryWrite
from memories.services import write_memory
from memoryhub.core import clock
from sessions_app.models import Commit
from sessions_app.schemas import CommitRecord
from sessions_app.services import record_commits
from tests.decisions.base import NOON, DecisionsTestCase


class StalenessTestCase(DecisionsTestCase):
    """A store at noon; each commit is made an hour after the one before."""

    def setUp(self) -> None:
        super().setUp()
        self.time = NOON
        self.pass_time()

    def pass_time(self, **span: float) -> None:
        self.time += timedelta(**span)
        self.enterContext(clock.frozen(self.time))

    def commit_now(self, message: str, *paths: str, **span: float) -> int:
        """Record a commit that is made after ``span``, an hour by default; return its id."""
        self.pass_time(**(span or {"hours": 1}))
        number = Commit.objects.count() + 1
        files = [{"path": path, "insertions": 3, "deletions": 1} for path in paths]
        made = {"message": message, "author": "Bo", "committed_at": self.time, "files": files}
        record_commits(commits=[CommitRecord.model_validate({"sha": f"{number:040x}", **made})])
        return int(Commit.objects.get(sha=f"{number:040x}").id)

    def write(self, title: str, **fields: Any) -> int:
        return write_memory(command=MemoryWrite(title=title, content=f"About {title}.", **fields)).id

    def guide(self, title: str, *paths: str) -> int:
        links: Any = [{"uri": path, "type": "governs"} for path in paths]
        return self.write(title, kind="guideline", resource_links=links)

    def stale(self, **fields: Any) -> list[dict[str, Any]]:
        return list_stale(command=StaleList(**fields)).results

    def due(self, **fields: Any) -> list[int]:
        return [item["id"] for item in self.stale(**fields)]

    def affirm(self, entity_id: int, **fields: Any) -> Any:
        return affirm(command=Affirm(id=entity_id, **fields))
