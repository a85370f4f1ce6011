"""What a kind, a tool, a setting and a client get by being declared, in the process of ``test_declarations``."""

from __future__ import annotations

from typing import Any, ClassVar

from django.apps import apps
from django.db import connection
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations import AlterField, CreateModel
from django.db.migrations.state import ProjectState

from memories.pack import pack_context
from memories.schemas.query import ContextPackRequest
from memoryhub.config.clients import find_client, hook_clients
from memoryhub.config.current_settings import project_settings
from memoryhub.config.folder_file import allowed_in_folders, check_folder
from memoryhub.core.errors import Invalid
from memoryhub.core.models import RawEvent
from memoryhub.core.tools import find_tool
from memoryhub.mcp.registry import load_tools
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
from tests.mcp.case import McpTestCase, Server
from tests.mcp.test_forged_lines import EveryToolTests
from tests.support import HubTestCase
from tests.test_docs import client_row, folder_rows, recorded_as, setting_row, tool_row

__all__ = ["EveryToolTests"]

OWN: dict[str, Any] = {
    "severity": "high",
    "rehearsed": True,
    "minutes": 45,
    "warnings": "mind the zebra crossing",
    "files": ["backup/restore.sh"],
}
RUNBOOK: dict[str, Any] = {"kind": "runbook", "type": "restore", "attributes": OWN}


def missing(page: str, *parts: str) -> list[str]:
    return [part for part in parts if part not in page]


class McpTests(McpTestCase):
    server: ClassVar[Server]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.share_server("--project", "alpha", "--profile", "full")

    def test_tools_describe_take_and_find_it(self) -> None:
        say = self.server.say
        tools = {tool["name"]: tool for tool in self.server.ask("tools/list")["result"]["tools"]}
        arguments = tools["memory_write"]["inputSchema"]["properties"]
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
    def test_routes_take_and_find_it(self) -> None:
        runbook = self.write("Restore", "restore --latest", **RUNBOOK)
        self.write("A note", "nothing about restoring")
        for query in ("memories?kind=runbook", "memories?kind=runbook&type=restore", "search?q=zebra&kind=runbook"):
            found = self.call("GET", f"projects/alpha/{query}").data["results"]
            self.assertEqual([hit["id"] for hit in found], [runbook], query)
        self.call(
            "POST", "projects/alpha/memories", {**RUNBOOK, "title": "x", "content": "y", "type": "poem"}, expect=422
        )
        self.call("GET", "projects/alpha/memories?kind=runbooks", expect=422)

    def test_openapi_names_it(self) -> None:
        schemas = api.get_openapi_schema()["components"]["schemas"]
        for name in ("MemoryKind", "RelatedType", "EntryType"):
            self.assertIn("runbook", schemas[name]["enum"], name)

    def test_json_that_was_read_can_be_written_to_another_project(self) -> None:
        first = self.write("Restore", "restore --latest", tags=["ops"], **RUNBOOK)
        read = self.call("GET", f"projects/alpha/memories/{first}").data
        fields = {name: read[name] for name in ("kind", "type", "title", "content", "attributes", "tags")}
        second = self.call("POST", "projects/beta/memories", fields, expect=201).data["id"]
        again = self.call("GET", f"projects/beta/memories/{second}").data
        self.assertEqual({name: again[name] for name in fields}, fields)


