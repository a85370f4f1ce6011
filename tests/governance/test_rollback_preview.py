from __future__ import annotations

from typing import Any

from decisions.schemas import DecisionGet
from decisions.selectors import get_decisions
from governance.rollback.schemas import RollbackMake
from governance.rollback.services import roll_back
from memories.pack import pack_context
from memories.schemas import MemoryDelete, MemoryGet, MemoryList
from memories.schemas.query import ContextPackRequest
from memories.selectors import get_memories, list_memories
from memories.services import delete_memory
from memoryhub.config.current_settings import project_settings
from memoryhub.core.errors import ConfirmationRequired, Forbidden, Invalid
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import ROLES, Grant, use_grant
from sessions_app.schemas import SettingsChange
from sessions_app.services.profile import change_settings
from tests.governance.rollback_case import ROLLED_BACK, RollbackTestCase


class QuarantineTests(RollbackTestCase):
    def test_what_a_session_wrote_is_set_aside_at_once_and_let_out_again(self) -> None:
        clean, bad = self.write("Clean"), self.write("Bad", rolled_back=True)
        made = self.roll_back(reason="it was fed lies")
        listed = list_memories(command=MemoryList()).results
        self.assertEqual([clean], [item["id"] for item in listed])
        view = get_memories(command=MemoryGet(ids=[bad]))[0]
        self.assertEqual(
            f"in quarantine since #{made.id + 1}: roll-back #{made.id}: it was fed lies", view["quarantine"]
        )
        self.assert_rebuilds()
        self.undo(made.id)
        self.assertEqual({clean, bad}, {memory["id"] for memory in list_memories(command=MemoryList()).results})
        self.assert_rebuilds()

    def test_a_superseded_decision_stands_again_while_its_successor_is_in_quarantine(self) -> None:
        first = self.decide("SQLite")
        second = self.decide("A blob store", rolled_back=True, supersedes=[first])
        made = self.roll_back()
        view = get_decisions(command=DecisionGet(ids=[first]))[0]
        self.assertEqual(("accepted", [], []), (view["status"], view["superseded_by"], view["heads"]))
        self.assert_rebuilds()
        self.undo(made.id)
        view = get_decisions(command=DecisionGet(ids=[first]))[0]
        self.assertEqual(("superseded", [second], [second]), (view["status"], view["superseded_by"], view["heads"]))
        self.assert_rebuilds()


class UndoTests(RollbackTestCase):
    def test_what_was_written_revised_deleted_and_set_is_as_before_and_then_as_after(self) -> None:
        kept, gone = self.write("Kept"), self.write("Gone")
        with use_origin(**ROLLED_BACK):
            bad = self.write("Bad")
            self.revise(kept, "Poisoned.")
            delete_memory(command=MemoryDelete(id=gone))
            change_settings(command=SettingsChange(settings={"ack_token_minutes": 99}))
        made = self.roll_back(action="undo")
        self.assertEqual({"delete": 1, "restore": 1, "revert": 1, "configure": 1}, made.counts)
        contents = {memory["id"]: memory["content"] for memory in list_memories(command=MemoryList()).results}
        self.assertEqual({kept: "Kept, it says.", gone: "Gone, it says."}, contents)
        self.assertEqual(30, project_settings().ack_token_minutes)
        version = get_memories(command=MemoryGet(ids=[kept], versions=True))[0]["versions"][0]
        self.assertEqual(
            (3, 1, f"roll-back #{made.id}"), (version["version"], version["base_version"], version["reason"])
        )
        self.undo(made.id)
        contents = {memory["id"]: memory["content"] for memory in list_memories(command=MemoryList()).results}
        self.assertEqual({kept: "Poisoned.", bad: "Bad, it says."}, contents)
        self.assertEqual(99, project_settings().ack_token_minutes)
        self.assert_rebuilds()

    def test_what_others_changed_since_is_left_and_named_unless_it_is_chosen(self) -> None:
        bad = self.write("Bad", rolled_back=True)
        self.revise(bad, "Put right.")
        left = self.preview(action="undo").left
        self.assertEqual([(bad, f"changed since by ada at #{bad + 1}")], [(item.id, item.why) for item in left])
        self.assertEqual({"delete": 1}, self.preview(action="undo", include=["changed_since"]).counts)

    def test_undoing_leaves_what_others_changed_since_and_names_it(self) -> None:
        kept = self.write("Kept")
        self.revise(kept, "Poisoned.", rolled_back=True)
        made = self.roll_back(action="undo")
        self.revise(kept, "Better still.")
        undone = self.undo(made.id)
        self.assertIn("changed since by ada", undone.undone_left[0].why)
        self.assertEqual("Better still.", get_memories(command=MemoryGet(ids=[kept]))[0]["content"])

    def test_the_selection_can_be_rolled_back_again_after_its_undoing(self) -> None:
        self.write("Bad", rolled_back=True)
        self.undo(self.roll_back(action="undo").id)
        self.assertEqual({"delete": 1}, self.roll_back(action="undo").counts)
        self.assertEqual([], list_memories(command=MemoryList()).results)


