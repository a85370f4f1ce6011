from __future__ import annotations

import io
from datetime import timedelta
from unittest import mock

from django.core.management import CommandError, call_command
from django.test import SimpleTestCase
from pydantic import ValidationError

from governance.jobs import retain
from governance.models import Hold, RetentionRun
from governance.retention.schemas import RetentionPlanRequest
from governance.retention.selectors import plan_retention
from memories.models import Memory, MemoryKind, MemoryScope
from memories.schemas import MemoryDelete
from memories.services import delete_memory
from memoryhub.config.current_settings import project_settings
from memoryhub.config.retention_rules import RetentionRule
from memoryhub.core import clock
from memoryhub.core.jobs import Run, find_job
from memoryhub.core.stores.store import project_store
from memoryhub.ops.jobs import install_schedules, run_job
from memoryhub.ops.jobs.planning import JobPlan, change_plan
from memoryhub.ops.jobs.targets import Target
from tests.admin.base import AdminTestCase, text_of
from tests.api.client import RestTestCase


class OldStoreTestCase(AdminTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.gone = self.old("Marmalade")
        self.old("Of beta", project="beta")

    def old(self, title: str, project: str = "alpha", days: int = 200) -> int:
        with clock.frozen(clock.now() - timedelta(days=days)):
            memory = self.write(title, project=project)
            with self.store(project):
                delete_memory(command=MemoryDelete(id=memory))
        return memory

    def digest(self) -> str:
        with self.store("alpha"):
            return plan_retention(command=RetentionPlanRequest()).digest

    def runs(self, project: str = "alpha") -> int:
        with self.store(project):
            return RetentionRun.objects.count()


class PagesTests(OldStoreTestCase):
    def test_the_plan_is_one_of_this_project_alone(self):
        page = text_of(self.page("governance/retentionrun/"))
        self.assertIn("1 deleted observation", page)
        self.assertIn("Marmalade", page)
        self.assertNotIn("Of beta", page)

    def test_it_is_taken_once_the_projects_name_is_typed(self):
        wrong = self.post("governance/retentionrun/run/", digest=self.digest(), typed="beta")
        self.assertIn("Type alpha to confirm. Nothing was deleted.", wrong)
        self.assertEqual(self.runs(), 0)
        page = text_of(self.post("governance/retentionrun/run/", digest=self.digest(), typed="alpha"))
        self.assertIn("Deleted 1 item in 2 events", page)
        self.assertIn("(text deleted)", page)
        with self.store("alpha"):
            self.assertEqual(Memory.objects.count(), 0)
        self.assertEqual(self.runs("beta"), 0)

    def test_another_plan_than_the_one_that_was_seen_is_shown_and_not_taken(self):
        digest = self.digest()
        self.old("Porridge")
        page = self.post("governance/retentionrun/run/", digest=digest, typed="alpha")
        self.assertIn("The retention plan has changed", page)
        self.assertIn("2 deleted observations", text_of(page))
        self.assertEqual(self.runs(), 0)

    def rules(self, *rules: dict[str, str], **simple: str) -> str:
        fields = {"rules-TOTAL_FORMS": str(len(rules)), "rules-INITIAL_FORMS": "0", "retention_days": "365"}
        fields |= {f"rules-{place}-{name}": value for place, rule in enumerate(rules) for name, value in rule.items()}
        return self.post("governance/retentionrun/policy/", **{**fields, "purge_deleted_after_days": "90", **simple})

    def test_rules_are_saved_in_the_order_of_their_places(self):
        self.rules(
            {"what": "deleted", "kind": "tool", "after_days": "never", "ORDER": "2"},
            {"what": "captured", "event_type": "message.user", "after_days": "30", "ORDER": "1"},
            {"what": "", "after_days": "7"},
            purge_deleted_after_days="never",
        )
        with self.store("alpha"):
            settings = project_settings()
        self.assertEqual(
            [rule.sentence() for rule in settings.retention],
            ["captured (event_type message.user) after 30 days", "deleted (kind tool) never"],
        )
        self.assertIsNone(settings.purge_deleted_after_days)
        self.assertIn(
            "Prompts are deleted after 30 days rule 1 Deleted tools are kept rule 2",
            text_of(self.page("governance/retentionrun/")),
        )

    def test_a_rule_that_cannot_be_is_refused_with_one_sentence(self):
        page = self.rules({"what": "captured", "kind": "tool", "after_days": "30"})
        self.assertIn("Kind does not apply to captured", page)
        self.assertIn("Setting 'retention_days' must be a whole number", self.rules(retention_days="soon"))
        with self.store("alpha"):
            self.assertEqual(project_settings().retention, [])

    def test_a_hold_is_placed_by_a_number_and_told_on_the_page_of_the_thing(self):
        with self.store("alpha"):
            held = Memory.objects.get().id
        page = text_of(self.post("governance/hold/place/", stream_id=f"#{held}", reason="a lawsuit"))
        self.assertIn(f"Memory Marmalade (#{held}) a lawsuit", page)
        self.assertIn("Held a lawsuit Exempt from deletion", text_of(self.page(f"memories/memory/{held}/change/")))
        self.assertNotIn("a lawsuit", self.page("governance/hold/", project="beta"))

    def test_a_hold_is_placed_from_the_things_own_page_and_lifted(self):
        self.assertIn(f"?stream=memory:{self.gone}", self.page(f"memories/memory/{self.gone}/change/"))
        self.assertIn(f'value="memory:{self.gone}"', self.page("governance/hold/", stream=f"memory:{self.gone}"))
        page = self.post("governance/hold/place/", stream_id=f"memory:{self.gone}", reason="a lawsuit")
        self.assertIn(f"Retention skips memory:{self.gone}", page)
        with self.store("alpha"):
            hold = Hold.objects.get()
        self.assertIn(f"Hold #{hold.id}: a lawsuit", text_of(self.page("governance/retentionrun/")))
        self.assertIn("Lifted hold #", self.post(f"governance/hold/{hold.id}/lift/", reason="settled"))

    def test_a_hold_on_nothing_is_refused(self):
        page = self.post("governance/hold/place/", stream_id="memory:999", reason="mine")
        self.assertIn("No stream 'memory:999' in this store", page)


class CommandTests(OldStoreTestCase):
    def command(self, *arguments: str) -> str:
        out = io.StringIO()
        call_command("retention", *arguments, "--project", "alpha", stdout=out)
        return out.getvalue()

    def test_plan_and_run_say_the_same(self):
        self.assertRegex(self.command("plan"), r"delete +1 deleted memory \(observation\)")
        self.assertRegex(self.command("run", "--yes"), r"deleted +1 deleted memory \(observation\)")
        self.assertIn("deleted 2 events", self.command("runs"))
        self.assertIn("nothing to delete", self.command("run", "--yes"))

    def test_it_asks_for_the_projects_name(self):
        with mock.patch("sys.stdin", io.StringIO("yes\n")), self.assertRaisesRegex(CommandError, "alpha was not typed"):
            self.command("run")
        self.assertEqual(self.runs(), 0)
        with mock.patch("sys.stdin", io.StringIO("alpha\n")):
            self.command("run")
        self.assertEqual(self.runs(), 1)

    def test_a_job_whose_time_is_up_leaves_the_rest_to_the_next(self):
        with self.store("alpha"):
            late = Run(store=project_store("alpha"), seconds=-1, seen_at=clock.now)
            self.assertIn("processed 1 of 1 items; the next run continues", retain(late))
            self.assertIsNone(RetentionRun.objects.get().ran_at)
            self.assertIn("deleted 1 item in 2 events", retain(Run(seconds=60, seen_at=clock.now)))

    def test_holds_are_placed_listed_and_lifted(self):
        placed = self.command("hold", f"memory:{self.gone}", "--reason", "a lawsuit")
        number = placed.split()[0].lstrip("#")
        self.assertIn("a lawsuit", self.command("holds"))
        self.assertIn("was lifted", self.command("lift", number))
        self.assertEqual(self.command("holds"), "no holds in force\n")
        self.assertEqual(self.command("runs"), "no runs yet\n")

    def test_the_job_takes_what_is_due_and_asks_nobody(self):
        target = Target(project_store("alpha"))
        with clock.frozen(clock.now() - timedelta(days=1)):
            run_job(job=find_job("retention"), targets=[target], asked_by="a test")
        self.assertEqual(self.runs(), 0)
        (outcome,) = run_job(job=find_job("retention"), targets=[target], asked_by="a test")
        self.assertIn("deleted 1 item in 2 events", outcome.message)
        (again,) = run_job(job=find_job("retention"), targets=[target], asked_by="a test")
        self.assertEqual(again.message, "")

    def test_a_job_that_runs_every_hour_deletes_at_its_second_run_too(self):
        install_schedules()
        change_plan(command=JobPlan(job="retention", every="hour"))
        target, now = Target(project_store("alpha")), clock.now()
        for minutes, runs in ((0, 0), (10, 0), (70, 1)):
            with clock.frozen(now + timedelta(minutes=minutes)):
                run_job(job=find_job("retention"), targets=[target], asked_by="a test")
            self.assertEqual(self.runs(), runs)


class RestTests(RestTestCase):
    def test_the_plan_is_run_by_its_digest_and_reported(self):
        with clock.frozen(clock.now() - timedelta(days=200)):
            memory = self.write()
            self.call("DELETE", f"projects/alpha/memories/{memory}")
        plan = self.call("GET", "projects/alpha/retention").data
        self.assertEqual([(share["what"], share["things"]) for share in plan["going"]], [("deleted", 1)])
        self.assertEqual(self.call("GET", "projects/beta/retention").data["going"], [])
        refused = self.call("POST", "projects/alpha/retention/run", {"digest": "0" * 64}, expect=412).data
        self.assertEqual(refused["plan"]["digest"], plan["digest"])
        ran = self.call("POST", "projects/alpha/retention/run", {"digest": plan["digest"]}).data
        self.assertEqual((ran["report"]["things"], ran["events"]), (1, 2))
        self.assertEqual(self.call("GET", f"projects/alpha/retention/runs/{ran['id']}").data, ran)
        self.assertEqual(self.call("GET", "projects/alpha/retention/runs").data["results"], [ran])
        nothing = self.call("GET", "projects/alpha/retention").data["digest"]
        self.call("POST", "projects/alpha/retention/run", {"digest": nothing}, expect=204)

    def test_a_hold_is_placed_once_listed_and_lifted(self):
        body = {"stream_id": f"memory:{self.write()}", "reason": "a lawsuit"}
        placed = self.call("POST", "projects/alpha/holds", body, expect=201, Idempotency_Key="h")
        self.assertEqual(placed["Location"], f"/api/v1/projects/alpha/holds/{placed.data['id']}")
        again = self.call("POST", "projects/alpha/holds", body, expect=201, Idempotency_Key="h")
        self.assertEqual(again.data, placed.data)
        self.assertEqual(self.call("GET", "projects/alpha/holds").data["results"], [placed.data])
        lifted = self.call("DELETE", f"projects/alpha/holds/{placed.data['id']}?reason=settled").data
        self.assertEqual(lifted["lift_reason"], "settled")
        self.call("DELETE", f"projects/alpha/holds/{placed.data['id']}", expect=409)
        self.call("DELETE", "projects/alpha/holds/999", expect=404)
        self.call("POST", "projects/beta/holds", body, expect=404)


class RuleTests(SimpleTestCase):
    def test_rules_know_every_kind_and_scope_of_memories(self):
        for name, known in (("kind", MemoryKind), ("scope", MemoryScope)):
            for value in known.values:
                RetentionRule.model_validate({"what": "memory", name: value, "after_days": 1})
            with self.assertRaises(ValidationError):
                RetentionRule.model_validate({"what": "memory", name: "other", "after_days": 1})
