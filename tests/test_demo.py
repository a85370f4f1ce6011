from __future__ import annotations

import io
from collections.abc import Iterator
from unittest import mock

from django.core.management import CommandError, call_command
from django.test import tag

from decisions.models import Decision, DecisionStatus
from governance.retention.schemas import RetentionPlanRequest
from governance.retention.selectors import plan_retention
from governance.rollback.schemas import RollbackPlan
from governance.rollback.service import preview
from memories import services
from memories.models import Conflict, Memory, ReviewState
from memories.schemas import MemoryGet, MemoryWrite
from memories.selectors import get_memories
from memories.uses.drain import count_uses
from memoryhub.core import clock, log
from memoryhub.core.kinds import KINDS
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import SAMPLE_TRACE
from memoryhub.core.stores.store import use_store
from memoryhub.demo.project import demo_store, make_demo, story
from memoryhub.ops.backups.service import back_up_store
from memoryhub.ops.serving.state import hub_state
from sessions_app.models import Commit, Session
from tests.admin.base import AdminTestCase


class DemoTests(AdminTestCase):
    def demo(self, *arguments: str) -> str:
        out = io.StringIO()
        call_command("demo", *arguments, stdout=out)
        return out.getvalue()

    def refused(self, code: int, words: str, *arguments: str) -> None:
        with self.assertRaisesRegex(CommandError, words) as caught:
            self.demo(*arguments)
        self.assertEqual(caught.exception.returncode, code)

    def test_every_named_page_exists(self):
        output = self.demo()
        for page in story().pages:
            address = f"/p/demo/admin/{page.path}"
            self.assertIn(f"  {address} ", output)
            self.assertEqual(self.client.get(address, follow=True).status_code, 200, address)
        with mock.patch("memoryhub.ops.serving.process.find_running") as found:
            found.return_value.address = "http://127.0.0.1:8321/"
            self.demo("--remove")
            self.assertIn("  http://127.0.0.1:8321/p/demo/admin/decisions/decision/ ", self.demo())

    def test_it_does_not_show_that_the_hooks_of_a_client_work(self):
        make_demo()
        self.assertEqual(hub_state().last_captures, {})

    @tag("backend")
    def test_its_content_is_complete_and_its_log_is_valid(self):
        make_demo()
        with self.store("demo", create=False):
            self.assertEqual(Decision.objects.filter(status=DecisionStatus.SUPERSEDED).count(), 2)
            self.assertEqual(
                Decision.objects.exclude(review="").get().title, "Turn synchronous off to make saving faster"
            )
            self.assertEqual(Conflict.objects.filter(resolution="").count(), 1)
            self.assertEqual(Memory.objects.filter(review=ReviewState.PROPOSED).count(), 5)
            self.assertEqual(set(Memory.objects.values_list("kind", flat=True)), set(KINDS))
            self.assertGreater(Session.objects.count(), 10)
            self.assertGreater(Commit.objects.count(), 8)
            self.assertFalse(RawEvent.objects.filter(payload_json__contains="Ebb7Flow").exists())
            self.assertTrue(RawEvent.objects.filter(payload_json__contains='"exit_code":1').exists())
            self.assertLess(RawEvent.objects.latest("position").occurred_at, clock.to_text(clock.now()))
            self.assertFalse(plan_retention(command=RetentionPlanRequest()).going)
            with mock.patch.dict("os.environ", MEMORY_HUB_RETENTION_DAYS="60"):
                plan = plan_retention(command=RetentionPlanRequest())
            self.assertTrue(plan.going and plan.kept)
            bad = preview(command=RollbackPlan(session_id="quick-fixes"))
            self.assertGreater(bad.counts["quarantine"], 2)
            self.assertTrue(log.verify().ok)
            self.assertEqual(log.compare(whole=True).differences, ())
            self.assertEqual([log.compare_sample().differences for _ in self.samples()], [()] * 8)
            self.assertTrue(log.rebuild().identical)

    def samples(self) -> Iterator[None]:
        # Each pass of the loop compares another eighth of the log.
        last = log.head()[0]
        for first in range(1, 9):
            with mock.patch(
                "memoryhub.core.log.rebuilding._sampled_positions", return_value=[*range(first, last + 1, 8)]
            ):
                yield

    def test_it_is_created_once_and_removed(self):
        self.assertIn("created project demo with ", self.demo())
        self.refused(5, "project 'demo' already exists; delete it with --remove")
        with self.store("demo", source="job", actor="expire turns"):
            services.write_memory(command=MemoryWrite(title="By a job", content="of the hub"))
        with use_store(demo_store()):
            back_up_store()
        self.assertIn("deleted project demo", self.demo("--remove"))
        self.assertFalse(list(self.home.rglob("*demo*")), "something of it is left")
        self.refused(3, "there is no project 'demo'; create it with `memory-hub demo`", "--remove")
        self.refused(2, "--force needs --remove", "--force")

    def test_its_sessions_are_no_proof_that_hooks_work(self):
        make_demo()
        self.assertEqual(hub_state().last_captures, {})

    def test_events_of_others_are_deleted_only_with_force(self):
        self.demo()
        with self.store("demo", source="admin", actor="anna"):
            services.write_memory(command=MemoryWrite(title="My own", content="Note of a person who looked around"))
        self.refused(5, "the project 'demo' has 1 event beyond the sample's; add --force", "--remove")
        self.assertIn("deleted", self.demo("--remove", "--force"))

    def test_reading_it_is_no_change(self):
        self.demo()
        call_command("context", "--project", "demo", stdout=io.StringIO())
        with self.store("demo", create=False):
            get_memories(command=MemoryGet(ids=[Memory.objects.latest("id").pk]))
            count_uses()
            read = log.events().exclude(trace_id=SAMPLE_TRACE).values_list("event_type", flat=True)
            self.assertEqual({*read}, {"context.packed", "memories.used"})
        self.assertIn("deleted project demo", self.demo("--remove"))

    def test_another_project_of_that_id_is_not_changed(self):
        with self.store("demo"):
            services.write_memory(command=MemoryWrite(title="Mine", content="A real project of that name"))
        self.refused(5, "a project 'demo' with 1 event of its own exists")
        self.refused(5, "'demo' is not the sample project", "--remove", "--force")
        with self.store("demo"):
            self.assertEqual(RawEvent.objects.exclude(trace_id=SAMPLE_TRACE).count(), 1)
