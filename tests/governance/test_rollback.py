"""Roll-back: what is selected, quarantined or undone, what stays, and what each type of event declares."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from django.core.exceptions import ImproperlyConfigured
from django.test import tag

from decisions.exporting import chosen_decisions
from decisions.schemas import DecisionEvidence, DecisionGet, DecisionLink, DecisionList, DecisionSupersede
from decisions.selectors import count_by_status, get_decisions, list_decisions, suggest_decisions
from decisions.services import add_evidence, link_decisions, supersede_decision
from governance.models import Affirmation, RollbackAction
from governance.rollback import reversal
from governance.rollback.schemas import RollbackMake
from governance.rollback.selectors import entries_at_end
from governance.rollback.service import roll_back
from governance.staleness.schemas import Affirm
from governance.staleness.service import affirm
from memories.pack import pack_context
from memories.query import query
from memories.review.schemas import ReviewVerdict
from memories.review.services import review_memory
from memories.schemas import (
    ConflictResolve,
    MemoryGet,
    MemoryList,
    MemoryRestore,
    MemorySearch,
    MemoryUpdate,
    Timeline,
)
from memories.schemas.links import RelationList, TagCreate, TagList
from memories.schemas.query import ContextPackRequest, MemoryQuery
from memories.selectors import count_by_type, get_memories, list_memories, search
from memories.selectors.memories import list_tags, suggest_ids, suggest_tags
from memories.selectors.relations import list_relations
from memories.services import resolve_conflict, restore_memory, update_memory
from memories.services.links import create_tag
from memories.timeline import timeline
from memories.uses.drain import count_uses
from memories.validity.anchoring import anchor_views
from memoryhub.config.current_settings import project_settings
from memoryhub.core import log
from memoryhub.core.errors import ConfirmationRequired, Forbidden, Gone, Invalid
from memoryhub.core.events import event_types as registry
from memoryhub.core.events import rollback
from memoryhub.core.events.rollback import Effect, Values, reverses, sets_aside, stays
from memoryhub.core.log.quarantine import QUARANTINE_LIFTED
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import ROLES, Grant, use_grant
from memoryhub.core.schemas import Paging, Payload
from memoryhub.core.stores import rows
from sessions_app import schemas as sessions
from sessions_app.selectors import caller_tree, list_commits, list_iterations, list_sessions, list_turns
from sessions_app.services import end_session, record_commits, start_session
from sessions_app.services.profile import describe
from sessions_app.services.turns import append_event, begin_turn
from sessions_app.services.work import start_iteration
from tests.governance.rollback_case import ROLLED_BACK, SCRATCH, RollbackTestCase
from tests.sessions_app.test_git import Repository


class QuarantineTests(RollbackTestCase):
    def test_what_a_session_wrote_is_quarantined_and_released(self) -> None:
        clean, bad = self.write("Clean"), self.write("Bad", rolled_back=True)
        rollback = self.roll_back(reason="it was fed lies")
        self.assertEqual([clean], self.listed())
        since = f"in quarantine since #{rollback.id + 1}: roll-back #{rollback.id}: it was fed lies"
        self.assertEqual(since, self.view(bad)["quarantine"])
        with self.assertRaisesMessage(Gone, f"in quarantine since #{rollback.id + 1}"):
            self.revise(bad, "Better")
        self.assert_rebuilds()
        self.undo(rollback.id)
        self.assertEqual({clean, bad}, set(self.listed()))
        self.assert_rebuilds()


class UndoTests(RollbackTestCase):
    def test_what_was_written_revised_deleted_and_set_is_as_before_and_then_as_after(self) -> None:
        kept, gone = self.write("Kept"), self.write("Gone")
        with use_origin(**ROLLED_BACK):
            bad = self.write("Bad")
            self.revise(kept, "Poisoned.")
            self.delete(gone)
            self.set(ack_token_minutes=99)

        def state() -> tuple[dict[int, str], int]:
            memories = list_memories(command=MemoryList()).results
            return {memory["id"]: memory["content"] for memory in memories}, project_settings().ack_token_minutes

        before = {kept: "Kept, it says.", gone: "Gone, it says."}, 30
        after = {kept: "Poisoned.", bad: "Bad, it says."}, 99
        rollback = self.assert_rolls_back(state, before, after, action="undo")
        self.assertEqual({"delete": 1, "restore": 1, "revert": 1, "configure": 1}, rollback.counts)
        version = get_memories(command=MemoryGet(ids=[kept], versions=True))[0]["versions"][1]
        expected = (3, 1, f"roll-back #{rollback.id}")
        self.assertEqual(expected, (version["version"], version["base_version"], version["reason"]))

    def test_what_others_changed_since_is_left_and_named_unless_it_is_chosen(self) -> None:
        bad = self.write("Bad", rolled_back=True)
        self.revise(bad, "Put right.")
        (left,) = self.preview(action="undo").left
        self.assertEqual((bad, f"changed since by ada at #{bad + 1}"), (left.id, left.why))
        self.assertEqual({"delete": 1}, self.preview(action="undo", include=["changed_since"]).counts)

    def test_undoing_leaves_what_others_changed_since_and_what_was_erased(self) -> None:
        kept, chosen = self.write("Kept"), self.decide("SQLite")
        self.revise(kept, "Poisoned.", rolled_back=True)
        self.mark(chosen, "rejected", rolled_back=True)
        rollback = self.roll_back(action="undo")
        log.erase_streams([f"decision:{chosen}"], reason="test")
        self.revise(kept, "Better still.")
        left = {left.id: left.why for left in self.undo(rollback.id).undone_left}
        self.assertEqual({kept, chosen}, set(left))
        self.assertIn("changed since by ada", left[kept])
        self.assertEqual("erased since", left[chosen])
        self.assertEqual("Better still.", self.view(kept)["content"])

    def test_the_selection_can_be_rolled_back_again_after_its_undoing(self) -> None:
        self.write("Bad", rolled_back=True)
        self.undo(self.roll_back(action="undo").id)
        self.assertEqual({"delete": 1}, self.roll_back(action="undo").counts)
        self.assertEqual([], self.listed())

    def test_each_thing_can_be_left_with_all_that_was_done_to_it(self) -> None:
        chosen, kept, gone = self.decide("SQLite"), self.conflicting(), self.write("Gone")
        relation = self.relate(kept, gone)
        with use_origin(**ROLLED_BACK):
            self.mark(chosen, "rejected")
            self.set(ack_token_minutes=99)
            describe(command=sessions.ProjectDescribe(description="Poisoned."))
            self.unrelate(relation)
            self.delete(gone)
        configured, described = (
            RawEvent.objects.get(event_type=name).position for name in ("project.configured", "project.described")
        )
        done = {"mark", "configure", "describe", "quarantine", "revert", "restore", "relate"}
        self.assertEqual(dict.fromkeys(done, 1), self.preview(action="undo").counts)
        for thing, undone in (
            (chosen, {"mark"}),
            (configured, {"configure"}),
            (described, {"describe"}),
            (kept, {"quarantine", "revert"}),
            (gone, {"restore"}),
            (relation, {"relate"}),
        ):
            with self.subTest(undone):
                preview = self.preview(action="undo", leave=[thing])
                self.assertEqual([(thing, "excluded by the request")], [(left.id, left.why) for left in preview.left])
                self.assertEqual(done - undone, set(preview.counts))
        left = {left.id: left.why for left in self.preview(leave=[chosen]).left}
        self.assertEqual("excluded by the request", left[chosen])


class TraceTests(RollbackTestCase):
    def test_items_downstream_are_traced_to_any_depth_with_their_origin(self) -> None:
        earlier = self.write("Before it, nothing came of it")
        bad = self.write("Bad", rolled_back=True)
        chosen = self.decide("Bad choice", rolled_back=True)
        refined = self.decide("Refined", refines=[chosen])
        further = self.decide("Further", depends_on=[refined])
        citing = self.write("Citing", source="x")
        self.revise(citing, f"As #{bad} says.")
        built_on = next(group for group in self.preview().trace.derived if group.name == "built_on").shown
        expected = {(refined, chosen, "refines", 1), (further, refined, "depends_on", 2), (citing, bad, "cites", 1)}
        self.assertEqual(expected, {(item.id, item.via, item.how, item.depth) for item in built_on})
        self.assertNotIn(earlier, {item.id for item in built_on})
        for fields, count in (({}, 2), ({"include": ["built_on"]}, 5), ({"also": [further]}, 3)):
            self.assertEqual({"quarantine": count}, self.preview(**fields).counts, fields)

    def test_who_read_it_in_a_pack_and_wrote_afterwards_may_have_been_influenced(self) -> None:
        self.write("Bad", rolled_back=True)
        self.write("Before it was given")
        with use_origin(session_id="s-given"):
            pack = pack_context(command=ContextPackRequest(session_id="s-given")).id
            after = self.write("After it was given")
        derived = {group.name: [item.id for item in group.shown] for group in self.preview().trace.derived}
        self.assertEqual(([pack], [after]), (derived["packs"], derived["influenced"]))
        self.assertEqual({"quarantine": 1}, self.preview().counts)
        self.assertEqual({"quarantine": 2}, self.preview(include=["influenced"]).counts)

    def test_every_part_of_a_selection_must_hold_and_people_are_left_out(self) -> None:
        first = self.write("First", rolled_back=True)
        second = self.write("Second", rolled_back=True)
        with use_origin(source="admin", actor="olga", session_id="s-bad"):
            self.write("Third, by a person")
        cases: list[tuple[int, dict[str, Any]]] = [
            (2, {"session_id": "s-bad"}),
            (1, {"session_id": "s-bad", "until": first}),
            (1, {"session_id": "", "since": second}),
            (3, {"session_id": "s-bad", "include_people": True}),
            (2, {"session_id": "", "actor": "mallory", "source": "mcp"}),
            (0, {"session_id": "s-bad", "actor": "ada"}),
        ]
        for count, fields in cases:
            with self.subTest(fields):
                self.assertEqual(count, self.preview(**fields).counts.get("quarantine", 0))

    def test_what_was_not_previewed_is_not_done(self) -> None:
        self.write("Bad", rolled_back=True)
        token = self.preview().confirm_token
        self.write("Worse", rolled_back=True)
        with self.assertRaises(ConfirmationRequired):
            roll_back(command=RollbackMake(session_id="s-bad", confirm_token=token))
        with self.assertRaisesMessage(Invalid, "nothing to roll back"):
            roll_back(command=RollbackMake(session_id="s-none"))
        with use_grant(Grant(ROLES["reviewer"])), self.assertRaises(Forbidden):
            self.roll_back()
        with self.store("beta"):
            self.assertEqual(0, self.preview().trace.events)


class ReversalTests(RollbackTestCase):
    def discarded(self, *, by: dict[str, str] = ROLLED_BACK, **fields: Any) -> None:
        with use_origin(**{"session_id": SCRATCH, **by}):
            end_session(command=sessions.SessionEnd(session_id=SCRATCH, discard=True, **fields))

    def test_a_verdict_is_taken_back_and_a_text_put_back_still_waits_for_one(self) -> None:
        self.set(review_policy="all")
        judged, revised = self.write("Judged"), self.write("Revised")
        with use_origin(**ROLLED_BACK):
            review_memory(command=ReviewVerdict(id=judged, verdict="accepted"))
            self.revise(revised, "Poisoned.")
        self.assertIn("undo reverses it", self.preview().left[0].why)

        def state() -> list[str]:
            return [self.view(judged)["review"], self.view(revised)["review"], self.view(revised)["content"]]

        before, after = ["proposed", "proposed", "Revised, it says."], ["accepted", "proposed", "Poisoned."]
        rollback = self.assert_rolls_back(state, before, after, action="undo")
        self.assertEqual({"review": 1, "revert": 1}, rollback.counts)

    def test_a_conflict_that_it_resolved_is_open_again_by_either_action(self) -> None:
        self.conflicting(rolled_back=False)
        opened = self.conflicts()
        with use_origin(**ROLLED_BACK):
            resolve_conflict(command=ConflictResolve(id=opened[0], resolution="keep_b", reason="lies"))
        for action in RollbackAction:
            with self.subTest(action):
                self.assert_rolls_back(self.conflicts, opened, [], action=action)

    def test_the_entries_that_it_discarded_with_a_scratch_session_come_back(self) -> None:
        with self.scratch():
            kept, gone, deleted = self.write("Kept"), self.write("Gone"), self.write("Deleted before")
            self.delete(deleted)
        self.discarded(keep=[kept])
        stays = [(kept, "kept at the end of its scratch session; stays kept")]
        self.assertEqual(stays, [(left.id, left.why) for left in self.preview(action="undo").left])
        self.assert_rolls_back(lambda: set(self.listed()), {kept, gone}, {kept}, action="undo")

    def test_the_entries_of_any_number_of_scratch_sessions_take_four_queries(self) -> None:
        ends: list[int] = []
        for name in ("first", "second", "third"):
            with use_origin(session_id=name):
                start_session(command=sessions.SessionStart(session_id=name, mode="scratch"))
                entries = [self.write(f"{name} {number}") for number in range(2)]
                end_session(command=sessions.SessionEnd(session_id=name, discard=True, keep=entries[:1]))
            ends.append(RawEvent.objects.get(event_type="session.ended", stream_id=f"session:{name}").position)
            with self.subTest(name), self.assertNumQueries(4, using="store:project:alpha"):
                ended = list(entries_at_end(log.events().at(ends)))
            self.assertEqual([(entries[0], ends[-1], False), (entries[1], ends[-1], True)], ended[-2:])
            self.assertEqual(2 * len(ends), len(ended))

    def test_of_two_deleted_memories_of_one_topic_the_younger_comes_back(self) -> None:
        for _ in range(2):
            last = self.write("Build", topic_key="build/command")
            self.delete(last, rolled_back=True)
        self.assertEqual({"restore": 1}, self.roll_back(action="undo").counts)
        self.assertEqual([last], self.listed())

    def test_a_text_is_not_put_back_under_a_title_that_another_has_now(self) -> None:
        first = self.write("Build")
        self.revise(first, "Poisoned.", rolled_back=True, title="Poisoned")
        second = self.write("Build")
        preview = self.preview(action="undo")
        self.assertEqual({}, preview.counts)
        self.assertIn(f"#{second} has its topic or title now", preview.left[0].why)

    def test_a_text_of_a_deleted_memory_comes_back_whatever_has_its_title(self) -> None:
        with self.scratch():
            note = self.write("Build", scope="session")
            with use_origin(actor="mallory"):
                update_memory(command=MemoryUpdate(id=note, promote=True))
        self.discarded(by={})
        self.write("Build")
        rollback = self.roll_back(session_id="", actor="mallory", action="undo")
        self.assertEqual("session", self.view(note)["scope"])
        self.assertEqual([], self.undo(rollback.id).undone_left)
        self.assertEqual("project", self.view(note)["scope"])

    def test_a_topic_is_free_again_before_another_memory_takes_it_back(self) -> None:
        with use_origin(session_id="s-notes"):
            first = self.write("Build", scope="session", topic_key="build/command")
            with use_origin(actor="mallory"):
                update_memory(command=MemoryUpdate(id=first, promote=True))
                second = self.write("Build again", scope="session", topic_key="build/command")
        rollback = self.roll_back(session_id="", actor="mallory", action="undo")
        self.assertEqual({"delete": 1, "revert": 1}, rollback.counts)
        self.assertEqual([], self.undo(rollback.id).undone_left)
        topics = [(self.view(item)["scope"], self.view(item)["topic_key"]) for item in (first, second)]
        self.assertEqual([("project", "build/command"), ("session", "build/command")], topics)
        self.assert_rebuilds()

    def test_an_affirmation_is_set_aside_and_is_gone_once_its_memory_is_erased(self) -> None:
        memory = self.write("Kept")
        affirm(command=Affirm(id=memory))
        with use_origin(**ROLLED_BACK):
            affirm(command=Affirm(id=memory, reason="lies"))
        actors = Affirmation.objects.values_list("actor", flat=True)
        self.assert_rolls_back(lambda: list(actors.all()), ["ada"], ["mallory"])
        log.erase_streams([f"memory:{memory}"], reason="test")
        self.roll_back()
        self.assertEqual(0, Affirmation.objects.count())
        self.assert_rebuilds()

    def test_evidence_that_is_given_again_after_a_roll_back_rebuilds_the_same(self) -> None:
        evidence = DecisionEvidence(id=self.decide("SQLite"), notes=["measured"])
        with use_origin(**ROLLED_BACK):
            add_evidence(command=evidence)
        self.undo(self.roll_back().id)
        add_evidence(command=evidence)
        self.assert_rebuilds()

    def test_evidence_and_edges_that_a_clean_caller_gave_too_stay(self) -> None:
        first, second = self.decide("SQLite"), self.decide("One file")
        edge = DecisionLink(id=second, relation="refines", to=first)
        evidence = DecisionEvidence(id=first, notes=["measured"])

        def assert_both_stay() -> None:
            notes = [item["value"] for item in self.decision(first)["artifacts"]]
            self.assertEqual((["measured"], [first]), (notes, [item["to"] for item in self.decision(second)["edges"]]))
            self.assert_rebuilds()

        with use_origin(**ROLLED_BACK):
            add_evidence(command=evidence)
            link_decisions(command=edge)
        earlier = self.roll_back()
        link_decisions(command=edge)
        self.undo(earlier.id)
        add_evidence(command=evidence)
        later = self.roll_back()
        assert_both_stay()
        self.undo(later.id)
        self.assert_rebuilds()
        self.roll_back(session_id="s-good", leave=[first, second])
        assert_both_stay()


@tag("backend")
class RelationTests(RollbackTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.one, self.other = self.write("One"), self.write("Other")

    def add(self, *, rolled_back: bool = False) -> int:
        return self.relate(self.one, self.other, rolled_back=rolled_back)

    def relations(self) -> list[int]:
        return [relation["id"] for relation in list_relations(command=RelationList()).results]

    def remake(self) -> int:
        """Let Mallory remove Ada's relation and make it again."""
        self.unrelate(self.add(), rolled_back=True)
        return self.add(rolled_back=True)

    def test_a_removed_relation_stays_removed_unless_the_log_is_of_an_earlier_version(self) -> None:
        again = self.remake()
        self.unrelate(again)
        self.assert_rolls_back(self.relations, [], [])
        rollback = self.roll_back()
        with mock.patch.object(reversal, "QUARANTINE_LIFTED", dataclasses.replace(QUARANTINE_LIFTED, version=1)):
            self.undo(rollback.id)
        self.assertEqual([again], self.relations())
        self.assert_rebuilds()

    def test_undo_leaves_a_relation_that_a_clean_caller_removed_last(self) -> None:
        self.unrelate(self.remake())
        preview = self.preview(action="undo")
        self.assertEqual({"quarantine": 1}, preview.counts)
        self.assertIn("changed since by ada", preview.left[0].why)
        self.assert_rolls_back(self.relations, [], [], action="undo")
        include = ["changed_since"]
        self.assert_rolls_back(lambda: len(self.relations()), 1, 0, action="undo", include=include)

    def test_undo_makes_a_relation_again_whose_replacement_it_quarantines(self) -> None:
        again = self.remake()
        rollback = self.roll_back(action="undo")
        self.assertEqual(({"quarantine": 1, "relate": 1}, 1), (rollback.counts, len(self.relations())))
        self.undo(rollback.id)
        self.assertEqual([again], self.relations())
        self.assert_rebuilds()

    def test_undo_makes_a_relation_again_once_that_was_removed_twice(self) -> None:
        for _ in range(2):
            self.unrelate(self.add(), rolled_back=True)
        rollback = self.assert_rolls_back(lambda: len(self.relations()), 1, 0, action="undo")
        self.assertEqual({"relate": 1}, rollback.counts)

    def test_a_relation_is_not_made_again_when_one_of_its_ends_was_erased_meanwhile(self) -> None:
        self.add(rolled_back=True)
        rollback = self.roll_back()
        self.delete(self.other)
        log.erase_streams([f"memory:{self.other}"], reason="test")
        self.undo(rollback.id)
        self.assertEqual([], self.relations())
        self.assert_rebuilds()

    def test_others_can_have_a_relation_a_tag_a_title_a_topic_and_a_text_meanwhile(self) -> None:
        bad = self.write("Build", rolled_back=True, topic_key="build/command")
        worse = self.write("Deploy", rolled_back=True)
        with use_origin(**ROLLED_BACK):
            self.add()
            create_tag(command=TagCreate(name="release", category="bad"))
        rollback = self.roll_back()
        good, fine = self.write("Build", topic_key="build/command"), self.write("Deploy")
        again = self.add()
        create_tag(command=TagCreate(name="release", category="good"))
        self.undo(rollback.id)
        topics = {memory["id"]: memory["topic_key"] for memory in list_memories(command=MemoryList()).results}
        free = dict.fromkeys((self.one, self.other, bad, worse, fine))
        self.assertEqual({**free, good: "build/command"}, topics)
        self.assertEqual([again], self.relations())
        categories = {item["name"]: item["category"] for item in list_tags(command=TagList(limit=100)).results}
        self.assertEqual("good", categories["release"])
        self.assert_rebuilds()


