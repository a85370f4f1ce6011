from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from django.core.exceptions import ImproperlyConfigured
from django.test import SimpleTestCase, tag
from pydantic import Field

from memoryhub.core.kinds.attributes import Attribute, Show
from memoryhub.core.kinds.builtin import GUIDELINE
from memoryhub.core.kinds.definition import Entry, Kind, Tone, define_kind
from memoryhub.core.schemas import Payload

ROOT = Path(__file__).parents[2]


@tag("process")
class NewKindTests(SimpleTestCase):
    def test_a_kind_that_is_declared_in_one_file_works_everywhere(self) -> None:
        # Enums and schemas are made from the kinds at import, so the new one needs a process of its own.
        command = [sys.executable, "manage.py", "test", "tests.kinds.doors"]
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.kinds.invented"}
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        self.assertRegex(
            run.stdout.rstrip().splitlines()[-1], "^[1-9][0-9]* passed, 0 failed, [0-9]+ skipped$", run.stderr
        )

    def test_the_guide_shows_the_declaration(self) -> None:
        source = (ROOT / "tests/kinds/invented.py").read_text()
        declaration = source[source.index("class RunbookAttributes") : source.index("# The settings")]
        self.assertIn(declaration.strip(), (ROOT / "docs/internals/new-kind.md").read_text())


class ToneTests(SimpleTestCase):
    def test_the_style_sheet_has_every_tone(self) -> None:
        style = (ROOT / "memoryhub/static/memoryhub/hub.css").read_text()
        for tone in set(Tone) - {Tone.GREY}:
            self.assertIn(f".tone-{tone} {{", style)


class DeclarationTests(SimpleTestCase):
    def declared(self, **changes: Any) -> Kind:
        declared = {field.name: getattr(GUIDELINE, field.name) for field in dataclasses.fields(Kind)}
        return Kind(**{**declared, "name": "rule", **changes})

    def refuses(self, problem: str, **changes: Any) -> None:
        with self.assertRaisesRegex(ImproperlyConfigured, f"^kind '{changes.get('name', 'rule')}': .*{problem}"):
            define_kind(self.declared(**changes))

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
            "declared after": {},
        }
        for problem, changes in wrong.items():
            with self.subTest(problem):
                self.refuses(problem, **changes)

    def test_what_is_wrong_with_an_attribute_is_named(self) -> None:
        class Required(Payload):
            size: int = Field(description="how much")

        class Undescribed(Payload):
            size: int = 1

        class Taken(Payload):
            tags: str = Field("", description="words")

        class OtherType(Payload):
            priority: str = Field("", description="how important")

        class NoFiles(Payload):
            file: Annotated[str, Attribute(governs=True)] = Field("", description="a file")

        class Endless(Payload):
            size: Annotated[int, Attribute(show=Show.BAR)] = Field(1, description="how much")

        wrong: dict[str, type[Payload]] = {
            "'size' has no default": Required,
            "'size' has no description": Undescribed,
            "'tags' has the name of an argument": Taken,
            "'priority' has type string": OtherType,
            "'file' governs files, so it must be a list": NoFiles,
            "'size' is shown as a bar": Endless,
        }
        for problem, attributes in wrong.items():
            with self.subTest(problem):
                self.refuses(problem, attributes=attributes, columns=(), order="name", entry=Entry(noun="rule"))
