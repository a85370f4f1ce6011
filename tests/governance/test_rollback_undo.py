from __future__ import annotations

from typing import Any

from decisions.schemas import DecisionEvidence, DecisionGet, DecisionLink, DecisionMark
from decisions.selectors import get_decisions
from decisions.services import add_evidence, link_decisions, mark_decision
from governance.models import Affirmation
from governance.staleness.schemas import Affirm
from governance.staleness.services import affirm
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_memory
from memories.schemas import ConflictResolve, MemoryDelete, MemoryGet, MemoryList, MemoryRestore, MemoryUpdate
from memories.schemas.links import RelationCreate, RelationDelete
from memories.schemas.query import ConflictList
from memories.selectors import get_memories, list_memories
from memories.selectors.conflicts import list_conflicts
from memories.services import delete_memory, resolve_conflict, restore_memory, update_memory
from memories.services.relations import create_relation, delete_relation
from memoryhub.core import log
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from sessions_app.schemas import ProjectDescribe, SessionEnd, SessionStart, SettingsChange
from sessions_app.services import end_session, start_session
from sessions_app.services.profile import change_settings, describe
from tests.governance.rollback_case import ROLLED_BACK, RollbackTestCase


class LeaveTests(RollbackTestCase):
    def left(self, chosen: int, **fields: Any) -> dict[str, int]:
        shown = self.preview(action="undo", leave=[chosen], **fields)
        self.assertEqual([(chosen, "excluded by the request")], [(left.id, left.why) for left in shown.left])
        return shown.counts

    def test_a_decisions_status_is_left(self) -> None:
        chosen = self.decide("SQLite")
        with use_origin(**ROLLED_BACK):
            mark_decision(command=DecisionMark(id=chosen, status="rejected"))
        self.assertEqual({"mark": 1}, self.preview(action="undo").counts)
        self.assertEqual({}, self.left(chosen))

    def test_a_setting_and_the_description_are_left(self) -> None:
        with use_origin(**ROLLED_BACK):
            change_settings(command=SettingsChange(settings={"ack_token_minutes": 99}))
            describe(command=ProjectDescribe(description="Poisoned."))
        configured, described = (
            RawEvent.objects.get(event_type=name).position for name in ("project.configured", "project.described")
        )
        self.assertEqual({"describe": 1}, self.left(configured))
        self.assertEqual({"configure": 1}, self.left(described))

    def test_a_memory_is_left_with_its_text_its_deletion_and_its_conflicts(self) -> None:
        kept, gone = self.write("Kept"), self.write("Gone")
        self.revise(kept, "Clean.")
        self.revise(kept, "Poisoned.", rolled_back=True, base_version=1)
        with use_origin(**ROLLED_BACK):
            delete_memory(command=MemoryDelete(id=gone))
        self.assertEqual({"quarantine": 1, "restore": 1, "revert": 1}, self.preview(action="undo").counts)
        self.assertEqual({"restore": 1}, self.left(kept))
        self.assertEqual({"quarantine": 1, "revert": 1}, self.left(gone))

    def test_a_removed_relation_is_left(self) -> None:
        command = RelationCreate(source=str(self.write("One")), relation="related_to", target=str(self.write("Other")))
        relation = create_relation(command=command).id
        with use_origin(**ROLLED_BACK):
            delete_relation(command=RelationDelete(id=relation))
        self.assertEqual({"relate": 1}, self.preview(action="undo").counts)
        self.assertEqual({}, self.left(relation))

    def test_what_is_left_is_named_once_in_a_quarantine_too(self) -> None:
        chosen = self.decide("SQLite")
        with use_origin(**ROLLED_BACK):
            mark_decision(command=DecisionMark(id=chosen, status="rejected"))
        shown = self.preview(leave=[chosen])
        self.assertEqual([(chosen, "excluded by the request")], [(left.id, left.why) for left in shown.left])