class TraceTests(RollbackTestCase):
    def test_what_came_of_it_is_found_to_any_depth_with_what_it_came_from(self) -> None:
        earlier = self.write("Before it, nothing came of it")
        bad = self.write("Bad", rolled_back=True)
        chosen = self.decide("Bad choice", rolled_back=True)
        refined = self.decide("Refined", refines=[chosen])
        further = self.decide("Further", depends_on=[refined])
        citing = self.write("Citing", source="x")
        self.revise(citing, f"As #{bad} says.")
        trace = self.preview().trace
        built = next(group for group in trace.derived if group.name == "built_on").shown
        found = {(item.id, item.via, item.how, item.depth) for item in built}
        self.assertEqual(
            {(refined, chosen, "refines", 1), (further, refined, "depends_on", 2), (citing, bad, "cites", 1)}, found
        )
        self.assertNotIn(earlier, {item.id for item in built})
        self.assertEqual({"quarantine": 2}, self.preview().counts)
        self.assertEqual({"quarantine": 5}, self.preview(include=["built_on"]).counts)
        self.assertEqual({"quarantine": 3}, self.preview(also=[further]).counts)

    def test_who_was_told_of_it_and_wrote_afterwards_may_have_been_influenced(self) -> None:
        self.write("Bad", rolled_back=True)
        self.write("Before it was given")
        with use_origin(session_id="s-given"):
            pack = pack_context(command=ContextPackRequest(session_id="s-given")).id
            after = self.write("After it was given")
        derived = {group.name: [item.id for item in group.shown] for group in self.preview().trace.derived}
        self.assertEqual([pack], derived["packs"])
        self.assertEqual([after], derived["influenced"])
        self.assertEqual({"quarantine": 1}, self.preview().counts)
        self.assertEqual({"quarantine": 2}, self.preview(include=["influenced"]).counts)

    def test_every_part_of_a_selection_must_hold_and_people_are_left_out(self) -> None:
        first = self.write("First", rolled_back=True)
        second = self.write("Second", rolled_back=True)
        with use_origin(source="admin", actor="olga", session_id="s-bad"):
            third = self.write("Third, by a person")
        chosen: dict[tuple[str], dict[str, Any]] = {
            ("s-bad",): {"session_id": "s-bad"},
            ("until",): {"session_id": "s-bad", "until": first},
            ("since",): {"session_id": "", "since": second},
            ("people",): {"session_id": "s-bad", "include_people": True},
            ("client",): {"session_id": "", "actor": "mallory", "source": "mcp"},
            ("nothing",): {"session_id": "s-bad", "actor": "ada"},
        }
        found = {name: self.preview(**fields).counts.get("quarantine", 0) for (name,), fields in chosen.items()}
        self.assertEqual({"s-bad": 2, "until": 1, "since": 1, "people": 3, "client": 2, "nothing": 0}, found, third)

    def test_what_was_not_seen_is_not_done(self) -> None:
        self.write("Bad", rolled_back=True)
        token = self.preview().confirm_token
        self.write("Worse", rolled_back=True)
        with self.assertRaises(ConfirmationRequired):
            roll_back(command=RollbackMake(session_id="s-bad", confirm_token=token))
        with self.assertRaisesMessage(Invalid, "nothing to roll back"):
            roll_back(command=RollbackMake(session_id="s-none"))
        with use_grant(Grant(ROLES["reviewer"])), self.assertRaises(Forbidden):
            self.roll_back()

    def test_another_project_sees_nothing_of_it(self) -> None:
        self.write("Bad", rolled_back=True)
        with self.store("beta"):
            self.assertEqual(0, self.preview().trace.events)
