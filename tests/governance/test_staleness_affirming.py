from __future__ import annotations

import random

from decisions.schemas import DecisionSupersede
from decisions.services import supersede_decision
from governance.models import Affirmation
from governance.staleness.schemas import Retire, StaleList
from governance.staleness.selectors import count_stale, list_stale, waiting
from governance.staleness.services import retire
from memories.models import Memory
from memories.schemas import MemoryTouch, MemoryUpdate
from memories.services import delete_memory, update_memory
from memoryhub.core import log
from memoryhub.core.errors import Conflict, Gone, NotFound
from memoryhub.core.log import erase_events, erase_streams
from memoryhub.core.models import RawEvent
from tests.governance.staleness import StalenessTestCase


class AffirmingTests(StalenessTestCase):
    def test_what_was_affirmed_is_due_again_at_the_next_commit(self):
        guideline = self.guide("Validate", "src/auth/")
        self.commit_now("First", "src/auth/a.py")
        said = self.affirm(guideline, reason="read it")
        self.assertEqual((said.kind, said.title, said.affirmed_at), ("guideline", "Validate", self.time))
        self.assertEqual(self.due(), [])
        self.commit_now("Second", "src/auth/b.py")
        (found,) = self.stale()
        self.assertEqual((found["affirmed_by"], found["commit_count"]), ("ada", 1))
        self.assertEqual([commit["subject"] for commit in found["commits"]], ["Second"])

    def test_the_history_of_a_thing_says_that_it_was_affirmed(self):
        decision = self.record("WAL").id
        self.affirm(decision, reason="still the fastest")
        event = RawEvent.objects.get(event_type="thing.affirmed")
        self.assertEqual((event.stream_id, event.stream_seq), (f"decision:{decision}", 2))

    def test_revising_and_superseding_settle_it_too(self):
        guideline, decision = self.guide("Validate", "src/"), self.record("Sign", files=["src/"]).id
        self.commit_now("Touch", "src/a.py")
        self.assertEqual(self.due(), [guideline, decision])
        self.pass_time(minutes=5)
        update_memory(command=MemoryUpdate(id=guideline, content="Validate at the edge."))
        supersede_decision(command=DecisionSupersede(id=decision, chosen="Encrypt.", files=["src/"]))
        self.assertEqual(self.due(), [])

    def test_a_revert_is_settled_by_affirming(self):
        decision = self.record("Cache").id
        sha = "c" * 40
        self.commit(sha, f"Cache\n\nDecision: #{decision}", "src/cache.py")
        self.pass_time(hours=1)
        self.commit("d" * 40, f'Revert "Cache"\n\nThis reverts commit {sha}.', "src/cache.py")
        (found,) = self.stale(why="reverted")
        self.assertEqual([reason["why"] for reason in found["reasons"]], ["reverted"])
        self.assertRegex(found["reasons"][0]["says"], "commit dddddddddd reverts cccccccccc")
        self.assertEqual([commit["sha"][0] for commit in found["commits"]], ["d"])
        self.affirm(decision)
        self.assertEqual(self.due(), [])

    def test_what_does_not_hold_cannot_be_affirmed(self):
        deleted, proposed = self.write("Deleted"), self.write("Proposed")
        replaced, rejected = self.record("Replaced").id, self.record("Rejected", status="rejected").id
        commit = self.commit_now("Touch", "src/a.py")
        delete_memory(command=MemoryTouch(id=deleted))
        Memory.objects.filter(id=proposed).update(review="proposed")
        successor = supersede_decision(command=DecisionSupersede(id=replaced, chosen="Another.")).id
        for entity_id, error, said in (
            (999, NotFound, "there is no #999 in this store"),
            (commit, NotFound, f"#{commit} is a commit; give the id of a memory or decision"),
            (deleted, Gone, "restore"),
            (proposed, Conflict, "accept it in the review queue"),
            (replaced, Conflict, f"affirm its replacement: #{successor}"),
            (rejected, Conflict, "is rejected; accept it"),
        ):
            with self.subTest(said), self.assertRaisesRegex(error, said):
                self.affirm(entity_id)
        self.assertEqual(Affirmation.objects.count(), 0)

    def test_the_same_key_again_affirms_once(self):
        decision = self.record("WAL").id
        first, second = (self.affirm(decision, idempotency_key="k-1") for _ in range(2))
        self.assertEqual((first.is_new, second.is_new), (True, False))
        self.assertEqual(RawEvent.objects.filter(event_type="thing.affirmed").count(), 1)

    def test_a_secret_in_a_reason_is_not_kept(self):
        said = self.affirm(self.record("WAL").id, reason="token ghp_" + "a1B2" * 9)
        self.assertEqual(said.redacted, ["github-token"])
        self.assertNotIn("a1B2", Affirmation.objects.get().reason)

    def test_a_rebuild_comes_out_the_same_whatever_happened(self):
        chance = random.Random(7)
        things = [self.guide(f"Guide {n}", "src/") for n in range(4)]
        things += [self.record(f"Choice {n}", files=["src/"]).id for n in range(4)]
        for number in range(40):
            self.pass_time(minutes=1)
            self.act(chance, things, number)
        affirmed = list(RawEvent.objects.filter(event_type="thing.affirmed").values_list("position", flat=True))
        erase_events(affirmed[-3:], reason="a name")
        erase_streams([f"memory:{things[0]}"], reason="asked to")
        before, due = list(Affirmation.objects.order_by("entity_id").values()), self.stale()
        self.assertTrue(before and due)
        self.assertNotIn(things[0], [item["entity_id"] for item in before])
        self.assertIn("", [item["reason"] for item in before])
        report = log.rebuild()
        self.assertTrue(report.identical)
        self.assertEqual((list(Affirmation.objects.order_by("entity_id").values()), self.stale()), (before, due))

    def act(self, chance: random.Random, things: list[int], number: int) -> None:
        thing = chance.choice(things)
        if chance.random() < 0.3:
            self.commit_now(f"Change {number}", f"src/{chance.randrange(5)}.py", minutes=1)
        elif thing in things[:4] and chance.random() < 0.3:
            update_memory(command=MemoryUpdate(id=thing, content=f"Text {number}."))
        else:
            self.affirm(thing, reason=f"reason {number}")


