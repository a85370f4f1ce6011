from __future__ import annotations

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.retention.schemas import HoldLift, HoldPlace
from governance.retention.selectors import lift_hold, place_hold
from memories.schemas.links import RelationCreate
from memories.services.relations import create_relation
from memoryhub.core.errors import Invalid
from tests.governance.retaining import RetentionTestCase, days_ago


class PlanTests(RetentionTestCase):
    def test_by_default_what_was_captured_goes_after_a_year_and_deleted_memories_after_ninety_days(self):
        self.session("old", "one", "two", days=400)
        self.session("new", "three", days=30)
        self.memory("kept", days=700)
        self.memory("gone", days=700, deleted=91)
        self.memory("fresh", days=700, deleted=89)
        self.assertEqual(self.going(), {"captured message.user": 2, "deleted observation": 1})

    def test_decisions_iterations_commits_and_live_memories_never_go_by_default(self):
        with days_ago(5000):
            record_decision(command=DecisionRecord(title="Use WAL", chosen="WAL"))
        self.memory("old", days=5000)
        self.assertEqual(self.going(), {})

    def test_the_first_rule_that_fits_decides(self):
        self.session("s", "one", days=50)
        self.memory("tool", days=300, kind="tool", deleted=20)
        self.memory("note", days=300, deleted=20)
        self.settings(
            retention=[
                {"what": "captured", "event_type": "message.user", "after_days": 30},
                {"what": "deleted", "kind": "tool", "after_days": 10},
            ]
        )
        self.assertEqual(self.going(), {"captured message.user": 1, "deleted tool": 1})

    def test_a_rule_that_keeps_is_named_by_what_it_keeps(self):
        self.session("s", "one", days=500)
        self.settings(retention=[{"what": "captured", "event_type": "message.user", "after_days": "never"}])
        self.assertEqual(self.going(), {})
        self.assertEqual(self.kept(), {"rule 1: captured (event_type message.user) never": 1})

    def test_a_group_that_only_a_rule_lets_go_carries_a_warning(self):
        self.memory("old", days=500)
        self.settings(retention=[{"what": "memory", "after_days": 400}])
        (group,) = self.plan().going
        self.assertIn("only because rule 1 names them", group.warning)

    def test_it_says_how_much_how_old_and_shows_samples(self):
        positions = self.session("s", *[f"message {number}" for number in range(9)], days=400)
        (group,) = self.plan().going
        self.assertEqual((group.things, group.events), (9, 9))
        self.assertEqual(group.bytes, 9 * len('{"content":"message 0"}'))
        self.assertEqual([sample.id for sample in group.samples], [*positions[:3], *positions[-2:]])
        self.assertEqual(group.samples[0].text, "message 0")
        self.assertEqual(group.oldest, group.newest)

    def test_a_rule_of_what_nobody_knows_is_refused_with_the_field(self):
        with self.assertRaisesRegex(Invalid, r"retention.*event_type must be one of message.user"):
            self.settings(retention=[{"what": "captured", "event_type": "message.usr", "after_days": 1}])
        with self.assertRaisesRegex(Invalid, "kind does not apply to captured"):
            self.settings(retention=[{"what": "captured", "kind": "tool", "after_days": 1}])
        with self.assertRaisesRegex(Invalid, "retention_days.*at least 1"):
            self.settings(retention_days=0)


class KeepingTests(RetentionTestCase):
    def test_a_session_that_has_not_ended_keeps_its_events_and_an_open_turn_comes_first(self):
        self.session("active", "one", days=400, ended=False)
        self.session("open", "two", days=400, ended=False, closed=False)
        self.assertEqual(self.going(), {})
        self.assertEqual(self.kept(), {"its session has not ended": 1, "its turn is open": 1})

    def test_a_hold_on_a_session_keeps_all_its_events_until_it_is_lifted(self):
        self.session("s", "one", "two", days=400)
        self.memory("of it", days=400, deleted=100, session="s")
        self.session("t", "three", days=400)
        hold = place_hold(command=HoldPlace(stream_id="session:s", reason="a lawsuit"))
        self.assertEqual(self.kept(), {f"hold #{hold.id}: a lawsuit": 3})
        self.assertEqual(self.going(), {"captured message.user": 1})
        lift_hold(command=HoldLift(id=hold.id, reason="settled"))
        self.assertEqual(self.kept(), {})

    def test_a_hold_on_the_store_keeps_everything(self):
        self.session("s", "one", days=400)
        self.memory("gone", days=400, deleted=100)
        hold = place_hold(command=HoldPlace(stream_id="*", reason="audit"))
        self.assertEqual((self.going(), self.kept()), ({}, {f"hold #{hold.id}: audit": 2}))

    def test_a_relation_to_what_stays_keeps_a_memory_and_one_among_what_goes_does_not(self):
        live = self.memory("live", days=400)
        tied = self.memory("tied", days=400)
        one, other = self.memory("one", days=400), self.memory("other", days=400)
        with days_ago(399):
            create_relation(command=RelationCreate(relation="related_to", source=tied, target=live))
            create_relation(command=RelationCreate(relation="related_to", source=one, target=other))
        self.delete(tied, one, other, days=100)
        self.assertEqual(self.going(), {"deleted observation": 2})
        (kept,) = self.plan().kept
        self.assertEqual((kept.says, kept.samples[0].id), ("related to an item that is kept", tied))

    def test_what_is_tied_to_a_held_memory_stays_with_it(self):
        one, other, third = (self.memory(name, days=400) for name in ("one", "other", "third"))
        with days_ago(399):
            create_relation(command=RelationCreate(relation="related_to", source=one, target=other))
            create_relation(command=RelationCreate(relation="related_to", source=other, target=third))
        self.delete(one, other, third, days=100)
        place_hold(command=HoldPlace(stream_id=f"memory:{third}", reason="mine"))
        self.assertEqual(self.going(), {})
        self.assertEqual(sorted(self.kept().values()), [1, 2])

    def test_what_a_decision_that_stands_cites_stays(self):
        (said,) = self.session("s", "why we chose it", days=400)
        memory = self.memory("measured", days=400)
        with days_ago(300):
            record_decision(command=DecisionRecord(title="Use WAL", chosen="WAL", rationale=f"see #{said}, #{memory}"))
        self.delete(memory, days=100)
        self.assertEqual(self.going(), {})
        self.assertEqual(self.kept(), {"cited by a decision in force": 2})

    def test_what_only_a_decision_that_goes_itself_cites_goes_with_it(self):
        (said,) = self.session("s", "why we chose it", days=500)
        with days_ago(450):
            record_decision(command=DecisionRecord(title="Use WAL", chosen="WAL", rationale=f"see #{said}"))
        self.settings(retention=[{"what": "decision", "after_days": 400}])
        self.assertEqual(self.going(), {"captured message.user": 1, "decision": 1})
        self.assertEqual(self.run_plan().report.left, 0)
        self.assert_sound()

    def delete(self, *memories: int, days: float) -> None:
        from memories.schemas import MemoryDelete
        from memories.services import delete_memory

        with days_ago(days):
            for memory in memories:
                delete_memory(command=MemoryDelete(id=memory))