class ReversalTests(RollbackTestCase):
    def view(self, memory_id: int) -> dict[str, Any]:
        return get_memories(command=MemoryGet(ids=[memory_id], include_deleted=True))[0]

    def conflicts(self) -> list[int]:
        return [conflict["id"] for conflict in list_conflicts(command=ConflictList()).results]

    def test_a_verdict_is_taken_back(self) -> None:
        change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        waiting = self.write("Waits")
        with use_origin(**ROLLED_BACK):
            review_memory(command=ReviewVerdict(id=waiting, verdict="accepted"))
        self.assertEqual("accepted", self.view(waiting)["review"])
        self.assertIn("undo reverses it", self.preview().left[0].why)
        made = self.roll_back(action="undo")
        self.assertEqual({"review": 1}, made.counts)
        self.assertEqual("proposed", self.view(waiting)["review"])
        self.assert_rebuilds()
        self.undo(made.id)
        self.assertEqual("accepted", self.view(waiting)["review"])
        self.assert_rebuilds()

    def test_a_memory_that_waits_for_review_still_waits_once_its_text_is_put_back(self) -> None:
        change_settings(command=SettingsChange(settings={"review_policy": "all"}))
        waiting = self.write("Waits")
        self.revise(waiting, "Poisoned.", rolled_back=True)
        self.roll_back(action="undo")
        view = self.view(waiting)
        self.assertEqual(("proposed", "Waits, it says."), (view["review"], view["content"]))

    def test_a_conflict_that_it_opened_is_gone_and_comes_back(self) -> None:
        kept = self.write("Kept")
        self.revise(kept, "Clean.")
        self.revise(kept, "Poisoned.", rolled_back=True, base_version=1)
        opened = self.conflicts()
        made = self.roll_back(action="undo")
        self.assertEqual(([], "Clean."), (self.conflicts(), self.view(kept)["content"]))
        self.assert_rebuilds()
        self.undo(made.id)
        self.assertEqual((opened, "Poisoned."), (self.conflicts(), self.view(kept)["content"]))
        self.assert_rebuilds()

    def test_a_conflict_that_it_resolved_is_open_again_by_either_action(self) -> None:
        kept = self.write("Kept")
        self.revise(kept, "Clean.")
        self.revise(kept, "Clean too.", base_version=1)
        opened = self.conflicts()
        with use_origin(**ROLLED_BACK):
            resolve_conflict(command=ConflictResolve(id=opened[0], resolution="keep_b", reason="lies"))
        for action in ("quarantine", "undo"):
            made = self.roll_back(action=action)
            self.assertEqual(opened, self.conflicts(), action)
            self.assert_rebuilds()
            self.undo(made.id)
            self.assertEqual([], self.conflicts(), action)
            self.assert_rebuilds()

    def test_the_entries_that_it_discarded_with_a_scratch_session_come_back(self) -> None:
        with use_origin(session_id="s-scratch"):
            start_session(command=SessionStart(session_id="s-scratch", mode="scratch"))
            kept, gone, deleted = self.write("Kept"), self.write("Gone"), self.write("Deleted before")
            delete_memory(command=MemoryDelete(id=deleted))
        with use_origin(**ROLLED_BACK):
            end_session(command=SessionEnd(session_id="s-scratch", discard=True, keep=[kept]))
        kept_so = [(kept, "kept at the end of its scratch session; stays kept")]
        self.assertEqual(kept_so, [(left.id, left.why) for left in self.preview(action="undo").left])
        made = self.roll_back(action="undo")
        listed = {memory["id"] for memory in list_memories(command=MemoryList()).results}
        self.assertEqual({kept, gone}, listed)
        self.undo(made.id)
        self.assertEqual([kept], [memory["id"] for memory in list_memories(command=MemoryList()).results])
        self.assert_rebuilds()

    def test_a_deletion_that_a_clean_caller_made_first_holds(self) -> None:
        gone = self.write("Gone")
        delete_memory(command=MemoryDelete(id=gone))
        with use_origin(**ROLLED_BACK):
            restore_memory(command=MemoryRestore(id=gone))
            delete_memory(command=MemoryDelete(id=gone))
        self.assertEqual({}, self.preview(action="undo").counts)

    def test_of_two_deleted_memories_of_one_topic_the_younger_comes_back(self) -> None:
        for _ in range(2):
            last = self.write("Build", topic_key="build/command")
            with use_origin(**ROLLED_BACK):
                delete_memory(command=MemoryDelete(id=last))
        self.assertEqual({"restore": 1}, self.roll_back(action="undo").counts)
        self.assertEqual([last], [memory["id"] for memory in list_memories(command=MemoryList()).results])

    def test_a_text_is_not_put_back_under_a_title_that_another_has_now(self) -> None:
        first = self.write("Build")
        self.revise(first, "Poisoned.", rolled_back=True, title="Poisoned")
        second = self.write("Build")
        shown = self.preview(action="undo")
        self.assertEqual({}, shown.counts)
        self.assertIn(f"#{second} has its topic or title now", shown.left[0].why)

    def test_a_text_of_a_deleted_memory_comes_back_whatever_has_its_title(self) -> None:
        with use_origin(session_id="s-scratch"):
            start_session(command=SessionStart(session_id="s-scratch", mode="scratch"))
            note = self.write("Build", scope="session")
            with use_origin(actor="mallory"):
                update_memory(command=MemoryUpdate(id=note, promote=True))
            end_session(command=SessionEnd(session_id="s-scratch", discard=True))
        self.write("Build")
        made = self.roll_back(session_id="", actor="mallory", action="undo")
        self.assertEqual("session", self.view(note)["scope"])
        self.assertEqual([], self.undo(made.id).undone_left)
        self.assertEqual("project", self.view(note)["scope"])

    def test_a_topic_is_free_again_before_another_memory_takes_it_back(self) -> None:
        with use_origin(session_id="s-notes"):
            first = self.write("Build", scope="session", topic_key="build/command")
            with use_origin(actor="mallory"):
                update_memory(command=MemoryUpdate(id=first, promote=True))
                second = self.write("Build again", scope="session", topic_key="build/command")
        made = self.roll_back(session_id="", actor="mallory", action="undo")
        self.assertEqual({"delete": 1, "revert": 1}, made.counts)
        self.assertEqual([], self.undo(made.id).undone_left)
        scopes = {item: (self.view(item)["scope"], self.view(item)["topic_key"]) for item in (first, second)}
        self.assertEqual({first: ("project", "build/command"), second: ("session", "build/command")}, scopes)
        self.assert_rebuilds()

    def test_an_affirmation_is_set_aside(self) -> None:
        kept = self.write("Kept")
        affirm(command=Affirm(id=kept))
        with use_origin(**ROLLED_BACK):
            affirm(command=Affirm(id=kept, reason="lies"))
        made = self.roll_back()
        self.assertEqual(["ada"], list(Affirmation.objects.values_list("actor", flat=True)))
        self.assert_rebuilds()
        self.undo(made.id)
        self.assertEqual(["mallory"], list(Affirmation.objects.values_list("actor", flat=True)))
        self.assert_rebuilds()

    def test_what_was_erased_has_no_affirmation_after_a_roll_back(self) -> None:
        gone = self.write("Gone")
        affirm(command=Affirm(id=gone))
        with use_origin(**ROLLED_BACK):
            affirm(command=Affirm(id=gone, reason="lies"))
        log.erase_streams([f"memory:{gone}"], reason="test")
        self.roll_back()
        self.assertEqual(0, Affirmation.objects.count())
        self.assert_rebuilds()

    def test_evidence_that_is_given_again_after_a_roll_back_rebuilds_the_same(self) -> None:
        chosen = self.decide("SQLite")
        evidence = DecisionEvidence(id=chosen, notes=["measured"])
        with use_origin(**ROLLED_BACK):
            add_evidence(command=evidence)
        self.undo(self.roll_back().id)
        add_evidence(command=evidence)
        self.assert_rebuilds()

    def test_undo_of_a_roll_back_leaves_a_decision_that_was_erased_meanwhile(self) -> None:
        chosen = self.decide("SQLite")
        with use_origin(**ROLLED_BACK):
            mark_decision(command=DecisionMark(id=chosen, status="rejected"))
        made = self.roll_back(action="undo")
        log.erase_streams([f"decision:{chosen}"], reason="test")
        self.assertEqual([(chosen, "erased since")], [(left.id, left.why) for left in self.undo(made.id).undone_left])

    def test_evidence_and_edges_that_a_clean_caller_gave_too_stay(self) -> None:
        first, second = self.decide("SQLite"), self.decide("One file")
        edge = DecisionLink(id=second, relation="refines", to=first)
        with use_origin(**ROLLED_BACK):
            add_evidence(command=DecisionEvidence(id=first, notes=["measured"]))
            link_decisions(command=edge)
        earlier = self.roll_back()
        link_decisions(command=edge)
        self.undo(earlier.id)
        add_evidence(command=DecisionEvidence(id=first, notes=["measured"]))
        made = self.roll_back()
        views = get_decisions(command=DecisionGet(ids=[first, second]))
        self.assertEqual((["measured"], [first]), self.evidence(views))
        self.assert_rebuilds()
        self.undo(made.id)
        self.assert_rebuilds()
        self.roll_back(session_id="s-good", leave=[first, second])
        views = get_decisions(command=DecisionGet(ids=[first, second]))
        self.assertEqual((["measured"], [first]), self.evidence(views))
        self.assert_rebuilds()

    def evidence(self, views: list[dict[str, Any]]) -> tuple[list[str], list[int]]:
        first, second = views
        return [item["value"] for item in first["artifacts"]], [item["to"] for item in second["edges"]]
