"""A kind, a tool, a setting or a client works everywhere once it is declared in one file."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from django.core.exceptions import ImproperlyConfigured
from django.test import SimpleTestCase, tag
from pydantic import Field, create_model

from memoryhub.config import project_settings
from memoryhub.core.events.event_types import event_types
from memoryhub.core.kinds import GUIDELINE, KINDS, Attribute, Kind, Show, Tone, ToolNames
from memoryhub.core.schemas import Payload
from tests.declarations.kind_checks import problems

ROOT = Path(__file__).parents[2]
# Existing tests must pass too: none may list kinds, tools, settings or clients by hand.
TESTS = (
    "tests.declarations.doors",
    "tests.admin.test_settings",
    "tests.sessions_app.test_settings",
    "tests.sessions_app.test_capture",
    "tests.setup.test_setup.SetupTests",
    "tests.mcp.test_calls.BudgetTests",
)
# Prints the names of all event types, sorted
_NAMES = """
import django
django.setup()
from memoryhub.core.events.event_types import event_types
print(*sorted(known.name for known in event_types()))
"""


class DeclarationTests(SimpleTestCase):
    @tag("process")
    def test_what_is_declared_in_one_file_works_everywhere(self) -> None:
        # Enums and schemas are made from the kinds at import, so these declarations need a process of their own.
        done = run_python(
            *("manage.py", "test", *TESTS),
            DJANGO_SETTINGS_MODULE="tests.declarations.invented",
            MEMORY_HUB_TEST_TOOLS="tests.declarations.invented_tool",
        )
        last = done.stdout.rstrip().rpartition("\n")[2]
        self.assertRegex(last, "^[1-9][0-9]* passed, 0 failed, [0-9]+ skipped$", done.stderr)

    def test_a_setting_without_a_group_fails_by_name(self) -> None:
        with self.assertRaisesRegex(ImproperlyConfigured, "^setting 'colour' declares no group"):

            class Colourful(project_settings.ProjectSettings):
                colour: str = "red"

    def test_the_guides_show_the_declarations(self) -> None:
        source = (ROOT / "tests/declarations/invented.py").read_text()
        kind = source[source.index("class RunbookAttributes") : source.index("# The web server's settings")]
        fields = source[source.index("    keep_drafts") : source.index("\n\nproject_settings")]
        client = source[source.index("[quill]") : source.index("[quill.hooks.events.Asked]")]
        for guide, declaration in (("kind", kind), ("setting-or-client", fields), ("setting-or-client", client)):
            self.assertIn(declaration.strip(), (ROOT / f"docs/internals/new-{guide}.md").read_text())

    def test_a_process_that_only_reads_a_store_knows_all_event_types(self) -> None:
        done = run_python("-c", _NAMES, DJANGO_SETTINGS_MODULE="memoryhub.settings_store")
        self.assertEqual(done.stdout.split(), sorted(known.name for known in event_types()), done.stderr)


def run_python(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip


class ToneTests(SimpleTestCase):
    def test_the_style_sheet_has_every_tone(self) -> None:
        style = (ROOT / "memoryhub/static/memoryhub/hub.css").read_text()
        for tone in set(Tone) - {Tone.GREY}:
            self.assertIn(f".tone-{tone} {{", style)


class KindDeclarationTests(SimpleTestCase):
    def declared(self, **changes: Any) -> Kind:
        declared = {field.name: getattr(GUIDELINE, field.name) for field in dataclasses.fields(Kind)}
        return Kind(**{**declared, "name": "rule", **changes})

    def refuses(self, problem: str, **changes: Any) -> None:
        self.assertRegex(next(problems(self.declared(**changes))), problem)

    def test_every_kind_is_complete(self) -> None:
        for kind in KINDS.values():
            with self.subTest(kind.name):
                self.assertEqual(list(problems(kind)), [])

    def test_what_is_left_out_is_named(self) -> None:
        names = {field.name for field in dataclasses.fields(Kind)}
        for field in dataclasses.fields(Kind):
            if field.default is dataclasses.MISSING:
                declared = {name: value for name, value in vars(self.declared()).items() if name in names}
                del declared[field.name]
                with self.subTest(field.name), self.assertRaisesRegex(TypeError, f"missing .* '{field.name}'"):
                    Kind(**declared)

    def test_what_is_left_empty_is_named(self) -> None:
        for name in ("label", "plural", "default_type", "text_label", "text_help", "add_label", "empty_text"):
            with self.subTest(name):
                self.refuses(f"declares no {name}", **{name: ""})

    def test_contradictions_are_named(self) -> None:
        wrong: dict[str, dict[str, Any]] = {
            "declared twice": {"name": "guideline"},
            "the name must be": {"name": "decision"},
            "'poem' is not one of its types": {"types": ("song",), "default_type": "poem"},
            "column 'weight' is neither an attribute": {"columns": ("weight",)},
            "filter 'rationale' is not valid_until": {"filters": ("rationale",)},
            "order 'weight' is neither": {"order": "weight"},
            "no panel_title for priority": {"panel_title": ""},
        }
        for problem, changes in wrong.items():
            with self.subTest(problem):
                self.refuses(problem, **changes)

    def test_what_is_wrong_with_an_attribute_is_named(self) -> None:
        wrong: dict[str, tuple[str, Any, Any]] = {
            "'size' has no default": ("size", int, Field(description="how much")),
            "'size' has no description": ("size", int, 1),
            "'tags' has the name of an argument": ("tags", str, Field("", description="words")),
            "'priority' has type string": ("priority", str, Field("", description="how important")),
            "'file' lists files, so it must be a list": (
                "file",
                Annotated[str, Attribute(lists_files=True)],
                Field("", description="a file"),
            ),
            "'size' is shown as a bar": (
                "size",
                Annotated[int, Attribute(show=Show.BAR)],
                Field(1, description="how much"),
            ),
        }
        for problem, (name, kind, default) in wrong.items():
            fields: dict[str, Any] = {name: (kind, default)}
            with self.subTest(problem):
                attributes = create_model("Attributes", __base__=Payload, **fields)
                self.refuses(
                    problem, attributes=attributes, columns=(), order="name", tools=ToolNames(nouns=("rule", "rules"))
                )
