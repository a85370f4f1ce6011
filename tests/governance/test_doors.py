"""Governance by its doors: pages, commands, routes, tools and jobs do the same, and each says what it did."""

from __future__ import annotations

import io
import re
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from django.core.management import CommandError, call_command
from pydantic import ValidationError

from decisions.models import Decision
from governance.admin.staleness import patch
from governance.jobs import retain
from governance.models import Affirmation, Hold, RetentionRun
from governance.retention.schemas import RetentionPlanRequest
from governance.retention.selectors import plan_retention
from governance.tools import TOOLS
from memories.models import Memory, MemoryKind, MemoryScope
from memories.pack import preview_pack
from memories.schemas import MemoryDelete
from memories.schemas.query import ContextPackRequest
from memories.services import delete_memory
from memoryhub.config.current_settings import project_settings
from memoryhub.config.retention_rules import RetentionRule
from memoryhub.core import clock
from memoryhub.core.jobs import Run, find_job
from memoryhub.core.models import RawEvent
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store
from memoryhub.ops.jobs import install_schedules, run_job
from memoryhub.ops.jobs.running import JobTarget
from memoryhub.ops.jobs.schedules import JobPlan, change_plan
from memoryhub.registry.people import PersonAdd, add_person
from sessions_app.schemas import TurnBegin
from sessions_app.services.turns import begin_turn, expire_turns
from tests.admin.base import AdminTestCase, text_of
from tests.api.client import RestTestCase
from tests.governance.staleness import StalenessTestCase
from tests.mcp.case import McpTestCase

ALPHA = project_store("alpha")
ROLLBACK, RETENTION, HOLDS, STALE = (
    f"governance/{name}/" for name in ("rollback", "retentionrun", "hold", "affirmation")
)


class DoorsTestCase(AdminTestCase, RestTestCase):  # type: ignore[misc]
    """Pages, routes and commands of alpha, as its owner."""

    def command(self, *words: str, stdin: str = "") -> str:
        out = io.StringIO()
        with mock.patch("sys.stdin", io.StringIO(stdin)):
            call_command(*words, "--project", "alpha", stdout=out)
        return out.getvalue()

    def ask(self, method: str, path: str, body: Any = None, *, project: str = "alpha", **options: Any) -> Any:
        """Return what a route of the project answers."""
        return self.call(method, f"projects/{project}/{path}", body, **options).data


