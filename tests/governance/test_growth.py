"""Questions of governance that must not read the whole log."""

from __future__ import annotations

from governance.rollback.selectors import changed_since
from memoryhub.core import log
from tests.databases import sqlite_only
from tests.memories.base import MemoriesTestCase
from tests.memories.test_growth import count_steps


@sqlite_only("it counts the instructions of SQLite's virtual machine")
class RollbackGrowthTests(MemoriesTestCase):
    def test_later_changes_are_looked_for_after_the_first_of_the_streams_alone(self) -> None:
        steps: list[int] = []
        for count in (30, 300):
            self.write_all({f"Note {count} {number}": f"Text {count} {number}" for number in range(count)})
            since = {f"memory:{position}": position for position in range(log.head()[0] - 20, log.head()[0] + 1)}
            steps.append(count_steps(lambda since=since: changed_since(since, ())))  # type: ignore[misc]
        self.assertLess(steps[1], 2 * steps[0])
