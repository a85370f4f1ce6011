"""What retention plans and keeps, what a run deletes, and that random stores and kills change neither."""

from __future__ import annotations

import shutil
import subprocess
import time
from datetime import timedelta
from typing import Any
from unittest import mock

from django.test import tag
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decisions.schemas import DecisionRecord
from decisions.services import record_decision
from governance.models import RetentionRun
from governance.retention import service as running
from governance.retention.schemas import HoldLift, HoldPlace, Report, RetentionRunRequest
from governance.retention.service import lift_hold, place_hold, run_due, run_retention
from memories import selectors, services
from memories.models import ContextPack, Memory, MemoryUse
from memories.pack import pack_context, replay_pack
from memories.schemas import ImportedMemory, MemoryDelete, MemorySearch
from memories.schemas.links import RelationCreate
from memories.schemas.query import ContextPackRequest, ContextReplay
from memories.services.links import create_relation
from memoryhub.core import clock, log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import ConfirmationRequired, Forbidden, Invalid, PreconditionFailed
from memoryhub.core.permissions import Act, Grant, use_grant
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store
from sessions_app.services.past_sessions import Fate, PastSession, PlannedSession, record_past_session
from tests.databases import at_home, sqlite_only
from tests.forks import DEADLINE_SECONDS, Fork
from tests.governance.retaining import NOW, WORDS, RetentionTestCase, Story, days_ago, documents_with
from tests.support import forget_all_stores


class PlanTests(RetentionTestCase):
    def test_by_default_captured_events_go_after_a_year_and_deleted_memories_after_ninety_days(self):
        self.session("old", "one", "two", days=400)
        self.session("new", "three", days=30)
        self.memory("kept", days=5000)
        self.memory("gone", days=700, deleted=91)
        self.memory("fresh", days=700, deleted=89)
        with days_ago(5000):
            record_decision(command=DecisionRecord(title="Use WAL", chosen="WAL"))
        self.assertEqual(self.going(), {"captured message.user": 2, "deleted observation": 1})

    def test_the_first_rule_that_fits_decides(self):
        self.session("s", "one", days=50)
        self.memory("tool", days=300, kind="tool", deleted=20)
        self.memory("note", days=300, deleted=20)
        prompts = {"what": "captured", "event_type": "message.user"}
        self.settings(retention=[{**prompts, "after_days": 30}, {"what": "deleted", "kind": "tool", "after_days": 10}])
        self.assertEqual(self.going(), {"captured message.user": 1, "deleted tool": 1})
        self.settings(retention=[{**prompts, "after_days": "never"}], purge_deleted_after_days=400)
        with clock.frozen(NOW + timedelta(days=350)):
            self.assertEqual(self.going(), {})
            self.assertEqual(self.kept(), {"rule 1: captured (event_type message.user) never": 1})

    def test_a_group_that_only_a_rule_lets_go_carries_a_warning(self):
        self.memory("old", days=500, kind="observation")
        guideline = self.memory("rule", days=500, kind="guideline")
        self.settings(retention=[{"what": "memory", "kind": "observation", "after_days": 400}])
        (group,) = self.plan().going
        self.assertIn("only because rule 1 names them", group.warning)
        self.run_plan()
        self.assertEqual(list(Memory.objects.values_list("id", flat=True)), [guideline])
        self.assertEqual(rows.fetch("SELECT id FROM memories_searchdocument"), [(guideline,)])
        self.assert_sound()

    def test_imported_memories_and_sessions_age_from_their_import(self):
        written = clock.to_text(NOW - timedelta(days=900))
        for key, imported in (("recent", 30), ("old", 500)):
            with days_ago(imported):
                command = ImportedMemory(title=key, content=f"text of {key}", written_at=written)
                services.write_memories(commands=[command])
        for name, days in (("recent", 30), ("old", 500)):
            with days_ago(days):
                past = PastSession(name, "chart", "tool", ended_at=NOW - timedelta(days=900))
                record_past_session(planned=PlannedSession(past, Fate.CREATED))
        self.settings(retention=[{"what": what, "after_days": 400} for what in ("memory", "session")])
        self.assertEqual(self.going(), {"memory observation": 1, "session": 1})

    def test_a_group_has_its_size_its_age_and_samples(self):
        positions = self.session("s", *[f"message {number}" for number in range(9)], days=400)
        (group,) = self.plan().going
        self.assertEqual((group.things, group.events), (9, 9))
        self.assertEqual(group.bytes, 9 * len('{"content":"message 0"}'))
        self.assertEqual([sample.id for sample in group.samples], [*positions[:3], *positions[-2:]])
        self.assertEqual(group.samples[0].text, "message 0")
        self.assertEqual(group.oldest, group.newest)

    def test_a_rule_of_what_nobody_knows_is_refused_with_the_field(self):
        captured = {"what": "captured", "after_days": 1}
        event_type = {**captured, "event_type": "message.usr"}
        for wrong, sentence in (
            ({"retention": [event_type]}, "retention.*event_type must be one of message.u"),
            ({"retention": [{**captured, "kind": "tool"}]}, "kind does not apply to captured"),
            ({"retention_days": 0}, "retention_days.*at least 1"),
        ):
            with self.subTest(sentence), self.assertRaisesRegex(Invalid, sentence):
                self.settings(**wrong)


