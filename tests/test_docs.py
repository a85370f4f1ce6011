"""The documents say all that is there, and nothing that is not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.test import SimpleTestCase
from pydantic import BaseModel

from memoryhub.config.clients import Client, Effect, Hook, all_clients, hook_clients
from memoryhub.config.folder_file import allowed_in_folders, stricter_choices
from memoryhub.config.project_settings import InFolder, ProjectSettings, setting_info
from memoryhub.core import errors
from memoryhub.core.events.event_types import EventType, event_types
from memoryhub.core.events.rollback import effects
from memoryhub.core.tools import Tool, all_resources, all_tools
from memoryhub.mcp.options import PROFILES
from memoryhub.mcp.registry import listed_tools, load_tools
from memoryhub.rest.api import api

ROOT = Path(__file__).parents[1]


def document(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


class DocumentsTests(SimpleTestCase):
    def test_every_tool_has_its_row(self):
        load_tools()
        product = (tool for tool in listed_tools("full") if not tool.name.startswith("test_"))
        self.assert_table("mcp.md", "| tool | profile |", map(tool_row, product))

    def test_every_alias_and_resource_is_named(self):
        load_tools()
        text = document("mcp.md")
        for name in [alias for tool in all_tools() for alias in tool.aliases]:
            self.assertIn(f"`{name}`", text)
        for resource in all_resources():
            self.assertIn(f"`{resource.uri_template}`", text)

    def test_every_route_is_named(self):
        text = document("rest.md")
        for path in api.get_openapi_schema()["paths"]:
            self.assertIn(path.removeprefix("/api/v1").replace("{project_id}/", "{project_id}/"), text)

    def test_every_error_is_named_with_its_codes(self):
        text = document("errors.md")
        for error in errors.HubError.__subclasses__():
            self.assertIn(f"| `{error.code}` | {error.http_status} | {error.exit_code} |", text)

    def test_every_command_is_named_and_no_other(self):
        names = {path.stem for path in (ROOT / "memoryhub/management/commands").glob("[a-z]*.py")}
        documented = set(re.findall(r"^\| `(\w+)", document("cli.md"), re.MULTILINE))
        self.assertEqual(documented, names)

    def test_every_environment_variable_is_named(self):
        code = "\n".join(path.read_text() for path in (ROOT / "memoryhub").rglob("*.py"))
        used = set(re.findall(r"[\"'](MEMORY_HUB_(?!TEST_)[A-Z_]+)[\"']", code))
        documented = set(re.findall(r"^\| `(MEMORY_HUB_[A-Z_]+)`", document("settings.md"), re.MULTILINE))
        self.assertEqual(documented, used)

    def test_every_project_setting_is_named_with_its_default(self):
        text = document("settings.md")
        for name, field in ProjectSettings.model_fields.items():
            default = shown(field.get_default(call_default_factory=True))
            self.assertRegex(text, rf"\| `{name}` \|.*\| `?{re.escape(default)}`? \|")

    def test_every_setting_of_a_folder_has_its_row(self):
        self.assert_table("settings.md", "| setting | in a folder's file |", folder_rows())

    def test_every_event_type_has_its_row(self):
        product = (known for known in event_types() if not known.schema.__module__.startswith("tests."))
        known = sorted(product, key=lambda known: (known.group.order, known.name))
        self.assert_table("events.md", "| event |", map(event_row, known))

    def test_every_effect_of_roll_back_has_its_row(self):
        rows = (f"| `{effect.step}` | {effect.words} |" for effect in effects().values())
        self.assert_table("events.md", "| step |", rows)

    def test_every_client_has_its_row(self):
        self.assert_table("mcp.md", "| client | the user's file |", map(client_row, all_clients().values()))

    def test_every_hook_has_its_row(self):
        rows = (
            f"| `{client}` | `{event}` | {words_of(hook)} |"
            for client, hooks in hook_clients().items()
            for event, hook in hooks.events.items()
        )
        self.assert_table("hooks.md", "| client | event |", rows)

    def assert_table(self, name: str, head: str, wanted: Iterable[str]) -> None:
        """Compare the rows below a head, or with ``make docs`` write them."""
        rows = "".join(f"{row}\n" for row in wanted)
        table = re.compile(rf"({re.escape(head)}.*\n\|[-|]+\n)((?:\|.*\n)*)")
        if os.environ.get("MEMORY_HUB_TEST_WRITE_DOCS"):
            written = table.sub(lambda found: found[1] + rows, document(name))
            (ROOT / "docs" / name).write_text(written)
        self.assertEqual([found[1] for found in table.findall(document(name))], [rows], "run: make docs")

    def test_every_link_leads_somewhere(self):
        for page in [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]:
            for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
                self.assertTrue((page.parent / target).exists(), f"{page.name} → {target}")

    def test_every_dependency_has_its_line(self):
        project = (ROOT / "pyproject.toml").read_text()
        text = document("dependencies.md")
        for name in re.findall(r'^    "([a-zA-Z0-9-]+)[><=]', project, re.MULTILINE):
            self.assertIn(name.lower(), text.lower())


def event_row(known: EventType[Any]) -> str:
    """Return the row of a type in ``docs/events.md``."""
    rule = known.rollback
    words = ["set aside"] if rule.is_hidden else []
    words += [f"undo: `{rule.by}`"] if rule.by else []
    words += [f"stays: {rule.why}"] if rule.why else []
    treated = "; ".join(words) or "can't be selected"
    clients = "yes" if known.from_clients else ""
    return f"| `{known.name}` | {known.label} | {known.group.label} | {known.retention} | {treated} | {clients} |"


def tool_row(tool: Tool) -> str:
    """Return the row of a tool in ``docs/mcp.md``."""
    profile = next(profile for profile in PROFILES if tool in listed_tools(profile))
    return f"| `{tool.name}` | {profile} | {tool.description} |"


def folder_rows() -> list[str]:
    """Return the rows of what a folder's file may set, in ``docs/settings.md``."""
    allowed: dict[str, list[str]] = {}
    for name in allowed_in_folders():
        choices = ", ".join(f"`{choice}`" for choice in stricter_choices(name)) or "the default or less"
        value = "any value" if setting_info(name).in_folder is InFolder.ANY else choices
        allowed.setdefault(value, []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {value} |" for value, names in allowed.items()]
    return [*rows, "| all others | refused |"]


def client_row(client: Client) -> str:
    """Return the row of a client in ``docs/mcp.md``."""
    hooks = client.hooks
    user = places(client.user)
    if hooks:
        user += ", hooks too" if hooks.user == client.user else f", hooks in {places(hooks.user)}"
    repository = {client.repository, hooks.repository if hooks else client.repository} - {""}
    return f"| `{client.id}` | {user} | {', '.join(f'`{path}`' for path in sorted(repository, reverse=True))} |"


def places(templates: Iterable[str]) -> str:
    """Return where a file may be, as one would type it on Linux."""
    folders = {"home": "~", "config": "~/.config", "applications": "~/.config"}
    paths = (re.sub(r"{(\w+)}", lambda name: folders.get(name[1], f"${name[1]}"), path) for path in templates)
    return " or ".join(f"`{path}`" for path in paths)


def words_of(hook: Hook) -> str:
    """Return what becomes of a hook's event."""
    if hook.effect is Effect.TOOL:
        tools = {"command.run": list(hook.commands), "file.edited": list(hook.edits)}
        known = [f"`{kind}` of {', '.join(f'`{name}`' for name in names)}" for kind, names in tools.items() if names]
        return "; ".join([*known, "`message.tool` of any other tool" if known else "`message.tool`"])
    return _OF_EFFECTS[hook.effect].format(hook.type)


_OF_EFFECTS = {
    Effect.START: "the session begins, or goes on if it is known; answered with the pack",
    Effect.PROMPT: "the turn before ends, the next begins: `{}`",
    Effect.APPEND: "`{}`",
    Effect.STOP: "`{}`, and the turn ends",
    Effect.END: "the session ends, with a summary of what is known of it if nobody wrote one",
}


def shown(default: Any) -> str:
    """Return a setting's default as the documents write it: a group of numbers in their order."""
    if isinstance(default, BaseModel):
        return ", ".join(f"{value:g}" for value in default.model_dump().values())
    return str(default).lower() if isinstance(default, bool) else str(default)
