"""What a source did, what came of it, and rolling that back."""

from __future__ import annotations

from decisions.schemas import DecisionGet
from decisions.selectors import get_decisions
from memories.schemas import MemoryGet, MemoryList
from memories.selectors import get_memories, list_memories
from tests.governance.taint import TaintTestCase


class QuarantineTests(TaintTestCase):
    def test_what_a_session_wrote_is_set_aside_at_once_and_let_out_again(self) -> None:
        clean, bad = self.write("Clean"), self.write("Bad", tainted=True)
        made = self.roll_back(reason="it was fed lies")
        listed = list_memories(command=MemoryList()).results
        self.assertEqual([clean], [each["id"] for each in listed])
        told = get_memories(command=MemoryGet(ids=[bad]))[0]
        self.assertEqual(
            f"in quarantine since #{made.id + 1}: roll-back #{made.id}: it was fed lies", told["quarantine"]
        )
        self.assert_rebuilds()
        self.undo(made.id)
        self.assertEqual({clean, bad}, {each["id"] for each in list_memories(command=MemoryList()).results})
        self.assert_rebuilds()

    def test_a_superseded_decision_stands_again_while_its_successor_is_in_quarantine(self) -> None:
        first = self.decide("SQLite")
        second = self.decide("A blob store", tainted=True, supersedes=[first])
        made = self.roll_back()
        told = get_decisions(command=DecisionGet(ids=[first]))[0]
        self.assertEqual(("accepted", [], []), (told["status"], told["superseded_by"], told["heads"]))
        self.assert_rebuilds()
        self.undo(made.id)
        told = get_decisions(command=DecisionGet(ids=[first]))[0]
        self.assertEqual(("superseded", [second], [second]), (told["status"], told["superseded_by"], told["heads"]))
        self.assert_rebuilds()
