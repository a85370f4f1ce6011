"""Batches of imports, and their undo: as if a batch had never been, except what others have built on since."""

from __future__ import annotations

from typing import Any
from unittest import mock

from governance.imports.batches import begin_import, end_import, find_batch, in_batch, list_batches
from governance.imports.undo import preview_undo, undo_import
from memories.models import Memory
from memories.schemas import MemoryUpdate, MemoryWrite
from memories.schemas.links import RelationCreate
from memories.services import update_memory, write_memories, write_memory
from memories.services.relations import create_relation
from memoryhub.core import log
from memoryhub.core.errors import Conflict, NotFound, PreconditionFailed
from memoryhub.core.log import table_digests
from tests.support import HubTestCase


class BatchTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(self.store("alpha", actor="claude", source="mcp"))
        self.old = self.write("How we retry", "Three times.", topic_key="import:tool:retry").id
        self.write("Use tabs", "In every file.", tags=["style"])
        self.before = table_digests()

    def write(self, title: str, content: str, **fields: Any) -> Any:
        return write_memory(command=MemoryWrite(title=title, content=content, **fields))

    def load(self, *texts: str, keys: str = "abcdef") -> tuple[int, list[int]]:
        batch = begin_import(tool="tool", place="/data/tool.db")
        with in_batch("tool", batch):
            commands = [
                MemoryWrite(title=f"From the tool: {key}", content=text, topic_key=f"import:tool:{key}", tags=["tool"])
                for key, text in zip(keys, texts, strict=False)
            ]
            results = write_memories(commands=commands)
            end_import(batch, {"created": len(results)})
        return batch, [result.id for result in results]

    def undo(self, batch: int) -> Any:
        return undo_import(batch_id=batch, token=preview_undo(batch).token)

    def test_a_batch_has_its_provenance(self) -> None:
        batch, ids = self.load("one", "two")
        found = find_batch(batch)
        self.assertEqual((found.tool, found.place, found.counts), ("tool", "/data/tool.db", {"created": 2}))
        self.assertEqual((found.actor, found.is_undone), ("claude", False))
        self.assertEqual(len(ids), 2)

    def test_after_an_undo_the_store_is_as_before(self) -> None:
        batch, _ = self.load("one", "two", "three")
        second = begin_import(tool="tool", place="")
        with in_batch("tool", second):
            self.write("How we retry", "Five times.", topic_key="import:tool:retry")
        self.undo(second)
        done = self.undo(batch)
        self.assertEqual((done.events, done.items, done.kept), (3, {"memory": 3}, []))
        self.assertEqual(table_digests(), self.before)
        self.assertTrue(log.rebuild().identical)
        self.assertEqual([found.is_undone for found in list_batches()], [True, True])

    def test_what_others_changed_or_built_on_since_is_kept_and_named(self) -> None:
        batch, (first, second, third) = self.load("one", "two", "three")
        update_memory(command=MemoryUpdate(id=first, base_version=1, content="one, corrected"))
        built = self.write("A conclusion", "From the second.").id
        create_relation(command=RelationCreate(source=built, relation="derived_from", target=second))
        done = self.undo(batch)
        self.assertEqual(
            [(kept.id, kept.why) for kept in done.kept], [(first, "changed since"), (second, f"#{built} builds on it")]
        )
        self.assertEqual(done.items, {"memory": 1})
        self.assertNotIn(third, self.ids())
        self.assertLessEqual({first, second, built}, self.ids())
        self.assertTrue(log.rebuild().identical)

    def ids(self) -> set[int]:
        return set(Memory.objects.values_list("id", flat=True))

    def test_what_was_undone_can_be_imported_again(self) -> None:
        batch, ids = self.load("one")
        self.undo(batch)
        _, again = self.load("one")
        self.assertNotEqual(ids, again)
        self.assertLessEqual(set(again), self.ids())

    def test_an_undo_that_was_interrupted_is_completed_by_a_rebuild(self) -> None:
        batch, _ = self.load("one")
        with self.assertRaises(RuntimeError), self.failing_rebuild():
            self.undo(batch)
        with self.assertRaisesRegex(Conflict, "if that was interrupted, `memory-hub rebuild` completes it"):
            preview_undo(batch)
        self.assertFalse(log.rebuild().identical)
        self.assertEqual(table_digests(), self.before)

    def failing_rebuild(self) -> Any:
        return mock.patch("governance.imports.undo.log.rebuild", side_effect=RuntimeError("killed"))

    def test_bad_input_changes_nothing(self) -> None:
        batch, _ = self.load("one")
        with self.assertRaisesRegex(NotFound, "there is no import #1;"):
            preview_undo(1)
        with self.assertRaisesRegex(PreconditionFailed, "changed since the preview"):
            undo_import(batch_id=batch, token="0" * 16)
        self.undo(batch)
        with self.assertRaisesRegex(Conflict, "undone already"):
            preview_undo(batch)