WORD = "zanzibar"


@tag("backend")
class SilenceTests(RollbackTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.clean = self.write("Clean", tags=["calm"])
        self.first = self.decide("SQLite", topic="store")
        with use_origin(**ROLLED_BACK):
            self.poison()

    def poison(self) -> None:
        """Write the word everywhere where a session can."""
        start_session(command=sessions.SessionStart(session_id="s-bad", purpose=f"to {WORD}"))
        token = begin_turn(command=sessions.TurnBegin(session_id="s-bad")).ack_token
        append_event(
            command=sessions.EventAppend(ack_token=token, type="message.user", payload={"content": f"Go to {WORD}"})
        )
        start_iteration(command=sessions.IterationStart(command=WORD, description=f"all of {WORD}"))
        self.memory_id = self.write(f"The {WORD} way", tags=[WORD], kind="guideline", type=WORD)
        self.decision_id = self.decide(WORD, supersedes=[self.first], topic="store", files=["store.py"])
        create_tag(command=TagCreate(name=f"{WORD}-tag", category="c"))
        self.relate(self.memory_id, self.clean)
        commit = {"sha": "ab" * 20, "message": f"Sail to {WORD}", "author": "M", "committed_at": datetime.now(UTC)}
        record_commits(commits=[sessions.CommitRecord.model_validate({**commit, "files": []})])

    def all_answers(self) -> str:
        answers: list[Any] = [
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
            list_sessions(command=sessions.SessionList()).results,
            list_turns(command=sessions.TurnList()).results,
            list_iterations(command=sessions.IterationList()).results,
            list_commits(command=Paging()).results,
            suggest_tags("z"),
            suggest_ids(str(self.memory_id)),
            suggest_decisions(str(self.decision_id)),
            count_by_type(),
        ]
        return "\n".join(json.dumps(answer, default=str) for answer in answers)

    def lines_with_the_word(self) -> list[str]:
        return [line[:200] for line in self.all_answers().splitlines() if WORD in line]

    def test_no_answer_has_what_a_quarantined_session_wrote(self) -> None:
        self.assertTrue(self.lines_with_the_word())
        self.assertIn(str(self.memory_id), suggest_ids(str(self.memory_id)))
        rollback = self.roll_back()
        self.assertEqual([], self.lines_with_the_word())
        self.assertEqual([], suggest_ids(str(self.memory_id)))
        self.assertEqual([], suggest_decisions(str(self.decision_id)))
        self.assertEqual({"accepted": 1}, count_by_status())
        since = f"in quarantine since #{rollback.id + 1}: roll-back #{rollback.id}"
        self.assertEqual(since, self.decision(self.decision_id)["quarantine"])
        self.assert_rebuilds()
        self.undo(rollback.id)
        self.assertTrue(self.lines_with_the_word())
        self.assert_rebuilds()

    def test_another_decision_may_supersede_what_is_in_force_again(self) -> None:
        rollback = self.roll_back()
        third = supersede_decision(command=DecisionSupersede(id=self.first, chosen="A file")).id
        self.assertEqual([third], self.decision(self.first)["heads"])
        self.undo(rollback.id)
        self.assertEqual([third, self.decision_id], self.decision(self.first)["heads"])
        self.assert_rebuilds()


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
    "group": registry.EventGroup("invented", "Invented", 1_000),
    "retention": registry.Retention.KEPT,
    "rollback": stays("it only counts"),
    "changes_stream": False,
}

