from __future__ import annotations

import difflib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from django.test import SimpleTestCase

from memories.admin.comparing import history_of, sides
from memories.diff import compare, marked_diff, merge_texts
from memories.models import Memory
from memories.schemas import MemoryUpdate, MemoryWrite
from memories.selectors import versions_of
from memories.services import update_memory, write_memory
from tests.support import HubTestCase


class _Steps:
    count = 0


@contextmanager
def _counted() -> Iterator[_Steps]:
    """Count the pairs of equal tokens that difflib visits."""
    steps, original = _Steps(), difflib.SequenceMatcher.find_longest_match

    def find(self: Any, alo: int, ahi: int, blo: int, bhi: int) -> Any:
        steps.count += sum(len(self.b2j.get(token, ())) for token in self.a[alo:ahi])
        return original(self, alo, ahi, blo, bhi)

    with mock.patch.object(difflib.SequenceMatcher, "find_longest_match", find):
        yield steps


def _letters(seed: int, separator: str = "\n", count: int = 1_500) -> str:
    return separator.join(random.Random(seed).choices("ab", k=count))


def _written(content: str) -> int:
    return write_memory(command=MemoryWrite(title="A text", content=content)).id


# Of one comparison, or of all of a page
LIMIT = 5_000_000


class DiffTests(SimpleTestCase):
    def test_lines_and_words_that_repeat_are_compared_within_a_limit(self) -> None:
        for separator in ("\n", " "):
            with self.subTest(separator=separator), _counted() as steps:
                pieces = list(compare(_letters(1, separator), _letters(2, separator)))
            self.assertLessEqual(steps.count, LIMIT)
            if not any(piece.hidden_lines for piece in pieces):
                self.assertEqual("".join(piece.text + piece.gone for piece in pieces), _letters(1, separator))

    def test_lines_that_repeat_are_merged_within_a_limit(self) -> None:
        with _counted() as steps:
            merge_texts(_letters(1), _letters(2), _letters(3))
        self.assertLessEqual(steps.count, LIMIT)

    def test_long_documents_are_still_compared(self) -> None:
        lines = [line for number in range(1_000) for line in (f"paragraph {number}\n", "\n")]
        changed = [*lines[:900], "one more\n", *lines[900:]]
        self.assertEqual(marked_diff("".join(lines), "".join(changed)).count("{+"), 1)


class VersionDiffTests(HubTestCase):
    def test_a_history_is_compared_within_one_limit(self) -> None:
        with self.store("alpha"):
            memory = Memory.objects.get(id=_written(_letters(0)))
            for seed in range(1, 4):
                update_memory(command=MemoryUpdate(id=memory.id, content=_letters(seed)))
            with _counted() as steps:
                versions_of([memory.id])
            self.assertLessEqual(steps.count, LIMIT)

    def test_two_versions_are_compared_without_the_others(self) -> None:
        with self.store("alpha"):
            memory = Memory.objects.get(id=_written("one"))
            for text in ("two", "three"):
                update_memory(command=MemoryUpdate(id=memory.id, content=text))
            with mock.patch("memories.selectors.versions.marked_diff") as compared:
                newest, *_, oldest = history_of(memory)
            sides(oldest, newest)
        compared.assert_not_called()