class AdminTests(AdminTestCase):
    def test_pages_list_filter_and_order_it(self) -> None:
        high = self.write("Restore", "restore --latest", **RUNBOOK)
        low = self.write("Deploy", "make deploy", kind="runbook", type="deploy", attributes={"minutes": 5})
        self.write("A note")
        listed = "memories/runbook/"
        self.assertEqual(self.listed(listed), [low, high])
        self.assertEqual(self.listed(listed, severity="high"), [high])
        self.assertEqual(self.listed(listed, severity="low"), [low])
        self.assertEqual(self.listed(listed, rehearsed="yes"), [high])
        self.assertEqual(self.listed(listed, rehearsed="no"), [low])
        self.assertEqual(self.listed(listed, type="restore"), [high])
        self.assertEqual(self.listed(listed, o="-6"), [high, low])
        self.assertEqual(self.memories(kind="runbook"), [low, high])
        page = self.page(listed)
        named = ('aria-current="page">Runbooks</a>', "Write a runbook", "2 runbooks", 'class="gauge-number">45<', "Yes")
        self.assertEqual(missing(page, *named), [])
        self.assertIn("No runbooks yet", self.page(listed, project="beta"))

    def test_a_person_writes_reads_and_edits_one(self) -> None:
        form = self.page("memories/runbook/add/")
        named = ("Steps", "One command a line, as you would type it.", "Someone has tried it.", "Incident", "Severity")
        self.assertEqual(missing(form, *named), [])
        own: dict[str, Any] = {
            "severity": "high",
            "rehearsed": "on",
            "minutes": "45",
            "warnings": "zebra",
            "files": ["a.sh", ""],
        }
        typed = {
            "title": "Restore",
            "content": "# not a heading",
            "type": "restore",
            "tags": "",
            "source": "",
            "links": "",
        }
        self.assertIn("Created #1.", self.post("memories/runbook/add/", **typed, **own))
        kept = {"severity": "high", "rehearsed": True, "minutes": 45, "warnings": "zebra", "files": ["a.sh"]}
        self.assertEqual(self.memory(1).attributes, kept)
        page = self.page("memories/memory/1/change/")
        shown = ('badge-runbook tone-amber">Runbook<', '<pre class="json" tabindex="0"># not a heading</pre>')
        self.assertEqual(missing(page, *shown), [])
        words = ("When it is needed", "Rehearsed Yes", "of 240", "Warnings zebra", "Files that it is about a.sh")
        self.assertEqual(missing(text_of(page), *words), [])
        unchecked = {name: value for name, value in own.items() if name not in ("rehearsed", "severity")}
        changed = {**typed, **unchecked, "severity": "low", "base_version": "1", "change_reason": ""}
        self.assertIn("Saved version 2.", self.post("memories/memory/1/edit/", **changed))
        self.assertEqual(self.memory(1).attributes, {"minutes": 45, "warnings": "zebra", "files": ["a.sh"]})

    def test_the_overview_the_search_and_retention_offer_it(self) -> None:
        self.write("Restore", **RUNBOOK)
        self.assertRegex(text_of(self.page()), r"Runbook 1\b")
        self.assertIn('<option value="runbook">Runbook</option>', self.page("memories/searchdocument/"))
        self.assertIn('<option value="runbook">Runbook</option>', self.page("governance/retentionrun/"))


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
    def test_it_is_previewed_rolled_back_and_rebuilt(self) -> None:
        runbook = self.write("Restore", rolled_back=True, **RUNBOOK)
        (step,) = self.preview().steps
        self.assertEqual((step.do, step.id), ("quarantine", runbook))
        self.roll_back()
        self.assertNotIn("Restore", pack_context(command=ContextPackRequest()).text)
        self.assert_rebuilds()


class PackTests(RollbackTestCase):
    def test_it_has_its_section(self) -> None:
        self.write("Restore", **RUNBOOK)
        sections = pack_context(command=ContextPackRequest()).data()["sections"]
        (line,) = sections["runbooks"]["items"]
        self.assertRegex(line, r"#\d+ restore: Restore: Restore, it says\.$")
        self.assertNotIn("facts", sections)


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


__all__ = ["EveryToolTests"]


class ToolTests(McpTestCase):
    tools_module = "tests.declarations.invented_tool"
    server: ClassVar[Server]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.server = cls.share_server("--project", "alpha", "--profile", "work")

    def test_it_is_listed_and_answers(self) -> None:
        self.assertIn("memory_count", [tool["name"] for tool in self.server.ask("tools/list")["result"]["tools"]])
        self.server.say("memory_write", title="One", content="one")
        self.assertEqual(self.server.say("memory_count"), "memories: 1")

    def test_the_documents_get_its_row(self) -> None:
        load_tools()
        tool = find_tool("memory_count")
        assert tool
        self.assertEqual(tool_row(tool), "| `memory_count` | work | Count this project's memories. |")


class SettingTests(AdminTestCase):
    def test_each_has_a_field_in_its_group(self) -> None:
        _, _, html = self.page("settings/").partition(">Retention</h2>")
        retention = text_of(html.partition(">Secrets</h2>")[0])
        self.assertIn("Keep drafts Drafts are kept. Yes No Default", retention)
        self.assertIn("Draft days Days after which a draft is deleted.", retention)

    def test_each_is_set_and_read(self) -> None:
        with self.store("alpha"):
            change_settings(command=SettingsChange(settings={"keep_drafts": False, "draft_days": 3}))
            settings = project_settings().model_dump()
            self.assertEqual((settings["keep_drafts"], settings["draft_days"]), (False, 3))
            with self.assertRaisesRegex(Invalid, "'draft_days' must be at most 365"):
                change_settings(command=SettingsChange(settings={"draft_days": 366}))

    def test_a_folders_file_may_set_what_they_allow(self) -> None:
        self.assertEqual(check_folder("f", {"draft_days": 3}), {"draft_days": 3})
        with self.assertRaisesRegex(Invalid, "'draft_days' may be at most 7 in a folder's file"):
            check_folder("f", {"draft_days": 8})
        with self.assertRaisesRegex(Invalid, "'keep_drafts' can't be set by a folder's file"):
            check_folder("f", {"keep_drafts": False})
        self.assertIn("draft_days", allowed_in_folders())
        self.assertIn("`draft_days`", str(folder_rows()))

    def test_the_documents_get_their_rows(self) -> None:
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
