"""What grows with the store: the instructions that SQLite runs for a question, in a small store and a larger one."""

from __future__ import annotations

from collections.abc import Callable

from django.db import connections

from memories.models import AmendmentKind
from memories.selectors.amendments import open_amendments
from memories.services.amendments import record_amendment
from memories.validity.amendments import Pair
from memoryhub.core import log
from memoryhub.core.stores.routing import require_current_alias
from tests.databases import sqlite_only
from tests.memories.base import MemoriesTestCase

_SMALL, _LARGE = 30, 300


def count_steps(question: Callable[[], object]) -> int:
    """Return how many instructions of its virtual machine SQLite runs in the current store."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection = connections[require_current_alias()].connection
    connection.set_progress_handler(count, 1)
    try:
        question()
    finally:
        connection.set_progress_handler(None, 0)
    return steps


@sqlite_only("it counts the instructions of SQLite's virtual machine")
class GrowthTests(MemoriesTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.write_notes(0, _SMALL)

    def write_notes(self, first: int, last: int) -> None:
        self.write_all({f"Note {number}": f"Text {number}" for number in range(first, last)})

    def assert_does_not_grow(self, question: Callable[[], object]) -> None:
        question()
        small = count_steps(question)
        self.write_notes(_SMALL, _LARGE)
        self.assertLess(count_steps(question), 2 * small)

    def test_amendments_are_listed_without_trying_all_pairs_of_entries(self) -> None:
        with log.transaction():
            record_amendment(Pair(2, 1, AmendmentKind.AMENDS, is_certain=True))
        self.assert_does_not_grow(open_amendments)