class RollbackTests(DoorsTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.clean = self.write("Ports stay closed", "All of them.", session="s-good")
        self.bad = self.write("Ports are <open>", session="s-bad")

    def look(self, **fields: Any) -> str:
        return self.page(ROLLBACK, **{"session_id": "s-bad", **fields})

    def test_the_page_shows_what_a_session_did_and_does_just_that(self) -> None:
        html = self.look()
        self.assert_shows(html, "Ports are <open>", "Quarantine 1 item", lacks=["Ports stay closed"])
        self.write("One more", "Of these.", session="s-bad")
        changed = self.run_page(html)
        self.assert_shows(text_of(changed), "The log has changed since the preview", "Quarantine 2 items")
        self.assert_shows(text_of(self.run_page(changed)), "2 quarantined. You can undo it below.")
        self.assertEqual([self.clean], self.memories())

    def test_an_event_that_no_group_has_leads_to_the_event(self) -> None:
        with self.store(), use_origin(source="mcp", actor="codex", session_id="s-bad"):
            begin_turn(command=TurnBegin(session_id="s-bad"))
        with clock.frozen(clock.now() + timedelta(days=1)), self.store():
            self.assertEqual(expire_turns(), 1)
            expired = RawEvent.objects.get(event_type="turn.expired").position
        html = self.look()
        self.assert_shows(html, f"core/rawevent/{expired}/change/", lacks=[f"turn/{expired}/"])

    def run_page(self, preview: str) -> str:
        token = preview.partition('name="confirm_token" value="')[2][:16]
        return self.post(f"{ROLLBACK}run/", session_id="s-bad", confirm_token=token, reason="It was fed lies.")

    def test_the_page_leaves_an_item_and_refuses_in_one_sentence(self) -> None:
        html = self.look(leave=str(self.write("Another", "One.", session="s-bad")))
        self.assert_shows(html, "Quarantine 1 item", "excluded by the request")
        self.assertIn("a position such as 412, or a time", self.look(since="yesterday"))
        self.assertIn("is not downstream of the selection", self.look(also="999"))

    def test_the_command_previews_then_does_then_undoes(self) -> None:
        selection = ("rollback", "--session", "s-bad", "--action", "undo")
        preview = self.command(*selection)
        self.assert_shows(preview, f"#{self.bad} memory Ports are <open>", "would delete 1", "nothing was changed")
        done = self.command(*selection, "--yes", "--reason", "lies")
        self.assertIsNotNone(self.memory(self.bad).deleted_at)
        number = done.rpartition("--undo ")[2].strip()
        undone = self.command("rollback", "--undo", number)
        self.assertEqual(undone, f"roll-back #{number} undone: delete 1; 0 unchanged\n")
        self.assertIsNone(self.memory(self.bad).deleted_at)
        for words, sentence in ((("--undo", number), "already undone by"), ((), "at least one of")):
            with self.subTest(words=words), self.assertRaisesMessage(CommandError, sentence):
                self.command("rollback", *words)

    def test_routes_need_the_token_of_the_preview_and_undo(self) -> None:
        selection = {"session_id": "s-bad", "action": "quarantine"}
        preview = self.ask("POST", "rollbacks/preview", selection)
        self.assertEqual({"quarantine": 1}, preview["counts"])
        self.assertEqual([self.bad], [item["id"] for item in preview["trace"]["direct"][0]["shown"]])
        refused = self.ask("POST", "rollbacks", selection, expect=409)
        token = preview["confirm_token"]
        self.assertEqual(("confirmation_required", token), (refused["code"], refused["confirm_token"]))
        rollback = {**selection, "confirm_token": token, "reason": "lies"}
        rollback_id = self.ask("POST", "rollbacks", rollback, expect=201)["id"]
        self.assertIn(f"in quarantine since #{rollback_id + 1}", self.ask("GET", f"memories/{self.bad}")["quarantine"])
        self.assertEqual([], self.ask("GET", "rollbacks", project="beta")["results"])
        self.assertEqual([], self.ask("POST", f"rollbacks/{rollback_id}/undo", {"reason": "no"})["undone_left"])
        (listed,) = self.ask("GET", "rollbacks")["results"]
        self.assertEqual((rollback_id, "lies"), (listed["id"], listed["reason"]))
        self.ask("POST", f"rollbacks/{rollback_id}/undo", {}, expect=409)
        self.ask("POST", "rollbacks/preview", {}, expect=422)


class RetentionTestCase(DoorsTestCase):
    """Each project has a memory that was deleted long ago."""

    def setUp(self) -> None:
        super().setUp()
        self.gone = self.old("Marmalade")
        self.old("Of beta", project="beta")

    def old(self, title: str, project: str = "alpha") -> int:
        with clock.frozen(clock.now() - timedelta(days=200)):
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


class RetentionPageTests(RetentionTestCase):
    def run_page(self, **fields: str) -> str:
        return text_of(self.post(f"{RETENTION}run/", **{"digest": self.digest(), "typed": "alpha", **fields}))

    def test_the_plan_that_was_seen_of_this_project_alone_is_run_once_its_name_is_typed(self):
        plan = text_of(self.page(RETENTION))
        self.assert_shows(plan, "1 deleted memory", "Marmalade", lacks=["Of beta"])
        digest = self.digest()
        self.old("Porridge")
        self.assert_shows(self.run_page(digest=digest), "The retention plan has changed", "2 deleted memories")
        self.assertIn("Type alpha to confirm. Nothing was deleted.", self.run_page(typed="beta"))
        self.assertEqual(self.runs(), 0)
        self.assert_shows(self.run_page(), "Deleted 2 items in 4 events", "(text deleted)")
        with self.store("alpha"):
            self.assertEqual(Memory.objects.count(), 0)
        self.assertEqual(self.runs("beta"), 0)

    def rules(self, *rules: dict[str, str], **simple: str) -> str:
        fields = {"rules-TOTAL_FORMS": str(len(rules)), "rules-INITIAL_FORMS": "0", "retention_days": "365"}
        fields |= {f"rules-{place}-{name}": value for place, rule in enumerate(rules) for name, value in rule.items()}
        return self.post(f"{RETENTION}policy/", **{**fields, "purge_deleted_after_days": "90", **simple})

    def test_rules_are_saved_in_the_order_of_their_places(self):
        self.rules(
            {"what": "deleted", "kind": "tool", "after_days": "never", "ORDER": "2"},
            {"what": "captured", "event_type": "message.user", "after_days": "30", "ORDER": "1"},
            {"what": "", "after_days": "7"},
            purge_deleted_after_days="never",
        )
        with self.store("alpha"):
            settings = project_settings()
        sentences = ["captured (event_type message.user) after 30 days", "deleted (kind tool) never"]
        self.assertEqual([rule.sentence() for rule in settings.retention], sentences)
        self.assertIsNone(settings.purge_deleted_after_days)
        rules = "Prompts are deleted after 30 days rule 1 Deleted tools are kept rule 2"
        self.assertIn(rules, text_of(self.page(RETENTION)))

    def test_a_rule_that_cannot_be_is_refused_with_one_sentence(self):
        page = self.rules({"what": "captured", "kind": "tool", "after_days": "30"})
        self.assertIn("Kind does not apply to captured", page)
        self.assertIn("Setting 'retention_days' must be a whole number", self.rules(retention_days="soon"))
        with self.store("alpha"):
            self.assertEqual(project_settings().retention, [])

    def test_a_hold_is_placed_by_number_or_from_the_items_page_and_lifted(self):
        item, stream = f"memories/memory/{self.gone}/change/", f"memory:{self.gone}"
        self.assertIn("No stream 'memory:999' in this store", self.hold("memory:999"))
        self.assertIn(f"?stream={stream}", self.page(item))
        self.assertIn(f'value="{stream}"', self.page(HOLDS, stream=stream))
        page = text_of(self.hold(f"#{self.gone}"))
        self.assert_shows(page, f"Retention skips {stream}", f"Memory Marmalade (#{self.gone}) a lawsuit")
        self.assertIn("Held a lawsuit Exempt from deletion", text_of(self.page(item)))
        self.assertNotIn("a lawsuit", self.page(HOLDS, project="beta"))
        with self.store("alpha"):
            hold = Hold.objects.get().id
        self.assertIn(f"Hold #{hold}: a lawsuit", text_of(self.page(RETENTION)))
        self.assertIn("Lifted hold #", self.post(f"{HOLDS}{hold}/lift/", reason="settled"))
        self.assertIn(f"Retention skips {stream}", self.hold(stream))

    def hold(self, stream: str) -> str:
        return self.post(f"{HOLDS}place/", stream_id=stream, reason="a lawsuit")


class RetentionOtherDoorsTests(RetentionTestCase):
    def test_the_command_asks_for_the_projects_name_and_prints_what_it_did(self):
        line = r"1 deleted memory \(observation\)"
        self.assertRegex(self.command("retention", "plan"), rf"delete +{line}")
        with self.assertRaisesRegex(CommandError, "alpha was not typed"):
            self.command("retention", "run", stdin="yes\n")
        self.assertEqual((self.runs(), self.command("retention", "runs")), (0, "no runs yet\n"))
        self.assertRegex(self.command("retention", "run", stdin="alpha\n"), rf"deleted +{line}")
        self.assertEqual(self.runs(), 1)
        self.old("Porridge")
        self.assertRegex(self.command("retention", "run", "--yes"), rf"deleted +{line}")
        self.assertIn("deleted 2 events", self.command("retention", "runs"))
        self.assertIn("nothing to delete", self.command("retention", "run", "--yes"))

    def test_the_command_places_lists_and_lifts_holds(self):
        hold = self.command("retention", "hold", f"memory:{self.gone}", "--reason", "a lawsuit")
        self.assertIn("a lawsuit", self.command("retention", "holds"))
        self.assertIn("was lifted", self.command("retention", "lift", hold.split()[0].lstrip("#")))
        self.assertEqual(self.command("retention", "holds"), "no holds in force\n")

    def test_a_job_whose_time_is_up_leaves_what_remains_to_the_next(self):
        with self.store("alpha"):
            late = Run(store=ALPHA, seconds=-1, seen_at=clock.now)
            self.assertIn("processed 1 of 1 items; the next run continues", retain(late))
            self.assertIsNone(RetentionRun.objects.get().ran_at)
            self.assertIn("deleted 1 item in 2 events", retain(Run(seconds=60, seen_at=clock.now)))

    def retain_at(self, now: datetime, **later: float) -> str:
        with clock.frozen(now + timedelta(**later)):
            (outcome,) = run_job(job=find_job("retention"), targets=[JobTarget(ALPHA)], asked_by="a test")
        return str(outcome.message)

    def test_the_job_deletes_at_its_second_run_and_asks_nobody(self):
        now = clock.now()
        self.retain_at(now, days=-1)
        self.assertEqual(self.runs(), 0)
        self.assertIn("deleted 1 item in 2 events", self.retain_at(now))
        self.assertEqual(self.retain_at(now), "")

    def test_a_job_that_runs_every_hour_deletes_at_its_second_run_too(self):
        install_schedules()
        change_plan(command=JobPlan(job="retention", every="hour"))
        now = clock.now()
        for minutes, runs in ((0, 0), (10, 0), (70, 1)):
            self.retain_at(now, minutes=minutes)
            self.assertEqual(self.runs(), runs)

    def test_routes_run_the_plan_by_its_digest_and_report_it(self):
        plan = self.ask("GET", "retention")
        self.assertEqual([(share["what"], share["things"]) for share in plan["going"]], [("deleted", 1)])
        refused = self.ask("POST", "retention/run", {"digest": "0" * 64}, expect=412)
        self.assertEqual(refused["plan"]["digest"], plan["digest"])
        report = self.ask("POST", "retention/run", {"digest": plan["digest"]})
        self.assertEqual((report["report"]["things"], report["events"]), (1, 2))
        self.assertEqual(self.ask("GET", f"retention/runs/{report['id']}"), report)
        for project, reports in (("alpha", [report]), ("beta", [])):
            self.assertEqual(self.ask("GET", "retention/runs", project=project)["results"], reports)
        self.ask("POST", "retention/run", {"digest": self.digest()}, expect=204)

    def test_routes_place_a_hold_once_list_and_lift_it(self):
        body = {"stream_id": f"memory:{self.write('Held')}", "reason": "a lawsuit"}
        hold = self.call("POST", "projects/alpha/holds", body, expect=201, Idempotency_Key="h")
        path = f"holds/{hold.data['id']}"
        self.assertEqual(hold["Location"], f"/api/v1/projects/alpha/{path}")
        self.assertEqual(self.ask("POST", "holds", body, expect=201, Idempotency_Key="h"), hold.data)
        self.assertEqual(self.ask("GET", "holds")["results"], [hold.data])
        self.assertEqual(self.ask("DELETE", f"{path}?reason=settled")["lift_reason"], "settled")
        self.ask("DELETE", path, expect=409)
        self.ask("DELETE", "holds/999", expect=404)
        self.ask("POST", "holds", body, project="beta", expect=404)

    def test_rules_know_every_kind_and_scope_of_memories(self):
        for name, choices in (("kind", MemoryKind), ("scope", MemoryScope)):
            for value in choices.values:
                RetentionRule.model_validate({"what": "memory", name: value, "after_days": 1})
            with self.assertRaises(ValidationError):
                RetentionRule.model_validate({"what": "memory", name: "other", "after_days": 1})


class StaleMcpTests(McpTestCase):
    def test_an_agent_reads_it_in_its_pack_lists_and_affirms(self) -> None:
        server = self.connect("--project", "alpha", "--profile", "work")
        say = server.say
        tools = {tool["name"]: tool for tool in server.ask("tools/list")["result"]["tools"]}
        self.assertTrue(tools["memory_stale"]["annotations"]["readOnlyHint"])
        self.assertNotIn("readOnlyHint", tools["memory_affirm"]["annotations"])
        recorded = say("decision_record", title="Sign tokens", chosen="HMAC", files=["src/auth/"])
        decision = int(re.findall(r"#(\d+)", recorded)[0])
        self.assertEqual(say("memory_stale"), "nothing needs rechecking")
        files = [{"path": "src/auth/token.py", "insertions": 3, "deletions": 1}]
        say("commit_record", sha="a" * 40, message="Shorten", committed_at="2040-01-01T00:00:00Z", files=files)
        commit = "commit aaaaaaaaaa “Shorten” touched src/auth/token.py"
        line = f"#{decision} decision Sign tokens — since 2040-01-01: {commit}"
        self.assertIn(line, say("memory_context"))
        self.assertEqual(say("memory_stale", kind="decision"), f"{line}\n(1 of 1)")
        self.assertIn(f"{commit} +3 −1", say("memory_stale", diff=True), "no repository is at hand")
        answer = say("memory_affirm", id=decision, reason="shorter is safer")
        self.assertEqual(answer, f"#{decision} decision affirmed: Sign tokens")
        self.assertEqual(say("memory_stale"), "nothing needs rechecking")


class StaleListTests(StalenessTestCase):
    def test_a_tools_list_stays_within_its_budget(self):
        for number in range(30):
            self.guide(f"Guide {number}", "src/")
        self.commit_now("Touch", "src/a.py")
        (tool,) = [tool for tool in TOOLS if tool.name == "memory_stale"]
        answer = tool.handler(tool.input(max_tokens=200))
        self.assertTrue(answer.data["meta"]["truncated"])
        self.assertIn("of 30; more: cursor=", answer.text)

    def pack(self) -> str:
        return preview_pack(command=ContextPackRequest()).body.text

    def test_a_pack_names_what_is_stale_and_why_but_not_what_has_merely_expired(self):
        decision = self.record("Sign tokens", files=["src/auth.py"]).id
        self.write("Port", kind="knowledge", attributes={"valid_until": "2026-11-20T12:30:00Z"})
        self.pass_time(days=1)
        self.assertEqual(len(self.due()), 1)
        self.assert_pack_lacks("Needs recheck", "Port")
        self.commit_now("Shorten tokens", "src/auth.py")
        line = rf"Needs recheck: memory_affirm .*:\n- #{decision} decision Sign tokens — .*touched src/auth.py"
        self.assertRegex(self.pack(), line)
        self.affirm(decision)
        self.assert_pack_lacks("Needs recheck", "Port")

    def assert_pack_lacks(self, *texts: str) -> None:
        self.assertEqual([text for text in texts if text in self.pack()], [])


class StaleTests(DoorsTestCase):
    """A guideline and a decision whose files a commit changed, and a fact that has expired."""

    def setUp(self) -> None:
        super().setUp()
        self.guideline = self.guide("Validate <at> the edge")
        ends = {"valid_until": clock.to_text(clock.now() - timedelta(days=3))}
        self.fact = self.write("The port is 8321", kind="knowledge", attributes=ends)
        self.write("Beta's own", project="beta", kind="knowledge", attributes=ends)
        choice = {"title": "Sign tokens", "chosen": "HMAC", "files": ["src/auth.py"], "impact": "high"}
        self.decision = self.ask("POST", "decisions", choice, expect=201)["id"]
        self.files = [{"path": "src/auth.py", "insertions": 3, "deletions": 1}]
        self.commit("a", "Shorten <tokens>")

    def guide(self, title: str) -> int:
        links = [{"uri": "src/", "type": "governs"}]
        return self.write(title, f"About {title}.", resource_links=links, kind="guideline")

    def commit(self, letter: str, message: str) -> None:
        commit = {"sha": letter * 40, "message": message, "author": "Bo", "files": self.files}
        self.ask("POST", "commits", [{**commit, "committed_at": clock.to_text(clock.now())}])

    def test_routes_list_why_and_affirm_once_in_this_project_alone(self):
        (item,) = self.ask("GET", "stale?kind=decision&diff=true")["results"]
        self.assertEqual((item["id"], item["commits"][0]["files"]), (self.decision, self.files))
        listed = self.ask("GET", "stale", project="beta")["results"]
        self.assertEqual([item["title"] for item in listed], ["Beta's own"])
        path = f"stale/{self.decision}/affirm"
        self.ask("POST", path, {"reason": "holds"}, project="beta", expect=404)
        answers = [self.ask("POST", path, {"reason": "holds"}, Idempotency_Key="k") for _ in range(2)]
        titles = [(item["title"], item["is_new"]) for item in answers]
        self.assertEqual(titles, [("Sign tokens", True), ("Sign tokens", False)])
        self.ask("POST", f"decisions/{self.decision}/status", {"status": "deprecated"})
        self.ask("POST", path, {}, expect=409)
        self.ask("GET", "stale?kind=guidelines", expect=422)

    def send(self, item: int, name: str = "affirm", **fields: str) -> str:
        return text_of(self.post(f"{STALE}{item}/{name}/", **fields))

    def test_one_item_is_shown_at_a_time_with_why_and_what_changed(self):
        first = text_of(self.page(STALE))
        self.assertRegex(first, r"Inbox 3 pending .*1 of 3 .*The port is 8321 .*It was valid until")
        raw = self.client.get(self.address(f"{STALE}{self.decision}/")).content.decode()
        self.assertIn("Shorten &lt;tokens&gt;", raw)
        page = text_of(self.page(f"{STALE}{self.decision}/"))
        self.assertRegex(page, r"Sign tokens Decision High impact .* A commit changed a file that it governs .* HMAC")
        self.assertRegex(page, r"Shorten aaaaaaaaaa Bo .* src/auth.py \+3 −1")
        self.assertIn("No diff", page)
        self.assertNotIn("Beta's own", first + page)
        item = self.page(f"decisions/decision/{self.decision}/change/")
        self.assertIn("Needs recheck A commit changed a file that it governs.", text_of(item))
        self.assertIn(f"{STALE}{self.decision}/", item)
        self.assert_shows(text_of(self.page()), "Inbox 3 pending", "3 items need rechecking")

    def test_affirming_leads_to_the_next_and_the_last_leaves_nothing(self):
        self.assert_shows(self.send(self.fact), f"Confirmed #{self.fact} “The port is 8321”.", "1 of 2")
        self.assertIsNone(self.memory(self.fact).valid_until)
        self.send(self.guideline, reason="read it")
        self.assertIn("Nothing to recheck", self.send(self.decision))
        with self.store("alpha"):
            self.assertEqual(Affirmation.objects.get(entity_id=self.guideline).reason, "read it")
        self.assertEqual(self.client.get(self.address(f"{STALE}999/")).status_code, 302)
        self.assertEqual(self.client.get(self.address(f"{STALE}{self.fact}/affirm/")).status_code, 405)

    def test_an_end_that_is_no_time_is_refused_and_a_later_one_is_kept(self):
        self.assertIn("Enter a time such as", self.send(self.fact, valid_until="soon"))
        self.send(self.fact, valid_until="2099-12-31")
        self.assertEqual(str(self.memory(self.fact).valid_until)[:10], "2099-12-31")

    def test_retiring_deletes_a_memory_and_deprecates_a_decision(self):
        self.assertIn(f"Deleted #{self.guideline}", self.send(self.guideline, "retire", reason="gone"))
        self.assertIn(f"Deprecated #{self.decision}", self.send(self.decision, "retire"))
        with self.store("alpha"):
            self.assertEqual(Decision.objects.get(id=self.decision).status, "deprecated")
        self.assertIsNotNone(self.memory(self.guideline).deleted_at)
        self.assertIn("is not stale", self.send(self.decision, "retire"))

    def test_a_viewer_is_shown_no_form(self):
        self.client.force_login(add_person(command=PersonAdd(name="vic", role="viewer")))
        page = self.page(f"{STALE}{self.fact}/")
        self.assert_shows(page, "The port is 8321", lacks=["Still valid <kbd>"])

    def test_the_number_of_queries_does_not_grow_with_the_queue(self):
        before = self.queries_of(f"{STALE}{self.guideline}/")
        for number in range(12):
            self.guide(f"Guide {number}")
        self.commit("b", "Again")
        self.assertIn("of 15", text_of(self.page(f"{STALE}{self.decision}/")))
        self.assertLessEqual(self.queries_of(f"{STALE}{self.guideline}/"), before)

    def test_each_file_of_a_patch_has_a_part_and_each_line_shows_what_became_of_it(self):
        html = patch(
            "diff --git a/src/a b.py b/src/a b.py\nindex 1..2 100644\n--- a/src/a b.py\n+++ b/src/a b.py\n"
            "@@ -1,2 +1,2 @@ def <f>\n same\n-- gone\n+<script>\n\\ No newline at end of file\n"
            "diff --git a/new.py b/new.py\nnew file mode 100644\nBinary files /dev/null and b/new.py differ\n"
            "… 3 more lines"
        )
        parts = (
            '<h4 class="patch-file">src/a b.py</h4>',
            '<span class="line-removed">-- gone\n</span>',
            '<span class="line-added">+&lt;script&gt;\n</span>',
            "new file mode",
            "3 more lines",
        )
        self.assert_shows(html, *parts, lacks=["index 1", "+++"])
        self.assertEqual((html.count("<h4"), patch("")), (2, ""))
