"""The documents say all that is there, and nothing that is not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.test import SimpleTestCase
from pydantic import BaseModel

from memoryhub.config.project_settings import ProjectSettings
from memoryhub.core import errors
from memoryhub.core.events.event_types import EventType, event_types
from memoryhub.core.events.rollback import effects
from memoryhub.core.tools import all_resources, all_tools
from memoryhub.mcp.registry import listed_tools, load_tools
from memoryhub.rest.api import api

ROOT = Path(__file__).parents[1]


def document(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


class DocumentsTests(SimpleTestCase):
    def test_every_tool_is_in_its_profile_and_no_other_is_named(self):
        load_tools()
        rows = re.findall(r"^\| `(\w+)` \| (core|work|full) \|", document("mcp.md"), re.MULTILINE)
        documented = dict(rows)
        wanted: dict[str, str] = {}
        for profile in ("full", "work", "core"):
            wanted |= {tool.name: profile for tool in listed_tools(profile)}
        self.assertEqual(documented, wanted)

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

    def test_every_event_type_has_its_row(self):
        product = (known for known in event_types() if not known.schema.__module__.startswith("tests."))
        known = sorted(product, key=lambda known: (known.group.order, known.name))
        self.assert_table("events.md", "| event |", map(event_row, known))

    def test_every_effect_of_roll_back_has_its_row(self):
        rows = (f"| `{effect.step}` | {effect.words} |" for effect in effects().values())
        self.assert_table("events.md", "| step |", rows)

    def assert_table(self, name: str, head: str, wanted: Iterable[str]) -> None:
        """The rows below a head are just these; a failure shows the rows to paste."""
        table = document(name).partition(head)[2].partition("\n\n")[0].splitlines()[2:]
        rows = list(wanted)
        self.assertEqual(table, rows, "\n".join([f"docs/{name} should have these rows:", *rows]))

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
    rule = known.rollback
    words = ["set aside"] if rule.is_hidden else []
    words += [f"undo: `{rule.by}`"] if rule.by else []
    words += [f"stays: {rule.why}"] if rule.why else []
    treated = "; ".join(words) or "can't be selected"
    clients = "yes" if known.from_clients else ""
    return f"| `{known.name}` | {known.label} | {known.group.label} | {known.retention} | {treated} | {clients} |"


def shown(default: Any) -> str:
    """Return a setting's default as the documents write it: a group of numbers in their order."""
    if isinstance(default, BaseModel):
        return ", ".join(f"{value:g}" for value in default.model_dump().values())
    return str(default).lower() if isinstance(default, bool) else str(default)