class KeepingTests(RetentionTestCase):
    def test_a_session_that_has_not_ended_keeps_its_events_and_an_open_turn_comes_first(self):
        self.session("active", "one", days=400, ended=False)
        self.session("open", "two", days=400, ended=False, closed=False)
        self.assertEqual(self.going(), {})
        self.assertEqual(self.kept(), {"its session has not ended": 1, "its turn is open": 1})

    def test_a_hold_on_a_session_keeps_all_its_events_until_it_is_lifted_and_one_on_the_store_keeps_everything(self):
        self.session("s", "one", "two", days=400)
        self.memory("of it", days=400, deleted=100, session="s")
        self.session("t", "three", days=400)
        hold = place_hold(command=HoldPlace(stream_id="session:s", reason="a lawsuit"))
        self.assertEqual(self.kept(), {f"hold #{hold.id}: a lawsuit": 3})
        self.assertEqual(self.going(), {"captured message.user": 1})
        lift_hold(command=HoldLift(id=hold.id, reason="settled"))
        self.assertEqual(self.kept(), {})
        hold = place_hold(command=HoldPlace(stream_id="*", reason="audit"))
        self.assertEqual((self.going(), self.kept()), ({}, {f"hold #{hold.id}: audit": 4}))

    @tag("backend")
    def test_a_relation_to_what_stays_keeps_a_memory_and_one_among_what_goes_does_not(self):
        live, tied, one, other = self.memories("live", "tied", "one", "other")
        self.relate((tied, live), (one, other))
        self.delete(tied, one, other, days=100)
        self.assertEqual(self.going(), {"deleted observation": 2})
        (kept,) = self.plan().kept
        self.assertEqual((kept.says, kept.samples[0].id), ("related to an item that is kept", tied))

    def test_what_is_tied_to_a_held_memory_stays_with_it(self):
        one, other, third = self.memories("one", "other", "third")
        self.relate((one, other), (other, third))
        self.delete(one, other, third, days=100)
        place_hold(command=HoldPlace(stream_id=f"memory:{third}", reason="mine"))
        self.assertEqual(self.going(), {})
        self.assertEqual(sorted(self.kept().values()), [1, 2])

    def test_what_a_decision_in_force_cites_stays_unless_the_decision_goes_itself(self):
        (message,) = self.session("s", "why we chose it", days=500)
        (memory,) = self.memories("measured")
        rationale = f"see #{message}, #{memory}"
        with days_ago(450):
            record_decision(command=DecisionRecord(title="Use WAL", chosen="WAL", rationale=rationale))
        self.delete(memory, days=100)
        self.assertEqual((self.going(), self.kept()), ({}, {"cited by a decision in force": 2}))
        self.settings(retention=[{"what": "decision", "after_days": 400}])
        self.assertEqual(self.going(), {"captured message.user": 1, "decision": 1, "deleted observation": 1})
        self.assertEqual(self.run_plan().report.left, 0)
        self.assert_sound()

    def memories(self, *titles: str) -> list[int]:
        return [self.memory(title, days=400) for title in titles]

    def relate(self, *pairs: tuple[int, int]) -> None:
        with days_ago(399):
            for source, target in pairs:
                create_relation(command=RelationCreate(relation="related_to", source=source, target=target))

    def delete(self, *memories: int, days: float) -> None:
        with days_ago(days):
            for memory in memories:
                services.delete_memory(command=MemoryDelete(id=memory))


