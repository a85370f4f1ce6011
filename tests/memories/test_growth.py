"""What grows with the store: the instructions that SQLite runs for a question, in a small store and a larger one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.db import connections

from memories.models import AmendmentKind
from memories.selectors.amendments import open_amendments
from memories.services.amendments import record_amendment
from memories.validity.amendments import Pair
from memories.validity.marks import MarkKind
from memories.validity.selectors import ids_with_mark
from memoryhub.core import log
from memoryhub.core.stores.routing import require_current_alias
from tests.databases import sqlite_only
from tests.memories.base import MemoriesTestCase

_SMALL, _MORE = 30, 120


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
        self.count = 0
        self.write_notes(_SMALL)

    def write_notes(self, count: int) -> None:
        self.write_all({f"Note {number}": f"Text {number}" for number in range(self.count, self.count + count)})
        self.count += count

    def assert_none_grows(self, *questions: Callable[[], object]) -> None:
        """Fail if a question takes much more in a store with five times as many notes."""
        for question in questions:
            question()
        small = list(map(count_steps, questions))
        self.write_notes(_MORE)
        for steps, question in zip(small, questions, strict=True):
            self.assertLess(count_steps(question), 2 * steps, question)

    def record_amendment(self) -> None:
        with log.transaction():
            record_amendment(Pair(2, 1, AmendmentKind.AMENDS, is_certain=True))

    def test_amendments_are_listed_without_trying_all_pairs_of_entries(self) -> None:
        self.record_amendment()
        self.assert_none_grows(open_amendments)

    def test_a_filter_by_mark_reads_only_what_may_have_it(self) -> None:
        self.record_amendment()
        self.assertEqual(ids_with_mark("amended"), [1])
        kinds = set(MarkKind) - {MarkKind.ORIGIN}
        self.assert_none_grows(*(partial(ids_with_mark, kind) for kind in kinds))