invent: Any = registry.define_event


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
        self.assertIsNone(registry.event_type("invented.one"))

    def test_a_type_that_leaves_something_undeclared_is_refused_by_name(self) -> None:
        for name in COMPLETE:
            self.assert_refused(repr(name), **{key: value for key, value in COMPLETE.items() if key != name})
        self.assert_refused(*map(repr, COMPLETE))
        self.assert_refused("'nouns'", **{**COMPLETE, "retention": registry.Retention.CAPTURED})
        again = sets_aside("tags", "Others", order=1)
        self.assert_refused("'tag.created'", "'tags'", **{**COMPLETE, "rollback": again})
        invent("invented.one", Invented, **COMPLETE)

    def test_a_rule_or_an_effect_that_leaves_something_undeclared_is_named(self) -> None:
        values = Values(read=lambda _position, payload: payload)
        for declare, sentence in (
            (lambda: sets_aside("strange", "", order=1), "'strange' does not declare its title"),
            (lambda: stays(""), "needs a reason"),
            (lambda: reverses("turned", "Turned", order=1), "does not declare the effect"),
            (lambda: Effect("turn_over", 1, ""), "effect 'turn_over' does not declare apply, undo, words"),
            (lambda: Effect("turn_over", 1, "turned over", values), "effect 'turn_over' does not declare apply"),
        ):
            with self.subTest(sentence), self.assertRaisesMessage(ImproperlyConfigured, sentence):
                declare()

    def test_a_type_whose_effect_is_not_defined_is_named(self) -> None:
        registry.require_effects()
        for effect in ("turn_over", "unrelate"):
            rule = reverses(f"by {effect}", "Turned", order=1, by=effect)
            invent("invented.turned", Invented, **{**COMPLETE, "rollback": rule})
            with self.assertRaisesMessage(ImproperlyConfigured, f"'invented.turned' names '{effect}'"):
                registry.require_effects()

    def test_what_stays_in_force_is_named_with_its_reason_and_an_unknown_type_too(self) -> None:
        harmless = invent("invented.harmless", Invented, **COMPLETE)
        unknown = invent("invented.unknown", Invented, **COMPLETE)
        self.write("Bad", rolled_back=True)
        self.write("Clean")
        self.write("Clean", rolled_back=True)
        with use_origin(**ROLLED_BACK), log.transaction():
            for kind in (unknown, harmless):
                log.append(log.prepare(kind, Invented()), stream="invented")
        del registry._types["invented.unknown"]
        reasons = {
            "1 × invented.unknown": "this version can't roll back events of this type; they stay in force",
            "1 × invented.harmless": "it only counts",
            "1 × memory.seen": "nothing depends on this event",
        }
        self.assertEqual(reasons, {left.title: left.why for left in self.preview().left})


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
            is_protected = not self.is_set_aside(thing)
            rows.execute("ROLLBACK TO later")
        return is_protected

    def test_only_the_types_that_declare_so_protect_a_memory_or_a_decision(self) -> None:
        invent("memory.cited", Invented, **COMPLETE)
        changing = set(registry.types_that_change_streams())
        for thing in (self.write("Bad", rolled_back=True), self.decide("Bad", rolled_back=True)):
            protecting = {known.name for known in registry.event_types() if self.protects(thing, known.name)}
            self.assertEqual(changing, protecting)
        product = [known.name for known in registry.event_types() if not known.schema.__module__.startswith("tests.")]
        self.assertEqual(
            "conflict.resolved decision.marked decision.recorded memory.deleted memory.restored memory.reviewed "
            "memory.revised memory.written".split(),
            [name for name in registry.types_that_change_streams() if name in product],
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


class AnchorTests(RollbackTestCase):
    """What is set aside with an entry's events brings back the code that it was about before."""

    def setUp(self) -> None:
        super().setUp()
        folder = Path(tempfile.mkdtemp(prefix="repository-"))
        self.addCleanup(shutil.rmtree, folder)
        self.repository = Repository(folder)
        self.repository.write("a.py", b"LIFE = 3600\n")
        self.repository.commit("Begin")
        describe(command=sessions.ProjectDescribe(root_path=str(folder)))
        self.memory = self.write("Life", anchors=["a.py:1"])

    def anchors(self) -> list[tuple[str, str]]:
        return [(view.name, view.state) for view in anchor_views(self.memory, caller_tree())]

    def test_an_affirmation_that_is_set_aside_leaves_the_anchors_from_before(self) -> None:
        self.repository.write("a.py", b"LIFE = 900\n")
        with self.by(rolled_back=True):
            affirm(command=Affirm(id=self.memory))
        fresh = [("a.py:1", "fresh")]
        self.assertEqual(self.anchors(), fresh)
        self.assert_rolls_back(self.anchors, [("a.py:1", "changed")], fresh)

    def test_a_change_of_the_anchors_is_set_aside(self) -> None:
        with self.by(rolled_back=True):
            update_memory(command=MemoryUpdate(id=self.memory, anchors=[]))
        self.assert_rolls_back(self.anchors, [("a.py:1", "fresh")], [])

    def test_an_earlier_version_has_its_anchors_again(self) -> None:
        self.repository.write("b.py", b"LIFE = 900\n")
        self.revise(self.memory, "In b.py.", rolled_back=True, anchors=["b.py:1"])
        self.assert_rolls_back(self.anchors, [("a.py:1", "fresh")], [("b.py:1", "fresh")], action="undo")
        restore_memory(command=MemoryRestore(id=self.memory, version=1))
        self.assertEqual(self.anchors(), [("a.py:1", "fresh")])

    def test_an_erased_affirmation_counts_no_more(self) -> None:
        self.repository.write("a.py", b"LIFE = 900\n")
        affirm(command=Affirm(id=self.memory))
        position = log.events().of_type("thing.affirmed").get().position
        with log.transaction():
            log.erase_events([position], reason="test")
        self.assertEqual(self.anchors(), [("a.py:1", "changed")])
        self.assert_rebuilds()
