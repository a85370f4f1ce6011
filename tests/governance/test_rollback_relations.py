from __future__ import annotations

import dataclasses
from unittest import mock

from governance.rollback import execute
from memories.schemas import MemoryDelete
from memories.schemas.links import RelationCreate, RelationDelete, RelationList
from memories.selectors.relations import list_relations
from memories.services import delete_memory
from memories.services.relations import create_relation, delete_relation
from memoryhub.core import log
from memoryhub.core.log.quarantine import QUARANTINE_LIFTED
from memoryhub.core.origin import use_origin
from tests.governance.rollback_case import ROLLED_BACK, RollbackTestCase


class RelationTests(RollbackTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.one, self.other = self.write("One"), self.write("Other")

    def relate(self, *, rolled_back: bool = False) -> int:
        with use_origin(**(ROLLED_BACK if rolled_back else {})):
            command = RelationCreate(source=str(self.one), relation="related_to", target=str(self.other))
            return create_relation(command=command).id

    def unrelate(self, relation_id: int, *, rolled_back: bool = False) -> None:
        with use_origin(**(ROLLED_BACK if rolled_back else {})):
            delete_relation(command=RelationDelete(id=relation_id))

    def relations(self) -> list[int]:
        return [relation["id"] for relation in list_relations(command=RelationList()).results]

    def remade(self) -> None:
        self.unrelate(self.relate(), rolled_back=True)
        self.again = self.relate(rolled_back=True)

    def test_a_removed_relation_stays_removed_after_quarantine_and_undo(self) -> None:
        self.remade()
        self.unrelate(self.again)
        made = self.roll_back()
        self.assertEqual([], self.relations())
        self.undo(made.id)
        self.assertEqual([], self.relations())
        self.assert_rebuilds()

    def test_a_log_of_an_earlier_version_that_brought_a_relation_back_replays_as_it_did(self) -> None:
        self.remade()
        self.unrelate(self.again)
        made = self.roll_back()
        with mock.patch.object(execute, "QUARANTINE_LIFTED", dataclasses.replace(QUARANTINE_LIFTED, version=1)):
            self.undo(made.id)
        self.assertEqual([self.again], self.relations())
        self.assert_rebuilds()

    def test_undo_leaves_a_relation_that_a_clean_caller_removed_last(self) -> None:
        self.remade()
        self.unrelate(self.again)
        shown = self.preview(action="undo")
        self.assertEqual({"quarantine": 1}, shown.counts)
        self.assertIn("changed since by ada", shown.left[0].why)
        made = self.roll_back(action="undo")
        self.assertEqual([], self.relations())
        self.undo(made.id)
        self.assertEqual([], self.relations())
        made = self.roll_back(action="undo", include=["changed_since"])
        self.assertEqual(1, len(self.relations()))
        self.undo(made.id)
        self.assertEqual([], self.relations())
        self.assert_rebuilds()

    def test_undo_makes_a_relation_again_whose_replacement_it_sets_aside(self) -> None:
        self.remade()
        made = self.roll_back(action="undo")
        self.assertEqual({"quarantine": 1, "relate": 1}, made.counts)
        self.assertEqual(1, len(self.relations()))
        self.undo(made.id)
        self.assertEqual([self.again], self.relations())
        self.assert_rebuilds()

    def test_undo_makes_a_relation_again_once_that_was_removed_twice(self) -> None:
        self.unrelate(self.relate(), rolled_back=True)
        self.unrelate(self.relate(), rolled_back=True)
        made = self.roll_back(action="undo")
        self.assertEqual({"relate": 1}, made.counts)
        self.assertEqual(1, len(self.relations()))
        self.undo(made.id)
        self.assertEqual([], self.relations())
        self.assert_rebuilds()

    def test_a_relation_is_not_made_again_when_one_of_its_ends_was_erased_meanwhile(self) -> None:
        self.relate(rolled_back=True)
        made = self.roll_back()
        delete_memory(command=MemoryDelete(id=self.other))
        log.erase_streams([f"memory:{self.other}"], reason="test")
        self.undo(made.id)
        self.assertEqual([], self.relations())
        self.assert_rebuilds()