class RunTests(RetentionTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.old = self.session("old", "the marmalade plan", "the cardamom plan", days=400)
        self.recent = self.session("new", "the porridge plan", days=30)
        self.gone = self.memory("Marmalade", days=300, deleted=100)

    @tag("backend")
    def test_what_went_is_what_was_planned_and_is_in_no_search_and_no_file(self):
        plan = self.plan()
        run = self.run_plan()
        self.assertEqual(self.comparable(run.report), self.comparable(plan))
        self.assertEqual(sorted(self.erased()), sorted([*self.old, self.gone, self.gone + 1]))
        self.assertEqual(log.head()[0], RetentionRun.objects.get().id + 3)  # two erasures, and the report
        for query, hits in (("cardamom", []), ("porridge", self.recent)):
            results = selectors.search(command=MemorySearch(query=query)).results
            self.assertEqual([hit["id"] for hit in results], hits)
        files = [path for path in path_of(current_store()).parent.rglob("*") if path.is_file()]
        self.assertEqual([path.name for path in files if b"cardamom" in path.read_bytes()], [])
        self.assert_sound()
        before, plan = log.head(), self.plan()
        self.assertEqual(plan.going, [])
        self.assertIsNone(run_retention(command=RetentionRunRequest(digest=plan.digest)))
        self.assertIsNone(run_due(now=NOW))
        self.assertEqual(log.head(), before)

    def comparable(self, report: Report) -> dict[str, Any]:
        comparable = report.model_dump(include=set(Report.model_fields))
        for share in comparable["going"]:
            share["samples"] = [sample["id"] for sample in share["samples"]]
        return comparable

    def test_another_plan_than_the_one_of_now_or_one_who_may_not_govern_is_refused(self):
        digest = self.plan().digest
        self.session("older", "one more", days=500)
        with self.assertRaisesRegex(PreconditionFailed, "retention plan has changed") as caught:
            run_retention(command=RetentionRunRequest(digest=digest))
        self.assertEqual(caught.exception.data["plan"]["digest"], self.plan().digest)
        with use_grant(Grant(acts=frozenset({Act.VIEW, Act.REVIEW}))):
            with self.assertRaises(Forbidden):
                run_retention(command=RetentionRunRequest(digest=digest))
            with self.assertRaises(Forbidden):
                place_hold(command=HoldPlace(stream_id="*", reason="mine"))
        self.assertEqual(self.erased(), [])

    def test_what_came_to_be_held_while_it_ran_is_left_and_counted(self):
        self.cut_off_after(0)
        place_hold(command=HoldPlace(stream_id="session:old", reason="a lawsuit"))
        run = self.run_plan()
        self.assertEqual((run.report.left, run.report.things), (2, 1))
        self.assertEqual(self.erased(), [self.gone, self.gone + 1])

    def test_what_aged_while_a_run_was_cut_off_waits_for_the_next_plan(self):
        self.cut_off_after(1)
        later = self.session("older", "one more", days=500)
        self.assertEqual(self.run_plan().report.things, 3)
        self.assertFalse(set(later) & set(self.erased()))
        self.assertEqual(self.going(), {"captured message.user": 1})

    @tag("backend")
    def test_the_schedule_ends_what_was_cut_off_and_goes_on(self):
        self.cut_off_after(1)
        later = self.session("older", "one more", days=500)
        run_due(now=NOW)
        self.assertLessEqual({*self.old, *later, self.gone}, set(self.erased()))
        self.assertEqual(RetentionRun.objects.filter(ran_at__isnull=True).count(), 0)
        self.assert_sound()

    def test_what_is_held_can_be_erased_by_nobody(self):
        place_hold(command=HoldPlace(stream_id=f"memory:{self.gone}", reason="a lawsuit"))
        with self.assertRaises(ConfirmationRequired) as asked:
            services.delete_memory(command=MemoryDelete(id=self.gone, permanent=True))
        command = MemoryDelete(id=self.gone, permanent=True, confirm_token=asked.exception.data["confirm_token"])
        with self.assertRaisesRegex(Forbidden, "prevents this .a lawsuit.; nothing was erased"):
            services.delete_memory(command=command)
        self.assertEqual(self.erased(), [])
        self.assert_sound()

    def cut_off_after(self, batches: int) -> None:
        done = []

        def leave(*_: object, **_named: object) -> None:
            done.append(1)
            if len(done) >= batches:
                raise InterruptedError

        with mock.patch.object(running, "BATCH", 1), self.assertRaises(InterruptedError):
            if not batches:
                with mock.patch.object(running, "_erase", leave):
                    run_retention(command=RetentionRunRequest(digest=self.plan().digest))
            run_retention(command=RetentionRunRequest(digest=self.plan().digest), progress=leave)

    def test_a_pack_counts_the_lines_that_went_since(self):
        self.run_plan()
        self.session("s-old", "Raise the quay", "Lower the crane", days=500)
        self.memory("Use WAL", days=500)
        with days_ago(300):
            sent = pack_context(command=ContextPackRequest())
        self.assertIn("Lower the crane", sent.text)
        self.run_plan()
        again = replay_pack(command=ContextReplay(id=sent.id))
        self.assertEqual((again.as_sent, again.erased, again.differs), (False, 2, False))
        self.assertIn("(2 lines erased since)", again.text)
        self.assertIn("Use WAL", again.text)
        self.assertNotIn("crane", again.text)

    def test_an_old_pack_goes_with_what_it_counted(self):
        self.run_plan()
        memory = self.memory("Use WAL", days=700)
        for days in (600, 500, 10):
            with days_ago(days):
                self.memory(f"about {days}", days=days)
                pack_context(command=ContextPackRequest(query=f"wal {days}"))
        self.assertEqual(MemoryUse.objects.get(memory_id=memory).given, 3)
        self.assertEqual(self.going(), {"pack": 2})
        self.run_plan()
        self.assertEqual(ContextPack.objects.count(), 1)
        self.assertEqual(MemoryUse.objects.get(memory_id=memory).given, 1)
        self.assert_sound()


WHATS = ["captured", "pack", "deleted", "memory", "session", "decision", "iteration", "commit"]
RULES = st.lists(
    st.fixed_dictionaries({"what": st.sampled_from(WHATS), "after_days": st.sampled_from([1, 100, 300, 500, None])}),
    max_size=6,
)


class RandomTests(RetentionTestCase):
    stores = 0

    def test_what_goes_is_what_was_said_and_a_rebuild_comes_out_the_same(self):
        tried = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
        tried(given(st.integers(0, 2**32), st.integers(40, 90), RULES)(self.check))()

    def check(self, seed: int, steps: int, rules: list[dict[str, Any]]) -> None:
        self.stores += 1
        with self.store(f"story-{self.stores}"):
            Story(seed, steps)
            self.settings(retention=rules)
            before, plan = set(self.erased()), self.plan()
            with mock.patch.object(running, "BATCH", 4):
                run = run_retention(command=RetentionRunRequest(digest=plan.digest), progress=self.between_batches)
            self.assertEqual(len(set(self.erased()) - before), plan.events)
            self.assertEqual((run.events, run.report.left) if run else (0, 0), (plan.events, 0))
            self.assertEqual(self.plan().going, [])
            self.assertEqual(self.plan().kept, plan.kept)
            before_rebuild = self.documents()
            self.assert_sound()
            self.assertEqual(self.documents(), before_rebuild)

    def between_batches(self, _done: int, _total: int) -> None:
        self.assert_sound()

    def documents(self) -> dict[str, list[int]]:
        return {word: documents_with(word) for word in WORDS}


RUN = """
import sys
from governance.retention import service
from governance.retention.schemas import RetentionPlanRequest, RetentionRunRequest
from governance.retention.selectors import plan_retention
from memoryhub.core import clock
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store, use_store
service.BATCH = 10
now = clock.from_text(sys.argv[1])
with use_store(project_store("alpha")), use_origin(actor="ada"):
    digest = plan_retention(command=RetentionPlanRequest(now=now)).digest
    service.run_retention(command=RetentionRunRequest(now=now, digest=digest))
"""


@sqlite_only("the twin is a copy of files")
@tag("attack")
class KilledTests(RetentionTestCase):
    def setUp(self) -> None:
        super().setUp()
        with log.transaction():
            for number in range(24):
                self.session(f"s-{number}", *[f"message {number}.{number}" for number in range(30)], days=400 - number)
            for number in range(60):
                self.memory(f"memory {number}", days=300, deleted=200 - 3 * number)

    def test_the_end_is_the_same(self):
        twin = self.home.with_name(f"{self.home.name}-twin")
        self.addCleanup(shutil.rmtree, twin, ignore_errors=True)
        subprocess.run(["cp", "-R", self.home, twin], check=True)  # to close a file here would drop this one's locks
        process, until = self.spawn(), time.monotonic() + DEADLINE_SECONDS
        while len(self.erased()) < 100:
            self.assertIsNone(process.poll(), "it ended before it could be killed")
            self.assertLess(time.monotonic(), until, "it took nothing")
        process.kill()
        process.wait()
        self.assertEqual(RetentionRun.objects.filter(ran_at__isnull=True).count(), 1)
        taken = len(self.erased())
        again = self.spawn()
        self.assertEqual(again.wait(), 0)
        self.assertLess(taken, len(self.erased()))
        ended = self.end()
        self.assert_sound()
        forget_all_stores()
        with at_home(twin), self.store("alpha", actor="ada"):
            plan = self.plan()
            run_retention(command=RetentionRunRequest(digest=plan.digest))
            self.assertEqual(self.end(), ended)
            self.assertEqual(len(self.erased()), plan.events)

    def spawn(self) -> Fork:
        process = Fork(RUN, clock.to_text(clock.now()))
        self.addCleanup(process.close_pipes)
        return process

    def end(self) -> tuple[object, ...]:
        run = RetentionRun.objects.get()
        tables = {name: found for name, found in log.table_digests().items() if name != "governance_retentionrun"}
        documents = documents_with("message", "memory")
        return self.erased(), run.report, run.events, run.bytes, run.digest, tables, documents
