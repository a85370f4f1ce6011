from __future__ import annotations

from typing import Any
from unittest import mock

from governance.models import RetentionRun
from governance.retention import run as running
from governance.retention.run import run_due, run_retention
from governance.retention.schemas import HoldPlace, Report, RetentionRunRequest
from governance.retention.selectors import place_hold
from memories import selectors, services
from memories.models import ContextPack, Memory, MemoryUse
from memories.pack import pack_context, replay_pack
from memories.schemas import MemoryDelete, MemorySearch
from memories.schemas.query import ContextPackRequest, ContextReplay
from memoryhub.core import log
from memoryhub.core.backends.sqlite.files import path_of
from memoryhub.core.errors import ConfirmationRequired, Forbidden, PreconditionFailed
from memoryhub.core.permissions import Act, Grant, use_grant
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store
from tests.governance.retaining import NOW, RetentionTestCase, days_ago


class RunTests(RetentionTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.said = self.session("old", "the marmalade plan", "the cardamom plan", days=400)
        self.recent = self.session("new", "the porridge plan", days=30)
        self.gone = self.memory("Marmalade", days=300, deleted=100)

    def found(self, words: str) -> list[int]:
        return [hit["id"] for hit in selectors.search(command=MemorySearch(query=words)).results]

    def test_what_went_is_what_the_plan_said_and_the_report_is_an_event(self):
        plan = self.plan()
        run = self.run_plan()
        self.assertEqual(self.comparable(run.report), self.comparable(plan))
        self.assertEqual(sorted(self.erased()), sorted([*self.said, self.gone, self.gone + 1]))
        self.assertEqual(log.head()[0], RetentionRun.objects.get().id + 3)  # two erasures, and the report
        self.assertEqual(self.plan().going, [])
        self.assert_sound()

    def comparable(self, report: Report) -> dict[str, Any]:
        comparable = report.model_dump(include=set(Report.model_fields))
        for share in comparable["going"]:
            share["samples"] = [sample["id"] for sample in share["samples"]]
        return comparable

    def test_the_text_is_in_no_search_and_no_file(self):
        self.run_plan()
        self.assertEqual(self.found("cardamom"), [])
        self.assertEqual(self.found("porridge"), self.recent)
        files = [path for path in path_of(current_store()).parent.rglob("*") if path.is_file()]
        self.assertEqual([path.name for path in files if b"cardamom" in path.read_bytes()], [])

    def test_another_plan_than_the_one_of_now_is_refused_and_nothing_goes(self):
        digest = self.plan().digest
        self.session("older", "one more", days=500)
        with self.assertRaisesRegex(PreconditionFailed, "retention plan has changed") as caught:
            run_retention(command=RetentionRunRequest(digest=digest))
        self.assertEqual(caught.exception.data["plan"]["digest"], self.plan().digest)
        self.assertEqual(self.erased(), [])

    def test_with_nothing_to_take_nothing_is_written(self):
        self.run_plan()
        before = log.head()
        self.assertIsNone(run_retention(command=RetentionRunRequest(digest=self.plan().digest)))
        self.assertIsNone(run_due(now=NOW))
        self.assertEqual(log.head(), before)

    def test_what_came_to_be_held_while_it_ran_is_left_and_counted(self):
        self.cut_off_after(0)
        place_hold(command=HoldPlace(stream_id="session:old", reason="a lawsuit"))
        run = self.run_plan()
        self.assertEqual((run.report.left, run.report.things), (2, 1))
        self.assertEqual(self.erased(), [self.gone, self.gone + 1])

    def test_what_aged_while_a_run_was_cut_off_waits_for_the_next_plan(self):
        self.cut_off_after(1)
        later = self.session("older", "one more", days=500)
        first = self.run_plan()
        self.assertEqual(first.report.things, 3)
        self.assertFalse(set(later) & set(self.erased()))
        self.assertEqual(self.going(), {"captured message.user": 1})

    def test_the_schedule_ends_what_was_cut_off_and_goes_on(self):
        self.cut_off_after(1)
        later = self.session("older", "one more", days=500)
        run_due(now=NOW)
        self.assertTrue({*self.said, *later, self.gone} <= set(self.erased()))
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

    def test_one_who_may_not_govern_may_not_run_it_nor_place_a_hold(self):
        digest = self.plan().digest
        with use_grant(Grant(acts=frozenset({Act.VIEW, Act.REVIEW}))):
            with self.assertRaises(Forbidden):
                run_retention(command=RetentionRunRequest(digest=digest))
            with self.assertRaises(Forbidden):
                place_hold(command=HoldPlace(stream_id="*", reason="mine"))
        self.assertEqual(self.erased(), [])

    def cut_off_after(self, batches: int) -> None:
        done = []

        def leave(*_: int) -> None:
            done.append(1)
            if len(done) >= batches:
                raise InterruptedError

        with mock.patch.object(running, "BATCH", 1), self.assertRaises(InterruptedError):
            if not batches:
                with mock.patch.object(running._Execution, "_erase", leave):
                    run_retention(command=RetentionRunRequest(digest=self.plan().digest))
            run_retention(command=RetentionRunRequest(digest=self.plan().digest), progress=leave)


class OtherThingsTests(RetentionTestCase):
    def test_a_pack_counts_the_lines_that_went_since(self):
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
        memory = self.memory("Use WAL", days=700)
        for days in (600, 500, 10):
            with days_ago(days):
                self.memory(f"about {days}", days=days)
                pack_context(command=ContextPackRequest(query=f"wal {days}"))
        given = MemoryUse.objects.get(memory_id=memory).given
        self.assertEqual(given, 3)
        self.assertEqual(self.going(), {"pack": 2})
        self.run_plan()
        self.assertEqual(ContextPack.objects.count(), 1)
        self.assertEqual(MemoryUse.objects.get(memory_id=memory).given, 1)
        self.assert_sound()

    def test_live_memories_go_by_a_rule_of_their_own(self):
        self.memory("old", days=500, kind="observation")
        kept = self.memory("rule", days=500, kind="guideline")
        self.settings(retention=[{"what": "memory", "kind": "observation", "after_days": 400}])
        self.run_plan()
        self.assertEqual(list(Memory.objects.values_list("id", flat=True)), [kept])
        self.assertEqual(rows.fetch("SELECT id FROM memories_searchdocument"), [(kept,)])
        self.assert_sound()