class ListingTests(StalenessTestCase):
    def test_pages_hold_each_thing_once_while_others_are_affirmed(self):
        things = [self.guide(f"Guide {n}", f"src/{n}.py") for n in range(7)]
        for number in range(7):
            self.commit_now(f"Change {number}", f"src/{6 - number}.py")
        first = list_stale(command=StaleList(limit=3))
        self.assertEqual((first.meta.total_count, first.meta.has_more), (7, True))
        self.affirm(first.results[0]["id"])
        rest = list_stale(command=StaleList(limit=20, cursor=first.meta.next_cursor, compact=True))
        self.assertEqual([item["id"] for item in [*first.results, *rest.results]], things[::-1])
        self.assertEqual(set(rest.results[0]), {"id", "title"})

    def test_it_is_filtered_by_kind_and_reason(self):
        guideline, decision = self.guide("Validate", "src/"), self.record("Sign", files=["src/"]).id
        fact = self.write("Port", kind="knowledge", attributes={"valid_until": "2026-11-20T12:30:00Z"})
        self.commit_now("Touch", "src/a.py")
        self.assertEqual(self.due(), [fact, guideline, decision])
        self.assertEqual(self.due(kind="decision"), [decision])
        self.assertEqual(self.due(kind="guideline"), [guideline])
        self.assertEqual(self.due(why="expired"), [fact])
        self.assertEqual(self.due(why="age"), [])
        self.assertEqual(self.due(id=decision), [decision])

    def test_one_is_shown_at_a_time_with_its_place_in_the_queue(self):
        self.assertIsNone(waiting())
        things = [self.guide(f"Guide {n}", f"src/{n}.py") for n in range(3)]
        other = self.guide("Elsewhere", "docs/")
        for number in range(3):
            self.commit_now(f"Change {number}", f"src/{number}.py")
        first, second = waiting(), waiting(entity_id=things[1])
        assert first and second
        self.assertEqual((first.item["id"], first.number, first.total, first.before), (things[0], 1, 3, None))
        self.assertEqual((second.number, second.before, second.after), (2, things[0], things[2]))
        with self.assertRaisesRegex(NotFound, f"#{other} is not stale"):
            waiting(entity_id=other)

    def test_the_count_follows_what_is_written(self):
        guideline = self.guide("Validate", "src/")
        self.assertEqual(count_stale(), 0)
        self.commit_now("Touch", "src/a.py")
        self.assertEqual(count_stale(), 1)
        self.affirm(guideline)
        self.assertEqual(count_stale(), 0)

    def test_what_no_longer_holds_is_retired(self):
        guideline, decision = self.guide("Validate", "src/"), self.record("Sign", files=["src/"]).id
        self.commit_now("Touch", "src/a.py")
        said = [retire(command=Retire(id=item, reason="gone")) for item in (guideline, decision)]
        self.assertEqual([item.title for item in said], ["Validate", "Sign"])
        self.assertEqual((self.due(), self.get(decision)["status"]), ([], "deprecated"))
        self.assertIsNotNone(Memory.objects.get(id=guideline).deleted_at)
        with self.assertRaises(Gone):
            retire(command=Retire(id=guideline))
