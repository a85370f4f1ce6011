"""What a kind, a tool, a setting and a client get by being declared, in the process of ``test_declarations``."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db import connection
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import AlterField, CreateModel
from django.db.migrations.state import ProjectState

from memories.pack import pack_context
from memories.schemas.query import ContextPackRequest
from memoryhub.config.clients import find_client, hook_clients
from memoryhub.config.current_settings import allowed_in_folders, check_folder, project_settings
from memoryhub.core.errors import Invalid
from memoryhub.core.models import RawEvent
from memoryhub.core.tools import find_tool
from memoryhub.mcp.listing import load_tools
from memoryhub.rest.api import api
from sessions_app.hook_parser import parse_hook
from sessions_app.models import Session, SessionStatus
from sessions_app.schemas import SettingsChange
from sessions_app.services.capture import capture
from sessions_app.services.profile import change_settings
from sessions_app.spooled import hook_names
from tests.admin.base import AdminTestCase, text_of
from tests.api.client import RestTestCase
from tests.governance.retaining import RetentionTestCase
from tests.governance.rollback_case import RollbackTestCase
from tests.governance.staleness import StalenessTestCase
from tests.mcp.case import McpTestCase
from tests.mcp.test_forged_lines import EveryToolTests
from tests.support import HubTestCase
from tests.test_docs import client_row, folder_rows, recorded_as, setting_row, tool_row

__all__ = ["EveryToolTests"]

RUNBOOKS = "memories/runbook/"
RUNBOOK: dict[str, Any] = {
    "kind": "runbook",
    "type": "restore",
    "attributes": {
        "severity": "high",
        "rehearsed": True,
        "minutes": 45,
        "warnings": "mind the zebra crossing",
        "files": ["backup/restore.sh"],
    },
}


class McpTests(McpTestCase):
    def test_tools_describe_take_and_find_it(self) -> None:
        server = self.share_server("--project", "alpha", "--profile", "full")
        say = server.say
        tools = {tool["name"]: tool for tool in server.ask("tools/list")["result"]["tools"]}
        arguments = tools["write_memory"]["inputSchema"]["properties"]
        self.assertIn("runbook", arguments["kind"]["enum"])
        self.assertIn("restore, deploy", arguments["type"]["description"])
        self.assertIn(
            "runbook: severity, rehearsed, minutes 0-240, warnings, files", arguments["attributes"]["description"]
        )
        for name in ("memory_list", "memory_search", "memory_stale"):
            self.assertIn("runbook", str(tools[name]["inputSchema"]), name)
        written = say("memory_write", title="Restore", content="restore --latest", **RUNBOOK)
        self.assertRegex(written, r"^created #\d+ Restore")
        made = int(written.split()[1].removeprefix("#"))
        added = say("runbook_add", name="Deploy", steps="make deploy", category="deploy", severity="low")
        self.assertRegex(added, "^created #")
        say("memory_write", title="Deploy on Fridays", content="Never deploy on Fridays.")
        self.assertIn("mind the zebra", say("runbook_get", name="Restore"))
        self.assertRegex(say("runbook_list"), r"runbook/deploy .* Deploy.*\n.*runbook/restore .* Restore")
        self.assertNotIn("Deploy", say("runbook_list", category="restore"))
        self.assertIn("runbook/restore", say("memory_list", kind="runbook", type="restore"))
        self.assertIn("Restore", say("memory_search", query="zebra crossing", kind="runbook"))
        self.assertNotIn("Fridays", say("memory_search", query="deploy", kind="runbook"))
        self.assertIn("(2 of 2)", say("memory_query", types=["runbooks"]))
        self.assertIn("minutes", say("runbook_update", name="Restore", minutes=300))
        self.assertIn("of kind runbook", say("guideline_get", id=made))


class RestTests(RestTestCase):
    def test_routes_take_and_find_it_and_openapi_names_it(self) -> None:
        runbook = self.write("Restore", "restore --latest", tags=["ops"], **RUNBOOK)
        self.write("A note", "nothing about restoring")
        for query in ("memories?kind=runbook", "memories?kind=runbook&type=restore", "search?q=zebra&kind=runbook"):
            hits = self.call("GET", f"projects/alpha/{query}").data["results"]
            self.assertEqual([hit["id"] for hit in hits], [runbook], query)
        body = {**RUNBOOK, "title": "x", "content": "y", "type": "poem"}
        self.call("POST", "projects/alpha/memories", body, expect=422)
        self.call("GET", "projects/alpha/memories?kind=runbooks", expect=422)
        schemas = api.get_openapi_schema()["components"]["schemas"]
        for name in ("MemoryKind", "RelatedType", "EntryType"):
            self.assertIn("runbook", schemas[name]["enum"], name)
        # JSON that was read can be written to another project
        read = self.call("GET", f"projects/alpha/memories/{runbook}").data
        fields = {name: read[name] for name in ("kind", "type", "title", "content", "attributes", "tags")}
        copy = self.call("POST", "projects/beta/memories", fields, expect=201).data["id"]
        again = self.call("GET", f"projects/beta/memories/{copy}").data
        self.assertEqual({name: again[name] for name in fields}, fields)


class AdminTests(AdminTestCase):
    def test_pages_list_filter_and_order_it(self) -> None:
        high = self.write("Restore", "restore --latest", **RUNBOOK)
        low = self.write("Deploy", "make deploy", kind="runbook", type="deploy", attributes={"minutes": 5})
        self.write("A note")
        for query, ids in (
            ({}, [low, high]),
            ({"severity": "high"}, [high]),
            ({"severity": "low"}, [low]),
            ({"rehearsed": "yes"}, [high]),
            ({"rehearsed": "no"}, [low]),
            ({"type": "restore"}, [high]),
            ({"o": "-6"}, [high, low]),
        ):
            self.assertEqual(self.listed(RUNBOOKS, **query), ids, query)
        self.assertEqual(self.memories(kind="runbook"), [low, high])
        texts = ('aria-current="page">Runbooks</a>', "Write a runbook", "2 runbooks", 'class="gauge-number">45<', "Yes")
        self.assert_shows(self.page(RUNBOOKS), *texts)
        self.assertIn("No runbooks yet", self.page(RUNBOOKS, project="beta"))
        self.assertRegex(text_of(self.page()), r"Runbook 2\b")
        for path in ("memories/searchdocument/", "governance/retentionrun/"):
            self.assert_shows(self.page(path), '<option value="runbook">Runbook</option>', where=path)

    def test_a_person_writes_reads_and_edits_one(self) -> None:
        form = self.page(f"{RUNBOOKS}add/")
        labels = ("Steps", "One command a line, as you would type it.", "Someone has tried it.", "Incident", "Severity")
        self.assert_shows(form, *labels)
        fields: dict[str, Any] = {"title": "Restore", "content": "# not a heading", "type": "restore"}
        fields |= {"tags": "", "source": "", "links": "", "minutes": "45", "warnings": "zebra", "files": ["a.sh", ""]}
        typed = {**fields, "severity": "high", "rehearsed": "on"}
        self.assertIn("Created #1.", self.post(f"{RUNBOOKS}add/", **typed))
        attributes = {"minutes": 45, "warnings": "zebra", "files": ["a.sh"]}
        self.assertEqual(self.memory(1).attributes, {"severity": "high", "rehearsed": True, **attributes})
        page = self.page_of(1)
        code = '<pre class="json" tabindex="0"># not a heading</pre>'
        self.assert_shows(page, 'badge-runbook tone-amber">Runbook<', code)
        words = ("When it is needed", "Rehearsed Yes", "of 240", "Warnings zebra", "Files that it is about a.sh")
        self.assert_shows(text_of(page), *words)
        changed = {**fields, "severity": "low", "base_version": "1", "change_reason": ""}
        self.assertIn("Saved version 2.", self.act(1, "edit", **changed))
        self.assertEqual(self.memory(1).attributes, attributes)


class RetentionTests(RetentionTestCase):
    def test_rules_and_plans_name_it(self) -> None:
        self.memory("Restore", days=500, **RUNBOOK)
        self.memory("Deploy", days=500, deleted=200, kind="runbook")
        self.memory("A note", days=500)
        self.settings(retention=[{"what": "memory", "kind": "runbook", "after_days": 400}])
        self.assertEqual(self.going(), {"memory runbook": 1, "deleted runbook": 1})


class StalenessTests(StalenessTestCase):
    def test_a_commit_to_a_file_that_it_lists_makes_it_stale(self) -> None:
        runbook = self.write("Restore", **RUNBOOK)
        self.write("Deploy", kind="runbook", attributes={"files": ["deploy/"]})
        self.commit_now("Rewrite the restore", "backup/restore.sh")
        (found,) = self.stale(kind="runbook")
        self.assertEqual((found["id"], found["governs"]), (runbook, ["backup/restore.sh"]))
        self.assertEqual(self.due(kind="guideline"), [])

    def test_a_setting_makes_it_stale_by_age(self) -> None:
        runbook = self.write("Restore", kind="runbook", type="restore")
        change_settings(command=SettingsChange(settings={"review_after": {"runbook/restore": 90}}))
        self.pass_time(days=91)
        self.assertEqual(self.due(kind="runbook", why="age"), [runbook])


class RollbackTests(RollbackTestCase):
    def test_it_has_its_section_in_packs_until_it_is_rolled_back(self) -> None:
        runbook = self.write("Restore", rolled_back=True, **RUNBOOK)
        sections = pack_context(command=ContextPackRequest()).data()["sections"]
        (line,) = sections["runbooks"]["items"]
        self.assertRegex(line, r"#\d+ restore: Restore, it says\.$")
        self.assertNotIn("facts", sections)
        (step,) = self.preview().steps
        self.assertEqual((step.do, step.id), ("quarantine", runbook))
        self.roll_back()
        self.assertNotIn("Restore", pack_context(command=ContextPackRequest()).text)
        self.assert_rebuilds()


class MigrationTests(RestTestCase):
    def test_its_migration_touches_no_table(self) -> None:
        loader = MigrationLoader(None)
        before, after = loader.project_state(), ProjectState.from_apps(apps)
        changes = MigrationAutodetector(before, after).changes(graph=loader.graph)
        self.assertEqual(list(changes), ["memories"])
        (migration,) = changes["memories"]
        created: Any
        created, altered = migration.operations
        self.assertIsInstance(created, CreateModel)
        self.assertTrue(created.options["proxy"])
        self.assertIsInstance(altered, AlterField)
        fields = [state.apps.get_model("memories", "memory")._meta.get_field("kind") for state in (before, after)]
        editor: Any = connection.schema_editor()
        self.assertFalse(editor._field_should_be_altered(*fields))


class ToolTests(McpTestCase):
    tools_module = "tests.declarations.invented_tool"

    def test_it_is_listed_answers_and_has_a_row_in_the_documents(self) -> None:
        server = self.share_server("--project", "alpha", "--profile", "work")
        self.assertIn("memory_count", [tool["name"] for tool in server.ask("tools/list")["result"]["tools"]])
        server.say("memory_write", title="One", content="one")
        self.assertEqual(server.say("memory_count"), "memories: 1")
        load_tools()
        tool = find_tool("memory_count")
        assert tool
        self.assertEqual(tool_row(tool), "| `memory_count` | work |  | Count this project's memories. |")


class SettingTests(AdminTestCase):
    def test_each_has_a_field_in_its_group_and_is_set_and_read(self) -> None:
        _, _, html = self.page("settings/").partition(">Retention</h2>")
        retention = text_of(html.partition(">Secrets</h2>")[0])
        self.assertIn("Keep drafts Drafts are kept. Yes No Default", retention)
        self.assertIn("Draft days Days after which a draft is deleted.", retention)
        with self.store("alpha"):
            change_settings(command=SettingsChange(settings={"keep_drafts": False, "draft_days": 3}))
            settings = project_settings().model_dump()
            self.assertEqual((settings["keep_drafts"], settings["draft_days"]), (False, 3))
            with self.assertRaisesRegex(Invalid, "'draft_days' must be at most 365"):
                change_settings(command=SettingsChange(settings={"draft_days": 366}))

    def test_a_folders_file_may_set_what_they_allow_and_the_documents_get_their_rows(self) -> None:
        self.assertEqual(check_folder("f", {"draft_days": 3}), {"draft_days": 3})
        for setting, refusal in (
            ({"draft_days": 8}, "'draft_days' may be at most 7 in a folder's file"),
            ({"keep_drafts": False}, "'keep_drafts' can't be set by a folder's file"),
        ):
            with self.assertRaisesRegex(Invalid, refusal):
                check_folder("f", setting)
        self.assertIn("draft_days", allowed_in_folders())
        self.assertIn("`draft_days`", str(folder_rows()))
        self.assertEqual(setting_row("keep_drafts"), "| `keep_drafts` | drafts are kept | `true` |")


class ClientTests(HubTestCase):
    def test_what_it_reports_is_captured(self) -> None:
        reports: dict[str, dict[str, Any]] = {
            "Opened": {},
            "Asked": {"question": "Why?"},
            "Used": {"tool_name": "sh", "tool_input": {"line": "make"}, "outcome": "exit code 2"},
            "Answered": {"reply": "Because."},
            "Closed": {},
        }
        with self.store("alpha", actor="quill", source="hook"):
            for event, report in reports.items():
                data = {"session_id": "s1", "cwd": str(self.home), **report}
                capture(event=parse_hook(client="quill", event=event, data=data), idempotency_key=event)
            self.assertEqual(Session.objects.get().status, SessionStatus.COMPLETED)
            types = [event.event_type for event in RawEvent.objects.order_by("position")]
        wanted = ["session.started", "message.user", "command.run", "message.assistant", "turn.ended"]
        self.assertEqual([kind for kind in types if kind in wanted], wanted)
        self.assertLessEqual({"question", "line", "outcome", "reply"}, hook_names())

    def test_it_is_named_wherever_clients_are(self) -> None:
        operation = api.get_openapi_schema()["paths"]["/api/v1/hooks/{client}/{event}"]["post"]
        self.assertIn("quill", str(operation["parameters"]))
        row = (
            "| `quill` | `~/.quill/mcp.json`, hooks in `~/.quill/hooks.json` | `.quill/mcp.json`, `.quill/hooks.json` |"
        )
        self.assertEqual(client_row(find_client("quill")), row)
        words = recorded_as(hook_clients()["quill"].events["Used"])
        self.assertEqual(words, "`command.run` for `sh`; `message.tool` for other tools")
