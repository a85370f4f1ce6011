"""Roll-back: what is selected, quarantined or undone, what stays, and what each type of event declares."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any
from unittest import mock

from django.core.exceptions import ImproperlyConfigured

from decisions.exporting import chosen_decisions
from decisions.schemas import DecisionEvidence, DecisionGet, DecisionLink, DecisionList, DecisionMark, DecisionSupersede
from decisions.selectors import count_by_status, get_decisions, list_decisions, suggest_decisions
from decisions.services import add_evidence, link_decisions, mark_decision, supersede_decision
from governance.models import Affirmation
from governance.rollback import execute
from governance.rollback.schemas import RollbackMake
from governance.rollback.services import roll_back
from governance.staleness.schemas import Affirm
from governance.staleness.services import affirm
from memories.pack import pack_context
from memories.query import query
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_memory
from memories.schemas import (
    ConflictResolve,
    MemoryDelete,
    MemoryGet,
    MemoryList,
    MemoryQuery,
    MemoryRestore,
    MemorySearch,
    MemoryUpdate,
    Timeline,
)
from memories.schemas.links import RelationCreate, RelationDelete, RelationList, TagCreate, TagList
from memories.schemas.query import ConflictList, ContextPackRequest
from memories.selectors import count_by_type, get_memories, list_memories, search
from memories.selectors.conflicts import list_conflicts
from memories.selectors.relations import list_relations
from memories.selectors.tags import list_tags, suggest_ids, suggest_tags
from memories.services import delete_memory, resolve_conflict, restore_memory, update_memory
from memories.services.relations import create_relation, delete_relation
from memories.services.tags import create_tag
from memories.timeline import timeline
from memories.uses.drain import count_uses
from memoryhub.config.current_settings import project_settings
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, Forbidden, Gone, Invalid
from memoryhub.core.events import event_types as registry
from memoryhub.core.events import rollback
from memoryhub.core.events.event_types import (
    EventGroup,
    Retention,
    define_event,
    event_type,
    event_types,
    require_effects,
    types_that_change_streams,
)
from memoryhub.core.events.rollback import Effect, Values, reverses, sets_aside, stays
from memoryhub.core.log.quarantine import QUARANTINE_LIFTED
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import ROLES, Grant, use_grant
from memoryhub.core.schemas import Paging, Payload
from memoryhub.core.stores import rows
from sessions_app.schemas import (
    CommitRecord,
    EventAppend,
    IterationList,
    IterationStart,
    ProjectDescribe,
    SessionEnd,
    SessionList,
    SessionStart,
    SettingsChange,
    TurnBegin,
    TurnList,
)
from sessions_app.selectors import list_commits, list_iterations, list_sessions, list_turns
from sessions_app.services import end_session, record_commits, start_session
from sessions_app.services.iterations import start_iteration
from sessions_app.services.profile import change_settings, describe
from sessions_app.services.turns import append_event, begin_turn
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


WORD = "zanzibar"


class SilenceTests(RollbackTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.clean = self.write("Clean", tags=["calm"])
        self.first = self.decide("SQLite", topic="store")
        with use_origin(**ROLLED_BACK):
            self.poison()

    def poison(self) -> None:
        start_session(command=SessionStart(session_id="s-bad", purpose=f"to {WORD}"))
        begun = begin_turn(command=TurnBegin(session_id="s-bad"))
        append_event(
            command=EventAppend(ack_token=begun.ack_token, type="message.user", payload={"content": f"Go to {WORD}"})
        )
        start_iteration(command=IterationStart(command=WORD, description=f"all of {WORD}"))
        self.memory_id = self.write(f"The {WORD} way", tags=[WORD], kind="guideline", type=WORD)
        self.decision_id = self.decide(WORD, supersedes=[self.first], topic="store", files=["store.py"])
        create_tag(command=TagCreate(name=f"{WORD}-tag", category="c"))
        create_relation(
            command=RelationCreate(source=str(self.memory_id), relation="related_to", target=str(self.clean))
        )
        commit = {"sha": "ab" * 20, "message": f"Sail to {WORD}", "author": "M", "committed_at": datetime.now(UTC)}
        record_commits(commits=[CommitRecord.model_validate({**commit, "files": []})])

    def everything_given(self) -> str:
        given: list[Any] = [
            list_memories(command=MemoryList(include_deleted=True)).results,
            search(command=MemorySearch(query=f"{WORD} clean sqlite")).results,
            search(command=MemorySearch(query=WORD), mode="basic").results,
            query(command=MemoryQuery(search=WORD, include_inactive=True)).results,
            query(command=MemoryQuery()).results,
            pack_context(command=ContextPackRequest(session_id="s-new", query=WORD)).body.text,
            timeline(command=Timeline(before=50)),
            list_decisions(command=DecisionList()).results,
            get_decisions(command=DecisionGet(topic="store", lineage=True)),
            get_decisions(command=DecisionGet(ids=[self.first], lineage=True)),
            chosen_decisions(),
            list_relations(command=RelationList(include_deleted=True)).results,
            get_memories(command=MemoryGet(ids=[self.clean], relations=True)),
            list_tags(command=TagList(limit=100)).results,
            list_sessions(command=SessionList()).results,
            list_turns(command=TurnList()).results,
            list_iterations(command=IterationList()).results,
            list_commits(command=Paging()).results,
            suggest_tags("z"),
            suggest_ids(str(self.memory_id)),
            suggest_decisions(str(self.decision_id)),
            count_by_type(),
        ]
        return json.dumps(given, default=str)

    def test_nothing_tells_of_what_a_session_left(self) -> None:
        self.assertIn(WORD, self.everything_given())
        self.assertIn(str(self.memory_id), suggest_ids(str(self.memory_id)))
        made = self.roll_back()
        given = self.everything_given()
        self.assertNotIn(WORD, given)
        self.assertEqual([], suggest_ids(str(self.memory_id)))
        self.assertEqual([], suggest_decisions(str(self.decision_id)))
        self.assertEqual({"accepted": 1}, count_by_status())
        shown = get_decisions(command=DecisionGet(ids=[self.decision_id]))[0]
        self.assertEqual(f"in quarantine since #{made.id + 1}: roll-back #{made.id}", shown["quarantine"])
        self.assert_rebuilds()
        self.undo(made.id)
        self.assertIn(WORD, self.everything_given())
        self.assert_rebuilds()

    def test_another_decision_may_supersede_what_stands_again(self) -> None:
        made = self.roll_back()
        third = supersede_decision(command=DecisionSupersede(id=self.first, chosen="A file")).id
        self.assertEqual([third], get_decisions(command=DecisionGet(ids=[self.first]))[0]["heads"])
        self.undo(made.id)
        heads = get_decisions(command=DecisionGet(ids=[self.first]))[0]["heads"]
        self.assertEqual([third, self.decision_id], heads)
        self.assert_rebuilds()

    def test_what_superseded_it_goes_on_to_stand(self) -> None:
        third = supersede_decision(command=DecisionSupersede(id=self.decision_id, chosen="A file")).id
        self.roll_back()
        view = get_decisions(command=DecisionGet(ids=[self.first]))[0]
        self.assertEqual(("superseded", [third]), (view["status"], view["heads"]))
        self.assert_rebuilds()


class NamesTests(RollbackTestCase):
    def test_a_title_a_topic_and_a_text_can_be_had_by_others_meanwhile(self) -> None:
        bad = self.write("Build", rolled_back=True, topic_key="build/command")
        worse = self.write("Deploy", rolled_back=True)
        made = self.roll_back()
        good = self.write("Build", topic_key="build/command")
        fine = self.write("Deploy")
        self.assertEqual(4, len({bad, worse, good, fine}))
        self.undo(made.id)
        topics = {memory["id"]: memory["topic_key"] for memory in list_memories(command=MemoryList()).results}
        self.assertEqual({bad: None, worse: None, good: "build/command", fine: None}, topics)
        self.assert_rebuilds()

    def test_a_relation_and_a_tag_can_be_made_again_meanwhile(self) -> None:
        one, other = self.write("One"), self.write("Other")
        relation = RelationCreate(source=str(one), relation="related_to", target=str(other))
        with use_origin(**ROLLED_BACK):
            create_relation(command=relation)
            create_tag(command=TagCreate(name="release", category="bad"))
        made = self.roll_back()
        again = create_relation(command=relation)
        create_tag(command=TagCreate(name="release", category="good"))
        self.undo(made.id)
        self.assertEqual([again.id], [relation["id"] for relation in list_relations(command=RelationList()).results])
        tags = {tag["name"]: tag["category"] for tag in list_tags(command=TagList(limit=100)).results}
        self.assertEqual("good", tags["release"])
        self.assert_rebuilds()

    def test_it_cannot_be_changed_until_it_is_let_out(self) -> None:
        bad = self.write("Bad", rolled_back=True)
        self.roll_back()
        with self.assertRaisesMessage(Gone, "in quarantine since #"):
            update_memory(command=MemoryUpdate(id=bad, content="Better"))


# Protection is read from the headers of events, so that the payload does not matter.
_COPY = """
INSERT INTO raw_events (position, event_id, project_id, session_id, turn_id, stream_id, stream_seq, event_type,
    event_version, occurred_at, actor, source, payload_json, payload_digest, chain_digest, salt, trace_id)
