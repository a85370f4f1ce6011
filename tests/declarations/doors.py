"""Tests of the invented tool, settings and client; ``test_declarations`` runs them in a process that declares these."""

from __future__ import annotations

from typing import Any, ClassVar

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
from tests.mcp.client import McpTestCase, Server
from tests.mcp.test_forged_lines import EveryToolTests
from tests.support import HubTestCase
from tests.test_docs import client_row, folder_rows, recorded_as, setting_row, tool_row

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