SELECT (SELECT max(position) + 1 FROM raw_events), 'id-of-' || %s, project_id, 's-good', turn_id, stream_id,
    (SELECT max(stream_seq) + 1 FROM raw_events r WHERE r.stream_id = e.stream_id), %s,
    event_version, occurred_at, 'ada', source, NULL, payload_digest, chain_digest, NULL, trace_id
FROM raw_events e WHERE position = %s
"""


class Invented(Payload):
    memory_id: int = 0


# What a type must declare, for the tests to leave one part out.
COMPLETE = {
    "label": "Invented",
    "group": EventGroup("invented", "Invented", 1_000),
    "retention": Retention.KEPT,
    "rollback": stays("it only counts"),
    "changes_stream": False,
}

invent: Any = define_event


def product_types() -> list[str]:
    return [known.name for known in event_types() if not known.schema.__module__.startswith("tests.")]


class DeclarationTests(RollbackTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(registry._types))
        rollback.effects()  # imports the product's, which must outlive this test
        self.enterContext(mock.patch.dict(rollback._effects))

    def assert_refused(self, *parts: str, **declared: Any) -> None:
        with self.assertRaises(ImproperlyConfigured) as refused:
            invent("invented.one", Invented, **declared)
        for part in ("invented.one", *parts):
            self.assertIn(part, str(refused.exception))
        self.assertIsNone(event_type("invented.one"))

    def test_a_type_that_leaves_something_undeclared_is_refused_by_name(self) -> None:
        for name in COMPLETE:
            self.assert_refused(repr(name), **{key: value for key, value in COMPLETE.items() if key != name})
        self.assert_refused(*map(repr, COMPLETE))
        self.assert_refused("'nouns'", **{**COMPLETE, "retention": Retention.CAPTURED})
        invent("invented.one", Invented, **COMPLETE)

    def test_a_group_of_roll_back_is_declared_once(self) -> None:
        self.assert_refused(
            "'tag.created'", "'tags'", **{**COMPLETE, "rollback": sets_aside("tags", "Others", order=1)}
        )
        with self.assertRaisesMessage(ImproperlyConfigured, "'strange' does not declare its title"):
            sets_aside("strange", "", order=1)
        with self.assertRaisesMessage(ImproperlyConfigured, "needs a reason"):
            stays("")

    def test_a_type_whose_effect_is_not_defined_is_named(self) -> None:
        require_effects()
        for named in ("turn_over", "unrelate"):
            rule = reverses(f"by {named}", "Turned", order=1, by=named)
            invent("invented.turned", Invented, **{**COMPLETE, "rollback": rule})
            with self.assertRaisesMessage(ImproperlyConfigured, f"'invented.turned' names '{named}'"):
                require_effects()

    def test_an_effect_that_leaves_something_undeclared_is_named(self) -> None:
        with self.assertRaisesMessage(ImproperlyConfigured, "effect 'turn_over' does not declare apply, undo, words"):
            Effect("turn_over", 1, "")
        with self.assertRaisesMessage(ImproperlyConfigured, "effect 'turn_over' does not declare apply"):
            Effect("turn_over", 1, "turned over", Values(read=lambda _position, payload: payload))
        with self.assertRaisesMessage(ImproperlyConfigured, "does not declare the effect"):
            reverses("turned", "Turned", order=1)

    def test_what_stays_in_force_is_named_with_its_reason_and_an_unknown_type_too(self) -> None:
        harmless = invent("invented.harmless", Invented, **COMPLETE)
        unknown = invent("invented.unknown", Invented, **COMPLETE)
        self.write("Bad", rolled_back=True)
        with use_origin(**ROLLED_BACK), log.transaction():
            for kind in (unknown, harmless):
                log.append(log.prepare(kind, Invented()), stream="invented")
        del registry._types["invented.unknown"]
        left = {left.title: left.why for left in self.preview().left}
        self.assertEqual(
            {
                "1 × invented.unknown": "this version can't roll back events of this type; they stay in force",
                "1 × invented.harmless": "it only counts",
            },
            left,
        )


class ShieldTests(RollbackTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.dict(registry._types))

    def is_set_aside(self, thing: int) -> bool:
        return thing in {step.id for step in self.preview().steps}

    def protects(self, thing: int, name: str) -> bool:
        self.assertTrue(self.is_set_aside(thing))
        with log.transaction():
            rows.execute("SAVEPOINT later")
            rows.execute(_COPY, [name, name, thing])
            kept = not self.is_set_aside(thing)
            rows.execute("ROLLBACK TO later")
        return kept

    def test_only_the_types_that_say_so_protect_a_memory_or_a_decision(self) -> None:
        invent("memory.cited", Invented, **COMPLETE)
        changing = set(types_that_change_streams())
        for thing in (self.write("Bad", rolled_back=True), self.decide("Bad", rolled_back=True)):
            found = {known.name for known in event_types() if self.protects(thing, known.name)}
            self.assertEqual(changing, found)

    def test_these_are_the_types_that_protect(self) -> None:
        self.assertEqual(
            "conflict.resolved decision.marked decision.recorded memory.deleted memory.restored memory.reviewed "
            "memory.revised memory.written".split(),
            [name for name in types_that_change_streams() if name in product_types()],
        )

    def test_using_citing_packing_affirming_and_writing_it_again_protects_nothing(self) -> None:
        bad = self.write("Bad", rolled_back=True)
        self.write("Bad")
        search(command=MemorySearch(query="bad"))
        get_memories(command=MemoryGet(ids=[bad]))
        pack_context(command=ContextPackRequest(session_id="s-good"))
        count_uses()
        self.write("Citing", tags=["c"], author=f"as #{bad} says")
        affirm(command=Affirm(id=bad))
        names = set(RawEvent.objects.filter(actor="ada").values_list("event_type", flat=True))
        self.assertLessEqual({"memory.seen", "memories.used", "context.packed", "thing.affirmed"}, names)
        self.assertTrue(self.is_set_aside(bad))
